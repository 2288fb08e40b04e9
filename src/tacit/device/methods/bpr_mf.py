"""BPR-MF: matrix factorisation trained by Bayesian personalised ranking. Items are trained in the lab on pooled data."""

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

_NEGATIVES = 32  # drawn in each local step; the same number for every history


class BPRMF(AtHome):
    """score_ui = p_u·q_i + b_i, maximising ln σ(score_ui − score_uj) over items i of the user and other items j.

    The lab trains Q and b on pooled data; each user, trained on or new, fits p_u on the device by `steps` steps on the
    same objective.

    Paper: Rendle, Freudenthaler, Gantner and Schmidt-Thieme, "BPR: Bayesian personalized ranking from implicit feedback"
    (UAI 2009).
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
    suggested: ClassVar[dict[str, Any]] = {"trains": ["items", "bias"], "cohort": {"sampler": "pooled"}}

    def init(self, key: jax.Array) -> dict[str, jax.Array]:
        """Small random factors."""
        n = self.catalog.n_items
        return {"items": 0.1 * jax.random.normal(key, (n, self.dim)), "bias": jnp.zeros(n)}

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
        Q, b = params["items"], params["bias"]
        Q_u, b_u = gather(Q, own.index), gather(b, own.index)

        def loss(p: jax.Array, rivals: jax.Array) -> jax.Array:
            # −ln σ(score_i − score_j), the mean over items i of the user and negatives j, and λ|p|²
            ahead = (Q_u @ p + b_u)[:, None] - (Q[rivals] @ p + b[rivals])
            counts = own.value[:, None] * (1.0 - lookup(own, rivals))
            return -(counts * jax.nn.log_sigmoid(ahead)).sum() / jnp.maximum(counts.sum(), 1.0) + self.penalty * p @ p

        rivals = AdamOnNegatives(_NEGATIVES, self.catalog.n_items, self.steps, self.pace)
        return {"person": adam_on_negatives(key, loss, jnp.zeros(self.dim), rivals)}

    def score(self, params: dict, local: dict, own: Rows, recent: jax.Array, candidates: jax.Array) -> jax.Array:
        """p_u·q_i + b_i."""
        del own, recent
        return masked(params["items"][candidates] @ local["person"] + params["bias"][candidates], candidates)
