"""Baselines with a helper: systems that need a third party beside devices and server. One file is one baseline.

Each file documents what its helper sees; no plan that needs one is private towards it.
"""
