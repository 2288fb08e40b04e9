"""Clipped: both halves of a sum of updates that are bounded in length, with normal noise; the bound may follow a quantile."""

from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp

from tacit.core.sparse_rows import dense_tree
from tacit.errors import PlanError
from tacit.privacy.mechanisms._parts import adaptive_clip, noise
from tacit.privacy.mechanisms._parts.summed import Summed


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
        """Refuse a bound that moves where it makes no sense."""
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
        return (
            self.multiplier if self.quantile is None else adaptive_clip.sum_noise(self.multiplier, self.count_deviation)
        )

    @property
    def count_deviation(self) -> float:
        """The standard deviation of the noise on the count of updates within the bound, in people."""
        if self.quantile_noise is not None:
            return self.quantile_noise
        return adaptive_clip.count_noise(self.multiplier, self._planned)

    @property
    def deviation(self) -> float:
        """σ: the standard deviation of the noise on each number; where the bound moves, in the first round."""
        return self.sum_multiplier * self.clip

    @property
    def dials(self) -> dict[str, float]:
        """The bound, where it moves."""
        return {} if self.quantile is None else {"clip": self.clip}

    def _clip(self, dials: dict) -> Any:
        """The round's bound."""
        return self.clip if self.quantile is None else dials.get("clip", self.clip)

    def encode(self, key: jax.Array, update: dict, dials: dict) -> Any:
        """x·min(1, S/‖x‖₂), dense, with noise where the place is local, or with one number more where the bound moves."""
        clip = self._clip(dials)
        x = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), dense_tree(update))
        norm = jnp.sqrt(sum(jnp.square(leaf).sum() for leaf in jax.tree.leaves(x)))
        shrink = jnp.minimum(1.0, clip / jnp.maximum(norm, 1e-30))
        x = jax.tree.map(lambda leaf: leaf * shrink, x)
        if self.place == "local":
            return noise.add_normal(key, x, self.deviation)
        return x if self.quantile is None else {**x, adaptive_clip.WITHIN: adaptive_clip.bit(norm, clip)}

    def zero(self, params: dict, weights: int) -> Any:
        """Zeros, and one more for the count where the bound moves."""
        counted = {} if self.quantile is None else {adaptive_clip.WITHIN: jax.ShapeDtypeStruct((), jnp.float32)}
        return super().zero({**params, **counted}, weights)

    def estimate(self, key: jax.Array, total: Any, n: jax.Array, dials: dict) -> tuple[dict, jax.Array]:
        """The sum with its noise, and the planned size of the cohort."""
        del n
        sums, weight = total
        if self.place == "local":
            return sums, weight
        noised = self._released(key, sums, dials)
        sums = {name: leaf for name, leaf in sums.items() if name != adaptive_clip.WITHIN}
        sums = {name: alike(noised[name], leaf) for name, leaf in sums.items()}
        return sums, jnp.full_like(weight, self._planned)

    def turn(self, key: jax.Array, total: Any, dials: dict) -> dict:
        """The bound moves towards the quantile, by the noisy count."""
        if self.quantile is None:
            return dials
        share = 0.5 + self._released(key, total[0], dials)[adaptive_clip.WITHIN] / self._planned
        rate = adaptive_clip.RATE if self.quantile_rate is None else self.quantile_rate
        return {**dials, "clip": adaptive_clip.moved(self._clip(dials), share, self.quantile, rate, self.clip)}

    def _released(self, key: jax.Array, sums: dict, dials: dict) -> dict:
        """All that leaves the server of a round: one look at the sum and at the count, each with its noise."""
        # Every weight is 1, so all sums are the same one: a second draw of noise would be a second look at it.
        first = jax.tree.map(lambda leaf: leaf[0], sums)
        sigma = dict.fromkeys(first, self.deviation * (self._clip(dials) / self.clip))
        if self.quantile is not None:
            sigma[adaptive_clip.WITHIN] = self.count_deviation
        return noise.add_normal(key, first, sigma)

    @property
    def _planned(self) -> float:
        if self.cohort is None:
            raise PlanError("privacy of gaussian does not know its cohort yet; settle the mechanism for a population.")
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


def alike(tree: Any, like: Any) -> Any:
    """One sum for every weight."""
    return jax.tree.map(lambda leaf, many: jnp.broadcast_to(leaf, many.shape), tree, like)
