"""Runs: what a simulation leaves: the parameters, the homes, the ledgers, and a folder that reloads."""
