"""FPL's experiment on one log: settings chosen on a validation part as the paper does, then every row evaluated once.

The learning rate and the number of factors are chosen by BPR-MF and used by FPL and FCF as well; epochs and π by each form of
FPL, layers and epochs by VAE. The criterion is F1@10 on the newest fifth of each user's training data.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from tacit.core.plan import Plan
from tacit.errors import DataError
from tacit.lab.baselines.central.bpr import one_by_one
from tacit.lab.data import Population
from tacit.lab.data.datasets import about_dataset, dataset
from tacit.lab.data.selection import k_core, owners
from tacit.lab.evaluation.protocols import EvaluationResult, load_protocol
from tacit.lab.evaluation.splits import Split, temporal_ratio
from tacit.lab.evaluation.statistics import PairedTest, paired_test
from tacit.lab.experiments.search import SearchResult, SearchTrial
from tacit.lab.plans.loader import choose
from tacit.lab.runs.run import Run, simulate
from tacit.lab.simulation.buckets import homes_by_id, with_homes

COUNTRIES = ("Brazil", "Canada", "Italy")
TOPOLOGIES = ((200, 100), (300, 100), (600, 200))  # of VAE: 200-100-200 and so on
FORMS = ("sFPL", "pFPL", "sFPL+", "pFPL+")
JUDGED = "F1@10"  # what decides, on the validation part
CORE = 10  # items a person needs, and people an item, in the part of a log that autoencoders are often fitted on


class Grid(NamedTuple):
    """What is tried."""

    rates: tuple[float, ...]
    dims: tuple[int, ...]
    epochs: tuple[int, ...]
    pis: tuple[float, ...]
    topologies: tuple[tuple[int, int], ...]
    vae_epochs: tuple[int, ...]
    slow_epochs: int  # the most that one device at a time is given


_RATES, _DIMS = (0.005, 0.05, 0.5), (10, 20, 50)
GRIDS = {
    "small": Grid(_RATES, _DIMS, (10, 30), (0.0, 0.1, 0.5, 1.0), TOPOLOGIES[:1], (50,), 10),
    "paper": Grid(
        *(_RATES, _DIMS, (10, 20, 30, 40, 50), tuple(k / 10 for k in range(11))), TOPOLOGIES, (50, 100, 200), 50
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
    answers: dict[str, list[EvaluationResult]] = field(default_factory=dict)
    digests: dict[str, str] = field(default_factory=dict)
    curves: dict[str, list[tuple[float, float]]] = field(default_factory=dict)  # F1 against π
    forms: dict[str, SearchResult] = field(default_factory=dict)  # what rows other than BPR-MF searched

    @cached_property
    def inner(self) -> Split:
        """What may be learned from, cut once more: settings are chosen there."""
        return temporal_ratio(self.log.split.train)

    @cached_property
    def factors(self) -> SearchResult:
        """Rate, factors and epochs of BPR-MF: every rate with every number of factors, looked at after some epochs."""
        tried = []
        for dim, rate in product(self.grid.dims, self.grid.rates):
            plan = self._without_rounds(rate, dim)
            for epochs, one in zip(self.grid.epochs, _ask_central(plan, self.inner, self.grid.epochs, self.seeds[0])):
                tried.append(SearchTrial({"rate": rate, "dim": dim, "epochs": epochs}, one.metrics[JUDGED]))
        return SearchResult(tuple(tried))

    @property
    def chosen(self) -> dict[str, Any]:
        """The rate and the number of factors that BPR-MF chose, for FPL and FCF."""
        return {name: self.factors.best.settings[name] for name in ("rate", "dim")}

    def form(self, row: str) -> SearchResult:
        """π above 0 and epochs of one form of FPL."""
        if row not in self.forms:
            pis = [pi for pi in self.grid.pis if pi > 0]
            self.forms[row] = SearchResult(tuple(one for pi in pis for one in self._epochs_of(row, pi)))
        return self.forms[row]

    def _epochs_of(self, row: str, pi: float) -> Iterator[SearchTrial]:
        """A form with one π after some numbers of epochs. sFPL is searched in the lab, where a triple takes microseconds."""
        looks = [epochs for epochs in self.grid.epochs if epochs <= self.most(row)] or [self.most(row)]
        if row == "sFPL":
            values = (one.metrics[JUDGED] for one in self._alone(self.inner, pi, looks))
        else:
            values = (self.valid(self.plan(row, pi, epochs)) for epochs in looks)
        return (SearchTrial({"pi": pi, "epochs": epochs}, value) for epochs, value in zip(looks, values))

    def _alone(self, split: Split, pi: float, looks: Sequence[int]) -> Iterator[EvaluationResult]:
        """sFPL, triple by triple in the lab: the same law as one device a round."""
        plan = self._without_rounds(**self.chosen)
        return _ask_central(plan, split, looks, self.seeds[0], by="person", pi=pi)

    def most(self, row: str) -> int:
        """The most epochs a form is given."""
        return self.grid.slow_epochs if row.startswith("s") else max(self.grid.epochs)

    def valid(self, plan: Plan) -> float:
        """What decides, on the validation part, first seed."""
        return _ask(plan, self.inner, self.seeds[0]).metrics[JUDGED]

    def _without_rounds(self, rate: float, dim: int) -> Plan:
        """FPL's model with factors that are fitted elsewhere: devices keep them and score."""
        return choose("fpl", {"rounds": 0, "hyper.rate": rate, "server.rate": rate, "hyper.dim": dim})

    def plan(self, row: str, pi: float, epochs: int) -> Plan:
        """One of the four forms: one device or all in a round, one triple or as many as a person has items."""
        log, (rate, dim) = self.log, self.chosen.values()
        alone, triples = row.startswith("s"), log.triples if row.endswith("+") else 1
        per_epoch = log.records / triples / (1 if alone else log.people)  # as many triples as the log has records
        return choose(
            "fpl-sequential" if alone else "fpl",
            {
                "rounds": max(2, round(epochs * per_epoch)),
                **{"hyper.rate": rate, "server.rate": rate, "hyper.dim": dim},
                **{"hyper.triples": triples, "hyper.pi": pi},
            },
        )

    def add(self, row: str) -> None:
        """Learn from all of the training data with the settings chosen, and evaluate, seed by seed."""
        if row == "BPR-MF":
            plan = self._without_rounds(**self.chosen)
            looks = [self.factors.best.settings["epochs"]]
            self.answers[row] = [next(_ask_central(plan, self.log.split, looks, seed)) for seed in self.seeds]
            return
        plan = self.plan_of(row)
        self.digests[row] = plan.digest
        self.answers[row] = [_ask(plan, self.log.split, seed) for seed in self.seeds]

    def plan_of(self, row: str) -> Plan:
        """The plan behind a row, its settings chosen."""
        if row in FORMS:
            return self.plan(row, **self.form(row).best.settings)
        if row == "VAE":
            layers = product(self.grid.topologies, self.grid.vae_epochs)
            tried = ({"hyper.hidden": h, "hyper.latent": m, "hyper.epochs": e} for (h, m), e in layers)
            return self.best(row, "vae", tried)
        if row == "FCF, as the authors":
            same = {"hyper.dim": self.chosen["dim"], "server.rate": self.chosen["rate"]}
            return self.best(row, "fcf-authors", ({**same, "rounds": epochs} for epochs in self.grid.epochs))
        name = {"Random": "random", "Top-Pop": "top-pop", "FCF": "fcf"}[row]
        return choose(name, {"hyper.dim": self.chosen["dim"]} if name == "fcf" else None)

    def best(self, row: str, name: str, variants: Iterable[dict[str, Any]]) -> Plan:
        """The variant of a plan that does best on the validation part; a single one needs no search."""
        plans = [(settings, choose(name, settings)) for settings in variants]
        tried = [
            SearchTrial(settings, self.valid(plan) if len(plans) > 1 else float("nan")) for settings, plan in plans
        ]
        self.forms[row] = SearchResult(tuple(tried))
        return choose(name, self.forms[row].best.settings)

    def draw(self, row: str, pis: Iterable[float]) -> None:
        """The curve of Figure 1 for one form, with the epochs that it chose: pFPL by rounds, sFPL in the lab."""
        epochs = self.form(row).best.settings["epochs"]
        if row == "sFPL":
            found = ((pi, next(self._alone(self.log.split, pi, [epochs]))) for pi in pis)
        else:
            found = ((pi, _ask(self.plan(row, pi, epochs), self.log.split, self.seeds[0])) for pi in pis)
        self.curves[row] = [(pi, one.metrics[JUDGED]) for pi, one in found]

    def mean(self, row: str, metric: str) -> float:
        """Over seeds."""
        return float(np.mean([one.metrics[metric] for one in self.answers[row]]))

    def values(self, row: str, metric: str) -> np.ndarray:
        """Each person's own, the mean over seeds."""
        return np.stack([one.values[metric] for one in self.answers[row]]).mean(0)

    def compare(self, ours: str, theirs: str, metric: str) -> PairedTest:
        """Ours less theirs, person by person."""
        return paired_test(self.values(ours, metric), self.values(theirs, metric), f"{ours} − {theirs}, {metric}")


