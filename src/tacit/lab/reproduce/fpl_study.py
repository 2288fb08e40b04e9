"""FPL's experiment on one log: settings chosen on a validation part, then every row of the table asked once."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from tacit.errors import DataError
from tacit.lab.cut import core, owners
from tacit.lab.data import Population
from tacit.lab.data.datasets import about_dataset, dataset
from tacit.lab.protocol import Answers, load_protocol
from tacit.lab.shelf import choose
from tacit.lab.simulate import simulate
from tacit.lab.split import Split, temporal_ratio
from tacit.lab.statistics import Comparison, compare
from tacit.plans import Plan

COUNTRIES = ("Brazil", "Canada", "Italy")
TOPOLOGIES = ((200, 100), (300, 100), (600, 200))
CORE = 10  # items a person needs, and people an item, in the part of a log that autoencoders are often fitted on


class Grid(NamedTuple):
    """What is tried."""

    rates: tuple[float, ...]
    dims: tuple[int, ...]
    epochs: tuple[int, ...]
    pis: tuple[float, ...]
    topologies: tuple[tuple[int, int], ...]
    slow_epochs: int  # the most that one device at a time is given


GRIDS = {
    "small": Grid((0.005, 0.05), (20,), (10, 30), (0.0, 0.1, 0.5, 1.0), TOPOLOGIES[:1], 10),
    "paper": Grid(
        *((0.005, 0.05, 0.5), (10, 20, 50), (10, 20, 30, 40, 50)), tuple(k / 10 for k in range(11)), TOPOLOGIES, 50
    ),
}


class Log(NamedTuple):
    """A log, how it is asked, and the country of the paper that it is."""

    label: str
    split: Split
    country: str | None = None

    @property
    def people(self) -> int:
        """|U|."""
        return len(self.split.train)

    @property
    def records(self) -> int:
        """X⁺: pairs of a person and an item in training."""
        return int(self.split.train.items.size)

    @property
    def triples(self) -> int:
        """⌊X⁺/|U|⌋, and at least 1."""
        return max(1, self.records // self.people)


def logs(data: str | None, size: str) -> list[Log]:
    """The paper's countries that are there, and MovieLens; a synthetic log where nothing is."""
    names = [data] if data else [f"foursquare-{one.lower()}" for one in COUNTRIES]
    names = names if data else [name for name in names if about_dataset(name).present]
    if size == "small" and len(names) > 1:
        names = names[-1:]  # the smallest of them
    if not data:
        names += ["ml-latest-small"] if about_dataset("ml-latest-small").present else []
    if not names:
        return [log_of("movies, synthetic, 800 people", dataset("movies", users=800, items=500))]
    return [log_of(name, dataset(name)) for name in names]


def log_of(label: str, people: Population) -> Log:
    """A log as the protocol cuts it."""
    country = next((one for one in COUNTRIES if label == f"foursquare-{one.lower()}"), None)
    return Log(label, load_protocol("fpl").split(people), country)


def oldest_first(split: Split) -> Split:
    """The same log with time turned round: everybody's oldest fifth is asked."""
    log = split.log
    order = np.lexsort((-np.arange(log.items.size), owners(log)))
    return temporal_ratio(replace(log, items=log.items[order], times=None, labels=None, context=None))


