"""History: what one person did. The only raw-data type; only device code and the lab may hold one."""

from typing import NamedTuple

import jax
import jax.numpy as jnp


class History(NamedTuple):
    """One person's events in order, padded at the end with item -1."""

    items: jax.Array  # int32[L], -1 is padding
    times: jax.Array  # float32[L], seconds since the log began; 0 where the log has no times
    labels: jax.Array  # float32[L], a rating or a weight; 1 where the log has none
    context: jax.Array  # float32[L, Fe], the event's own fields
    person: jax.Array  # float32[Fp], the person's own fields


def plain_history(items: jax.Array) -> History:
    """A history of items alone."""
    items = jnp.asarray(items, jnp.int32)
    length = items.shape[0]
    return History(items, jnp.zeros(length), jnp.ones(length), jnp.zeros((length, 0)), jnp.zeros(0))
