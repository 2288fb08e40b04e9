"""Experiments: trials, comparisons, tuning, online cycles, the bench."""
