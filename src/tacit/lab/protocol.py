"""Protocols: how each paper asks, and how the library does by default. A split, candidates, metrics and a way to average."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from tacit.device.rank import EMPTY
from tacit.errors import PlanError, unknown
from tacit.lab.candidates import Candidates, Everything, Installed, Sampled, SeenBefore
from tacit.lab.cut import compact
from tacit.lab.data import Population
from tacit.lab.evaluate import ranked, top_lists
from tacit.lab.run import Run
from tacit.lab.sessions import at_least, clean, comes_back, merge_repeats
from tacit.lab.split import (
    Split,
    calendar_days,
    cold_start,
    held_out_people,
    leave_last_out,
    month_sessions,
    temporal_ratio,
)
from tacit.lab.statistics import Interval, by_history, interval
from tacit.metrics import Relevant, average, levels, list_summary, per_case, per_list


@dataclass(frozen=True)
class Answers:
    """What a run answered: the metrics, and each unit's own value, for intervals and paired tests."""

    protocol: str
    candidates: str  # what was ranked; sampled candidates say so
    metrics: dict[str, float]
    values: dict[str, np.ndarray]  # name -> one value for each unit
    units: np.ndarray  # the users, or the sessions, the values belong to
    notes: tuple[str, ...]
    by: Literal["user", "session"] = "user"
    doubts: tuple[str, ...] = ()  # what is wrong with the answers themselves
    by_chance: np.ndarray = field(default_factory=lambda: np.zeros(0, int))  # devices that chance ranks

    def interval(self, name: str, **options: float) -> Interval:
        """A bootstrap interval over units."""
        return interval(self.values[name], **options)  # pyright: ignore[reportArgumentType]

    def by_history(self, name: str, split: Split, parts: int = 4) -> dict[str, Interval]:
        """The metric for people of few and of many events, in groups of nearly equal size."""
        if self.by != "user":
            raise PlanError(f"{self.protocol} averages over {self.by}s; results by history need one value a user.")
        return by_history(self.values[name], split.asked.lengths[self.units], parts)


@dataclass(frozen=True)
class Protocol:
    """One way to ask."""

    name: str
    about: str
    cut: Callable[[Population, int], Split]
    offer: Callable[[Split, int], Candidates]
    metrics: tuple[str, ...]
    by: Literal["user", "session"] = "user"
    lists: int = 0  # ask each person for a list of so many, instead of ranking each target

    def split(self, log: Population, seed: int = 0) -> Split:
        """What may be learned from, and what will be asked."""
        return self.cut(log, seed)

    def ask(self, run: Run, split: Split, seed: int = 0) -> Answers:
        """Ask every question; everything is scored by the devices' own code."""
        return self._by_lists(run, split, seed) if self.lists else self._by_ranks(run, split, seed)

    def _by_ranks(self, run: Run, split: Split, seed: int) -> Answers:
        candidates = self.offer(split, seed)
        found, chance = ranked(run, split, candidates, seed=seed)
        groups = levels(self.by, split.test.device, split.test.session)
        negatives = _negatives(candidates)
        made = {name: average(per_case(found, name, negatives=negatives), groups) for name in self.metrics}
        units = next(iter(made.values())).groups
        means, values = ({name: getattr(one, part) for name, one in made.items()} for part in ("value", "values"))
        by_chance = np.setdiff1d(split.test.device[chance], split.test.device[~chance])
        doubts = told_by_chance(by_chance.size, np.unique(split.test.device).size)
        return Answers(self.name, candidates.label, means, values, units, split.notes, self.by, doubts, by_chance)

    def _by_lists(self, run: Run, split: Split, seed: int) -> Answers:
        again = getattr(self.offer(split, seed), "without", "") == "nothing"
        devices, lists = top_lists(run, split, self.lists, among=np.unique(split.train.items), again=again, seed=seed)
        relevant = _relevant(split, devices)
        means = list_summary(lists, relevant, self.metrics, n_items=split.log.catalog.n_items)
        own = [
            name for name in self.metrics if name.partition("@")[0] in ("P", "R", "Precision", "Recall", "HR", "NDCG")
        ]
        values = {name: per_list(lists, relevant, name) for name in own}
        label = "all training items" + ("" if again else " not yet seen")
        doubts = _unlisted(int((lists < 0).all(axis=1).sum()), devices.size)
        return Answers(self.name, label, means, values, devices, split.notes, doubts=doubts)


def told_by_chance(people: int, of: int) -> tuple[str, ...]:
    """That the answers say little: a network that noise has drowned, or that has diverged, has one score for all."""
    told = f"chance ranks {people:,} of {of:,} people; half of the items or more have one score, or none is a number"
    return (told,) if 2 * people > of else ()


def _unlisted(people: int, of: int) -> tuple[str, ...]:
    """That some were asked and have nothing to show."""
    return (f"{people:,} of {of:,} lists are empty: {EMPTY}",) if people else ()


