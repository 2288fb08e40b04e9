"""Places: the logs of the bench, whole or some of their people, cut once for every plan."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from tacit.lab.data import Population
from tacit.lab.data.datasets import about_dataset, dataset
from tacit.lab.data.organisations import held
from tacit.lab.data.selection import compact, k_core, pick
from tacit.lab.evaluation.protocols import load_protocol
from tacit.lab.evaluation.splits import Split
from tacit.lab.experiments.compare import cut

WAY = load_protocol("bench")
PLACES = ("movies", "movies-16", "apps", "ml-latest-small", "ml-1m", "foursquare-italy")
CORE = 5  # of a log of places: most places are visited once, by one person


@dataclass(frozen=True)
class Size:
    """How much of each log is taken."""

    people: Mapping[str, int]  # at most; a log that is not named is taken whole
    world: Mapping[str, Mapping[str, Any]]  # how large the synthetic ones are made
    k_core: Mapping[str, int]  # items need so many people and people so many items
    largest: float  # numbers in a network, beside its table of items


SIZES = {
    "small": Size(
        {"ml-1m": 1000},
        {"movies": {"users": 1000}, "movies-16": {"users": 320, "items": 300}, "apps": {"users": 200, "days": 14}},
        {"foursquare-italy": CORE},
        largest=2e5,
    ),
    "paper": Size({}, {"movies": {"users": 6000}, "movies-16": {"users": 6000}, "apps": {}}, {}, largest=np.inf),
}


@dataclass(frozen=True)
class Place:
    """A log, what was taken of it, and what its people are asked."""

    name: str
    log: Population
    size: Size
    taken: str  # in words

    @cached_property
    def split(self) -> Split:
        """People learn, and are asked for their last item."""
        return cut(WAY, self.log, 0)

    @cached_property
    def among_organisations(self) -> Split:
        """The same questions, where organisations learn."""
        return held(self.split)

    @property
    def label(self) -> str:
        """What tables say was measured on."""
        made = "synthetic, " if about_dataset(self.name).built_in else ""
        sizes = f"{len(self.log):,} people, {self.log.catalog.n_items:,} items, {self.log.items.size:,} events"
        return f"{self.name}, {made}{sizes}{self.taken}"


def place(name: str, size: str) -> Place:
    """A log of the bench in a size."""
    how = SIZES[size]
    log = dataset(name, **how.world.get(name, {}))
    taken = []
    for words, shorter in _cuts(name, how):
        before, log = len(log), shorter(log)
        taken.append(words.format(before=before))
    return Place(name, replace(log, notes=()), how, "".join(f"; {words}" for words in taken))


def _cuts(name: str, how: Size) -> list[tuple[str, Callable[[Population], Population]]]:
    cuts: list[tuple[str, Callable[[Population], Population]]] = []
    if name in how.core:
        least = how.core[name]
        cuts.append((f"items and people with at least {least} of each other", lambda log: k_core(log, least)))
    if name in how.people:
        cuts.append(("drawn from {before:,} people", lambda log: some(log, how.people[name])))
    return cuts


def some(log: Population, most: int) -> Population:
    """So many people at random, always the same, and the items they have."""
    if len(log) <= most:
        return log
    return compact(pick(log, np.sort(np.random.default_rng(0).permutation(len(log))[:most])))
