"""Server: sees reports. It has a plan, parameters, a running total and a rule; it does not know the method."""
