"""On-device: stay-or-switch probabilities from the user's own counts and the session. Nothing leaves the device."""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from tacit.device.history import History
from tacit.device.method import AtHome, masked
from tacit.device.methods._bases.stay_or_switch import StayOrSwitch
from tacit.nets.counts.stay_or_leave import next_item_context, next_item_log_odds
from tacit.nets.counts.transitions import TransitionCounts, transition_counts
from tacit.nets.factor.softmax_fit import masked_softmax


class OnDevice(StayOrSwitch, AtHome):
    """The log probability of the next item: stay with this one, or leave it for another.

    The user's own transition counts, smoothed towards the user's arrivals, and these towards the uniform distribution;
    items used earlier in the session get a bonus. Every federated method has to beat this.

    Paper: smoothed steps as in Ludewig and Jannach, "Evaluation of session-based recommendation algorithms" (UMUAI
    2018), with absolute strengths as in MacKay and Bauman Peto, "A hierarchical Dirichlet language model" (NLE 1995).
    """

    learns: ClassVar[bool] = False
    suggested: ClassVar[dict[str, Any]] = {}

    def prepare(self, history: History) -> TransitionCounts:
        """Counts of items and steps."""
        return transition_counts(history.items, self.catalog.n_items, self.installed)[0]

    def score(
        self, params: dict, local: dict, own: TransitionCounts, recent: jax.Array, candidates: jax.Array
    ) -> jax.Array:
        """log π over the candidates."""
        del params, local
        even = masked_softmax(jnp.zeros(candidates.shape), candidates >= 0)
        scores = next_item_log_odds(
            next_item_context(own, recent, candidates), self.counts, even, jnp.zeros(()), jnp.zeros(())
        )
        return masked(scores, candidates)
