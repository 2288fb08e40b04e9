"""Switching: how strongly priors and recency count for a method that tells staying from leaving."""

from tacit.core.catalog import Catalog
from tacit.core.settings import setting
from tacit.device.method import Method
from tacit.nets.counts.stay_or_leave import Strengths


class StayOrSwitch(Method):
    """The settings of `nets/switch`, for every method that stands on it."""

    catalog: Catalog
    arrivals: float = setting(20.0, above=0.0)  # κ₁: how many events the prior of where to go counts
    steps: float = setting(20.0, above=0.0)  # κ₂: and where to go at all, for where to go from here
    stays: float = setting(5.75, above=0.0)  # κs: and the prior of staying
    stay: float = setting(0.5)  # c₀: log odds of staying before anything is known
    temper: float = setting(0.7, at_least=0.0)  # weight of the log probability beside recency
    first: float = setting(1.6)  # added for the item used before this one in the session,
    second: float = setting(1.5)  # for the one before that,
    older: float = setting(1.1)  # and for any other that was used in it
    installed: int = setting(128, at_least=1)  # the most items counted: those used most

    @property
    def counts(self) -> Strengths:
        """As `log_odds` takes them."""
        bonus = (self.first, self.second, self.older)
        return Strengths(self.arrivals, self.steps, self.stays, self.stay, self.temper, bonus)
