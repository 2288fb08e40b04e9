"""Evaluation: splits, candidates, protocols, scoring, statistics."""
