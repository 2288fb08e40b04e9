"""Session: what the latest events of a session say. Events are int[r], newest last; -1 is padding."""

from typing import Literal

import jax
import jax.numpy as jnp


def newest(recent: jax.Array, last: int) -> jax.Array:
    """The newest `last` events, newest first, -1 where there are fewer; 0 stands for all of them.

    >>> newest(jnp.array([-1, 4, 7, 4]), 2).tolist()
    [4, 7]
    """
    places = jnp.where(recent >= 0, jnp.arange(recent.shape[0]), -1)
    at = jax.lax.top_k(places, min(last or recent.shape[0], recent.shape[0]))[0]
    return jnp.where(at >= 0, recent[at], -1)


def pooled(table: jax.Array, events: jax.Array, pool: Literal["sum", "mean"]) -> jax.Array:
    """The sum, or the mean, of the rows of some events; 0 where there are none."""
    real = events >= 0
    total = jnp.where(real[:, None], table[events], 0).sum(axis=0)
    return total / jnp.maximum(real.sum(), 1) if pool == "mean" else total


def recency(recent: jax.Array, candidates: jax.Array) -> jax.Array:
    """How many other items ago each candidate was last used, not counting the newest event's own item; 0: not at all.

    >>> recency(jnp.array([-1, 5, 2, 2, 5, 3, 9]), jnp.array([2, 3, 5, 9, 7])).tolist()
    [3, 1, 2, 0, 0]
    """
    events = newest(recent, 0)
    again = jnp.tril(events[:, None] == events[None, :], -1).any(axis=1)  # used later too: not its latest use
    counts = (events >= 0) & ~again & (events != events[0])
    order = jnp.where(counts, jnp.cumsum(counts), 0)
    return jnp.where(events[None, :] == candidates[:, None], order, 0).max(axis=1)
