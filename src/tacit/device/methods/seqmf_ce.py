"""SeqMF-CE: SeqMF's table and score, trained by cross-entropy over the user's items. Item gradients leave the device."""

from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp

from tacit.core.catalog import Catalog
from tacit.core.settings import setting
from tacit.core.sparse_rows import Rows
from tacit.device.history import History
from tacit.device.method import Method, masked
from tacit.nets.counts.transitions import TransitionCounts, transition_counts
from tacit.nets.factor.least_squares import dot, gather
from tacit.nets.factor.softmax_fit import fit_softmax, masked_log_softmax
from tacit.nets.sequence.windows import latest_events, pool_rows


class SeqMFCrossEntropy(Method):
    """After item i, user u uses j with probability softmax_j(q_j·p_u + q_j·q_i) over the user's own items A_u.

    The smallest change to SeqMF that has no degenerate minimum: the softmax predicts which of the user's items comes next,
    so equal rows of Q are no solution. The user vector is fitted on the device by a few Newton steps.

    Paper: the score is Eq. 8 of Saiapin et al., "Federated privacy-preserving collaborative filtering for on-device next
    app prediction" (UMUAI 2024); the loss is ours.
    """

    catalog: Catalog
    dim: int = setting(64, at_least=1)
    penalty: float = setting(0.03, above=0.0)  # λ of the user vector, beside a mean over steps
    newton: int = setting(3, at_least=1)  # Newton steps for the user vector
    last: int = setting(1, at_least=0)  # events of the session used in a score; 0: all
    pool: Literal["sum", "mean"] = setting("sum")
    spread: float = setting(0.06, above=0.0)  # standard deviation of the first item table
    installed: int = setting(128, at_least=1)  # the most items counted: those used most
    learns: ClassVar[bool] = True
    suggested: ClassVar[dict[str, Any]] = {
        "trains": ["items"],
        "rounds": 40,
        "server": {"rule": "adam", "rate": 0.03, "scale": "mean"},
    }

    def init(self, key: jax.Array) -> dict[str, jax.Array]:
        """Q from a small normal."""
        return {"items": self.spread * jax.random.normal(key, (self.catalog.n_items, self.dim))}

    def prepare(self, history: History) -> TransitionCounts:
        """Counts of items and steps."""
        return transition_counts(history.items, self.catalog.n_items, self.installed)[0]

    def enter(self, key: jax.Array, own: TransitionCounts) -> dict:
        """A vector of zeros, until the first fit."""
        del key, own
        return {"vector": jnp.zeros(self.dim)}

    def local(self, key: jax.Array, params: dict, local: dict, own: TransitionCounts) -> tuple[dict, dict, jax.Array]:
        """Fit p_u, then the gradient of the cross-entropy in the rows of A_u, with p_u held."""
        p = self.adapt(key, params, local, own)["vector"]
        Q_u, chosen = gather(params["items"], own.items), _shares(own)

        def loss(Q_u: jax.Array) -> jax.Array:
            log_shares = masked_log_softmax(dot(Q_u, Q_u.T) + dot(Q_u, p), own.real)
            return -jnp.where(chosen > 0, chosen * log_shares, 0.0).sum()

        F = jnp.where(own.real[:, None], jax.grad(loss)(Q_u), 0.0)
        return {"vector": p}, {"items": Rows(own.items, F, self.catalog.n_items)}, jnp.ones(1)

    def adapt(self, key: jax.Array, params: dict, local: dict, own: TransitionCounts) -> dict:
        """p_u = argmax of the log-likelihood of the user's transitions, less λ/2 |p|²."""
        del key, local
        Q_u = gather(params["items"], own.items)
        return {"vector": fit_softmax(Q_u, dot(Q_u, Q_u.T), _shares(own), own.real, self.penalty, self.newton)}

    def score(
        self, params: dict, local: dict, own: TransitionCounts, recent: jax.Array, candidates: jax.Array
    ) -> jax.Array:
        """q_i·p_u + q_i·Σ q_x over the latest events x."""
        del own
        Q = params["items"]
        wanted = local["vector"] + pool_rows(Q, latest_events(recent, self.last), self.pool)
        return masked(Q[candidates] @ wanted, candidates)


def _shares(own: TransitionCounts) -> jax.Array:
    """The share of each transition in all of the user's."""
    table = own.table
    return table / jnp.maximum(table.sum(), 1.0)
