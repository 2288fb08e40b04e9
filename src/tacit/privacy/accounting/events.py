"""Events: what happened to one device's data, as accounting needs it. The sampler makes them, not the user.

`noise` is the standard deviation of the noise divided by the most one device can contribute in L2 norm (the clip
bound), whatever the neighbouring relation; how much two neighbours can differ (once the bound, or twice) is the
accountant's business.
"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal

Relation = Literal["replace_one", "add_remove", "zero_out", "one_sided_1_to_0"]


@dataclass(frozen=True)
class Pure:
    """One message with pure ε between any two inputs of one device."""

    kind: ClassVar[str] = "pure"
    epsilon: float
    parts: int = 1  # independent parts of epsilon / parts each, which compose more tightly


@dataclass(frozen=True)
class Gaussian:
    """One message, or one sum in which every device takes part, with Gaussian noise."""

    kind: ClassVar[str] = "gaussian"
    noise: float


@dataclass(frozen=True)
class PoissonGaussian:
    """One sum over a cohort for which each device was drawn independently (Poisson sampling), with Gaussian noise."""

    kind: ClassVar[str] = "poisson_gaussian"
    noise: float
    rate: float


@dataclass(frozen=True)
class FixedGaussian:
    """One sum over a cohort of fixed size, drawn without replacement, with Gaussian noise."""

    kind: ClassVar[str] = "fixed_gaussian"
    noise: float
    cohort: int
    devices: int


@dataclass(frozen=True)
class CorrelatedGaussian:
    """One of the `rounds` sums of a stage whose Gaussian noise is correlated between rounds (the matrix mechanism).

    They are priced together: `noise` is in units of the most that one device can change all of them by, with at most
    `reports` reports, at least `separation` rounds apart. All rounds together are one Gaussian event of this noise.
    """

    kind: ClassVar[str] = "correlated_gaussian"
    noise: float
    rounds: int
    reports: int
    separation: int

    def refuses(self, round: int, reported: Iterable[int]) -> str:
        """Why a device that has reported in these rounds must not report in this one as well; empty where it may."""
        rounds = list(reported)
        if len(rounds) >= self.reports:
            return f"at most {self.reports} reports of one device are priced, and it has sent {len(rounds)}"
        nearest = min(rounds, key=lambda other: abs(other - round), default=None)
        if nearest is not None and abs(nearest - round) < self.separation:
            return f"reports must be at least {self.separation} rounds apart, and it has reported in round {nearest}"
        return ""


@dataclass(frozen=True)
class FixedPure:
    """One sum over a cohort of fixed size, drawn without replacement, with noise that is pure ε for its members."""

    kind: ClassVar[str] = "fixed_pure"
    epsilon: float
    cohort: int
    devices: int


@dataclass(frozen=True)
class Unbounded:
    """Something was sent that no finite ε covers."""

    kind: ClassVar[str] = "unbounded"
    why: str


@dataclass(frozen=True)
class RawData(Unbounded):
    """A whole history was seen as raw data; there was no message, so there are no bytes to count."""

    kind: ClassVar[str] = "raw_data"


Event = Pure | Gaussian | PoissonGaussian | FixedGaussian | CorrelatedGaussian | FixedPure | Unbounded
Spent = tuple[tuple[Event, int], ...]  # the events, and how often each happened
_KINDS = {
    kind.kind: kind
    for kind in (Pure, Gaussian, PoissonGaussian, FixedGaussian, CorrelatedGaussian, FixedPure, Unbounded, RawData)
}


def event_to_dict(event: Event) -> dict[str, Any]:
    """Plain values, for JSON.

    >>> event_to_dict(Pure(1.0))
    {'kind': 'pure', 'epsilon': 1.0, 'parts': 1}
    """
    return {"kind": event.kind, **asdict(event)}


def event_from_dict(values: dict[str, Any]) -> Event:
    """The event of those plain values."""
    rest = dict(values)
    return _KINDS[rest.pop("kind")](**rest)
