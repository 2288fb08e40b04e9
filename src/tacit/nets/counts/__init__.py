"""Counts: item pairs, transitions, the choice to stay with an item or leave it."""
