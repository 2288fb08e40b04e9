"""laplace_open: Laplace noise on an update without a bound, its weight without noise, as a paper prints it."""

import math
from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp

from tacit.core.settings import setting
from tacit.core.sparse_rows import dense_tree
from tacit.errors import PlanError
from tacit.privacy.accounting.events import Event
from tacit.privacy.claim import Claim
from tacit.privacy.mechanism import Spread
from tacit.privacy.mechanisms._parts.local_dp import NO_BOUND, NO_BOUND_EVENT, Local
from tacit.privacy.mechanisms._parts.summed import Summed
from tacit.privacy.sampler import Exposure


class LaplaceOpen(Local, Summed):
    """Add Laplace noise of a given `scale` to every number of an update, and send the weight beside it.

    Guarantee:
        None: ε = ∞ at any scale. Two updates may differ by any amount, and the weight has no noise at all.

    Paper: Li, Lin, Xiahou, Lin, Wu and Liu, "Federated low-rank tensor projections for sequential recommendation"
    (KBS 2022), Eq. 5, as printed.
    """

    clip: Literal["none"] = setting("none")
    bound: float = setting(1.0, above=0.0)  # has no effect
    scale: float | None = setting(None, above=0.0)
    place: Literal["local"] | None = setting(None)
    shows_weight: ClassVar[bool] = True
    suggested: ClassVar[tuple[dict[str, Any], ...]] = ({"scale": 0.5},)

    def check_settings(self) -> None:
        """The scale is the only setting that means anything here."""
        if self.epsilon is not None or self.epsilon_per_message is not None:
            raise PlanError("privacy.epsilon is a promise that laplace_open cannot keep; give scale, or use 'laplace'.")
        if self.scale is None:
            raise PlanError("privacy.scale of laplace_open is missing; give the scale of the noise.")

    @property
    def noise_scale(self) -> float:
        """The scale of the noise on each number."""
        assert self.scale is not None
        return self.scale

    @property
    def fidelity(self) -> Literal["paper", "corrected"]:
        """As printed."""
        return "paper"

    @property
    def share(self) -> float:
        """ε of one message."""
        return math.inf

    def encode(self, key: jax.Array, update: dict, public_state: dict) -> Any:
        """y = x + Lap(scale)^D, dense."""
        del public_state
        x = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), dense_tree(update))
        leaves, tree = jax.tree.flatten(x)
        keys = jax.random.split(key, len(leaves))
        noised = [leaf + self.noise_scale * jax.random.laplace(k, leaf.shape) for k, leaf in zip(keys, leaves)]
        return jax.tree.unflatten(tree, noised)

    def event(self, exposure: Exposure) -> tuple[Event, int]:
        """Nothing finite."""
        del exposure
        return NO_BOUND_EVENT, 1

    def claim(self, exposure: Exposure) -> tuple[Claim, ...]:
        """ε = ∞ for a message and for the run."""
        return self.claims(exposure, NO_BOUND_EVENT, "replace_one", (NO_BOUND,))

    def spread(self, numbers: int, reports: float) -> Spread:
        """An update of any size; √2·scale of noise in each report."""
        del numbers
        return Spread(math.inf, math.sqrt(2) * self.noise_scale / math.sqrt(reports))

    def visible(self) -> tuple[str, ...]:
        """Participation, and the weight."""
        return (*super().visible(), "the weight of each report is visible")

    def describe(self) -> dict[str, Any]:
        """The scale of the noise."""
        where = {"place": self.place} if self.place else {}
        return {**super().describe(), **where, "clip": self.clip, "bound": self.bound, "scale": self.noise_scale}