def _ask(plan: Plan, split: Split, seed: int) -> EvaluationResult:
    run = simulate(plan, split.train, seed=seed, quiet=True)
    return load_protocol("fpl").evaluate(run, split, seed)


def _ask_central(plan: Plan, split: Split, looks: Sequence[int], seed: int, **how: Any) -> Iterator[EvaluationResult]:
    """Factors fitted triple by triple in the lab, people's own too, evaluated after some numbers of epochs."""
    run = simulate(plan, split.train, seed=seed, quiet=True)
    for made in one_by_one(run.method, split.train, looks, seed, **how):
        yield load_protocol("fpl").evaluate(with_factors(run, made), split, seed)


def with_factors(run: Run, made: Mapping[str, np.ndarray]) -> Run:
    """A run of FPL whose items and people have these factors, as if everybody had taken part."""
    homes, stage = homes_by_id(run.buckets), str(run.stage)
    local = {**homes.local[stage], "person": made["people"], "learned": np.ones(len(run.population), np.int32)}
    buckets = with_homes(run.buckets, homes._replace(local={**homes.local, stage: local}))
    return replace(run, params={"items": made["items"], "bias": made["bias"]}, buckets=buckets)


ROWS = ("Random", "Top-Pop", "VAE", "BPR-MF", "FCF", "FCF, as the authors", *FORMS)


def run_study(log: Log, size: str, seeds: tuple[int, ...], rows: Iterable[str] = ROWS) -> Study:
    """Every row of Table 2 on one log."""
    made = Study(log, GRIDS[size], seeds)
    for row in rows:
        made.add(row)
    return made


def covered(log: Log) -> float:
    """The share of people whom the core of a log would cover, where a method is fitted on that alone."""
    try:
        return len(k_core(log.split.train, CORE)) / log.people
    except DataError:
        return 0.0
