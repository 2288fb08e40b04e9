"""Liking: which events of a history speak for an item."""

import jax
import jax.numpy as jnp

from tacit.device.history import History


def liked(history: History, above: float) -> jax.Array:
    """bool[L]: rated above a number; in a history without ratings, whose labels are all 1, every event.

    >>> from tacit.device.history import plain_history
    >>> rated = plain_history([7, 8, -1])._replace(labels=jnp.array([4.0, 2.0, 0.0]))
    >>> liked(rated, 3.0).tolist(), liked(plain_history([7, -1]), 3.0).tolist()
    ([True, False, False], [True, False])
    """
    exists = history.items >= 0
    rated = jnp.max(jnp.where(exists, history.labels, 0.0)) > 1
    return exists & (history.labels > jnp.where(rated, above, 0.0))
