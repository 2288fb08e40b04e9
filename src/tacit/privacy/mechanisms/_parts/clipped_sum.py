"""Sums of updates clipped in L2 norm, with normal noise; the clip bound may follow a quantile of the updates' norms.


Beside its update x, at most C long, a device sends whether it was within the round's bound C: b = +½ where it was, −½ where
it was not. The server adds noise to both sums and moves the bound by the share of those who were within:

    share = ½ + (Σ b + N(0, s²)) / M          M: the planned size of the cohort; a device that does not report counts as ½
    C ← C · exp(−rate · (share − quantile))

What it costs. With noise z_sum·C on each number of Σ x and s on Σ b, and each in units of its noise, a device adds the one
vector (x / (z_sum·C), b / s) to a joint sum whose noise is 1. It is never longer than 1/z, where

    1/z² = 1/z_sum² + 1/(2s)².

Neighbours that add or remove a device differ by that vector: by 1/z at most. Neighbours that replace a device by another
differ by the difference of two: by 2/z at most, and just that from (C·u, +½) to (−C·u, −½); there b alone may differ by 1, and
not by ½. So z is to the pair what the noise is to a sum alone, under both relations, and it is what the accountant is given.
C has cancelled out: the noise grows with the bound, so that any bound costs the same, however it was found.

Paper: Andrew, Thakkar, McMahan and Ramaswamy, "Differentially private learning with adaptive clipping" (NeurIPS 2021). There,
neighbours differ by one device's presence, and s is a twentieth of the cohort.
"""

import math
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp

from tacit.core.sparse_rows import dense_tree
from tacit.errors import PlanError
from tacit.privacy.mechanisms._parts import noise
from tacit.privacy.mechanisms._parts.summed import Summed, same_for_every_weight

WITHIN = "within the clip"  # the count's place beside the leaves of an update; no leaf has a name of three words
RATE = 0.2  # of the geometric step, as in the paper
_FAR = 1e6  # the bound stays within so many times its start, both ways: what is always within must not shrink it to nothing


