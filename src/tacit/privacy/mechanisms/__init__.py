"""Mechanisms: one file is one mechanism, named as the file; helpers are in `_parts`."""
