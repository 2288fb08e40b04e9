"""Item covariance: principal directions of one noisy sum of user outer products. One message leaves the device."""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from tacit.core.catalog import Catalog
from tacit.core.settings import setting
from tacit.core.sparse_rows import Rows, dense
from tacit.device.method import OfItems, masked


class ItemCovariance(OfItems):
    """s(u, i) = ln(1 + n_i/smooth) + strength · v_i · Σ_j x̂_uj v_j, with the user's true items x̂ on the device.

    An earlier stage of `popularity` counts how many users have each item, n. Over the `most` frequent items each device
    sends x̂x̂ᵀ, which has norm 1 without clipping, and one noisy sum is all that is ever released. The server's rule reads
    the vectors v off it as principal directions. Items that are not frequent are ranked by their counts.

    Paper: McSherry and Mironov, "Differentially private recommender systems" (KDD 2009), and Dwork, Talwar, Thakurta and
    Zhang, "Analyze Gauss" (STOC 2014), for the noisy matrix.
    """

    catalog: Catalog
    most: int = setting(200, at_least=2)  # K
    dim: int = setting(8, at_least=1)
    strength: float = setting(20.0, at_least=0.0)
    smooth: float = setting(10.0, above=0.0)
    former_names: ClassVar[tuple[str, ...]] = ("tastes",)
    nonnegative: ClassVar[bool] = True
    private: ClassVar[dict[str, Any]] = {"mechanism": "gaussian", "update_form": "nonnegative"}
    outer_products: ClassVar[bool] = True
    learns: ClassVar[bool] = True
    suggested: ClassVar[dict[str, Any]] = {
        "trains": ["vectors"],
        "hyper": {"dim": 4},  # the method test has few users
        "rounds": 1,
        "server": {"rule": "principal_directions"},
    }

    def init(self, key: jax.Array) -> dict[str, jax.Array]:
        """Counts and vectors of zeros."""
        del key
        n = self.catalog.n_items
        return {"counts": jnp.zeros(n, jnp.int32), "vectors": jnp.zeros((min(self.most, n), self.dim))}

    def local(self, key: jax.Array, params: dict, local: dict, own: Rows) -> tuple[dict, dict, jax.Array]:
        """Send x̂x̂ᵀ, once."""
        del key
        x = self._normalised(params, own)
        return local, {"together": jnp.outer(x, x)}, jnp.ones(1)

    def adapt(self, key: jax.Array, params: dict, local: dict, own: Rows) -> dict:
        """The user vector Σ_j x̂_uj v_j."""
        del key, local
        return {"taste": self._normalised(params, own) @ params["vectors"]}

    def score(self, params: dict, local: dict, own: Rows, recent: jax.Array, candidates: jax.Array) -> jax.Array:
        """The logarithm of the count, plus the product of item vector and user vector."""
        del recent
        user = local["taste"] if "taste" in local else self._normalised(params, own) @ params["vectors"]
        preference = jnp.zeros(self.catalog.n_items).at[self._frequent(params)].set(params["vectors"] @ user)
        counts = jnp.maximum(params["counts"], 0)
        scores = jnp.log1p(counts / self.smooth) + self.strength * preference
        return masked(scores[candidates], candidates)

    def _normalised(self, params: dict, own: Rows) -> jax.Array:
        """x̂ = x/‖x‖ over the frequent items; 0 where the user has none of them."""
        x = dense(own)[self._frequent(params)].astype(jnp.float32)
        return x / jnp.maximum(jnp.sqrt(x.sum()), 1.0)

    def _frequent(self, params: dict) -> jax.Array:
        """int32[K], the items that most users have."""
        return jax.lax.top_k(params["counts"], params["vectors"].shape[0])[1]
