"""Audits: attacks and canaries, checked against the truth that only the lab has."""
