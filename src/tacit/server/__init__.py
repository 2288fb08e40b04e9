"""Server: sees reports. It holds a plan, parameters, a running total and a rule; it does not know the method."""
