"""Evaluation protocols: the library's default and each paper's. A split, candidates, metrics, and how repeats are treated."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from tacit.device.ranking import EMPTY
from tacit.errors import DataError, PlanError, unknown
from tacit.lab.data import Population
from tacit.lab.data.selection import compact
from tacit.lab.evaluation.candidates import Candidates, Everything, Installed, Sampled, SeenBefore
from tacit.lab.evaluation.repeats import (
    WORDS,
    Choice,
    choose_repeats,
    new_items_only,
    percent,
    repeats_allowed,
    requested,
    treat,
)
from tacit.lab.evaluation.scoring import ranked, top_lists
from tacit.lab.evaluation.sessions import at_least, clean, merge_repeats, shuffle_ties, tied
from tacit.lab.evaluation.splits import (
    Cases,
    Repeats,
    Split,
    calendar_days,
    cold_start,
    held_out_people,
    leave_last_out,
    month_sessions,
    temporal_ratio,
)
from tacit.lab.evaluation.statistics import Interval, by_history, interval
from tacit.metrics import Average, Relevant, average, levels, list_summary, per_case, per_list

if TYPE_CHECKING:
    from tacit.lab.runs.run import Run

Ties = Literal["file", "random"]  # what orders a person's events of one time stamp


class Part(NamedTuple):
    """The metrics over some of the test cases, under one treatment of repeats."""

    label: str
    cases: int
    metrics: dict[str, float]


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
    repeats: Repeats | None = None  # how targets that a person already has were treated
    treatment: str = ""  # the same as a sentence, with the reason
    parts: tuple[Part, ...] = ()  # both treatments, by whether the person has the target; empty without repeats

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
    """One way to evaluate: a split, candidates, metrics, and how repeated items are treated."""

    name: str
    about: str
    cut: Callable[[Population, int], Split]
    offer: Callable[[Split, int], Candidates]
    metrics: tuple[str, ...]
    by: Literal["user", "session"] = "user"
    lists: int = 0  # ask each person for a list of so many, instead of ranking each target
    only: Choice | None = None  # the one treatment of repeats that this protocol has, and why
    chosen: Choice | None = None  # the treatment asked for; None: what fits the log
    ties: Ties = "file"

    def split(self, log: Population, seed: int = 0) -> Split:
        """What may be learned from, and what will be asked."""
        ordered = shuffle_ties(log, seed) if self.ties == "random" else log
        return treat(self._told(self.cut(ordered, seed), seed), self.choice(log))

    @property
    def repeats(self) -> str:
        """How repeats are treated, in a sentence, before there is a log."""
        told = self.only or self.chosen
        return (
            told.words
            if told
            else "new items only, or repeats allowed where at least half of a log's events are repeats"
        )

    def choice(self, log: Population) -> Choice:
        """How repeats are treated on this log."""
        return self.only or self.chosen or choose_repeats(log)

    def fixed(self, log: Population) -> "Protocol":
        """The protocol with the treatment that fits this log, whatever part of it is split later."""
        return replace(self, chosen=self.choice(log))

    def _told(self, split: Split, seed: int) -> Split:
        """The split with a note on how many targets owe their place to the order of equal time stamps."""
        if split.log.times is None or not (share := tied(split.log)[split.test.event].mean()):
            return split
        decides = f"a random draw (seed {seed})" if self.ties == "random" else "the order of the file"
        other = "" if self.ties == "random" else "; ties='random' draws it"
        told = f"{percent(share)} of the test targets have the time stamp of the event before them: {decides} decides"
        return replace(split, notes=(*split.notes, f"{told} which of the two is the target{other}"))

    def ask(self, run: "Run", split: Split, seed: int = 0) -> Answers:
        """Evaluate every test case; everything is scored by the devices' own code."""
        found = self._found(run, split, seed)
        return replace(found.answers(), parts=self._parts(run, split, seed, found))

    def _found(self, run: "Run", split: Split, seed: int) -> "_Ranked | _Listed":
        return (_Listed if self.lists else _Ranked)(self, run, split, seed)

    def _parts(self, run: "Run", split: Split, seed: int, found: "_Ranked | _Listed") -> tuple[Part, ...]:
        """The table of both treatments, where a test case asks for an item that the person has."""
        every = split if split.repeats == "all" else repeats_allowed(split, WORDS["all"])
        seen = every.seen
        if split.repeats is None or not seen.any():
            return ()
        both = {split.repeats: found}
        if split.repeats == "new":
            both["all"] = self._found(run, every, seed)
        elif self.only is None:
            with suppress(DataError):  # no new item is asked for, or too few are left to sample from
                both["new"] = self._found(run, new_items_only(split, WORDS["new"]), seed)
        parts = [both["new"].part(WORDS["new"])] if "new" in both else []
        of = {"": np.ones(seen.size, bool), ", items the person has": seen, ", new items": ~seen}
        return (*parts, *(both["all"].part(WORDS["all"] + which, some) for which, some in of.items() if some.any()))


