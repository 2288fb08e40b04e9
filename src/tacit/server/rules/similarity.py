"""similarity: each item's nearest neighbours, from co-occurrence counts."""

from typing import Any, ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp

from tacit.core.settings import setting
from tacit.errors import PlanError
from tacit.privacy.mechanisms._parts.pair_counts import Cooccurrence
from tacit.server.rule import Estimate, Rule

BLOCK = 1 << 23  # similarities in memory at a time
Recipe = Literal["raw", "clamp", "floor", "error", "bound", "expected"]


class ItemCounts(NamedTuple):
    """The number of reports, the estimated count of each item, and the noise of one report."""

    reports: jax.Array  # float32[]
    counts: jax.Array  # float32[N], n̂_j
    noise: tuple[float, float]  # (v₀, v₁)


class Similarity(Rule):
    """The table of each item's K most similar items: `neighbours` int32[N, K] and `similarity` float32[N, K].

    `measure` is Jaccard's, |i ∩ j| / |i ∪ j|, or the cosine, |i ∩ j| / √(|i||j|). How noise is treated is set by
    `recipe`:

    - `raw`: the estimates as they are, negative ones too.
    - `clamp`: counts into the range that counts can have; what is not above 0 is no neighbour.
    - `floor`: clamp, and the denominator is at least the standard deviation of its own noise.
    - `error`: clamp, and each similarity s is shrunk to s³/(s² + e²), e being `strength` of its standard errors.
    - `bound`: clamp, less `strength` standard errors: a lower bound, which is 0 where noise is large.
    - `expected`: each count of a pair is shrunk towards the one expected from the two popularities alone, by as much
      as noise explains of the differences (empirical Bayes, item by item), then clamp.
    """

    moves_what_is_sent: ClassVar[bool] = False
    reads_pairs: ClassVar[bool] = True
    measure: Literal["jaccard", "cosine"] = setting("jaccard")
    recipe: Recipe = setting("clamp")
    strength: float = setting(3.0, above=0.0)

    def init(self, params: dict) -> Any:
        """No state."""
        del params
        return ()

    def finish(self, params: dict, estimate: Estimate, n: jax.Array, state: Any) -> tuple[dict, Any]:
        """The K nearest neighbours of every item, some rows at a time."""
        del n
        pairs = estimate[0].get("pairs")
        if not isinstance(pairs, Cooccurrence):
            raise PlanError(
                "server.rule 'similarity' needs counts of pairs; set privacy.mechanism = 'cooccurrence' (p = 1 and q = 0 for none "
                "of its noise)."
            )
        items, k = params["neighbours"].shape
        totals = ItemCounts(pairs.reports.astype(jnp.float32), pairs.counts(), pairs.noise)
        blocks = -(-(items**2) // BLOCK)
        rows = -(-items // blocks)
        places = jnp.minimum(jnp.arange(-(-items // rows) * rows), items - 1).reshape(-1, rows)
        table = jax.lax.map(lambda at: self.nearest(pairs.rows(at), at, totals, k), places)
        near, close = (leaf.reshape(-1, k)[:items] for leaf in table)
        return {"neighbours": near, "similarity": close}, state

    def nearest(self, both: jax.Array, at: jax.Array, totals: ItemCounts, k: int) -> tuple[jax.Array, jax.Array]:
        """Neighbours and similarities [b, k] of the items `at`, from their n̂_ij with all items, float32[b, N]."""
        items = totals.counts.shape[0]
        apart = jnp.arange(items) != at[:, None]
        close = self.similarities(both, totals.counts[at], apart, totals)
        least = -jnp.inf if self.recipe == "raw" else 0.0
        close = jnp.where(apart & (close > least), close, -jnp.inf)
        best, near = jax.lax.top_k(close, k)
        real = best > -jnp.inf
        return jnp.where(real, near, items).astype(jnp.int32), jnp.where(real, best, 0.0)

    def similarities(self, both: jax.Array, mine: jax.Array, apart: jax.Array, totals: ItemCounts) -> jax.Array:
        """Similarity of b items, each of `mine` users, with all: float32[b, N]; meaningless where not `apart`."""
        mine, theirs = mine[:, None], totals.counts
        if self.recipe == "raw":
            whole = self._whole(both, mine, theirs)
            return jnp.where(whole == 0, -jnp.inf, both / whole)
        mine, theirs = jnp.maximum(mine, 0.0), jnp.maximum(theirs, 0.0)
        if self.recipe == "expected":
            both = _towards_expected(both, mine, theirs, apart, totals)
        both = jnp.clip(both, 0.0, jnp.minimum(mine, theirs))
        whole = jnp.maximum(self._whole(both, mine, theirs), self._least(totals))
        close = both / whole
        if self.recipe in ("error", "bound"):
            return self._certain(close, whole, jnp.sqrt(self.variance(both, mine, theirs, totals)))
        return close

    def _whole(self, both: jax.Array, mine: jax.Array, theirs: jax.Array) -> jax.Array:
        """The denominator of the ratio: of the intersection and the union, or of the two sizes."""
        return mine + theirs - both if self.measure == "jaccard" else jnp.sqrt(jnp.maximum(mine * theirs, 0.0))

    def _least(self, totals: ItemCounts) -> Any:
        """The smallest denominator: one user, or the noise of a count, √(M·v₀)."""
        return jnp.maximum(jnp.sqrt(totals.reports * totals.noise[0]), 1.0) if self.recipe == "floor" else 1.0

    def _certain(self, close: jax.Array, whole: jax.Array, error: jax.Array) -> jax.Array:
        error = self.strength * error / whole
        if self.recipe == "bound":
            return jnp.maximum(close - error, 0.0)
        return close**3 / jnp.maximum(close**2 + error**2, 1e-30)

    def variance(self, both: Any, mine: Any, theirs: Any, totals: ItemCounts) -> Any:
        """Of the ratio times its denominator, by the delta method: Var I − 2J Cov + J² Var U."""
        one = mine + theirs - 2 * both
        none = jnp.maximum(totals.reports - mine - theirs + both, 0.0)
        intersection, union, joint = variances(both, one, none, *totals.noise)
        if self.measure == "cosine":
            return intersection
        share = both / jnp.maximum(mine + theirs - both, 1.0)
        return jnp.maximum(intersection - 2 * share * joint + share**2 * union, 0.0)


def variances(both: Any, one: Any, none: Any, v0: float, v1: float) -> tuple[Any, Any, Any]:
    """Var Î, Var Û and Cov(Î, Û) of the estimated intersection and union of two sets.

    Args:
        both: how many users have both items.
        one: how many have exactly one of them.
        none: how many have neither.
        v0: the variance of one debiased answer where the truth is 0.
        v1: the same where it is 1.
    """
    intersection = both * ((1 + v1) ** 2 - 1) + one * v0 * (1 + v1) + none * v0**2
    union = none * ((1 + v0) ** 2 - 1) + one * v1 * (1 + v0) + both * v1**2
    return intersection, union, 2 * both * v1 + one * v0 - intersection


def _towards_expected(
    both: jax.Array, mine: jax.Array, theirs: jax.Array, apart: jax.Array, totals: ItemCounts
) -> jax.Array:
    """n̂_ij shrunk to e = n̂_i·n̂_j/M, by how much of the spread around it is noise.

    True counts are taken to spread around e by ρ·e, with a ρ for each item: Σ w((n̂ − e)² − v) / Σ w·e² with weights
    w = e²/v², which give precise pairs the most weight.
    """
    e = mine * theirs / jnp.maximum(totals.reports, 1.0)
    none = jnp.maximum(totals.reports - mine - theirs + e, 0.0)
    v = jnp.maximum(variances(e, mine + theirs - 2 * e, none, *totals.noise)[0], 1e-12)
    w = jnp.where(apart, (e / v) ** 2, 0.0)
    excess = (w * ((both - e) ** 2 - v)).sum(1, keepdims=True)
    spread = jnp.maximum(excess, 0.0) / jnp.maximum((w * e**2).sum(1, keepdims=True), 1e-12) * e**2
    return e + (both - e) * spread / (spread + v)
