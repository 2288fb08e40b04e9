"""The logs of Li et al. 2022 and their size: months as sessions, the last item of each as test case."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from tacit.core.plan import Plan
from tacit.lab.baselines.central.next_item import pool
from tacit.lab.data import Population
from tacit.lab.data.datasets import about_dataset, dataset
from tacit.lab.data.selection import compact, pick
from tacit.lab.evaluation.protocols import load_protocol
from tacit.lab.evaluation.splits import Split, train_on_organisations
from tacit.lab.experiments.compare import checked_split
from tacit_papers.fedseqrec.printed import TABLE2

WAY = load_protocol("fedseqrec")
PUBLISHED = {"width": 300, "dim": 400, "heads": 20, "hidden": 200, "window": 60, "short": 20, "drop": 0.2}


class Size(NamedTuple):
    """How large everything is."""

    network: Mapping[str, Any]  # settings of every row with FedSeqRec's or FedNewsRec's network
    central: Mapping[str, Mapping[str, Any]]  # settings of central rows, by plan
    steps: Mapping[str, int]  # most batches of an organisation in a round, by log; all where it is not named
    rounds: int
    asked: int  # sessions of a seed, at most
    people: Mapping[str, int]  # of an organisation at most, by log
    longest: int | None  # histories longer than this are left out
    counts: tuple[int, ...]  # Figure 6
    noises: tuple[float, ...]  # Figure 8
    deltas: tuple[float, ...]  # Figure 9
    rates: tuple[float, ...]  # Figure 10, times the log's own
    looks: int  # rounds between two points of Figures 9 and 10


# A round of the paper's size looks at as many samples as the paper has training sessions, in batches of 32.
_FILLED = {log: round(sessions / 32 / silos) for log, (silos, _, _, sessions, _) in TABLE2.items()}
_CENTRAL = {"gru4rec": {"epochs": 6}, "bert4rec": {"epochs": 8}, "sr-gnn": {"epochs": 4}}
SIZES = {
    "small": Size(
        {
            "dim": 16,
            "heads": 4,
            "hidden": 8,
            "width": 32,
            "tokens": 10,
            "window": 10,
            "short": 10,
            "batch": 32,
        },
        {name: {"dim": 32, "negatives": 128, "window": 10, **more} for name, more in _CENTRAL.items()},
        *({"MoocData": 16, "MovieData": 64}, 10, 500, {"MovieData": 500, "MoocData": 25}, 80),
        *((1, 4, 16), (0.0, 0.02, 0.1), (0.0, 0.3, 1.0), (0.3, 1.0, 3.0), 2),
    ),
    "paper": Size(
        {**PUBLISHED, "optimiser": "sgd", "clip": 0.05, "batch": 32},
        {"bert4rec": {"dim": 100, "blocks": 4, "heads": 2, "wide": 512, "window": 29}},
        *(_FILLED, 200, 6000, {}, None),
        *(
            tuple(range(1, 17)),
            (0.0, 0.005, 0.01, 0.02, 0.04, 0.08),
            (0.0, 0.2, 0.3, 0.5, 0.8, 1.0),
            (0.25, 0.5, 1.0, 2.0),
            20,
        ),
    ),
}


@dataclass(frozen=True)
class Log:
    """A log, what the paper calls it or its stand-in, and how large everything is."""

    paper: str  # "MoocData" or "MovieData"
    label: str
    people: Population
    size: Size

    @cached_property
    def whole(self) -> Split:
        """Every month of two or more events; the last item of each is asked."""
        return checked_split(WAY, self.people, 0)

    def split(self, seed: int) -> Split:
        """The same with no more sessions asked than the size says, chosen by the seed."""
        split, most = self.whole, self.size.asked
        keep = np.sort(np.random.default_rng([seed, 7]).permutation(len(split.test))[:most])
        return replace(split, test=split.test.at(keep), left_out=None)

    def questions(self, plan: Plan, seed: int, train: Population | None = None) -> Split:
        """Questions to the people; where sessions count, organisations learn, from `train` where it is given."""
        split = self.split(seed)
        if plan.name in ("fcf", "fedrec-plus"):  # a person's items, in any order: their devices learn
            return split
        among = train_on_organisations(split, "month")
        return among if train is None else replace(among, train=train)

    @cached_property
    def organisations(self) -> Population:
        """What each organisation learns from."""
        return train_on_organisations(self.whole, "month").train

    @cached_property
    def kept(self) -> tuple[int, int]:
        """People with a month of two or more events, and items in such months: what the paper counts."""
        split = self.whole
        return np.unique(split.test.device).size, np.union1d(split.train.items, split.test.target).size

    @property
    def sessions(self) -> tuple[int, int]:
        """How many have something to learn from left, and how many are asked."""
        left = pool(self.organisations)
        return int(((left.place >= 1) & (left.left == 0)).sum()), len(self.whole.test)

    def only(self, numbers: Iterable[int]) -> Population:
        """Some of the organisations."""
        return pick(self.organisations, np.sort(np.fromiter(numbers, int)))

    @property
    def by_size(self) -> np.ndarray:
        """The organisations in ascending order of how much they have."""
        return np.argsort(self.organisations.lengths, kind="stable")


def logs(data: str | None, size: str) -> list[Log]:
    """MoocData and MovieData where they are; the sixteen-organisation world in place of the first, two in place of the other."""
    return [_log(paper, data, size) for paper in ("MoocData", "MovieData")]


def _log(paper: str, data: str | None, size: str) -> Log:
    """One log: the paper's own, the one that was named if it has as many organisations, or a world."""
    own, world = ("mooccube", "movies-16") if paper == "MoocData" else ("moviedata", "movies-2")
    name = own if about_dataset(own).present else world
    if data in (own, world):
        name = data
    how, most = SIZES[size], SIZES[size].people.get(paper)
    if about_dataset(name).built_in:
        silos = 16 if paper == "MoocData" else 2
        log = dataset(name, users=(most or 900) * silos, items=300 if size == "small" else 1500)
    else:
        log = some(dataset(name), most, how.longest)
    made = "synthetic, " if about_dataset(name).built_in else ""
    label = f"{name}, {made}{len(log):,} people, {log.catalog.n_items:,} items"
    return Log(paper, label, replace(log, notes=()), how)


def some(log: Population, most: int | None, longest: int | None) -> Population:
    """At most so many people of each organisation, none with a longer history; always the same, and the items they have."""
    if most is None or log.silo is None:
        return log
    order = np.random.default_rng(0).permutation(len(log))
    fits = order[(log.lengths[order] >= 2) & (log.lengths[order] <= (longest or np.inf))]
    chosen = np.concatenate([fits[log.silo[fits] == number][:most] for number in range(int(log.silo.max()) + 1)])
    return compact(pick(log, np.sort(chosen)))
