"""DPLCF: item-based neighbours from randomised bits. One report of randomised bits leaves the device."""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from tacit.core.catalog import Catalog
from tacit.core.settings import setting
from tacit.core.sparse_rows import Rows, dense
from tacit.device.method import OfItems, masked


class DPLCF(OfItems):
    """s(u, i) = Σ_{j ∈ KNN(i)} similarity(i, j)·R_uj, with the true history R_u and the neighbours of the candidate i.

    Each device reports its items once, randomised by the mechanism; the server estimates item similarities and broadcasts
    each item's nearest `neighbours`. A new user needs only that table.

    Paper: Gao, Huang, Lin, Jin and Li, "DPLCF: differentially private local collaborative filtering" (SIGIR 2020).
    """

    catalog: Catalog
    neighbours: int = setting(20, at_least=1)
    learns: ClassVar[bool] = True
    item_by_item: ClassVar[bool] = True
    suggested: ClassVar[dict[str, Any]] = {
        "trains": ["neighbours", "similarity"],
        "rounds": 1,
        "privacy": {"mechanism": "cooccurrence", "epsilon": 1.0},
        "server": {"rule": "similarity"},
    }

    def init(self, key: jax.Array) -> dict[str, jax.Array]:
        """No neighbours; padding is the number of items."""
        del key
        n, k = self.catalog.n_items, min(self.neighbours, self.catalog.n_items)
        return {"neighbours": jnp.full((n, k), n, jnp.int32), "similarity": jnp.zeros((n, k))}

    def local(self, key: jax.Array, params: dict, local: dict, own: Rows) -> tuple[dict, dict, jax.Array]:
        """Report the items of the history."""
        del key, params
        return local, {"items": own}, jnp.ones(1)

    def score(self, params: dict, local: dict, own: Rows, recent: jax.Array, candidates: jax.Array) -> jax.Array:
        """Σ similarity over those of the candidate's neighbours that the user has."""
        del local, recent
        has = jnp.append(dense(own), 0).astype(jnp.float32)  # padding is no item
        near = params["neighbours"][candidates]
        return masked((params["similarity"][candidates] * has[near]).sum(-1), candidates)
