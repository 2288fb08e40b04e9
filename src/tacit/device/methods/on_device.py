"""On-device: stay or switch, from a person's own counts and the session. Nothing leaves the device."""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from tacit.catalog import Catalog
from tacit.device.history import History
from tacit.device.method import AtHome, masked
from tacit.nets.logit import shares
from tacit.nets.switch import Counts, log_odds, moment
from tacit.nets.transitions import Habits, habits
from tacit.settings import setting


class OnDevice(AtHome):
    """The log probability of the next item: stay with this one, or leave it for another.

    Counts of a person's own steps, smoothed towards where the person goes at all, and that towards all candidates
    alike; what was used earlier in the session is rewarded. Everything federated has to beat this.

    Paper: smoothed steps as in Ludewig and Jannach, "Evaluation of session-based recommendation algorithms" (UMUAI
    2018), with absolute strengths as in MacKay and Bauman Peto, "A hierarchical Dirichlet language model" (NLE 1995).
    """

    catalog: Catalog
    arrivals: float = setting(20.0, above=0.0)  # κ₁: how many events the even prior of where to go counts
    steps: float = setting(20.0, above=0.0)  # κ₂: and where to go at all, for where to go from here
    stays: float = setting(5.75, above=0.0)  # κs: and the prior of staying
    stay: float = setting(0.5)  # c₀: log odds of staying before anything is known
    temper: float = setting(0.7, at_least=0.0)  # weight of the log probability beside recency
    first: float = setting(1.6)  # added for the item used before this one in the session,
    second: float = setting(1.5)  # for the one before that,
    older: float = setting(1.1)  # and for any other that was used in it
    installed: int = setting(128, at_least=1)  # the most items counted: those used most
    learns: ClassVar[bool] = False
    suggested: ClassVar[dict[str, Any]] = {}

    def prepare(self, history: History) -> Habits:
        """Counts of items and steps."""
        return habits(history.items, self.catalog.n_items, self.installed)[0]

    def score(self, params: dict, local: dict, own: Habits, recent: jax.Array, candidates: jax.Array) -> jax.Array:
        """log π over the candidates."""
        del params, local
        counts = Counts(
            self.arrivals, self.steps, self.stays, self.stay, self.temper, (self.first, self.second, self.older)
        )
        even = shares(jnp.zeros(candidates.shape), candidates >= 0)
        scores = log_odds(moment(own, recent, candidates), counts, even, jnp.zeros(()), jnp.zeros(()))
        return masked(scores, candidates)
