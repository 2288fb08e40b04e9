"""Accounting: what many events cost together."""
