"""FedSeqRec's experiment on one log: every row of its tables trained on the same sessions and evaluated on the same test cases."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tacit.core.plan import Plan
from tacit.lab.data import Population
from tacit.lab.evaluation.candidates import AllItems
from tacit.lab.evaluation.scoring import ranks
from tacit.lab.evaluation.splits import Split
from tacit.lab.evaluation.statistics import ConfidenceInterval, PairedTest, interval, paired_test
from tacit.lab.experiments.compare import collect_warnings
from tacit.lab.plans.loader import choose, plan_names
from tacit.lab.runs.run import Run, simulate
from tacit.metrics import per_case
from tacit.privacy.sampler import build_sampler
from tacit_papers.fedseqrec.logs import WAY, Log
from tacit_papers.fedseqrec.printed import AWAKE, COLUMNS, DELTA, RATE

WHOLE = "NDCG@10, all items"  # beside the sampled one, in per cent too
PLANS = {
    "GRU4Rec": "gru4rec",
    "Bert4Rec": "bert4rec",
    "SR-GNN": "sr-gnn",
    "FCF": "fcf",
    "FedNewsRec": "fednewsrec",
    "FedRec++": "fedrec-plus",
    "FedSeqRec": "fedseqrec",
    "FedNewsRec, central": "fednewsrec-central",
    "FedSeqRec, central": "fedseqrec-central",
}
ROWS = tuple(row for row in PLANS if "central" not in row)  # of Table 3
CENTRAL = ("Bert4Rec", "FedNewsRec, central", "FedSeqRec, central")  # of Table 4
NETWORKS = ("fednewsrec", "fedseqrec", "fednewsrec-central", "fedseqrec-central")


def there(rows: Iterable[str]) -> Iterator[str]:
    """Those rows that have a built-in plan."""
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
    if name.endswith("-central"):
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

    def interval(self, row: str, metric: str) -> ConfidenceInterval:
        """The same with its interval."""
        return interval(self.values[row][metric])

    def compare(self, ours: str, theirs: str, metric: str) -> PairedTest:
        """Session by session."""
        return paired_test(self.values[ours][metric], self.values[theirs][metric], f"{ours} − {theirs}, {metric}")

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
    return build_sampler(plan.stages[-1].cohort).fitted != "rounds"


def learned(log: Log, plan: Plan, seed: int, train: Population | None = None, **options: Any) -> Run:
    """The run of a plan; that it may be hopeless is a finding here."""
    with collect_warnings([]):
        return simulate(plan, log.questions(plan, seed, train).train, seed=seed, quiet=True, **options)


def answers(run: Run, split: Split, seed: int, whole: bool = False) -> dict[str, np.ndarray]:
    """Every metric of every asked session among 99 sampled items, in per cent; with `whole`, also among all items."""
    found = {name: 100 * values for name, values in WAY.evaluate(run, split, seed).values.items()}
    if whole:
        found[WHOLE] = 100 * per_case(ranks(run, split, AllItems("log"), seed=seed), "NDCG@10")
    return found


def means(run: Run, split: Split, seed: int) -> dict[str, float]:
    """The same as plain means."""
    return {name: float(values.mean()) for name, values in answers(run, split, seed).items() if name in COLUMNS}
