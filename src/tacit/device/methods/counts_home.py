"""Counts and home: private counts of items under each user's own habits. For logs where people come back to things."""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from tacit.core.catalog import Catalog
from tacit.core.settings import setting
from tacit.core.sparse_rows import Rows, coalesce, dense, distinct, lookup
from tacit.device.history import History
from tacit.device.method import Method, last_event, masked


class CountsHome(Method):
    """score_j = (n_ij + within·p_j) / (n_i + within) with p_j = (f_j + prior·p̂_j) / (Σf + prior), all of it at home but p̂.

    i is the last item, n_ij how often the user went from i to j, and f_j how often the user had j, where an event counts `keep`
    times as much as the next one. p̂ is the share of each item in the sum of what devices send: their distinct items, bounded. Where people come back to things, steps of others add nothing to one's own, and the whole ε goes to counts.

    Paper: interpolated counts with a prior, as in Chen and Goodman, "An empirical study of smoothing techniques for language
    modeling" (CSL 1999).
    """

    catalog: Catalog
    keep: float = setting(0.95, above=0.0, at_most=1.0)
    prior: float = setting(3.0, above=0.0)
    within: float = setting(10.0, above=0.0)
    nonnegative: ClassVar[bool] = True
    learns: ClassVar[bool] = False
    item_by_item: ClassVar[bool] = True
    suggested: ClassVar[dict[str, Any]] = {
        "trains": ["counts"],
        "rounds": 1,
        "server": {"rule": "mean_step", "scale": "sum"},
    }

    def init(self, key: jax.Array) -> dict[str, jax.Array]:
        """No counts yet."""
        del key
        return {"counts": jnp.zeros(self.catalog.n_items)}

    def prepare(self, history: History) -> dict[str, Any]:
        """The distinct items, the decayed counts, and the steps in order of the item they start from."""
        items, n = history.items, self.catalog.n_items
        real = items >= 0
        age = real.sum() - 1 - jnp.arange(items.shape[0])
        uses = coalesce(items, jnp.where(real, self.keep ** age.astype(jnp.float32), 0.0), n)
        return {"own": distinct(items, n), "uses": uses, "items": items}

    def enter(self, key: jax.Array, own: dict) -> dict:
        """No private state."""
        del key, own
        return {}

    def local(self, key: jax.Array, params: dict, local: dict, own: dict) -> tuple[dict, dict, jax.Array]:
        """Send the distinct items, a 1 each; a mechanism with a bound of 1 divides them by the root of their number."""
        del key, params
        return local, {"counts": own["own"]}, jnp.ones(1)

    def adapt(self, key: jax.Array, params: dict, local: dict, own: dict) -> dict:
        """Nothing to adapt."""
        del key, params, own
        return local

    def score(self, params: dict, local: dict, own: dict, recent: jax.Array, candidates: jax.Array) -> jax.Array:
        """How often the user went on to each candidate, smoothed by how often they, and then all users, have it."""
        del local
        counts = jnp.maximum(params["counts"], 0.0)
        everyone = counts[candidates] / jnp.maximum(counts.sum(), 1e-12)
        f = lookup(own["uses"], candidates)
        p = (f + self.prior * everyone) / (own["uses"].value.sum() + self.prior)
        steps = self._from(own["items"], last_event(recent))
        n = dense(steps)[candidates]
        return masked((n + self.within * p) / (steps.value.sum() + self.within), candidates)

    def _from(self, items: jax.Array, last: jax.Array) -> Rows:
        """n_ij: how often each item came right after this one."""
        after = jnp.where((items[:-1] == last) & (last >= 0), items[1:], -1)
        after = jnp.concatenate([after, jnp.full(1, -1, items.dtype)])  # a history of one event has no steps
        return coalesce(after, (after >= 0).astype(jnp.float32), self.catalog.n_items)
