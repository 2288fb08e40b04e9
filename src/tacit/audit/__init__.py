"""Audit: what somebody who reads messages finds out. It sees the wire, the broadcast and the plan; never a device."""
