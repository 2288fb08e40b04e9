"""Popularity: what most people have. Counts leave the device."""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from tacit.catalog import Catalog
from tacit.device.history import History
from tacit.device.method import Method, masked
from tacit.rows import Rows, distinct


class Popularity(Method):
    """Each device reports which items it has, once; the score is how many devices have an item.

    Paper: TopPop in Cremonesi, Koren and Turrin, "Performance of recommender algorithms on top-N recommendation
    tasks" (RecSys 2010).
    """

    catalog: Catalog
    learns: ClassVar[bool] = False
    suggested: ClassVar[dict[str, Any]] = {"trains": ["counts"], "rounds": 1, "server": {"rule": "count"}}

    def init(self, key: jax.Array) -> dict[str, jax.Array]:
        """No counts yet."""
        del key
        return {"counts": jnp.zeros(self.catalog.n_items, jnp.int32)}

    def prepare(self, history: History) -> Rows:
        """The distinct items, each with count 1."""
        return distinct(history.items, self.catalog.n_items, jnp.int32)

    def enter(self, key: jax.Array, own: Rows) -> dict:
        """No private state."""
        del key, own
        return {}

    def local(self, key: jax.Array, params: dict, local: dict, own: Rows) -> tuple[dict, dict, jax.Array]:
        """Send the distinct items."""
        del key, params
        return local, {"counts": own}, jnp.ones(1)

    def adapt(self, key: jax.Array, params: dict, local: dict, own: Rows) -> dict:
        """Nothing to adapt."""
        del key, params, own
        return local

    def score(self, params: dict, local: dict, own: Rows, recent: jax.Array, candidates: jax.Array) -> jax.Array:
        """The count."""
        del local, own, recent
        return masked(params["counts"][candidates].astype(jnp.float32), candidates)
