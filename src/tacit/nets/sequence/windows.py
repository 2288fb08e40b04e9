"""Windows: the events before a given event, the newest events of a sequence, recency inside a session.

Events are int[r], newest last; -1 is padding.
"""

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp

# ---- windows of sequences ----


class NextItemSamples(NamedTuple):
    """Context, target and negatives of some events: item numbers, -1 is padding."""

    before: jax.Array  # int32[b, window]
    target: jax.Array  # int32[b]
    rivals: jax.Array  # int32[b, K]
    real: jax.Array  # bool[b]


def next_item_samples(
    key: jax.Array, items: jax.Array, place: jax.Array, at: jax.Array, window: int, draw: tuple
) -> NextItemSamples:
    """For the events `at`: the window before each in its own sequence, and negatives drawn uniformly, draw = (K, n_items).

    The first event of a sequence is no sample, nor is one out of range; negatives that are in the window become padding.
    """
    length = items.shape[0]
    real = (at >= 0) & (at < length)
    at = jnp.clip(at, 0, length - 1)
    real &= place[at] >= 1
    before = _before(items, at, jnp.where(real, place[at], 0), window)
    count, n_items = draw
    rivals = jax.random.randint(key, (at.shape[0], count), 0, n_items)
    met = (rivals[:, :, None] == before[:, None, :]).any(axis=2) | (rivals == items[at][:, None])
    return NextItemSamples(before, jnp.where(real, items[at], -1), jnp.where(met, -1, rivals), real)


def newest_sequence(items: jax.Array, place: jax.Array, window: int) -> jax.Array:
    """The last events of the newest sequence, int32[window]; padding is in front."""
    last = jnp.max(jnp.where(items >= 0, jnp.arange(items.shape[0]), -1))
    seen = jnp.where(last >= 0, place[jnp.maximum(last, 0)] + 1, 0)
    return _before(items, last[None] + 1, seen[None], window)[0]


def newest_places(items: jax.Array, most: int) -> jax.Array:
    """Positions of the newest events in a history padded at its end, oldest first; at most `most`, then padding.

    >>> newest_places(jnp.array([4, 5, 6, -1]), 2).tolist()
    [1, 2]
    """
    most = min(most, items.shape[0])
    return jnp.maximum((items >= 0).sum() - most, 0) + jnp.arange(most)


def right_aligned(events: jax.Array, window: int) -> jax.Array:
    """The last `window` of some events, padded in front.

    >>> right_aligned(jnp.array([4, 5]), 3).tolist()
    [-1, 4, 5]
    """
    return jnp.concatenate([jnp.full(window, -1, events.dtype), events])[-window:]


def _before(items: jax.Array, at: jax.Array, seen: jax.Array, window: int) -> jax.Array:
    """The `seen` events before each place `at`, at most `window` of them."""
    back = jnp.arange(window, 0, -1)
    index = at[:, None] - back
    inside = (back <= seen[:, None]) & (index >= 0)
    return jnp.where(inside, items[jnp.maximum(index, 0)], -1)


# ---- a session's latest events ----


def latest_events(recent: jax.Array, last: int) -> jax.Array:
    """The newest `last` events, newest first, -1 where there are fewer; `last = 0` means all of them.

    >>> latest_events(jnp.array([-1, 4, 7, 4]), 2).tolist()
    [4, 7]
    """
    places = jnp.where(recent >= 0, jnp.arange(recent.shape[0]), -1)
    at = jax.lax.top_k(places, min(last or recent.shape[0], recent.shape[0]))[0]
    return jnp.where(at >= 0, recent[at], -1)


def pool_rows(table: jax.Array, events: jax.Array, pool: Literal["sum", "mean"]) -> jax.Array:
    """The sum or mean of the rows of some events; 0 where there are none."""
    real = events >= 0
    total = jnp.where(real[:, None], table[events], 0).sum(axis=0)
    return total / jnp.maximum(real.sum(), 1) if pool == "mean" else total


def recency(recent: jax.Array, candidates: jax.Array) -> jax.Array:
    """How many distinct items ago each candidate was last used, not counting the newest event's own item; 0: not at all.

    >>> recency(jnp.array([-1, 5, 2, 2, 5, 3, 9]), jnp.array([2, 3, 5, 9, 7])).tolist()
    [3, 1, 2, 0, 0]
    """
    events = latest_events(recent, 0)
    again = jnp.tril(events[:, None] == events[None, :], -1).any(axis=1)  # used later too: not its latest use
    counts = (events >= 0) & ~again & (events != events[0])
    order = jnp.where(counts, jnp.cumsum(counts), 0)
    return jnp.where(events[None, :] == candidates[:, None], order, 0).max(axis=1)
