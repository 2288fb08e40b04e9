"""Nets: functions of arrays, textbook material. No person, no protocol, no network."""