class _Ranked:
    """The rank of every test case's target, and what follows from it."""

    def __init__(self, way: Protocol, run: "Run", split: Split, seed: int):
        self.way, self.split, self.candidates = way, split, way.offer(split, seed)
        self.rank, self.chance = ranked(run, split, self.candidates, seed=seed)

    def part(self, label: str, some: np.ndarray | None = None) -> Part:
        """The metrics over some of the test cases."""
        made = self._averages(np.ones(len(self.split.test), bool) if some is None else some)
        cases = len(self.split.test) if some is None else int(some.sum())
        return Part(label, cases, {name: one.value for name, one in made.items()})

    def _averages(self, some: np.ndarray) -> dict[str, Average]:
        test, negatives = self.split.test, _negatives(self.candidates)
        groups = levels(self.way.by, test.device[some], test.session[some])
        rank = self.rank[some]
        return {name: average(per_case(rank, name, negatives=negatives), groups) for name in self.way.metrics}

    def answers(self) -> Answers:
        """The metrics over all test cases, and each unit's own."""
        split, way, made = self.split, self.way, self._averages(np.ones(len(self.split.test), bool))
        units = next(iter(made.values())).groups
        means, values = ({name: getattr(one, part) for name, one in made.items()} for part in ("value", "values"))
        device = split.test.device
        by_chance = np.setdiff1d(device[self.chance], device[~self.chance])
        return Answers(
            *(way.name, self.candidates.label, means, values, units, split.notes, way.by),
            doubts=told_by_chance(by_chance.size, np.unique(device).size),
            by_chance=by_chance,
            repeats=split.repeats,
            treatment=split.treatment,
        )


class _Listed:
    """The list of every person asked, and what follows from it."""

    def __init__(self, way: Protocol, run: "Run", split: Split, seed: int):
        self.way, self.split, self.n_items = way, split, split.log.catalog.n_items
        self.again, among = split.repeats == "all", np.unique(split.train.items)
        self.devices, self.lists = top_lists(run, split, way.lists, among=among, again=self.again, seed=seed)

    def part(self, label: str, some: np.ndarray | None = None) -> Part:
        """The metrics over the people of some of the test cases, of whom only these cases count."""
        test = self.split.test if some is None else self.split.test.at(some)
        devices = np.unique(test.device)
        lists = self.lists[np.searchsorted(self.devices, devices)]
        summary = list_summary(lists, _relevant(test, devices), self.way.metrics, n_items=self.n_items)
        return Part(label, len(test), summary)

    def answers(self) -> Answers:
        """The metrics over all people asked, and each one's own."""
        split, way, relevant = self.split, self.way, _relevant(self.split.test, self.devices)
        own = [name for name in way.metrics if name.partition("@")[0] in _OWN]
        return Answers(
            way.name,
            "all training items" + ("" if self.again else " not yet seen"),
            list_summary(self.lists, relevant, way.metrics, n_items=self.n_items),
            {name: per_list(self.lists, relevant, name) for name in own},
            self.devices,
            split.notes,
            doubts=_unlisted(int((self.lists < 0).all(axis=1).sum()), self.devices.size),
            repeats=split.repeats,
            treatment=split.treatment,
        )


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


def _relevant(test: Cases, devices: np.ndarray) -> Relevant:
    """What each person went on to use: the targets of their test cases, each once."""
    pair = np.unique(np.stack([test.device, test.target]), axis=1)
    counts = np.bincount(np.searchsorted(devices, pair[0]), minlength=devices.size)
    return Relevant(np.concatenate([[0], np.cumsum(counts)]), pair[1].astype(np.int64))


def _positive(labels: np.ndarray) -> np.ndarray:
    """Ratings above 3 are liked; a log without ratings has only ones, and all are."""
    return (labels > 3) if labels.max() > 1 else labels > 0


_RANKS = ("HR@{n}", "NDCG@{n}")
_OWN = ("P", "R", "Precision", "Recall", "HR", "NDCG")  # metrics of which every list has a value
_HAS = Choice("all", "repeats allowed: the protocol ranks what a person has used before")
_MERGED = Choice("new", "new items only: the protocol merges repeated events")
_SHOWN = 30  # newest events that a question of `bench` shows
_SESSION = 64  # events of the session a question of `seqmf` shows: nearly always all of them


