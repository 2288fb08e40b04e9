"""Simulation: the engine that runs every device's own code on one machine."""
