"""History: the events of one user. The only raw-data type; only device code and the lab may use it."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from tacit.core.catalog import Catalog


class History(NamedTuple):
    """One user's events in order, padded at the end with item -1."""

    items: jax.Array  # int32[L], -1 is padding
    times: jax.Array  # float32[L], seconds since the log began; 0 where the log has no times
    labels: jax.Array  # float32[L], a rating or a weight; 1 where the log has none
    context: jax.Array  # float32[L, Fe], the event's own fields
    person: jax.Array  # float32[Fp], the user's own fields
    share: jax.Array | None = None  # float32[], the share of their items that the user chose to disclose; nan: not set


def plain_history(items: jax.Array, catalog: Catalog | None = None) -> History:
    """A history of items only; the event and user fields of the catalog, if any, are 0.

    >>> plain_history(jnp.arange(3)).person.shape
    (0,)
    """
    items = jnp.asarray(items, jnp.int32)
    length = items.shape[0]
    events, person = (0, 0) if catalog is None else (catalog.event_width, catalog.person_width)
    return History(items, jnp.zeros(length), jnp.ones(length), jnp.zeros((length, events)), jnp.zeros(person))