@dataclass
class Study:
    """Every row's answers on one log, and what was chosen on the way."""

    log: Log
    grid: Grid
    seeds: tuple[int, ...]
    answers: dict[str, list[Answers]] = field(default_factory=dict)
    digests: dict[str, str] = field(default_factory=dict)
    curves: dict[str, list[tuple[float, float]]] = field(default_factory=dict)  # F1 against π

    @cached_property
    def inner(self) -> Split:
        """What may be learned from, cut once more: settings are chosen there."""
        return temporal_ratio(self.log.split.train)

    @cached_property
    def chosen(self) -> dict[str, Any]:
        """Rate, factors and epochs of pairwise learning with everything shown, by F1 on the validation part."""
        tried = [{"rate": a, "dim": d, "epochs": e} for a, d, e in product(*self.grid[:3])]
        return max(tried, key=lambda one: self.valid(self.plan("pFPL", 1.0, one)))

    @cached_property
    def pi(self) -> float:
        """π by F1 on the validation part, of those above 0."""
        return max((pi for pi in self.grid.pis if pi > 0), key=lambda pi: self.valid(self.plan("pFPL", pi)))

    def valid(self, plan: Plan) -> float:
        """F1 on the validation part, first seed."""
        return _ask(plan, self.inner, self.seeds[0]).metrics["F1@10"]

    def plan(self, row: str, pi: float, chosen: Mapping[str, Any] | None = None) -> Plan:
        """One of the four forms: one device or all in a round, one triple or as many as a person has items."""
        log, chosen = self.log, chosen or self.chosen
        alone, triples = row.startswith("s"), log.triples if row.endswith("+") else 1
        epochs = min(chosen["epochs"], self.grid.slow_epochs) if alone else chosen["epochs"]
        per_epoch = log.records / triples / (1 if alone else log.people)  # as many triples as the log has records
        return choose(
            "fpl-s" if alone else "fpl",
            {
                "rounds": max(2, round(epochs * per_epoch)),
                **{f"hyper.{name}": chosen[name] for name in ("rate", "dim")},
                **{"server.rate": chosen["rate"], "hyper.triples": triples, "hyper.pi": pi},
            },
        )

    def add(self, row: str, plan: Plan) -> None:
        """Learn from all that may be learned from, and ask, seed by seed."""
        self.digests[row] = plan.digest
        self.answers[row] = [_ask(plan, self.log.split, seed) for seed in self.seeds]

    def draw(self, row: str, pis: Iterable[float]) -> None:
        """The curve of Figure 1 for one form."""
        found = ((pi, _ask(self.plan(row, pi), self.log.split, self.seeds[0]).metrics["F1@10"]) for pi in pis)
        self.curves[row] = list(found)

    def best(self, name: str, variants: Iterable[Mapping[str, Any]]) -> Plan:
        """The variant of a plan that does best on the validation part."""
        plans = [choose(name, dict(one)) for one in variants]
        return plans[0] if len(plans) == 1 else max(plans, key=self.valid)

    def mean(self, row: str, metric: str) -> float:
        """Over seeds."""
        return float(np.mean([one.metrics[metric] for one in self.answers[row]]))

    def values(self, row: str, metric: str) -> np.ndarray:
        """Each person's own, the mean over seeds."""
        return np.stack([one.values[metric] for one in self.answers[row]]).mean(0)

    def compare(self, ours: str, theirs: str, metric: str) -> Comparison:
        """Ours less theirs, person by person."""
        return compare(self.values(ours, metric), self.values(theirs, metric), f"{ours} − {theirs}, {metric}")


def _ask(plan: Plan, split: Split, seed: int) -> Answers:
    run = simulate(plan, split.train, seed=seed, quiet=True)
    return load_protocol("fpl").ask(run, split, seed)


ROWS = ("Random", "Top-Pop", "VAE", "BPR-MF", "FCF", "FCF, as the authors", "sFPL", "pFPL", "sFPL+", "pFPL+")


def study(log: Log, size: str, seeds: tuple[int, ...], rows: Iterable[str] = ROWS) -> Study:
    """Every row of Table 2 on one log."""
    made = Study(log, GRIDS[size], seeds)
    for row in rows:
        made.add(row, plan_of(made, row))
    return made


def plan_of(made: Study, row: str) -> Plan:
    """The plan that stands behind a row, its settings chosen."""
    grid = made.grid
    if row in ("sFPL", "pFPL", "sFPL+", "pFPL+"):
        return made.plan(row, made.pi)
    if row == "VAE":
        return made.best("vae", ({"hyper.hidden": h, "hyper.latent": m} for h, m in grid.topologies))
    if row == "BPR-MF":
        dims = ({"hyper.dim": d, "hyper.epochs": e} for d, e in product(grid.dims, (10, 30)))
        return made.best("bpr-mf", dims)
    name = {"Random": "random", "Top-Pop": "top-pop", "FCF": "fcf", "FCF, as the authors": "fcf-authors"}[row]
    return choose(name, {"hyper.dim": made.chosen["dim"]} if name.startswith("fcf") else None)


def covered(log: Log) -> float:
    """The share of people whom the core of a log would cover, where a method is fitted on that alone."""
    try:
        return len(core(log.split.train, CORE)) / log.people
    except DataError:
        return 0.0
