"""Noise floor: how large a count must be to stand out from the noise, and what share of pairs of items is below it."""

from typing import TYPE_CHECKING, Any

import numpy as np

from tacit.lab.data import Population
from tacit.lab.simulation.cooccurrence import count_pairs
from tacit.lab.simulation.report_collection import PackedReports

if TYPE_CHECKING:
    from tacit.lab.runs.run import Run

_COUNTED = 1 << 37  # people times pairs of items: more are not counted for a note


def noise_floor_of(run: "Run") -> dict[str, Any] | None:
    """The first stage whose mechanism estimates counts: its floor in people, and a sentence; None where none does.

    `people` is one standard deviation of the estimated count of a position that nobody has: a count below is only noise.
    """
    for stage in run.price.stages:
        if stage.mechanism is None or stage.exposure is None:
            continue
        people = stage.mechanism.floor(stage.exposure.cohort)
        if people is not None:
            below = _below(run.population, people) if stage.mechanism.counts_pairs else None
            return {"people": people, "of": stage.exposure.cohort, "below": below, "says": _says(people, run, below)}
    return None


def _says(people: float, run: "Run", below: float | None) -> str:
    words = f"noise floor {people:,.0f} of {len(run.population):,} people: a count below that is only noise"
    return words if below is None else f"{words}, as {100 * below:.0f} % of the pairs of items are that anybody has"


def _below(population: Population, people: float) -> float | None:
    """Which share of the pairs of items that anybody has are had by fewer people; None where counting takes long."""
    if len(population) * population.catalog.n_items**2 > _COUNTED:
        return None
    both = true_pair_counts(population)[np.triu_indices(population.catalog.n_items, 1)]
    both = both[both > 0]
    return float((both < people).mean()) if both.size else None


def true_pair_counts(people: Population) -> np.ndarray:
    """How many people really have both of every two items, int32[N, N]."""
    n = people.catalog.n_items
    had = np.zeros((len(people), n), np.uint8)
    had[np.repeat(np.arange(len(people)), people.lengths), people.items] = 1
    return count_pairs(PackedReports(np.packbits(had, axis=1), n))
