"""laplace: bound the update, add double-exponential noise to every number, send the dense table."""

import math
from dataclasses import replace
from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp

from tacit.errors import PlanError
from tacit.privacy import noise
from tacit.privacy.claim import Claim
from tacit.privacy.events import Event, Unbounded
from tacit.privacy.local import Local
from tacit.privacy.mechanism import Spread
from tacit.privacy.sampler import Exposure
from tacit.privacy.sums import Summed
from tacit.rows import dense_tree
from tacit.settings import setting


class Laplace(Local, Summed):
    """Add Laplace noise at home.

    How the update x of D numbers is bounded, by a public `bound`:

    - `elements`: every number to [−B, B]; noise of scale 2DB/ε.
    - `l1`: the whole update to ‖x‖₁ ≤ B; noise of scale 2B/ε.
    - `none`: not at all; noise of a given `scale`. For showing what such a message is worth: nothing.

    Guarantee:
        `elements`, `l1`: ε-local differential privacy of one message between any two updates of one device
        (replace-one, unit user), because two bounded updates differ by at most 2DB, or 2B, in L1 norm. Unbiased for
        the bounded update; variance 2·scale² a number. `none`: ε = ∞ at any scale.

    Paper: Dwork et al., "Calibrating noise to sensitivity in private data analysis" (TCC 2006).
    """

    clip: Literal["elements", "l1", "none"] = setting("l1")
    bound: float = setting(1.0, above=0.0)
    scale: float | None = setting(None, above=0.0)  # instead of an ε, where the bound turns it into one
    suggested: ClassVar[tuple[dict[str, Any], ...]] = (
        {"epsilon": 2.0},
        {"epsilon": 2.0, "clip": "elements", "bound": 0.5},
        {"scale": 0.5, "bound": 2.0},
        {"scale": 0.5, "clip": "none"},
    )

    def check_settings(self) -> None:
        """One way to say the noise, and one that the bound can turn into an ε."""
        promised = self.epsilon is not None or self.epsilon_per_message is not None
        if self.clip == "none" and promised:
            raise PlanError(
                "privacy.epsilon is a promise that clip = 'none' cannot keep: an update without a bound has no finite "
                "ε. Give scale instead, or clip = 'l1'."
            )
        if self.clip == "elements" and self.scale is not None:
            raise PlanError(
                f"privacy.scale = {self.scale:g} does not say an ε under clip = 'elements', where ε depends on how "
                "many numbers there are; give epsilon instead."
            )
        if self.scale is not None and self.epsilon_per_message is not None:
            raise PlanError(
                f"privacy must give scale or epsilon_per_message, not both; got {self.scale:g} and "
                f"{self.epsilon_per_message:g}."
            )
        if self.scale is None and not promised:
            raise PlanError("privacy of laplace must give epsilon, epsilon_per_message or scale, got none of them.")

    @property
    def share(self) -> float:
        """ε of one message: 2B/scale where the scale was given."""
        if self.clip == "none":
            return math.inf
        return super().share if self.scale is None else 2 * self.bound / self.scale

    def settle(self, exposure: Exposure) -> "Laplace":
        """As every local mechanism; a given scale is the noise already."""
        if self.scale is None:
            return super().settle(exposure)
        self.check_delta(exposure)
        settled = replace(self, messages=exposure.at_most(self.messages).messages)
        settled.check_promise(exposure)
        return settled

    def encode(self, key: jax.Array, update: dict, dials: dict) -> Any:
        """y = clip(x) + Lap(b)^D, dense."""
        del dials
        x = self._clipped(jax.tree.map(lambda leaf: leaf.astype(jnp.float32), dense_tree(update)))
        leaves, tree = jax.tree.flatten(x)
        b = self.noise_scale(sum(leaf.size for leaf in leaves))
        keys = jax.random.split(key, len(leaves))
        return jax.tree.unflatten(tree, [x + b * noise.laplace(k, x.shape) for k, x in zip(keys, leaves)])

    def noise_scale(self, numbers: int) -> float:
        """b: 2DB/ε for elements, 2B/ε for the whole."""
        if self.scale is not None:
            return self.scale
        differ = 2 * self.bound * (numbers if self.clip == "elements" else 1)
        return differ / self.share

    def _clipped(self, x: dict) -> dict:
        if self.clip == "none":
            return x
        if self.clip == "elements":
            return jax.tree.map(lambda leaf: jnp.clip(leaf, -self.bound, self.bound), x)
        norm = sum(jnp.abs(leaf).sum() for leaf in jax.tree.leaves(x))
        shrink = jnp.minimum(1.0, self.bound / jnp.maximum(norm, 1e-30))
        return jax.tree.map(lambda leaf: leaf * shrink, x)

    def event(self, exposure: Exposure) -> tuple[Event, int]:
        """Pure ε, or nothing finite without a bound."""
        if self.clip == "none":
            return Unbounded("an update without a bound"), 1
        return super().event(exposure)

    def claim(self, exposure: Exposure) -> tuple[Claim, ...]:
        """ε of a message and of the run."""
        unbounded = ("no bound: two updates may differ by any amount, which no scale of noise covers",)
        words = unbounded if self.clip == "none" else self.conditions()
        return self.claims(exposure, self.event(exposure)[0], "replace_one", words)

    def spread(self, numbers: int, reports: float) -> Spread:
        """At best B everywhere (elements), or ‖x‖₂ = ‖x‖₁ = B (l1); √2·b of noise in each report."""
        loudest = {"elements": self.bound, "l1": self.bound / math.sqrt(numbers), "none": math.inf}[self.clip]
        return Spread(loudest, math.sqrt(2) * self.noise_scale(numbers) / math.sqrt(reports))

    def describe(self) -> dict[str, Any]:
        """The scale, where it does not depend on how many numbers there are."""
        known = {} if self.clip == "elements" else {"scale": self.noise_scale(1)}
        return {**super().describe(), "clip": self.clip, "bound": self.bound, **known}
