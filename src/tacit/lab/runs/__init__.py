"""Runs: what a simulation returns, its recommendations, and its folder on disk."""
