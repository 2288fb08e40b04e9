"""Counts: pairs of items, transitions, neighbours, staying and leaving."""
