"""Audit: what an attacker who reads messages finds out. It sees the messages, the broadcast and the plan; never a device."""
