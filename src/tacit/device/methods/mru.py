"""MRU: the items used most recently in the current session. Nothing leaves the device."""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from tacit.core.catalog import Catalog
from tacit.device.history import History
from tacit.device.method import AtHome, masked


class MostRecentlyUsed(AtHome):
    """score_i = place of i's latest occurrence in the current session, newer larger; 0 if it did not occur.

    Paper: the MRU baseline of Shin, Hong and Dey, "Understanding and prediction of mobile application usage for smart
    phones" (UbiComp 2012).
    """

    catalog: Catalog
    learns: ClassVar[bool] = False
    suggested: ClassVar[dict[str, Any]] = {}

    def prepare(self, history: History) -> dict:
        """Nothing: the session is enough."""
        del history
        return {}

    def score(self, params: dict, local: dict, own: dict, recent: jax.Array, candidates: jax.Array) -> jax.Array:
        """The latest place, counted from 1."""
        del params, local, own
        places = jnp.arange(1, recent.shape[0] + 1)
        latest = jnp.where(recent[None, :] == candidates[:, None], places, 0).max(axis=1, initial=0)
        return masked(latest.astype(jnp.float32), candidates)
