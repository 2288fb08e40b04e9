"""GMF: a weighted product of factors as the odds of an interaction. Items are fitted in the lab from pooled data."""

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

_RIVALS = 128  # items not had, drawn in each step at home; as many whatever the history


class GMF(AtHome):
    """score_ui = hᵀ(p_u ∘ q_i), the log-odds that a person has an item, against `negatives` items not had for each.

    The lab fits Q and h from everybody's data; a person, trained on or new, finds p_u at home by `steps` steps on the
    same objective.

    Paper: He, Liao, Zhang, Nie, Hu and Chua, "Neural collaborative filtering" (WWW 2017).
    """

    catalog: Catalog
    dim: int = setting(16, at_least=1)
    rate: float = setting(0.005, above=0.0)  # of Adam, in the lab
    penalty: float = setting(1e-4, at_least=0.0)
    epochs: int = setting(20, at_least=1)
    batch: int = setting(1024, at_least=1)
    negatives: int = setting(4, at_least=1)  # for every item had
    steps: int = setting(50, at_least=1)  # at home
    pace: float = setting(0.1, above=0.0)  # of Adam, at home
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
        """A person of no taste, until the first adaptation."""
        del key, own
        return {"person": jnp.zeros(self.dim)}

    def adapt(self, key: jax.Array, params: dict, local: dict, own: Rows) -> dict:
        """p_u by Adam, with fresh items not had in each step."""
        del local
        Q = params["items"] * params["mixture"]
        Q_u = gather(Q, own.index)

        def loss(p: jax.Array, rivals: jax.Array) -> jax.Array:
            # −ln σ(score_i) and −ln σ(−score_j), the means over items had i and not had j, and λ|p|²
            yes, no = own.value, 1.0 - lookup(own, rivals)
            had = (yes * jax.nn.log_sigmoid(Q_u @ p)).sum() / jnp.maximum(yes.sum(), 1.0)
            not_had = (no * jax.nn.log_sigmoid(-(Q[rivals] @ p))).sum() / jnp.maximum(no.sum(), 1.0)
            return -had - self.negatives * not_had + self.penalty * p @ p

        rivals = AdamOnNegatives(_RIVALS, self.catalog.n_items, self.steps, self.pace)
        return {"person": adam_on_negatives(key, loss, jnp.zeros(self.dim), rivals)}

    def score(self, params: dict, local: dict, own: Rows, recent: jax.Array, candidates: jax.Array) -> jax.Array:
        """hᵀ(p_u ∘ q_i)."""
        del own, recent
        return masked(params["items"][candidates] @ (params["mixture"] * local["person"]), candidates)
