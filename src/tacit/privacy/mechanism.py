"""Mechanism: the device half and the server half of one way to send an update, in one object, so that they cannot disagree.

A mechanism is a file in `privacy/mechanisms` that defines one Mechanism; the file name is the mechanism's name.
"""

import math
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

import tacit.privacy.mechanisms
from tacit.core.messages import Report
from tacit.core.plugins import Plugins
from tacit.core.settings import fill, setting
from tacit.privacy.accounting.events import Event
from tacit.privacy.claim import Claim, Unit
from tacit.privacy.sampler import Exposure

Wire = Literal["dense", "rows"]
UpdateForm = Literal["nonnegative", "outer_products"] | None
PayloadView = Literal["update", "bits", "signs"]


class Spread(NamedTuple):
    """How large the estimated mean update of a cohort can be, and how noisy it is; both for one number of it."""

    signal: float  # the largest root mean square that bounded updates allow, when all devices agree
    noise: float  # the standard deviation of the estimate


class Mechanism(eqx.Module):
    """How an update is bounded, randomised, summed and estimated.

    `zero`, `add` and `merge` are a commutative monoid in payload space, so a cohort can be folded in chunks, in any
    order, with devices that sent nothing masked. `estimate` returns (sum, weight): for every weight, the estimate of
    Σ weight·update with a leading axis k, and Σ weight; the rule decides between sum and mean.

    A plan's settings become a mechanism in two steps: `build_mechanism` checks them one by one, `settle` finds the
    noise that keeps the plan's promise for so many devices and rounds, and refuses a promise that cannot be kept.
    """

    messages: eqx.AbstractVar[int | None]  # a device's allowance in this stage: reports it will ever send
    wire: eqx.AbstractVar[Wire]  # "rows": positions may be seen
    former_names: ClassVar[tuple[str, ...]] = ()  # its names in earlier versions, which plans may still use
    former_settings: ClassVar[dict[str, str]] = {}  # former names of settings, and today's
    unit: ClassVar[Unit] = "user"  # what the claim protects
    update_form: ClassVar[UpdateForm] = None  # what it counts on, and makes sure of, in an update
    shows_weight: ClassVar[bool] = False  # whether a report has the device's own weight; if not, it counts once
    as_sent: ClassVar[bool] = False  # whether the estimate is the plain sum: rows that no device sent are zero in it
    counts_pairs: ClassVar[bool] = False  # whether the estimate has counts of pairs, for a rule that reads them
    memoised: ClassVar[bool] = False  # whether a device draws its answer once for life and repeats it in every run
    sums_people: ClassVar[bool] = False  # whether a report is a sum over the people of one organisation
    payload_view: ClassVar[PayloadView] = (
        "update"  # how a payload is read: the update's own form, a bit a position, or signs
    )
    noise_setting: ClassVar[str | None] = (
        None  # the setting its noise is proportional to, where finding it for an ε is slow
    )
    suggested: ClassVar[tuple[dict[str, Any], ...]] = ({},)  # settings that work; each is tested

    @property
    def name(self) -> str:
        """What plans call it: the name of its file."""
        return type(self).__module__.rpartition(".")[2]

    @abstractmethod
    def encode(self, key: jax.Array, update: dict, public_state: dict) -> Any:
        """Device: the payload for this update."""

    @abstractmethod
    def zero(self, params: dict, weights: int) -> Any:
        """The total of no payloads."""

    @abstractmethod
    def add(self, total: Any, payloads: Any, weights: jax.Array, sent: jax.Array) -> Any:
        """The total with a chunk of payloads [c, ...] added; those not sent have no effect."""

    @abstractmethod
    def merge(self, one: Any, other: Any) -> Any:
        """The total of two totals."""

    @abstractmethod
    def estimate(self, key: jax.Array, total: Any, n: jax.Array, public_state: dict) -> tuple[dict, jax.Array]:
        """Server: (sum, weight), debiased, and with central noise where the plan has it; given the round's public state."""

    @property
    def public_state(self) -> dict[str, float]:
        """The public numbers that a stage's first round is opened with; none by default."""
        return {}

    def to_numbers(self, payload: Any, public_state: dict) -> Any:
        """The numbers that a payload in the update's own form stands for; the payload itself by default."""
        del public_state
        return payload

    def noise_state(self, update: dict) -> Any:
        """Server: what a stage begins with, of what it keeps of its noise from round to round; nothing by default.

        `update` has the shape of an update. What is kept tells about the sums, so it stays in memory and is never saved.
        """
        del update
        return ()

    def release(
        self, key: jax.Array, total: Any, n: jax.Array, public_state: dict, noise_state: Any
    ) -> tuple[tuple[dict, jax.Array], Any]:
        """Server: the estimate of a round, and what is kept of its noise; the estimate alone by default."""
        return self.estimate(key, total, n, public_state), noise_state

    def next_public_state(self, key: jax.Array, total: Any, public_state: dict) -> dict:
        """Server: the public state of the next round, from the same key and total as the estimate; unchanged by default."""
        del key, total
        return public_state

    def grant(self, asked: dict[str, jax.Array], public_state: dict) -> dict:
        """Server: the public state of a round whose rule asked for these numbers; what it may not have, it does not get.

        A mechanism that takes no requests leaves the state as it is.
        """
        del asked
        return public_state

    def precision(self, public_state: dict) -> Any:
        """1 over the variance of a round's noise, in units of a round that has the whole bound; 1 where all rounds are alike."""
        del public_state
        return 1.0

    def settle(self, exposure: Exposure) -> "Mechanism":
        """The same mechanism with its noise found for this exposure; nothing to find by default."""
        del exposure
        return self

    @abstractmethod
    def event(self, exposure: Exposure) -> tuple[Event, int]:
        """The event for the accountant, and how many rounds it covers.

        A message covers 1 round and is counted each time it is sent. A sum over a randomly drawn cohort covers the
        stage's rounds together, whichever devices were drawn.
        """

    @abstractmethod
    def claim(self, exposure: Exposure) -> tuple[Claim, ...]:
        """What it guarantees, given how often a device is exposed; the claim that the plan promises comes first."""

    @abstractmethod
    def visible(self) -> tuple[str, ...]:
        """What is visible in spite of the noise."""

    @abstractmethod
    def spread(self, numbers: int, reports: float) -> Spread:
        """Signal and noise of the mean of so many reports of updates of so many numbers."""

    def noise_over(self, rounds: int) -> float:
        """The noise in the sum of so many rounds, in units of the first round's; √rounds where rounds are independent."""
        return math.sqrt(rounds)

    def floor(self, reports: float) -> float | None:
        """The noise floor of a count, in people: the standard deviation of the estimate where the true count is 0.

        None where no counts are estimated, or where they have no noise of their own.
        """
        del reports
        return None

    def check_payload(self, payload: Any) -> str:
        """Server: why no device can have sent this payload, as NumPy arrays; empty where one can."""
        del payload
        return ""

    def check_total(self, total: Any, people: int) -> str:
        """Server: why the reports of so many people cannot come to this total, as NumPy arrays; empty where they can."""
        del total, people
        return ""

    @property
    def always_releases(self) -> bool:
        """Whether the server releases a result even without reports, because it adds the noise."""
        return False

    def describe(self) -> dict[str, Any]:
        """The noise and the bounds, as numbers to show."""
        return {}


def empty_total(mechanism: Mechanism, like: dict, weights: int) -> Any:
    """(payloads, number of reports) before any report; `like` has the shape of an update."""
    return mechanism.zero(like, weights), jnp.zeros((), jnp.int32)


def add_reports(mechanism: Mechanism, total: Any, reports: Report) -> Any:
    """The total with a chunk of reports [c, ...] added; the same whether a server or a node adds them."""
    payloads, count = total
    payloads = mechanism.add(payloads, reports.payload, reports.weight, reports.sent)
    return payloads, count + reports.sent.sum(dtype=jnp.int32)


def merge_totals(mechanism: Mechanism, one: Any, other: Any) -> Any:
    """The total of two totals."""
    return mechanism.merge(one[0], other[0]), one[1] + other[1]


def messages_setting() -> Any:
    """The `messages` field every mechanism has."""
    return setting(None, at_least=1)


def wire_setting() -> Any:
    """The `wire` field every mechanism has."""
    return setting("dense")


def epsilon_setting() -> Any:
    """The `epsilon` and `epsilon_per_message` fields of mechanisms that promise one."""
    return setting(
        None, at_least=1e-6, at_most=1e6
    )  # below, the noise is lost in its own rounding; above, there is none


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
