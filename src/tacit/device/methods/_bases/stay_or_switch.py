"""Stay or switch: prior strengths and recency bonuses for methods that model staying with an item."""

from tacit.core.catalog import Catalog
from tacit.core.settings import setting
from tacit.device.method import Method
from tacit.nets.counts.stay_or_leave import Strengths


class StayOrSwitch(Method):
    """The settings of `nets.counts.stay_or_leave`."""

    catalog: Catalog
    arrivals: float = setting(20.0, above=0.0)  # κ₁: strength of the prior of arrivals, in events
    steps: float = setting(20.0, above=0.0)  # κ₂: strength of the arrivals as prior of transitions from one item
    stays: float = setting(5.75, above=0.0)  # κs: strength of the prior of staying
    stay: float = setting(0.5)  # c₀: prior log-odds of staying
    temper: float = setting(0.7, at_least=0.0)  # weight of the log probability beside recency
    first: float = setting(1.6)  # bonus of the item used before this one in the session,
    second: float = setting(1.5)  # of the one before that,
    older: float = setting(1.1)  # and of older ones
    installed: int = setting(128, at_least=1)  # the most items counted: those used most

    @property
    def counts(self) -> Strengths:
        """The arguments of `next_item_log_odds`."""
        bonus = (self.first, self.second, self.older)
        return Strengths(self.arrivals, self.steps, self.stays, self.stay, self.temper, bonus)
