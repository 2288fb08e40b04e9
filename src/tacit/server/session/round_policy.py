"""Round policy: when a round of a deployment closes, and what happens where too few devices report."""

from dataclasses import dataclass, fields

from tacit.errors import PlanError


@dataclass(frozen=True)
class RoundPolicy:
    """The rules by which a round closes.

    The cohort is drawn by the plan, because the price depends on it. To sample more people than are needed, let the plan
    sample them and set `goal` below 1.

    >>> RoundPolicy(goal=0.8).enough(reported=8, asked=10)
    True
    """

    goal: float = 1.0  # the share of the cohort at which a round may close
    minimum: int = 1  # people: with fewer reports nothing is released
    deadline: float = 600.0  # seconds after which a round closes with the reports it has, or is abandoned
    grace: float = 0.0  # seconds a round stays open after its goal, for reports on their way
    tries: int = 3  # how often a round is abandoned before the run stops
    rest: int = 1  # rounds that a node is left out after it failed or was too slow
    wait: float = 600.0  # seconds to wait for people to enrol
    least: float = 1.0  # the share of the plan's population that must have enrolled before the first round

    def __post_init__(self):
        for field in fields(self):
            value = getattr(self, field.name)
            above = field.name in ("goal", "deadline", "tries", "least")
            if isinstance(value, bool) or not (value > 0 if above else value >= 0):
                rule = "above 0" if above else "at least 0"
                raise PlanError(f"RoundPolicy.{field.name} must be {rule}, got {value!r}.")
        for name in ("goal", "least"):
            if getattr(self, name) > 1:
                raise PlanError(f"RoundPolicy.{name} is a share, at most 1, got {getattr(self, name)!r}.")

    def enough(self, reported: int, asked: int) -> bool:
        """Whether a round has reached its goal."""
        return reported >= self.goal * asked
