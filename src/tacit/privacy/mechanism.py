"""Mechanism: the device half and the server half of one way to send an update, in one object, so that they cannot disagree.

A mechanism is a file in this room that defines one Mechanism; the file name is the mechanism's name.
"""

import importlib
import pkgutil
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, Literal

import equinox as eqx
import jax

import tacit.privacy
from tacit.errors import PlanError, unknown
from tacit.privacy.claim import Claim
from tacit.privacy.sampler import Exposure
from tacit.settings import fill, setting

Wire = Literal["dense", "rows"]
_NOT_MECHANISMS = {"mechanism", "claim", "sampler", "price", "accountant", "within"}


class Mechanism(eqx.Module):
    """How an update is bounded, randomised, summed and estimated.

    `zero`, `add` and `merge` are a commutative monoid in payload space, so a cohort can be folded in chunks, in any
    order, with silent devices masked. `estimate` returns (sum, weight): for every weight, the estimate of
    Σ weight·update with a leading axis k, and Σ weight; the rule decides between sum and mean.
    """

    messages: eqx.AbstractVar[int | None]  # a device's allowance in this stage: reports it will ever send
    wire: eqx.AbstractVar[Wire]  # "rows": positions may be seen

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
    def estimate(self, key: jax.Array, total: Any, n: jax.Array) -> tuple[dict, jax.Array]:
        """Server: (sum, weight), debiased, and with central noise where the plan asks for it."""

    @abstractmethod
    def claim(self, exposure: Exposure) -> tuple[Claim, ...]:
        """What it guarantees, given how often a device is exposed."""


def messages_setting() -> Any:
    """The `messages` field every mechanism has."""
    return setting(None, at_least=1)


def wire_setting() -> Any:
    """The `wire` field every mechanism has."""
    return setting("dense")


def mechanism_names() -> list[str]:
    """Every mechanism: the files of this room, less those that are its furniture."""
    found = pkgutil.iter_modules(tacit.privacy.__path__)
    return sorted(m.name for m in found if m.name not in _NOT_MECHANISMS)


def mechanism_class(name: str, where: str = "privacy") -> type[Mechanism]:
    """The Mechanism a file defines."""
    if name not in mechanism_names():
        raise PlanError(unknown(where, name, mechanism_names(), "mechanism"))
    module = importlib.import_module(f"tacit.privacy.{name}")
    (found,) = [
        value
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, Mechanism) and value.__module__ == module.__name__
    ]
    return found


def build_mechanism(privacy: Mapping[str, Any], where: str = "privacy") -> Mechanism:
    """The mechanism a stage names."""
    settings = dict(privacy)
    name = settings.pop("mechanism")
    return fill(mechanism_class(name, where), settings, where)
