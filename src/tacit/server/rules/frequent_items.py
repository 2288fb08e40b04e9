"""frequent_items: from noisy counts, the items that are frequent enough for a table of steps between them, and their weights."""

import math
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from tacit.core.settings import setting
from tacit.server.rule import Estimate, Rule, scaled
from tacit.server.rules._steps import frequent, item_weights


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
