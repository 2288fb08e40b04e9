"""Nets: pure functions of arrays, textbook material. No users, no protocol, no network."""
