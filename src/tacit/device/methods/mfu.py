"""MFU: most frequently used items of this user. Nothing leaves the device."""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from tacit.core.catalog import Catalog
from tacit.core.sparse_rows import Rows, coalesce, lookup
from tacit.device.history import History
from tacit.device.method import AtHome, masked


class MostFrequentlyUsed(AtHome):
    """score_i = d_ui, how often this user used item i.

    Paper: the MFU baseline of Shin, Hong and Dey, "Understanding and prediction of mobile application usage for smart
    phones" (UbiComp 2012).
    """

    catalog: Catalog
    learns: ClassVar[bool] = False
    suggested: ClassVar[dict[str, Any]] = {}

    def prepare(self, history: History) -> Rows:
        """The counts d_u."""
        return coalesce(history.items, jnp.ones(history.items.shape), self.catalog.n_items)

    def score(self, params: dict, local: dict, own: Rows, recent: jax.Array, candidates: jax.Array) -> jax.Array:
        """The count."""
        del params, local, recent
        return masked(lookup(own, candidates), candidates)
