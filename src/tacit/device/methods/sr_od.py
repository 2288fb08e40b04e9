"""SR-od: what this person does next after the last thing, from their own history. Nothing leaves the device."""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from tacit.catalog import Catalog
from tacit.device.history import History
from tacit.device.method import AtHome, last_event, masked


class SequentialRulesAtHome(AtHome):
    """score_j = n_ij, how often this person went from the last item i to j.

    Paper: SR in Ludewig and Jannach, "Evaluation of session-based recommendation algorithms" (UMUAI 2018); on-device
    as SR-od in Saiapin et al. (2023).
    """

    catalog: Catalog
    learns: ClassVar[bool] = False
    suggested: ClassVar[dict[str, Any]] = {}

    def prepare(self, history: History) -> dict:
        """The steps of the history, source and target; padding is -1."""
        source, target = history.items[:-1], history.items[1:]
        real = (source >= 0) & (target >= 0)
        return {"source": jnp.where(real, source, -1), "target": jnp.where(real, target, -1)}

    def score(self, params: dict, local: dict, own: dict, recent: jax.Array, candidates: jax.Array) -> jax.Array:
        """n_ij for the last item i."""
        del params, local
        last = last_event(recent)
        taken = ((own["source"] == last) & (last >= 0)).astype(jnp.float32)
        target = jnp.where(own["target"] < 0, self.catalog.n_items, own["target"])
        steps = jnp.zeros(self.catalog.n_items).at[target].add(taken, mode="drop")
        return masked(steps[candidates], candidates)