def _at(*cuts: int, names: tuple[str, ...] = _RANKS) -> tuple[str, ...]:
    return tuple(name.format(n=n) for n in cuts for name in names)


PROTOCOLS = {
    protocol.name: protocol
    for protocol in (
        Protocol(
            "full",
            "each person's last item among all items, or among those they do not have; the default",
            lambda log, seed: leave_last_out(log),
            lambda split, seed: Everything.of(split),
            ("HR@10", "NDCG@10", "MRR@10"),
        ),
        Protocol(
            "bench",
            "lists of 10, each person's last item",
            lambda log, seed: leave_last_out(log, recent=_SHOWN),
            lambda split, seed: Everything.of(split),
            ("NDCG@10", "HR@10", "Coverage@10"),
            lists=10,
        ),
        Protocol(
            "seqmf",
            "next app in the session, last 14 days, among apps seen in training and the target (Saiapin et al. 2024)",
            lambda log, seed: calendar_days(clean(log), recent=_SESSION),
            lambda split, seed: SeenBefore(split, plus_target=True, in_training=True),
            _at(1, 3, 5, names=("HR@{n}", "MRR@{n}", "NDCG@{n}")),
            only=_HAS,
        ),
        Protocol(
            "seqmf-strict",
            "as seqmf, but among all apps seen before the moment, and a new app is a miss",
            lambda log, seed: calendar_days(clean(log), recent=_SESSION),
            lambda split, seed: SeenBefore(split),
            _at(1, 3, 5, names=("HR@{n}", "MRR@{n}", "NDCG@{n}")),
            only=_HAS,
        ),
        Protocol(
            "seqmf-week",
            "as seqmf, for a log of about a week: the last day is asked, the day before is the validation's",
            lambda log, seed: calendar_days(clean(log), test=1, valid=1, recent=_SESSION),
            lambda split, seed: SeenBefore(split, plus_target=True, in_training=True),
            _at(1, 3, 5, names=("HR@{n}", "MRR@{n}", "NDCG@{n}")),
            only=_HAS,
        ),
        Protocol(
            "first-session",
            "people never trained on, in their first session, among the apps they have",
            lambda log, seed: cold_start(clean(log), sessions=0, seed=seed, recent=_SESSION),
            lambda split, seed: Installed(split),
            _at(1, 3, 5, names=("HR@{n}", "MRR@{n}", "NDCG@{n}")),
            only=_HAS,
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
            lambda split, seed: Everything.of(split),
            ("P@10", "R@10", "F1@10", "IC@10", "G@10"),
            lists=10,
            only=_MERGED,
        ),
        Protocol(
            "privrec",
            "people never trained on: half of their events adapts, liked items of the rest are asked (Wang et al. 2021)",
            lambda log, seed: held_out_people(log, seed=seed, positive=_positive),
            lambda split, seed: Everything.of(split, "log"),
            _at(5, 10, 20, 30, names=("Hits@{n}", "NDCG@{n}")),
        ),
    )
}


def load_protocol(name: str | Protocol, *, repeats: str | None = None, ties: str = "file") -> Protocol:
    """A protocol by name; one that is loaded already stays as it is.

    Args:
        name: as `tacit protocols` lists them.
        repeats: "new" evaluates only test cases whose target the person does not have, among what they do not have;
            "all" evaluates every case and leaves nothing out; by default what fits the log.
        ties: what orders a person's events of one time stamp: the "file", or a "random" draw by the seed.

    >>> load_protocol("fpl").lists
    10
    """
    if isinstance(name, Protocol):
        return name
    if name not in PROTOCOLS:
        raise PlanError(unknown("Tacit", name, PROTOCOLS, "protocol"))
    found = PROTOCOLS[name]
    for word, value, known in (("repeats", repeats, (None, "new", "all")), ("ties", ties, ("file", "random"))):
        if value not in known:
            raise PlanError(f"{word} must be {' or '.join(repr(one) for one in known if one)}, got {value!r}.")
    if found.only is not None and repeats not in (None, found.only.repeats):
        why = found.only.words.partition("the protocol ")[2]
        raise PlanError(f"The protocol {name} {why}: repeats must be {found.only.repeats!r}, got {repeats!r}.")
    chosen = None if repeats is None else requested(repeats)  # pyright: ignore[reportArgumentType]
    return replace(found, chosen=chosen, ties=ties)  # pyright: ignore[reportArgumentType]
