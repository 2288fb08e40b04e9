"""Evaluation results: the metrics of a run under a protocol, from the ranks of targets or from top-n lists."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from tacit.device.ranking import EMPTY
from tacit.errors import PlanError
from tacit.lab.evaluation.candidates import Candidates, Sampled
from tacit.lab.evaluation.scoring import rank_targets, top_lists
from tacit.lab.evaluation.splits import Cases, Repeats, Split
from tacit.lab.evaluation.statistics import ConfidenceInterval, interval, interval_by_history
from tacit.metrics import Average, Relevant, average, levels, list_summary, parse, per_case, per_list

if TYPE_CHECKING:
    from tacit.lab.evaluation.protocols import Protocol
    from tacit.lab.runs.run import Run


class Part(NamedTuple):
    """The metrics over some of the test cases, under one treatment of repeats."""

    label: str
    cases: int
    metrics: dict[str, float]


@dataclass(frozen=True)
class EvaluationResult:
    """Metrics of a run, and the value of each unit, for intervals and paired tests."""

    protocol: str
    candidates: str  # the candidate set, labelled where it is sampled
    metrics: dict[str, float]
    values: dict[str, np.ndarray]  # name -> one value for each unit
    units: np.ndarray  # the users, or the sessions, the values belong to
    notes: tuple[str, ...]
    by: Literal["user", "session"] = "user"
    warnings: tuple[str, ...] = ()  # reasons not to trust these numbers
    by_chance: np.ndarray = field(default_factory=lambda: np.zeros(0, int))  # devices whose ranks are decided by chance
    repeats: Repeats | None = None  # the treatment of targets that a user already has
    treatment: str = ""  # the same as a sentence, with the reason
    parts: tuple[Part, ...] = ()  # both treatments, by whether the user has the target; empty without repeats

    def interval(self, name: str, **options: float) -> ConfidenceInterval:
        """A bootstrap interval over units."""
        return interval(self.values[name], **options)  # pyright: ignore[reportArgumentType]

    def by_history(self, name: str, split: Split, parts: int = 4) -> dict[str, ConfidenceInterval]:
        """The metric by length of history, in groups of nearly equal size."""
        if self.by != "user":
            raise PlanError(f"{self.protocol} averages over {self.by}s; results by history need one value a user.")
        return interval_by_history(self.values[name], split.test_population.lengths[self.units], parts)


class RankEvaluation:
    """The rank of the target of every test case, and the metrics that follow from it."""

    def __init__(self, protocol: "Protocol", run: "Run", split: Split, seed: int):
        self.protocol, self.split, self.candidates = protocol, split, protocol.make_candidates(split, seed)
        self.rank, self.chance = rank_targets(run, split, self.candidates, seed=seed)

    def part(self, label: str, some: np.ndarray | None = None) -> Part:
        """The metrics over some of the test cases."""
        made = self._averages(np.ones(len(self.split.test), bool) if some is None else some)
        cases = len(self.split.test) if some is None else int(some.sum())
        return Part(label, cases, {name: one.value for name, one in made.items()})

    def _averages(self, some: np.ndarray) -> dict[str, Average]:
        test, negatives = self.split.test, _negatives(self.candidates)
        groups = levels(self.protocol.by, test.device[some], test.session[some])
        rank = self.rank[some]
        return {name: average(per_case(rank, name, negatives=negatives), groups) for name in self.protocol.metrics}

    def result(self) -> EvaluationResult:
        """The metrics over all test cases, and the values of each unit."""
        split, protocol, made = self.split, self.protocol, self._averages(np.ones(len(self.split.test), bool))
        units = next(iter(made.values())).groups
        means, values = ({name: getattr(one, part) for name, one in made.items()} for part in ("value", "values"))
        device = split.test.device
        by_chance = np.setdiff1d(device[self.chance], device[~self.chance])
        return EvaluationResult(
            *(protocol.name, self.candidates.label, means, values, units, split.notes, protocol.by),
            warnings=chance_warning(by_chance.size, np.unique(device).size),
            by_chance=by_chance,
            repeats=split.repeats,
            treatment=split.treatment,
        )


class ListEvaluation:
    """The top-n list of every test user, and the metrics that follow from it."""

    def __init__(self, protocol: "Protocol", run: "Run", split: Split, seed: int):
        self.protocol, self.split, self.n_items = protocol, split, split.log.catalog.n_items
        self.with_seen, among = split.repeats == "all", np.unique(split.train.items)
        self.devices, self.lists = top_lists(
            run, split, protocol.lists, among=among, with_seen=self.with_seen, seed=seed
        )

    def part(self, label: str, some: np.ndarray | None = None) -> Part:
        """The metrics over the users of some of the test cases; only these cases count."""
        test = self.split.test if some is None else self.split.test.at(some)
        devices = np.unique(test.device)
        lists = self.lists[np.searchsorted(self.devices, devices)]
        summary = list_summary(lists, _relevant(test, devices), self.protocol.metrics, n_items=self.n_items)
        return Part(label, len(test), summary)

    def result(self) -> EvaluationResult:
        """The metrics over all test users, and the values of each user."""
        split, protocol, relevant = self.split, self.protocol, _relevant(self.split.test, self.devices)
        per_user = [name for name in protocol.metrics if parse(name).definition.of_hits is not None]
        return EvaluationResult(
            protocol.name,
            "all training items" + ("" if self.with_seen else " not yet seen"),
            list_summary(self.lists, relevant, protocol.metrics, n_items=self.n_items),
            {name: per_list(self.lists, relevant, name) for name in per_user},
            self.devices,
            split.notes,
            warnings=_empty_list_warning(int((self.lists < 0).all(axis=1).sum()), self.devices.size),
            repeats=split.repeats,
            treatment=split.treatment,
        )


def chance_warning(users: int, of: int) -> tuple[str, ...]:
    """A warning where scores are uninformative: a network that diverged, or whose noise hides the signal, has one for all."""
    warning = f"chance ranks {users:,} of {of:,} users; half of the items or more have one score, or none is a number"
    return (warning,) if 2 * users > of else ()


def _empty_list_warning(users: int, of: int) -> tuple[str, ...]:
    """A warning where lists are empty."""
    return (f"{users:,} of {of:,} lists are empty: {EMPTY}",) if users else ()


def _negatives(candidates: Candidates) -> int | None:
    """The number of negatives of a target, where it is the same for every test case."""
    return candidates.negatives if isinstance(candidates, Sampled) else None


def _relevant(test: Cases, devices: np.ndarray) -> Relevant:
    """The relevant items of each user: the distinct targets of their test cases."""
    pair = np.unique(np.stack([test.device, test.target]), axis=1)
    counts = np.bincount(np.searchsorted(devices, pair[0]), minlength=devices.size)
    return Relevant(np.concatenate([[0], np.cumsum(counts)]), pair[1].astype(np.int64))
