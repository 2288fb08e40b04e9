"""SR-GNN: a gated graph network over the items of a session, read by attention. Trained in the lab on pooled data."""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from tacit.core.settings import setting
from tacit.device.methods._bases.next_item import NextItem
from tacit.nets.neural.graph import SESSION_LAYERS, graph_step, new_session_graph, read_out
from tacit.nets.neural.layers import dropout
from tacit.nets.sequence.windows import NextItemSamples


class SRGNN(NextItem):
    """ŷ_i = u · q_i, where u combines the last item of the session's graph with all of them.

    Every event but a sequence's first is a sample of its own: its graph has no later edge.

    Paper: Wu, Tang, Zhu, Wang, Xie and Tan, "Session-based recommendation with graph neural networks" (AAAI 2019).
    """

    dim: int = setting(100, at_least=1)
    window: int = setting(20, at_least=1)
    penalty: float = setting(1e-5, at_least=0.0)
    learns: ClassVar[bool] = True
    suggested: ClassVar[dict[str, Any]] = {
        "trains": ["items", *SESSION_LAYERS],
        "hyper": {"dim": 16, "window": 10, "drop": 0.0, "rate": 0.02, "epochs": 40, "batch": 32},
        "cohort": {"sampler": "pooled"},
    }

    def init(self, key: jax.Array) -> dict[str, jax.Array]:
        """Everything uniform within ±1/√d."""
        table, layers = jax.random.split(key)
        bound = self.dim**-0.5
        items = jax.random.uniform(table, (self.catalog.n_items, self.dim), minval=-bound, maxval=bound)
        return {"items": items, **new_session_graph(layers, self.dim)}

    def user_vector(self, params: dict, before: jax.Array) -> jax.Array:
        """u from the graph of the preceding events."""
        return self._user(params, before)

    def losses(self, params: dict, key: jax.Array, some: NextItemSamples) -> tuple[jax.Array, jax.Array]:
        """Cross-entropy of the next item, one sample for each window."""
        draw, drop = jax.random.split(key)
        keys = jax.random.split(drop, some.target.shape[0])
        users = jax.vmap(self._user, (None, 0, 0))(params, some.before, keys)
        losses = self.against_all(params, draw, users, jnp.maximum(some.target, 0))
        return losses, some.real.astype(jnp.float32)

    def _user(self, params: dict, before: jax.Array, key: Any = None) -> jax.Array:
        x = dropout(key, params["items"][jnp.maximum(before, 0)], self.drop)
        return read_out(params, graph_step(params, before, x), before >= 0)
