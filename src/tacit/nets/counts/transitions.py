"""Transitions: which items a user has, and how often one follows another, indexed by a short local list of items."""

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from tacit.core.sparse_rows import Rows, coalesce, dense
from tacit.nets.factor.least_squares import dot

SECONDS_PER_DAY = 86_400.0  # seconds
Orientation = Literal["source", "target"]
Denominator = Literal["occurrences", "departures"]


class TransitionCounts(NamedTuple):
    """A user's items, how often each was used, and the transitions between them, by position in the list of items."""

    items: jax.Array  # int32[n], ascending; padding is the number of items
    uses: jax.Array  # float32[n], 0 on padding
    steps: jax.Array | Rows  # n_ij at i·n + j, float32[n²]; a short history keeps only the pairs that occur

    @property
    def real(self) -> jax.Array:
        """Where there is an item, bool[n]."""
        return self.uses > 0

    @property
    def table(self) -> jax.Array:
        """n_ij, float32[n, n]."""
        n = self.items.shape[0]
        return dense(self.steps).reshape(n, n)


def transition_counts(items: jax.Array, n_items: int, most: int) -> tuple[TransitionCounts, jax.Array]:
    """The transition counts of a sequence, and the position of each event's item in their list; -1 is padding.

    Of more than `most` items the list holds the most used ones; events of other items have position -1.
    """
    index, uses = _used(items, n_items, most)
    n, place = index.shape[0], locate(index, items)
    pairs, length = pair_of(place, n), items.shape[0] - 1
    # With few steps the pairs that occur are the smaller and the faster form, with many the whole table.
    if 0 < 8 * length < n * n:
        return TransitionCounts(index, uses, coalesce(pairs, jnp.ones(length), n * n)), place
    return TransitionCounts(index, uses, scatter_count(pairs, jnp.ones(length), n * n)), place


def _used(items: jax.Array, n_items: int, most: int) -> tuple[jax.Array, jax.Array]:
    """The distinct items and their counts, at most `most` of them."""
    own = coalesce(items, jnp.ones(items.shape), n_items)
    n = min(items.shape[0], n_items)
    index, uses = own.index[:n], own.value[:n]
    if most >= n:
        return index, uses
    kept = jnp.sort(jax.lax.top_k(uses, most)[1])
    return index[kept], uses[kept]


def locate(index: jax.Array, items: jax.Array) -> jax.Array:
    """The position of each item in an ascending list, -1 where it is not in it."""
    place = jnp.minimum(jnp.searchsorted(index, items), index.shape[0] - 1)
    return jnp.where((items >= 0) & (index[place] == items), place, -1)


def pair_of(place: jax.Array, n: int) -> jax.Array:
    """i·n + j for each event and the one before it, n² where either has no position; int32[L − 1]."""
    source, target = place[:-1], place[1:]
    return jnp.where((source >= 0) & (target >= 0), source * n + target, n * n)


def scatter_count(index: jax.Array, weight: jax.Array, size: int) -> jax.Array:
    """Σ weight at each index; an index that is too large is dropped."""
    return jnp.zeros(size).at[index].add(weight, mode="drop")


def within_days(items: jax.Array, times: jax.Array, days: float) -> jax.Array:
    """The items of the last `days` days before the newest event; older ones become padding."""
    newest = jnp.where(items >= 0, times, -jnp.inf).max()
    return jnp.where(times >= newest - days * SECONDS_PER_DAY, items, -1)


# ---- SeqMF's design matrix ----


def transition_design(
    table: jax.Array,
    uses: jax.Array,
    orientation: Orientation = "source",
    denominator: Denominator = "occurrences",
) -> jax.Array:
    """S_ij, the weight of item j for item i, float[n, n], from n_ij and how often each item was used.

    The defaults are the worked example of the paper (Eq. 6): S_ij = n_ij / occurrences of i. Eq. 5 as printed has
    n_ji above (`target`) and the times i was left below (`departures`).
    """
    below = uses if denominator == "occurrences" else table.sum(axis=1)
    above = table if orientation == "source" else table.T
    return above / jnp.where(below > 0, below, 1.0)[:, None]


def relative_transitions(
    own: TransitionCounts, orientation: Orientation = "source", denominator: Denominator = "occurrences"
) -> jax.Array | Rows:
    """S as `transition_design` has it, flat, in the form of the steps."""
    if not isinstance(own.steps, Rows):
        return transition_design(own.table, own.uses, orientation, denominator).reshape(-1)
    n, steps = own.items.shape[0], own.steps
    source, target = ends_of(steps, n)
    below = own.uses if denominator == "occurrences" else scatter_count(source, steps.value, n)
    if orientation == "target":  # n_ji stands at j·n + i, and belongs to i·n + j
        steps = coalesce(jnp.where(source < n, target * n + source, n * n), steps.value, n * n)
        source = ends_of(steps, n)[0]
    return steps.with_value(steps.value / jnp.maximum(below.at[source].get(mode="clip"), 1.0))


def ends_of(steps: Rows, n: int) -> tuple[jax.Array, jax.Array]:
    """i and j of each pair; i is n on padding, where a scatter drops it."""
    return steps.index // n, steps.index % n


def apply_transitions(steps: jax.Array | Rows, rows: jax.Array) -> jax.Array:
    """S Q, float[n, d]."""
    n = rows.shape[0]
    if not isinstance(steps, Rows):
        return dot(steps.reshape(n, n), rows)

    def by_pairs(steps: Rows, rows: jax.Array) -> jax.Array:
        i, j = ends_of(steps, n)
        return jnp.zeros_like(rows).at[i].add(steps.value[:, None] * rows[j], mode="drop")

    return lax.platform_dependent(steps, rows, cpu=by_pairs, default=lambda steps, rows: dot(_square(steps, n), rows))


def apply_transposed(steps: jax.Array | Rows, rows: jax.Array) -> jax.Array:
    """Sᵀ Q, float[n, d]."""
    n = rows.shape[0]
    if not isinstance(steps, Rows):
        return dot(steps.reshape(n, n).T, rows)

    def by_pairs(steps: Rows, rows: jax.Array) -> jax.Array:
        i, j = ends_of(steps, n)
        return jnp.zeros_like(rows).at[j].add(steps.value[:, None] * rows.at[i].get(mode="clip"))

    return lax.platform_dependent(steps, rows, cpu=by_pairs, default=lambda steps, rows: dot(_square(steps, n).T, rows))


def _square(steps: Rows, n: int) -> jax.Array:
    """S as a dense matrix: a GPU multiplies a small square faster than it gathers a few pairs row by row."""
    return scatter_count(steps.index, steps.value, n * n).reshape(n, n)
