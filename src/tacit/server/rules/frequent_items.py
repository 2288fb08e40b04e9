"""frequent_items: from noisy counts, the items that are frequent enough for a table of steps between them, and their weights."""

import math
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from tacit.core.settings import setting
from tacit.server.rule import Estimate, Rule, scaled


class FrequentItems(Rule):
    """`counts` float32[n], the noisy sum; `head` int32[room], the most frequent items; `weights` float32[room].

    An item is in the head where its noisy count is at least θ = max(level·(Σĉ)^¼·σ^¾, sure·σ_c), with σ_c the noise of a count
    and σ what it would be had the counts the whole ε, of which they have `share`. All this is post-processing of what was
    released, so it costs no privacy.
    """

    moves_what_is_sent: ClassVar[bool] = False
    level: float = setting(1.15, at_least=0.0)
    sure: float = setting(2.5, at_least=0.0)
    least: int = setting(100, at_least=0)  # items in the head
    share: float = setting(0.05, above=0.0, at_most=1.0)
    power: float = setting(0.2, at_least=0.0)

    def init(self, params: dict) -> Any:
        """No state."""
        del params
        return ()

    def finish(self, params: dict, estimate: Estimate, n: jax.Array, state: Any) -> tuple[dict, Any]:
        """ĉ, the head and its weights; a later round replaces an earlier one."""
        del n
        counts = scaled(estimate, "sum")["counts"].astype(jnp.float32)
        sigma = self.noise * math.sqrt(self.share)
        total = jnp.maximum(counts.sum(), 0.0)
        least = jnp.maximum(self.level * total**0.25 * sigma**0.75, self.sure * self.noise)
        head = frequent(counts, least, self.least, params["head"].shape[0])
        weights = item_weights(counts, head, self.noise, self.power)
        return {**params, "counts": counts, "head": head, "weights": weights}, state


def frequent(counts: jax.Array, least: Any, fewest: int, room: int) -> jax.Array:
    """int32[room]: the items whose counts reach `least`, most frequent first, at least so many of them; padding is n.

    >>> frequent(jnp.array([3.0, 9.0, 1.0, 5.0]), 4.0, 0, 3).tolist()
    [1, 3, 4]
    """
    best = jax.lax.top_k(counts, room)[1]
    size = jnp.clip((counts >= least).sum(), min(fewest, room), room)
    return jnp.where(jnp.arange(room) < size, best, counts.shape[0]).astype(jnp.int32)


def item_weights(counts: jax.Array, head: jax.Array, noise: Any, power: float) -> jax.Array:
    """g = (max(ĉ, 1, σ_c) / mean)^(−power) of the head's items, float32[room]; 1 on padding."""
    real = head < counts.shape[0]
    count = jnp.where(real, jnp.maximum(counts.at[head].get(mode="clip"), jnp.maximum(1.0, noise)), 0.0)
    mean = count.sum() / jnp.maximum(real.sum(), 1)
    return jnp.where(real, (count / jnp.maximum(mean, 1e-12)) ** -power, 1.0)
