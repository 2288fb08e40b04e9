"""Tastes: directions in which people differ, read off one sum of what goes together. One message leaves the device."""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from tacit.core.catalog import Catalog
from tacit.core.settings import setting
from tacit.core.sparse_rows import Rows, dense
from tacit.device.method import OfItems, masked


class Tastes(OfItems):
    """s(u, i) = ln(1 + n_i/smooth) + strength · v_i · Σ_j x̂_uj v_j, with the person's true items x̂ at home.

    An earlier stage of `popularity` counts how many people have each item, n. Among the `most` frequent ones each
    device sends what it has together, x̂x̂ᵀ of norm 1: no bound cuts it, and one noisy sum is all that is ever released.
    The server reads the vectors v off it. Items that are not frequent are ranked by their counts.

    Paper: McSherry and Mironov, "Differentially private recommender systems" (KDD 2009), and Dwork, Talwar, Thakurta and
    Zhang, "Analyze Gauss" (STOC 2014), for the noisy matrix.
    """

    catalog: Catalog
    most: int = setting(200, at_least=2)  # K
    dim: int = setting(8, at_least=1)
    strength: float = setting(20.0, at_least=0.0)
    smooth: float = setting(10.0, above=0.0)
    learns: ClassVar[bool] = True
    suggested: ClassVar[dict[str, Any]] = {
        "trains": ["vectors"],
        "hyper": {"dim": 4},  # few people have few tastes
        "rounds": 1,
        "server": {"rule": "principal_directions"},
    }

    def init(self, key: jax.Array) -> dict[str, jax.Array]:
        """No counts and no directions yet."""
        del key
        n = self.catalog.n_items
        return {"counts": jnp.zeros(n, jnp.int32), "vectors": jnp.zeros((min(self.most, n), self.dim))}

    def local(self, key: jax.Array, params: dict, local: dict, own: Rows) -> tuple[dict, dict, jax.Array]:
        """x̂x̂ᵀ, once."""
        del key
        x = self._share(params, own)
        return local, {"together": jnp.outer(x, x)}, jnp.ones(1)

    def adapt(self, key: jax.Array, params: dict, local: dict, own: Rows) -> dict:
        """Where the person stands: Σ_j x̂_uj v_j."""
        del key, local
        return {"taste": self._share(params, own) @ params["vectors"]}

    def score(self, params: dict, local: dict, own: Rows, recent: jax.Array, candidates: jax.Array) -> jax.Array:
        """The logarithm of the count, and how far the item lies in the person's direction."""
        del recent
        taste = local["taste"] if "taste" in local else self._share(params, own) @ params["vectors"]
        lean = jnp.zeros(self.catalog.n_items).at[self._frequent(params)].set(params["vectors"] @ taste)
        counts = jnp.maximum(params["counts"], 0)
        known = jnp.log1p(counts / self.smooth) + self.strength * lean
        return masked(known[candidates], candidates)

    def _share(self, params: dict, own: Rows) -> jax.Array:
        """x̂ = x/‖x‖ among the frequent items; nothing at all stays nothing."""
        x = dense(own)[self._frequent(params)].astype(jnp.float32)
        return x / jnp.maximum(jnp.sqrt(x.sum()), 1.0)

    def _frequent(self, params: dict) -> jax.Array:
        """int32[K], the items that most people have."""
        return jax.lax.top_k(params["counts"], params["vectors"].shape[0])[1]
