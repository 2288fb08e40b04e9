"""ItemKNN: nearest neighbours of a user's items. The table of neighbours is computed in the lab from pooled data."""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from tacit.core.catalog import Catalog
from tacit.core.settings import setting
from tacit.core.sparse_rows import Rows, distinct
from tacit.device.history import History
from tacit.device.method import AtHome, masked
from tacit.nets.counts.item_pairs import neighbour_scores


class ItemKNN(AtHome):
    """score_j = Σ_{i in history} similarity(i, j), over each item's nearest `neighbours`.

    Paper: Deshpande and Karypis, "Item-based top-N recommendation algorithms" (TOIS 2004).
    """

    catalog: Catalog
    neighbours: int = setting(20, at_least=1)
    shrink: float = setting(0.0, at_least=0.0)
    learns: ClassVar[bool] = True
    suggested: ClassVar[dict[str, Any]] = {"trains": ["neighbours", "similarity"], "cohort": {"sampler": "pooled"}}

    def init(self, key: jax.Array) -> dict[str, jax.Array]:
        """No neighbours; padding is the number of items."""
        del key
        n, k = self.catalog.n_items, min(self.neighbours, self.catalog.n_items)
        return {"neighbours": jnp.full((n, k), n, jnp.int32), "similarity": jnp.zeros((n, k))}

    def prepare(self, history: History) -> Rows:
        """The distinct items, each with weight 1."""
        return distinct(history.items, self.catalog.n_items)

    def score(self, params: dict, local: dict, own: Rows, recent: jax.Array, candidates: jax.Array) -> jax.Array:
        """Σ similarity."""
        del local, recent
        scores = neighbour_scores(params["neighbours"], params["similarity"], own.index, own.value)
        return masked(scores[candidates], candidates)
