"""GMF: a weighted product of factors as the log-odds of an interaction. Items are trained in the lab on pooled data."""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from tacit.core.catalog import Catalog
from tacit.core.settings import setting
from tacit.core.sparse_rows import Rows, distinct, lookup
from tacit.device.history import History
from tacit.device.method import AtHome, masked
from tacit.nets.factor.least_squares import gather
from tacit.nets.neural.local_sgd import AdamOnNegatives, adam_on_negatives

_NEGATIVES = 128  # drawn in each local step; the same number for every history


class GMF(AtHome):
    """score_ui = hᵀ(p_u ∘ q_i), the log-odds that a user has an item, against `negatives` sampled items for each.

    The lab trains Q and h on pooled data; each user, trained on or new, fits p_u on the device by `steps` steps on the
    same objective.

    Paper: He, Liao, Zhang, Nie, Hu and Chua, "Neural collaborative filtering" (WWW 2017).
    """

    catalog: Catalog
    dim: int = setting(16, at_least=1)
    rate: float = setting(0.005, above=0.0)  # of Adam, in the lab
    penalty: float = setting(1e-4, at_least=0.0)
    epochs: int = setting(20, at_least=1)
    batch: int = setting(1024, at_least=1)
    negatives: int = setting(4, at_least=1)  # for every item of the user
    steps: int = setting(50, at_least=1)  # on the device
    pace: float = setting(0.1, above=0.0)  # of Adam, on the device
    learns: ClassVar[bool] = True
    suggested: ClassVar[dict[str, Any]] = {"trains": ["items", "mixture"], "cohort": {"sampler": "pooled"}}

    def init(self, key: jax.Array) -> dict[str, jax.Array]:
        """Small random factors, mixed evenly."""
        items = 0.1 * jax.random.normal(key, (self.catalog.n_items, self.dim))
        return {"items": items, "mixture": jnp.ones(self.dim)}

    def prepare(self, history: History) -> Rows:
        """The distinct items, each with weight 1."""
        return distinct(history.items, self.catalog.n_items)

    def enter(self, key: jax.Array, own: Rows) -> dict:
        """A vector of zeros, until the first adaptation."""
        del key, own
        return {"person": jnp.zeros(self.dim)}

    def adapt(self, key: jax.Array, params: dict, local: dict, own: Rows) -> dict:
        """p_u by Adam, with fresh negatives in each step."""
        del local
        Q = params["items"] * params["mixture"]
        Q_u = gather(Q, own.index)

        def loss(p: jax.Array, rivals: jax.Array) -> jax.Array:
            # −ln σ(score_i) and −ln σ(−score_j), the means over items i of the user and negatives j, and λ|p|²
            yes, no = own.value, 1.0 - lookup(own, rivals)
            had = (yes * jax.nn.log_sigmoid(Q_u @ p)).sum() / jnp.maximum(yes.sum(), 1.0)
            not_had = (no * jax.nn.log_sigmoid(-(Q[rivals] @ p))).sum() / jnp.maximum(no.sum(), 1.0)
            return -had - self.negatives * not_had + self.penalty * p @ p

        rivals = AdamOnNegatives(_NEGATIVES, self.catalog.n_items, self.steps, self.pace)
        return {"person": adam_on_negatives(key, loss, jnp.zeros(self.dim), rivals)}

    def score(self, params: dict, local: dict, own: Rows, recent: jax.Array, candidates: jax.Array) -> jax.Array:
        """hᵀ(p_u ∘ q_i)."""
        del own, recent
        return masked(params["items"][candidates] @ (params["mixture"] * local["person"]), candidates)
