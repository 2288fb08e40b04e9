"""SR: sequential rules, what users do after the last item. Transition counts leave the device."""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from tacit.core.catalog import Catalog
from tacit.core.sparse_rows import Rows, coalesce
from tacit.device.history import History
from tacit.device.method import Method, last_event, masked
from tacit.errors import PlanError

MOST_ITEMS = 20_000  # the table of steps has N² entries


class SequentialRules(Method):
    """score_j = Σ_u n^u_ij, how often all users went from the last item i to j.

    Paper: SR in Ludewig and Jannach, "Evaluation of session-based recommendation algorithms" (UMUAI 2018).
    """

    catalog: Catalog
    learns: ClassVar[bool] = True
    suggested: ClassVar[dict[str, Any]] = {"trains": ["steps"], "rounds": 1, "server": {"rule": "count"}}

    def __check_init__(self):
        if self.catalog.n_items > MOST_ITEMS:
            raise PlanError(
                f"sr counts steps between at most {MOST_ITEMS} items, got {self.catalog.n_items}; use sr_od."
            )

    def init(self, key: jax.Array) -> dict[str, jax.Array]:
        """Zero counts; entry i·N + j counts i → j."""
        del key
        return {"steps": jnp.zeros(self.catalog.n_items**2, jnp.int32)}

    def prepare(self, history: History) -> Rows:
        """n^u_ij, by flat position."""
        source, target = history.items[:-1], history.items[1:]
        flat = jnp.where((source >= 0) & (target >= 0), source * self.catalog.n_items + target, -1)
        return coalesce(flat, jnp.ones_like(flat), self.catalog.n_items**2)

    def enter(self, key: jax.Array, own: Rows) -> dict:
        """No private state."""
        del key, own
        return {}

    def local(self, key: jax.Array, params: dict, local: dict, own: Rows) -> tuple[dict, dict, jax.Array]:
        """Send the transition counts."""
        del key, params
        return local, {"steps": own}, jnp.ones(1)

    def adapt(self, key: jax.Array, params: dict, local: dict, own: Rows) -> dict:
        """Nothing to adapt."""
        del key, params, own
        return local

    def score(self, params: dict, local: dict, own: Rows, recent: jax.Array, candidates: jax.Array) -> jax.Array:
        """The transitions from the last item; 0 where there is none."""
        del local, own
        last = last_event(recent)
        steps = params["steps"][jnp.maximum(last, 0) * self.catalog.n_items + candidates]
        return masked(jnp.where(last >= 0, steps, 0).astype(jnp.float32), candidates)
