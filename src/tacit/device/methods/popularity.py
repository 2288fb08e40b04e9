"""Popularity: how many users have each item. Counts leave the device."""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from tacit.core.catalog import Catalog
from tacit.core.sparse_rows import Rows
from tacit.device.method import OfItems, masked


class Popularity(OfItems):
    """Each device reports which items it has, once; the score is how many devices have an item.

    Paper: TopPop in Cremonesi, Koren and Turrin, "Performance of recommender algorithms on top-N recommendation
    tasks" (RecSys 2010).
    """

    catalog: Catalog
    nonnegative: ClassVar[bool] = True
    private: ClassVar[dict[str, Any]] = {"mechanism": "gaussian", "update_form": "nonnegative"}
    learns: ClassVar[bool] = False
    item_by_item: ClassVar[bool] = True
    suggested: ClassVar[dict[str, Any]] = {"trains": ["counts"], "rounds": 1, "server": {"rule": "count"}}

    def init(self, key: jax.Array) -> dict[str, jax.Array]:
        """No counts yet."""
        del key
        return {"counts": jnp.zeros(self.catalog.n_items, jnp.int32)}

    def local(self, key: jax.Array, params: dict, local: dict, own: Rows) -> tuple[dict, dict, jax.Array]:
        """Send the distinct items."""
        del key, params
        return local, {"counts": own}, jnp.ones(1)

    def score(self, params: dict, local: dict, own: Rows, recent: jax.Array, candidates: jax.Array) -> jax.Array:
        """The count."""
        del local, own, recent
        return masked(params["counts"][candidates].astype(jnp.float32), candidates)
