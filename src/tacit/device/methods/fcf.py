"""FCF: matrix factorisation whose user vectors never leave the device; item gradients do."""

from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp

from tacit.core.catalog import Catalog
from tacit.core.settings import setting
from tacit.core.sparse_rows import Rows, coalesce
from tacit.device.history import History
from tacit.device.method import Method, masked
from tacit.nets.factor.least_squares import dot, gather, ridge


class FCF(Method):
    """Solve the user vector on the device, send the gradient of the item table.

    Three weightings of the user's counts d_ui:

    - `all`: every item has weight 1, an item used d times 1 + alpha·d; the target is 1 where d > 0, else 0. The
      update is dense.
    - `own`: only the items used have weight, d^gamma / Σ d^gamma, all with target 1. The update is row-sparse; the
      objective ignores unused items, and long training makes all scores equal.
    - `split`: the vector is solved from the items used alone, each with weight 1, and the gradient taken over all items,
      each with weight 1, doubled. The two belong to different objectives; it is here for comparison with published numbers.

    Paper: Ammad-ud-din et al., "Federated collaborative filtering for privacy-preserving personalized recommendation
    system" (2019); weighting `own` is Eq. 9 of Saiapin et al. (2024) without its sequence term, and `split` is what
    Anelli et al. (2021) ran.
    """

    catalog: Catalog
    dim: int = setting(16, at_least=1)
    penalty: float = setting(1.0, above=0.0)  # λ of the user vector; the item table's is the server's decay
    weights: Literal["all", "own", "split"] = setting("all")
    alpha: float = setting(1.0, at_least=0.0)
    gamma: float = setting(1.0, at_least=0.0)
    spread: float = setting(0.1, above=0.0)  # standard deviation of the first item table
    learns: ClassVar[bool] = True
    suggested: ClassVar[dict[str, Any]] = {
        "trains": ["items"],
        "rounds": 30,
        "server": {"rule": "adam", "rate": 0.05, "scale": "mean"},
    }

    def init(self, key: jax.Array) -> dict[str, jax.Array]:
        """Q from a small normal."""
        return {"items": self.spread * jax.random.normal(key, (self.catalog.n_items, self.dim))}

    def prepare(self, history: History) -> Rows:
        """The weight c_ui of each item used."""
        own = coalesce(history.items, jnp.ones(history.items.shape), self.catalog.n_items)
        d = own.value
        if self.weights == "all":
            return own.with_value(jnp.where(d > 0, 1 + self.alpha * d, 0.0))
        if self.weights == "split":
            return own.with_value(jnp.minimum(d, 1.0))
        # c_ui = d_ui^γ / Σ_j d_uj^γ, and 0^γ := 0
        power = jnp.where(d > 0, d**self.gamma, 0.0)
        return own.with_value(power / jnp.maximum(power.sum(), 1e-30))

    def enter(self, key: jax.Array, own: Rows) -> dict:
        """A small random vector, until the first solve."""
        del own
        return {"vector": 0.01 * jax.random.normal(key, (self.dim,))}

    def local(self, key: jax.Array, params: dict, local: dict, own: Rows) -> tuple[dict, dict, jax.Array]:
        """Solve p_u, then the exact gradient of the squared error in Q with p_u held."""
        local = self.adapt(key, params, local, own)
        gradient = self._gradient(params["items"], local["vector"], own)
        return local, {"items": gradient}, jnp.ones(1)

    def adapt(self, key: jax.Array, params: dict, local: dict, own: Rows) -> dict:
        """p_u = (QᵀC Q + λI)⁻¹ QᵀC a."""
        del key, local
        Q, c = params["items"], own.value
        Q_u = gather(Q, own.index)
        penalty = self.penalty * jnp.eye(self.dim)
        if self.weights != "all":
            return {"vector": ridge(Q_u, c, dot(c, Q_u), penalty)}
        # QᵀC Q = QᵀQ + Q_uᵀ(C_u − I)Q_u: the term of the unused items is the same for all users.
        return {"vector": ridge(Q_u, jnp.where(c > 0, c - 1, 0.0), dot(c, Q_u), penalty + dot(Q.T, Q))}

    def _gradient(self, Q: jax.Array, p: jax.Array, own: Rows) -> jax.Array | Rows:
        c = own.value
        # w_i = c_i (q_i·p − a_i), and F = w pᵀ
        used = c * (dot(gather(Q, own.index), p) - 1.0)
        if self.weights == "own":
            return own.with_value(jnp.outer(used, p))
        w = dot(Q, p).at[own.index].set(used, mode="drop")
        return jnp.outer(w, p) * (2.0 if self.weights == "split" else 1.0)

    def score(self, params: dict, local: dict, own: Rows, recent: jax.Array, candidates: jax.Array) -> jax.Array:
        """q_i·p_u."""
        del own, recent
        return masked(params["items"][candidates] @ local["vector"], candidates)