def _negatives(candidates: Candidates) -> int | None:
    """How many rivals a target has, where that is the same for every question."""
    return candidates.negatives if isinstance(candidates, Sampled) else None


def _relevant(split: Split, devices: np.ndarray) -> Relevant:
    """What each person went on to use: the targets of their questions, each once."""
    pair = np.unique(np.stack([split.test.device, split.test.target]), axis=1)
    counts = np.bincount(np.searchsorted(devices, pair[0]), minlength=devices.size)
    return Relevant(np.concatenate([[0], np.cumsum(counts)]), pair[1].astype(np.int64))


def _positive(labels: np.ndarray) -> np.ndarray:
    """Ratings above 3 are liked; a log without ratings has only ones, and all are."""
    return (labels > 3) if labels.max() > 1 else labels > 0


_RANKS = ("HR@{n}", "NDCG@{n}")
_SHOWN = 30  # newest events that a question of `bench` shows
_SESSION = 64  # events of the session a question of `seqmf` shows: nearly always all of them


def _at(*cuts: int, names: tuple[str, ...] = _RANKS) -> tuple[str, ...]:
    return tuple(name.format(n=n) for n in cuts for name in names)


PROTOCOLS = {
    protocol.name: protocol
    for protocol in (
        Protocol(
            "full",
            "each person's last item among all items they have not seen; the default",
            lambda log, seed: leave_last_out(log),
            lambda split, seed: Everything(),
            ("HR@10", "NDCG@10", "MRR@10"),
        ),
        Protocol(
            "bench",
            "lists of 10, each person's last item; with what they have already where people come back to things",
            lambda log, seed: leave_last_out(log, recent=_SHOWN),
            lambda split, seed: Everything("nothing" if comes_back(split.log) else "history"),
            ("NDCG@10", "HR@10", "Coverage@10"),
            lists=10,
        ),
        Protocol(
            "seqmf",
            "next app in the session, last 14 days, among apps seen in training and the target (Saiapin et al. 2024)",
            lambda log, seed: calendar_days(clean(log), recent=_SESSION),
            lambda split, seed: SeenBefore(split, plus_target=True, in_training=True),
            _at(1, 3, 5, names=("HR@{n}", "MRR@{n}", "NDCG@{n}")),
        ),
        Protocol(
            "seqmf-strict",
            "as seqmf, but among all apps seen before the moment, and a new app is a miss",
            lambda log, seed: calendar_days(clean(log), recent=_SESSION),
            lambda split, seed: SeenBefore(split),
            _at(1, 3, 5, names=("HR@{n}", "MRR@{n}", "NDCG@{n}")),
        ),
        Protocol(
            "seqmf-week",
            "as seqmf, for a log of about a week: the last day is asked, the day before is the validation's",
            lambda log, seed: calendar_days(clean(log), test=1, valid=1, recent=_SESSION),
            lambda split, seed: SeenBefore(split, plus_target=True, in_training=True),
            _at(1, 3, 5, names=("HR@{n}", "MRR@{n}", "NDCG@{n}")),
        ),
        Protocol(
            "first-session",
            "people never trained on, in their first session, among the apps they have",
            lambda log, seed: cold_start(clean(log), sessions=0, seed=seed, recent=_SESSION),
            lambda split, seed: Installed(split),
            _at(1, 3, 5, names=("HR@{n}", "MRR@{n}", "NDCG@{n}")),
        ),
        Protocol(
            "dplcf",
            "each person's last item among 99 sampled ones (Gao et al. 2020)",
            lambda log, seed: leave_last_out(log),
            lambda split, seed: Sampled(split, 99, seed),
            _at(5, 10),
        ),
        Protocol(
            "fedseqrec",
            "the last item of each person's month among 99 sampled ones (Li et al. 2022)",
            lambda log, seed: month_sessions(log),
            lambda split, seed: Sampled(split, 99, seed),
            ("AUC", "MRR", "NDCG@5", "NDCG@10"),
            by="session",
        ),
        Protocol(
            "fpl",
            "lists of 10 for people with 20 items or more, newest fifth asked (Anelli et al. 2021)",
            lambda log, seed: temporal_ratio(compact(at_least(merge_repeats(log), 20))),
            lambda split, seed: Everything(),
            ("P@10", "R@10", "F1@10", "IC@10", "G@10"),
            lists=10,
        ),
        Protocol(
            "privrec",
            "people never trained on: half of their events adapts, liked items of the rest are asked (Wang et al. 2021)",
            lambda log, seed: held_out_people(log, seed=seed, positive=_positive),
            lambda split, seed: Everything("log"),
            _at(5, 10, 20, 30, names=("Hits@{n}", "NDCG@{n}")),
        ),
    )
}


def load_protocol(name: str) -> Protocol:
    """A protocol by name.

    >>> load_protocol("fpl").lists
    10
    """
    if name not in PROTOCOLS:
        raise PlanError(unknown("Tacit", name, PROTOCOLS, "protocol"))
    return PROTOCOLS[name]
