"""Ledgers: what was spent, durably."""
