"""Server: sees reports. It holds a plan, parameters, a running total and a rule; it does not know the method."""

import tacit.server.reaverage  # noqa: F401 - it stands on the rules, and adds itself to them
