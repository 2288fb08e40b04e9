"""NCF: factors and a small network as the log-odds of an interaction (NeuMF). Items are trained in the lab on pooled data."""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from tacit.core.catalog import Catalog
from tacit.core.settings import setting
from tacit.core.sparse_rows import Rows, distinct, lookup
from tacit.device.history import History
from tacit.device.method import AtHome, masked
from tacit.device.methods._bases.likes import liked_events
from tacit.nets.factor.least_squares import gather
from tacit.nets.neural.layers import head_log_odds, new_head
from tacit.nets.neural.local_sgd import AdamOnNegatives, adam_on_negatives
from tacit.nets.neural.losses import cross_entropy

_NEGATIVES = 128  # drawn in each local step; the same number for every history
_ADAM_EPSILON = 1e-3  # on the device: where a gradient vanishes, rounding must not decide the step


class NeuMF(AtHome):
    """score_ui = hᵀ(p_u ∘ q_i) + layers of [p'_u, q'_i]: generalised factors plus a network.

    The lab trains everything but user vectors on pooled data; each user, trained on or new, fits p_u and p'_u on the device
    by `steps` steps on the same objective. Only liked items count: those rated above `above`, or all without ratings.

    Paper: He, Liao, Zhang, Nie, Hu and Chua, "Neural collaborative filtering" (WWW 2017).
    """

    catalog: Catalog
    dim: int = setting(16, at_least=1)  # of each of the two vectors
    hidden: tuple = setting((32, 16))
    rate: float = setting(0.005, above=0.0)  # of Adam, in the lab
    penalty: float = setting(1e-4, at_least=0.0)
    epochs: int = setting(10, at_least=1)
    batch: int = setting(1024, at_least=1)
    negatives: int = setting(4, at_least=1)  # for every item liked
    steps: int = setting(50, at_least=1)  # on the device
    pace: float = setting(0.1, above=0.0)  # of Adam, on the device
    above: float = setting(3.0)  # a rating above this is liked
    learns: ClassVar[bool] = True
    suggested: ClassVar[dict[str, Any]] = {"trains": ["items", "mixture", "head"], "cohort": {"sampler": "pooled"}}

    @property
    def sizes(self) -> tuple[int, ...]:
        """The sizes of the network's layers."""
        return (2 * self.dim, *self.hidden, 1)

    def init(self, key: jax.Array) -> dict[str, jax.Array]:
        """Small random vectors, factors mixed evenly, a random network."""
        table, head = jax.random.split(key)
        items = 0.1 * jax.random.normal(table, (self.catalog.n_items, 2 * self.dim))
        return {"items": items, "mixture": jnp.ones(self.dim), "head": new_head(head, self.sizes)}

    def prepare(self, history: History) -> Rows:
        """The distinct liked items, each with weight 1."""
        return distinct(jnp.where(liked_events(history, self.above), history.items, -1), self.catalog.n_items)

    def enter(self, key: jax.Array, own: Rows) -> dict:
        """A vector of zeros, until the first adaptation."""
        del key, own
        return {"person": jnp.zeros(2 * self.dim)}

    def adapt(self, key: jax.Array, params: dict, local: dict, own: Rows) -> dict:
        """p_u and p'_u by Adam, with fresh negatives in each step."""
        del local
        q = gather(params["items"], own.index)

        def loss(p: jax.Array, rivals: jax.Array) -> jax.Array:
            # the cross-entropies of the user's items and of negatives, and λ|p|²
            had = cross_entropy(self.odds(params, p, q), jnp.ones(q.shape[0]), own.value)
            odds = self.odds(params, p, params["items"][rivals])
            not_had = cross_entropy(odds, jnp.zeros(_NEGATIVES), 1.0 - lookup(own, rivals))
            return had + self.negatives * not_had + self.penalty * p @ p

        rivals = AdamOnNegatives(_NEGATIVES, self.catalog.n_items, self.steps, self.pace, _ADAM_EPSILON)
        return {"person": adam_on_negatives(key, loss, jnp.zeros(2 * self.dim), rivals)}

    def odds(self, params: dict, p: jax.Array, q: jax.Array) -> jax.Array:
        """Σ h (p ∘ q) + layers of [p', q'], for one user and items [n, 2d]."""
        d = self.dim
        factors = q[:, :d] @ (params["mixture"] * p[:d])
        return factors + head_log_odds(params["head"], self.sizes, p[None, d:], q[:, d:])

    def score(self, params: dict, local: dict, own: Rows, recent: jax.Array, candidates: jax.Array) -> jax.Array:
        """The log-odds that a candidate is liked."""
        del own, recent
        return masked(self.odds(params, local["person"], params["items"][candidates]), candidates)
