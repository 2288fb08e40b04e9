"""SR-od: sequential rules from this user's own history. Nothing leaves the device."""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from tacit.core.catalog import Catalog
from tacit.core.sparse_rows import Rows, coalesce, lookup
from tacit.device.history import History
from tacit.device.method import AtHome, last_event, masked
from tacit.errors import PlanError

MOST_ITEMS = 46_340  # a step is numbered i·N + j, in 32 bits


class SequentialRulesOnDevice(AtHome):
    """score_j = n_ij, how often this user went from the last item i to j.

    Paper: SR in Ludewig and Jannach, "Evaluation of session-based recommendation algorithms" (UMUAI 2018); on-device
    as SR-od in Saiapin et al. (2024).
    """

    catalog: Catalog
    learns: ClassVar[bool] = False
    suggested: ClassVar[dict[str, Any]] = {}

    def __check_init__(self):
        if self.catalog.n_items > MOST_ITEMS:
            raise PlanError(f"sr_od numbers the steps between at most {MOST_ITEMS} items, got {self.catalog.n_items}.")

    def prepare(self, history: History) -> Rows:
        """n_ij, by flat position i·N + j."""
        source, target = history.items[:-1], history.items[1:]
        flat = jnp.where((source >= 0) & (target >= 0), source * self.catalog.n_items + target, -1)
        return coalesce(flat, jnp.ones(flat.shape), self.catalog.n_items**2)

    def score(self, params: dict, local: dict, own: Rows, recent: jax.Array, candidates: jax.Array) -> jax.Array:
        """n_ij for the last item i; 0 where there is none."""
        del params, local
        last = last_event(recent)
        steps = lookup(own, jnp.maximum(last, 0) * self.catalog.n_items + candidates)
        return masked(jnp.where(last >= 0, steps, 0.0), candidates)
