"""Events: what happened to one device's data, as accounting needs it. The sampler makes them, not the user.

An ε holds between certain neighbours, so a pure event states which; the accountant converts it to those of the total before
it composes. Noise is the same for all neighbours, so the other events need not state them.

`noise` is the standard deviation of the noise divided by the most one device can contribute in L2 norm (the clip
bound), whatever the neighbouring relation; how much two neighbours can differ (once the bound, or twice) is the
accountant's business. `apart` is how far two contributions can be from each other, in bounds: 2 where they may be opposite,
√2 where no number is negative. It matters where one is replaced by the other.

`gap` is how far, in total variation, what was sent may be from what is priced: tables of finite precision draw the noise.
`silence` is a chance too, for each round: that a device which was drawn at random had answered often enough and kept silent.
The accountant takes both off δ.
"""

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal

from tacit.errors import PlanError

LEAST_DELTA = 1e-15  # a smaller δ is lost in the rounding of bounds, and in the tables that draw noise
Relation = Literal["replace_one", "add_remove", "zero_out", "one_sided_1_to_0"]


@dataclass(frozen=True)
class Pure:
    """One message with pure ε between any two neighbours: of a device's inputs, or of single interactions.

    Under `replace_one` a unit is replaced by any other, an empty one included. Under `add_remove` one is added or removed;
    to replace it is to remove it and to add another, which costs twice as much.
    """

    kind: ClassVar[str] = "pure"
    epsilon: float
    parts: int = 1  # independent parts of epsilon / parts each, which compose more tightly
    relation: Literal["replace_one", "add_remove"] = "replace_one"
    gap: float = 0.0


@dataclass(frozen=True)
class Gaussian:
    """One message, or one sum in which every device takes part, with Gaussian noise."""

    kind: ClassVar[str] = "gaussian"
    noise: float
    gap: float = 0.0
    apart: float = 2.0


@dataclass(frozen=True)
class PoissonGaussian:
    """One sum over a cohort for which each device was drawn independently (Poisson sampling), with Gaussian noise."""

    kind: ClassVar[str] = "poisson_gaussian"
    noise: float
    rate: float
    gap: float = 0.0
    silence: float = 0.0


@dataclass(frozen=True)
class FixedGaussian:
    """One sum over a cohort of fixed size, drawn without replacement, with Gaussian noise."""

    kind: ClassVar[str] = "fixed_gaussian"
    noise: float
    cohort: int
    devices: int
    gap: float = 0.0
    silence: float = 0.0
    apart: float = 2.0


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
    gap: float = 0.0

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
class SplitGaussian:
    """One of the `rounds` sums of a stage that share one bound: how long a device's part of each may be follows from the sums before.

    They are priced together, because the squared lengths never sum to more than 1: all rounds together are one Gaussian event
    of this noise (fully adaptive composition: Smith and Thakurta 2022, Koskela, Tobaben and Honkela 2023).
    """

    kind: ClassVar[str] = "split_gaussian"
    noise: float
    rounds: int
    gap: float = 0.0
    apart: float = 2.0


@dataclass(frozen=True)
class FixedPure:
    """One sum over a cohort of fixed size, drawn without replacement, with noise that is pure ε for its members."""

    kind: ClassVar[str] = "fixed_pure"
    epsilon: float
    cohort: int
    devices: int
    gap: float = 0.0
    silence: float = 0.0


@dataclass(frozen=True)
class Unbounded:
    """Something was sent that no finite ε covers."""

    kind: ClassVar[str] = "unbounded"
    why: str


@dataclass(frozen=True)
class RawData(Unbounded):
    """A whole history was seen as raw data; there was no message, so there are no bytes to count."""

    kind: ClassVar[str] = "raw_data"


Event = Pure | Gaussian | PoissonGaussian | FixedGaussian | CorrelatedGaussian | SplitGaussian | FixedPure | Unbounded
Spent = tuple[tuple[Event, int], ...]  # the events, and how often each happened
Drawn = PoissonGaussian | FixedGaussian | FixedPure  # sums over cohorts that were drawn at random
_KINDS = {
    kind.kind: kind
    for kind in (
        *(Pure, Gaussian, PoissonGaussian, FixedGaussian, CorrelatedGaussian, SplitGaussian),
        *(FixedPure, Unbounded, RawData),
    )
}


def undrawn(event: Event) -> Event:
    """The same sum for a device that takes part whatever was drawn: nothing is amplified by sampling.

    >>> undrawn(FixedGaussian(2.0, 1, 9))
    Gaussian(noise=2.0, gap=0.0, apart=2.0)
    """
    match event:
        case FixedGaussian():
            return Gaussian(event.noise, event.gap, event.apart)
        case PoissonGaussian():
            return Gaussian(event.noise, event.gap)
        case FixedPure():
            return Pure(event.epsilon, gap=event.gap)
        case _:
            return event


def distance(event: Event, relation: Relation) -> float:
    """How far two neighbours' contributions can be from each other, in bounds: a contribution, or two of them."""
    return getattr(event, "apart", 2.0) if relation == "replace_one" else 1.0


def check_least_delta(delta: float, where: str) -> None:
    """Refuse a δ above 0 that is too small to be accounted for."""
    if 0 < delta < LEAST_DELTA:
        raise PlanError(
            f"{where} must be 0, for pure ε, or at least {LEAST_DELTA:g}, below which rounding decides, got {delta!r}."
        )


def event_to_dict(event: Event) -> dict[str, Any]:
    """Plain values, for JSON; those at their default are left out.

    >>> event_to_dict(Pure(1.0, relation="add_remove"))
    {'kind': 'pure', 'epsilon': 1.0, 'relation': 'add_remove'}
    """
    values = {field.name: getattr(event, field.name) for field in fields(event)}
    return {
        "kind": event.kind,
        **{field.name: values[field.name] for field in fields(event) if values[field.name] != field.default},
    }


def event_from_dict(values: dict[str, Any], relation: Relation = "replace_one") -> Event:
    """The event of those plain values. `relation` is that of the entry it is in: older ones have it there alone."""
    rest = dict(values)
    kind = _KINDS[rest.pop("kind")]
    if kind is Pure and relation == "add_remove":
        rest = {"relation": relation, **rest}
    return kind(**rest)
