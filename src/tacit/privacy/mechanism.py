"""Mechanism: the device half and the server half of one way to send an update, in one object, so that they cannot disagree.

A mechanism is a file in `privacy/mechanisms` that defines one Mechanism; the file name is the mechanism's name.
"""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, NamedTuple

import equinox as eqx
import jax

import tacit.privacy.mechanisms
from tacit.core.plugins import Plugins
from tacit.core.settings import fill, setting
from tacit.privacy.accounting.events import Event
from tacit.privacy.claim import Claim, Unit
from tacit.privacy.sampler import Exposure

Wire = Literal["dense", "rows"]


class Spread(NamedTuple):
    """How loud the estimated mean update of a cohort can be, and how noisy it is; both for one number of it."""

    signal: float  # the largest root mean square that bounded updates allow, when all devices agree
    noise: float  # the standard deviation of the estimate


class Mechanism(eqx.Module):
    """How an update is bounded, randomised, summed and estimated.

    `zero`, `add` and `merge` are a commutative monoid in payload space, so a cohort can be folded in chunks, in any
    order, with silent devices masked. `estimate` returns (sum, weight): for every weight, the estimate of
    Σ weight·update with a leading axis k, and Σ weight; the rule decides between sum and mean.

    A plan's settings become a mechanism in two steps: `build_mechanism` checks them one by one, `settle` finds the
    noise that keeps the plan's promise for so many devices and rounds, and refuses a promise it cannot keep.
    """

    messages: eqx.AbstractVar[int | None]  # a device's allowance in this stage: reports it will ever send
    wire: eqx.AbstractVar[Wire]  # "rows": positions may be seen
    former_names: ClassVar[tuple[str, ...]] = ()  # its names in earlier versions, which plans may still use
    former_settings: ClassVar[dict[str, str]] = {}  # former names of settings, and today's
    unit: ClassVar[Unit] = "user"  # what the claim protects
    shows_weight: ClassVar[bool] = False  # whether a report carries the device's own weight; if not, it counts once
    as_sent: ClassVar[bool] = False  # whether the estimate is the sum of what was sent: rows nobody sent are zero in it
    counts_pairs: ClassVar[bool] = False  # whether the estimate has counts of pairs, for a rule that reads them
    suggested: ClassVar[tuple[dict[str, Any], ...]] = ({},)  # settings worth a try; the tests try each

    @abstractmethod
    def encode(self, key: jax.Array, update: dict, dials: dict) -> Any:
        """Device: the payload that stands for this update."""

    @abstractmethod
    def zero(self, params: dict, weights: int) -> Any:
        """The total of no payloads."""

    @abstractmethod
    def add(self, total: Any, payloads: Any, weights: jax.Array, sent: jax.Array) -> Any:
        """The total with a chunk of payloads [c, ...] folded in; those not sent leave no trace."""

    @abstractmethod
    def merge(self, one: Any, other: Any) -> Any:
        """The total of two totals."""

    @abstractmethod
    def estimate(self, key: jax.Array, total: Any, n: jax.Array, dials: dict) -> tuple[dict, jax.Array]:
        """Server: (sum, weight), debiased, and with central noise where the plan asks for it; the dials are the round's."""

    @property
    def dials(self) -> dict[str, float]:
        """The public numbers that a stage's first round is opened with; none by default."""
        return {}

    def turn(self, key: jax.Array, total: Any, dials: dict) -> dict:
        """Server: the dials of the next round, from the same key and total as the estimate; as they were, by default."""
        del key, total
        return dials

    def settle(self, exposure: Exposure) -> "Mechanism":
        """The same mechanism with its noise found for this exposure; nothing to find by default."""
        del exposure
        return self

    @abstractmethod
    def event(self, exposure: Exposure) -> tuple[Event, int]:
        """What the accountant is told, and how many rounds it covers.

        One message, covering 1 round, is counted each time it is sent. A sum whose cohort chance has chosen covers
        the stage's rounds together, whoever was drawn.
        """

    @abstractmethod
    def claim(self, exposure: Exposure) -> tuple[Claim, ...]:
        """What it guarantees, given how often a device is exposed; the plan's promise comes first."""

    @abstractmethod
    def visible(self) -> tuple[str, ...]:
        """What the server sees beside the noise."""

    @abstractmethod
    def spread(self, numbers: int, reports: float) -> Spread:
        """Signal and noise of the mean of so many reports of updates of so many numbers."""

    def floor(self, reports: float) -> float | None:
        """People: what the count of a position that nobody has comes to by noise alone, one standard deviation.

        None where no counts are estimated, or where they have no noise of their own.
        """
        del reports
        return None

    @property
    def always_releases(self) -> bool:
        """Whether the server moves even when nobody reported, because it adds the noise."""
        return False

    def describe(self) -> dict[str, Any]:
        """The noise and the bounds, as numbers to show."""
        return {}


def messages_setting() -> Any:
    """The `messages` field every mechanism has."""
    return setting(None, at_least=1)


def wire_setting() -> Any:
    """The `wire` field every mechanism has."""
    return setting("dense")


def epsilon_setting() -> Any:
    """The `epsilon` and `epsilon_per_message` fields of mechanisms that promise one."""
    return setting(None, at_least=1e-6)  # below, the noise drowns in its own rounding


def delta_setting() -> Any:
    """The `delta` field of mechanisms that promise one."""
    return setting(None, at_least=0.0)


_MECHANISMS = Plugins(tacit.privacy.mechanisms, Mechanism, "mechanism")


def mechanism_names() -> list[str]:
    """Every mechanism: the files of `privacy/mechanisms`."""
    return _MECHANISMS.names()


def mechanism_class(name: str, where: str = "privacy") -> type[Mechanism]:
    """The Mechanism of this name."""
    return _MECHANISMS.load(name, where)


def current_mechanism(name: str) -> str:
    """Today's name of a mechanism that had this name in an earlier version; any other name as it is."""
    return _MECHANISMS.current(name)


def build_mechanism(privacy: Mapping[str, Any], where: str = "privacy") -> Mechanism:
    """The mechanism a stage names."""
    settings = dict(privacy)
    name = settings.pop("mechanism")
    return fill(mechanism_class(name, where), settings, where)
