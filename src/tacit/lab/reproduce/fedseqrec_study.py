"""FedSeqRec's experiment on one log: months as sessions, the last item of each asked, rivals trained on the same sessions."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from tacit.lab.candidates import Everything
from tacit.lab.central.next_item import pool
from tacit.lab.compare import cut, listening
from tacit.lab.cut import compact, pick
from tacit.lab.data import Population
from tacit.lab.data.datasets import about_dataset, dataset
from tacit.lab.evaluate import ranks
from tacit.lab.organisations import held
from tacit.lab.protocol import load_protocol
from tacit.lab.reproduce.fedseqrec_printed import AWAKE, COLUMNS, DELTA, RATE
from tacit.lab.run import Run
from tacit.lab.shelf import choose, plan_names
from tacit.lab.simulate import simulate
from tacit.lab.split import Cases, Split
from tacit.lab.statistics import Comparison, Interval, compare, interval
from tacit.metrics import per_case
from tacit.plans import Plan

WAY = load_protocol("fedseqrec")
WHOLE = "NDCG@10, all items"  # beside the sampled one, in per cent too
PLANS = {
    "GRU4Rec": "gru4rec",
    "Bert4Rec": "bert4rec",
    "SR-GNN": "sr-gnn",
    "FCF": "fcf",
    "FedNewsRec": "fednewsrec",
    "FedRec++": "fedrec-plus",
    "FedSeqRec": "fedseqrec",
    "FedNewsRec, central": "fednewsrec-cen",
    "FedSeqRec, central": "fedseqrec-cen",
}
ROWS = tuple(row for row in PLANS if "central" not in row)  # of Table 3
CENTRAL = ("Bert4Rec", "FedNewsRec, central", "FedSeqRec, central")  # of Table 4
NETWORKS = ("fednewsrec", "fedseqrec", "fednewsrec-cen", "fedseqrec-cen")
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
        *({}, 200, 6000, {}, None),
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
        return cut(WAY, self.people, 0)

    def split(self, seed: int) -> Split:
        """The same with no more sessions asked than the size says, chosen by the seed."""
        split, most = self.whole, self.size.asked
        keep = np.sort(np.random.default_rng([seed, 7]).permutation(len(split.test))[:most])
        return replace(split, test=Cases(**{name: part[keep] for name, part in vars(split.test).items()}))

    def questions(self, plan: Plan, seed: int, train: Population | None = None) -> Split:
        """Questions to the people; where sessions count, organisations learn, from `train` where it is given."""
        split = self.split(seed)
        if plan.name in ("fcf", "fedrec-plus"):  # a person's items, in any order: their devices learn
            return split
        among = held(split, "month")
        return among if train is None else replace(among, train=train)

    @cached_property
    def organisations(self) -> Population:
        """What each organisation learns from."""
        return held(self.whole, "month").train

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


def there(rows: Iterable[str]) -> Iterator[str]:
    """Those rows whose plan is on the shelf."""
    known = set(plan_names())
    return (row for row in rows if PLANS[row] in known)


def plan_of(row: str, log: Log, settings: Mapping[str, Any] | None = None) -> Plan:
    """The plan behind a row in a log's size, with other settings where they are given."""
    name, size = PLANS.get(row, row), log.size
    hyper = {**(size.network if name in NETWORKS else {}), **size.central.get(name, {})}
    last = len(choose(name).stages)
    chosen: dict[str, Any] = {f"{last}.hyper.{key}": value for key, value in hyper.items()}
    if name in NETWORKS:
        chosen |= _federated(name, log, last, hyper)
    return choose(name, {**chosen, **(settings or {})})


def _federated(name: str, log: Log, last: int, hyper: Mapping[str, Any]) -> dict[str, Any]:
    """Rounds, batches, who is awake and the paper's own rate; a central fit takes as many steps as all of them together."""
    optimiser, steps, awake = hyper.get("optimiser", "adam"), log.size.steps.get(log.paper, 0), AWAKE[log.paper]
    rate = RATE[log.paper] if optimiser == "sgd" else 0.01
    if name.endswith("-cen"):
        every = round(steps * len(log.organisations) * awake)
        return {"hyper.rate": rate, "hyper.optimiser": optimiser, "hyper.epochs": rounds_of(log), "hyper.steps": every}
    cohort = {"sampler": "all"} if awake == 1 else {"sampler": "poisson", "rate": awake}
    own = {"hyper.rate": rate, "hyper.optimiser": optimiser, "hyper.steps": steps, "hyper.drop": hyper.get("drop", 0.0)}
    chosen = {"rounds": rounds_of(log), "cohort": cohort, **own}
    if name == "fedseqrec":
        chosen["server.delta"] = DELTA[log.paper]
    return {f"{last}.{key}": value for key, value in chosen.items()}


def rounds_of(log: Log) -> int:
    """Rounds, so that each organisation is awake as often in both logs."""
    return round(log.size.rounds / AWAKE[log.paper]) if log.size.people else log.size.rounds


@dataclass
class Study:
    """What each row answered: for every metric, a value for each asked session of every seed, in per cent."""

    log: Log
    values: dict[str, dict[str, np.ndarray]] = field(default_factory=dict)
    digests: dict[str, str] = field(default_factory=dict)

    def mean(self, row: str, metric: str) -> float:
        """Over sessions and seeds."""
        return float(self.values[row][metric].mean())

    def interval(self, row: str, metric: str) -> Interval:
        """The same with its interval."""
        return interval(self.values[row][metric])

    def compare(self, ours: str, theirs: str, metric: str) -> Comparison:
        """Session by session."""
        return compare(self.values[ours][metric], self.values[theirs][metric], f"{ours} − {theirs}, {metric}")

    def add(self, row: str, seeds: Iterable[int]) -> None:
        """Train a row and ask it, seed by seed; what is there already is not made again."""
        if row in self.values:
            return
        plan = plan_of(row, self.log)
        self.digests[row] = plan.digest
        if _fitted(plan):  # in the lab, where no seed changes anything: once, and asked as often as the others
            runs = dict.fromkeys(seeds, learned(self.log, plan, 0))
        else:
            runs = {seed: learned(self.log, plan, seed) for seed in seeds}
        parts = [answers(run, self.log.questions(plan, seed), seed, whole=True) for seed, run in runs.items()]
        self.values[row] = {metric: np.concatenate([part[metric] for part in parts]) for metric in parts[0]}


def _fitted(plan: Plan) -> bool:
    """Whether a plan is fitted in the lab."""
    return plan.stages[-1].cohort["sampler"] in ("pooled", "helped")


def learned(log: Log, plan: Plan, seed: int, train: Population | None = None, **options: Any) -> Run:
    """The run of a plan; that it may be hopeless is a finding here."""
    with listening([]):
        return simulate(plan, log.questions(plan, seed, train).train, seed=seed, quiet=True, **options)


def answers(run: Run, split: Split, seed: int, whole: bool = False) -> dict[str, np.ndarray]:
    """Every metric of every asked session among 99 sampled items, in per cent; with `whole`, also among all items."""
    found = {name: 100 * values for name, values in WAY.ask(run, split, seed).values.items()}
    if whole:
        found[WHOLE] = 100 * per_case(ranks(run, split, Everything("log"), seed=seed), "NDCG@10")
    return found


def means(run: Run, split: Split, seed: int) -> dict[str, float]:
    """The same as plain means."""
    return {name: float(values.mean()) for name, values in answers(run, split, seed).items() if name in COLUMNS}