class Clipped(Summed):
    """What a device sends and a server releases, given `multiplier`, the noise that is priced in units of the bound."""

    place: eqx.AbstractVar[Literal["central", "local"]]
    clip: eqx.AbstractVar[float]
    noise: eqx.AbstractVar[float | None]
    after_step: eqx.AbstractVar[float | None]
    quantile: eqx.AbstractVar[float | None]
    quantile_rate: eqx.AbstractVar[float | None]
    quantile_noise: eqx.AbstractVar[float | None]
    cohort: eqx.AbstractVar[float | None]
    multiplier: eqx.AbstractVar[float]

    def check_quantile(self) -> None:
        """Refuse an adaptive bound where it makes no sense."""
        if self.quantile is None:
            for name in ("quantile_rate", "quantile_noise"):
                if (value := getattr(self, name)) is not None:
                    raise PlanError(
                        f"privacy.{name} = {value:g} is a part of privacy.quantile, and there is none; give it."
                    )
        elif self.place == "local":
            raise PlanError(
                f"privacy.quantile = {self.quantile:g} is for noise at the server, got place = 'local'; leave it out."
            )
        elif self.after_step is not None:
            raise PlanError(
                f"privacy.quantile = {self.quantile:g} moves the bound, and after_step = {self.after_step:g} is for one "
                "that stays; leave one of the two out."
            )

    @property
    def sum_multiplier(self) -> float:
        """The noise on the sum, in units of the clip bound; a count leaves it less of what is priced."""
        return self.multiplier if self.quantile is None else sum_noise(self.multiplier, self.count_deviation)

    @property
    def count_deviation(self) -> float:
        """The standard deviation of the noise on the count of updates within the bound, in people."""
        if self.quantile_noise is not None:
            return self.quantile_noise
        return count_noise(self.multiplier, self._planned)

    @property
    def deviation(self) -> float:
        """σ: the standard deviation of the noise on each number; where the bound moves, in the first round."""
        return self.sum_multiplier * self.clip

    @property
    def public_state(self) -> dict[str, float]:
        """The bound, where it moves."""
        return {} if self.quantile is None else {"clip": self.clip}

    def _clip(self, public_state: dict) -> Any:
        """The round's bound."""
        return self.clip if self.quantile is None else public_state.get("clip", self.clip)

    def encode(self, key: jax.Array, update: dict, public_state: dict) -> Any:
        """x·min(1, S/‖x‖₂), dense, with noise where the place is local, or with one number more where the bound moves."""
        clip = self._clip(public_state)
        x = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), dense_tree(update))
        norm = jnp.sqrt(sum(jnp.square(leaf).sum() for leaf in jax.tree.leaves(x)))
        shrink = jnp.minimum(1.0, clip / jnp.maximum(norm, 1e-30))
        x = jax.tree.map(lambda leaf: leaf * shrink, x)
        if self.place == "local":
            return noise.add_normal(key, x, self.deviation)
        return x if self.quantile is None else {**x, WITHIN: within_bit(norm, clip)}

    def zero(self, params: dict, weights: int) -> Any:
        """Zeros, and one more for the count where the bound moves."""
        counted = {} if self.quantile is None else {WITHIN: jax.ShapeDtypeStruct((), jnp.float32)}
        return super().zero({**params, **counted}, weights)

    def estimate(self, key: jax.Array, total: Any, n: jax.Array, public_state: dict) -> tuple[dict, jax.Array]:
        """The sum with its noise, and the planned size of the cohort."""
        del n
        sums, weight = total
        if self.place == "local":
            return sums, weight
        noised = self._released(key, sums, public_state)
        sums = {name: leaf for name, leaf in sums.items() if name != WITHIN}
        sums = {name: same_for_every_weight(noised[name], leaf) for name, leaf in sums.items()}
        return sums, jnp.full_like(weight, self._planned)

    def next_public_state(self, key: jax.Array, total: Any, public_state: dict) -> dict:
        """The bound moves towards the quantile, by the noisy count."""
        if self.quantile is None:
            return public_state
        share = 0.5 + self._released(key, total[0], public_state)[WITHIN] / self._planned
        rate = RATE if self.quantile_rate is None else self.quantile_rate
        return {**public_state, "clip": next_bound(self._clip(public_state), share, self.quantile, rate, self.clip)}

    def _released(self, key: jax.Array, sums: dict, public_state: dict) -> dict:
        """All that the server releases of a round: the sum and the count, each with its noise."""
        # Every weight is 1, so all sums are the same: a second draw of noise would release it a second time.
        first = jax.tree.map(lambda leaf: leaf[0], sums)
        sigma = dict.fromkeys(first, self.deviation * (self._clip(public_state) / self.clip))
        if self.quantile is not None:
            sigma[WITHIN] = self.count_deviation
        return noise.add_normal(key, first, sigma)

    @property
    def _planned(self) -> float:
        if self.cohort is None:
            raise PlanError("privacy of gaussian has no cohort yet; settle the mechanism for a population.")
        return self.cohort

    def describe(self) -> dict[str, Any]:
        """The noise in units of the bound, and as a standard deviation."""
        sum_or_message = "sum" if self.place == "central" else "message"
        return {
            "place": self.place,
            "clip": self.clip,
            "noise": self.noise,
            f"deviation_of_{sum_or_message}": self.deviation,
            "messages": self.messages,
            **({} if self.quantile is None else self._split()),
        }

    def _split(self) -> dict[str, Any]:
        """How the noise is shared between sum and count; what is spent on the count is its part of 1/noise²."""
        s = self.count_deviation
        return {
            "quantile": self.quantile,
            "noise_of_sum": self.sum_multiplier,
            "deviation_of_count": s,
            "spent_on_count": (self.multiplier / (2 * s)) ** 2 if s else 0.0,
        }


# ---- the bound that moves ----


def count_noise(noise: float, cohort: float) -> float:
    """s, where a plan does not set it: a twentieth of the cohort, or as much more as keeps its cost to 1/100 of 1/z².

    In a small cohort the bound is less accurate, rather than the update noisier.

    >>> count_noise(2.0, 1000), count_noise(2.0, 30)
    (50.0, 10.0)
    """
    return max(cohort / 20, 5 * noise) if noise else 0.0


def sum_noise(noise: float, count: float) -> float:
    """z_sum, in units of the bound: what is left for the sum when z prices both.

    >>> round(sum_noise(2.0, 10.0), 4)
    2.0101
    """
    if noise == 0:
        return 0.0
    left = noise**-2 - (2 * count) ** -2 if count else -math.inf
    if left <= 0:
        raise PlanError(
            f"privacy.quantile_noise = {count:g} is too little: a count with it would cost all that noise = {noise:.4g} "
            f"allows, or more; give more than {noise / 2:.4g}, or leave it out."
        )
    return left**-0.5


def within_bit(norm: jax.Array, clip: jax.Array | float) -> jax.Array:
    """b: whether an update of this length is within the bound, as +½ or −½."""
    return jnp.where(norm <= clip, 0.5, -0.5).astype(jnp.float32)


def next_bound(clip: jax.Array, share: jax.Array, quantile: float, rate: float, start: float) -> jax.Array:
    """The next bound: at most e^rate times the last, or as much smaller, however large the noise."""
    # C ← C · exp(−rate · (share − quantile)); cut evenly on both sides, so that noise pulls it to neither
    step = jnp.exp(-rate * jnp.clip(share - quantile, -1.0, 1.0))
    return jnp.clip(clip * step, start / _FAR, start * _FAR).astype(jnp.float32)
