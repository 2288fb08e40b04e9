"""Handshake: histograms of sequence lengths or of words, summed over organisations. Histograms leave, once."""

from typing import Any, ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp

from tacit.core.catalog import Catalog
from tacit.core.integer_grid import MOST_PEOPLE, from_people_grid, shares_of
from tacit.core.settings import setting
from tacit.device.history import History
from tacit.device.method import Method, masked
from tacit.errors import PlanError
from tacit.nets.neural.text import tokens_of, word_counts
from tacit.nets.sequence.segments import closeness, ends, sequence_length_histogram, sequences


class Handshake(Method):
    """Each device sends a histogram p; their sum is q. In a second round it may send g = e^−KL(p ‖ q).

    - `of`: `lengths` counts sequences by their length, `taste` counts the words of the items.
    - `says`: the histogram, or the `closeness` g, whose sum some rules divide by.
    - `people`: every user's counts sum to 1, so that one user changes the sum by at most 1, and the number of users is sent
      as well. Mechanism `within_organisation` adds the noise for it.
    - `holdout` is a public histogram to compare with instead of q: counts, bin by bin.

    It ranks no items: a later stage does.

    Paper: Li, Lin, Xiahou, Lin, Wu and Liu, "Federated low-rank tensor projections for sequential recommendation"
    (KBS 2022), Algorithm 1.
    """

    catalog: Catalog
    of: Literal["lengths", "taste"] = setting("lengths")
    says: Literal["histogram", "closeness"] = setting("histogram")
    tokens: int = setting(30, at_least=1)
    longest: int = setting(60, at_least=3)
    smoothing: float = setting(0.0, at_least=0.0)
    people: bool = setting(False)
    holdout: tuple = setting(())
    about: jax.Array = None  # pyright: ignore[reportAssignmentType]  # int32[n_items, T]
    vocabulary: int = eqx.field(static=True, default=0)
    learns: ClassVar[bool] = False
    scores: ClassVar[bool] = False
    for_organisations: ClassVar[bool] = True
    suggested: ClassVar[dict[str, Any]] = {
        "trains": ["lengths"],
        "rounds": 1,
        "server": {"rule": "mean_step", "scale": "sum"},
    }

    def __post_init__(self):
        tokens, words = tokens_of(self.catalog, self.tokens)
        self.about, self.vocabulary = jnp.asarray(tokens), len(words)

    def __check_init__(self):
        if self.holdout and len(self.holdout) != self.longest - 1:
            raise PlanError(
                f"hyper.holdout of handshake must count {self.longest - 1} bins, lengths 2 to {self.longest}, got "
                f"{len(self.holdout)}."
            )

    def init(self, key: jax.Array) -> dict[str, jax.Array]:
        """Empty histograms, or the public one."""
        del key
        bins = self.longest - 1 if self.of == "lengths" else self.vocabulary
        total = jnp.asarray(self.holdout, jnp.float32) if self.holdout else jnp.zeros(bins)
        return {self.of: total, "closeness": jnp.zeros(())}

    def prepare(self, history: History) -> dict:
        """The device's own histogram, and its number of users."""
        items, whose, place = sequences(self.catalog.event_fields, history.items, history.context)
        counted = ends(place) if self.of == "lengths" else items >= 0
        counted = counted & (whose < MOST_PEOPLE)
        weight = shares_of(counted, whose) if self.people else jnp.ones(items.shape)
        if self.of == "lengths":
            mine = sequence_length_histogram(place, self.longest, weight)
        else:
            mine = word_counts(self.about, items, self.vocabulary, weight)
        people = jnp.minimum(whose.max() + 1, MOST_PEOPLE)
        return from_people_grid({"mine": mine}, people) if self.people else {"mine": mine, "people": people}

    def enter(self, key: jax.Array, own: dict) -> dict:
        """No private state."""
        del key, own
        return {}

    def local(self, key: jax.Array, params: dict, local: dict, own: dict) -> tuple[dict, dict, jax.Array]:
        """Send the histogram, or g."""
        del key
        if self.says == "histogram":
            update = {self.of: own["mine"]}
            return local, {**update, "people": own["people"]} if self.people else update, jnp.ones(1)
        g = closeness(own["mine"], params[self.of], jnp.zeros(()), self.smoothing)
        return local, {"closeness": jnp.where(own["mine"].sum() > 0, g, 0.0)}, jnp.ones(1)

    def adapt(self, key: jax.Array, params: dict, local: dict, own: dict) -> dict:
        """Nothing to adapt."""
        del key, params, own
        return local

    def score(self, params: dict, local: dict, own: dict, recent: jax.Array, candidates: jax.Array) -> jax.Array:
        """The same score for every item."""
        del params, local, own, recent
        return masked(jnp.zeros(candidates.shape), candidates)
