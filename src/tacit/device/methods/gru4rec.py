"""GRU4Rec: a gated recurrent unit encodes the session; its state is the user vector. Trained in the lab on pooled data."""

from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp

from tacit.core.settings import setting
from tacit.device.methods._bases.next_item import NextItem
from tacit.nets.factor.least_squares import gather
from tacit.nets.neural.layers import dropout
from tacit.nets.neural.losses import bpr_max, top1_max
from tacit.nets.sequence.gru import GruForm, gru_last_state, gru_states, new_gru
from tacit.nets.sequence.windows import NextItemSamples

_RANKING_LOSSES = {"bpr_max": bpr_max, "top1_max": top1_max}


class GRU4Rec(NextItem):
    """h_t = GRU(h_{t−1}, q_t), ŷ_i = h_t · q_i + b_i: every step of a session predicts the next.

    Input and output embeddings are shared. `objective` is the cross-entropy of a softmax, or a ranking loss (BPR-max,
    TOP1-max) against `negatives`, shared by a batch.

    Paper: Hidasi, Karatzoglou, Baltrunas and Tikk, "Session-based recommendations with recurrent neural networks"
    (ICLR 2016); the two other objectives are those of Hidasi and Karatzoglou (CIKM 2018).
    """

    dim: int = setting(100, at_least=1)
    gru: GruForm = setting("reset_after")
    objective: Literal["cross_entropy", "bpr_max", "top1_max"] = setting("cross_entropy")
    calm: float = setting(1.0, at_least=0.0)  # regularisation of the negatives' scores in the ranking losses
    learns: ClassVar[bool] = True
    suggested: ClassVar[dict[str, Any]] = {
        "trains": ["items", "bias", "input", "state"],
        "hyper": {"dim": 16, "window": 10, "drop": 0.0, "rate": 0.03, "epochs": 40, "batch": 8},
        "cohort": {"sampler": "pooled"},
    }

    @property
    def stride(self) -> int:
        """A window: every step inside it is a sample."""
        return self.window

    def init(self, key: jax.Array) -> dict[str, jax.Array]:
        """Small random items and a new recurrent unit."""
        table, unit = jax.random.split(key)
        n = self.catalog.n_items
        layers = dict(zip(("input", "state"), new_gru(unit, self.dim, self.dim)))
        return {"items": self.dim**-0.5 * jax.random.normal(table, (n, self.dim)), "bias": jnp.zeros(n), **layers}

    def user_vector(self, params: dict, before: jax.Array) -> jax.Array:
        """The state after the last event."""
        x = gather(params["items"], jnp.maximum(before, 0))
        return gru_last_state((params["input"], params["state"]), x, before >= 0, self.gru)

    def losses(self, params: dict, key: jax.Array, some: NextItemSamples) -> tuple[jax.Array, jax.Array]:
        """The loss of the next item at every step."""
        draw, drop = jax.random.split(key)
        following = jnp.concatenate([some.before[:, 1:], some.target[:, None]], axis=1).ravel()
        x = dropout(drop, params["items"][jnp.maximum(some.before, 0)], self.drop)
        layers = (params["input"], params["state"])
        h = gru_states(layers, x, some.before >= 0, self.gru)
        losses = self._losses(params, draw, h.reshape(-1, self.dim), jnp.maximum(following, 0))
        return losses, (some.before.ravel() >= 0) & (following >= 0)

    def _losses(self, params: dict, key: jax.Array, h: jax.Array, target: jax.Array) -> jax.Array:
        if self.objective == "cross_entropy":
            return self.against_all(params, key, h, target)
        return _RANKING_LOSSES[self.objective](*self.negative_scores(params, key, h, target), self.calm)
