"""Evaluation protocols: the library's default and one for each paper: a split, candidates, metrics, treatment of repeats."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from tacit.errors import DataError, PlanError, unknown
from tacit.lab.data import Population
from tacit.lab.data.selection import compact
from tacit.lab.evaluation.candidates import AllItems, Candidates, Installed, Sampled, SeenBefore
from tacit.lab.evaluation.repeats import (
    WORDS,
    RepeatPolicy,
    apply_policy,
    choose_repeats,
    new_items_only,
    percent,
    repeats_allowed,
    requested_policy,
)
from tacit.lab.evaluation.results import EvaluationResult as EvaluationResult
from tacit.lab.evaluation.results import ListEvaluation, Part, RankEvaluation
from tacit.lab.evaluation.sessions import (
    drop_quick_repeats,
    merge_repeats,
    shuffle_ties,
    tied_events,
    with_min_events,
)
from tacit.lab.evaluation.splits import (
    Split,
    calendar_days,
    cold_start,
    held_out_users,
    leave_last_out,
    month_sessions,
    temporal_ratio,
)

if TYPE_CHECKING:
    from tacit.lab.runs.run import Run

Ties = Literal["file", "random"]  # the order of events of a user with equal time stamps


@dataclass(frozen=True)
class Protocol:
    """One way to evaluate: a split, candidates, metrics, and how repeated items are treated."""

    name: str
    about: str
    make_split: Callable[[Population, int], Split]
    make_candidates: Callable[[Split, int], Candidates]
    metrics: tuple[str, ...]
    by: Literal["user", "session"] = "user"
    lists: int = 0  # evaluate top-n lists of this length instead of the rank of each target
    fixed_repeats: RepeatPolicy | None = None  # the only treatment of repeats of this protocol, and why
    chosen_repeats: RepeatPolicy | None = None  # the requested treatment; None: what fits the log
    ties: Ties = "file"

    def split(self, log: Population, seed: int = 0) -> Split:
        """Training data and test cases."""
        ordered = shuffle_ties(log, seed) if self.ties == "random" else log
        return apply_policy(self._with_ties_noted(self.make_split(ordered, seed), seed), self.choice(log))

    @property
    def repeats(self) -> str:
        """The treatment of repeats in a sentence, before there is a log."""
        policy = self.fixed_repeats or self.chosen_repeats
        return (
            policy.words
            if policy
            else "new items only, or repeats allowed where at least half of a log's events are repeats"
        )

    def choice(self, log: Population) -> RepeatPolicy:
        """The treatment of repeats on this log."""
        return self.fixed_repeats or self.chosen_repeats or choose_repeats(log)

    def with_repeats_for(self, log: Population) -> "Protocol":
        """The protocol with the treatment that fits this log, whatever part of it is split later."""
        return replace(self, chosen_repeats=self.choice(log))

    def _with_ties_noted(self, split: Split, seed: int) -> Split:
        """The split with a note on how many targets are decided by the order of equal time stamps."""
        if split.log.times is None or not (share := tied_events(split.log)[split.test.event].mean()):
            return split
        decides = f"a random draw (seed {seed})" if self.ties == "random" else "the order of the file"
        other = "" if self.ties == "random" else "; ties='random' draws it"
        tied = f"{percent(share)} of the test targets have the time stamp of the event before them: {decides} decides"
        return replace(split, notes=(*split.notes, f"{tied} which of the two is the target{other}"))

    def evaluate(self, run: "Run", split: Split, seed: int = 0) -> EvaluationResult:
        """Evaluate every test case, with scores by the devices' own code."""
        found = self._evaluation(run, split, seed)
        return replace(found.result(), parts=self._parts(run, split, seed, found))

    def _evaluation(self, run: "Run", split: Split, seed: int) -> RankEvaluation | ListEvaluation:
        return (ListEvaluation if self.lists else RankEvaluation)(self, run, split, seed)

    def _parts(self, run: "Run", split: Split, seed: int, found: RankEvaluation | ListEvaluation) -> tuple[Part, ...]:
        """The metrics under both treatments, where some target is an item that the user has."""
        every = split if split.repeats == "all" else repeats_allowed(split, WORDS["all"])
        seen = every.seen
        if split.repeats is None or not seen.any():
            return ()
        both = {split.repeats: found}
        if split.repeats == "new":
            both["all"] = self._evaluation(run, every, seed)
        elif self.fixed_repeats is None:
            with suppress(DataError):  # no target is new, or too few items are left to sample from
                both["new"] = self._evaluation(run, new_items_only(split, WORDS["new"]), seed)
        parts = [both["new"].part(WORDS["new"])] if "new" in both else []
        of = {"": np.ones(seen.size, bool), ", items the user has": seen, ", new items": ~seen}
        return (*parts, *(both["all"].part(WORDS["all"] + which, some) for which, some in of.items() if some.any()))


def _positive(labels: np.ndarray) -> np.ndarray:
    """Ratings above 3 are liked; a log without ratings has only ones, and all are."""
    return (labels > 3) if labels.max() > 1 else labels > 0


_RANKS = ("HR@{n}", "NDCG@{n}")
_SEEN_ITEMS = RepeatPolicy("all", "repeats allowed: the protocol ranks items that a user has used before")
_MERGED = RepeatPolicy("new", "new items only: the protocol merges repeated events")
_RECENT = 30  # newest events shown to the model in `bench`
_SESSION = 64  # events of the session shown to the model in `seqmf`: nearly always all of them


def _at(*cuts: int, names: tuple[str, ...] = _RANKS) -> tuple[str, ...]:
    return tuple(name.format(n=n) for n in cuts for name in names)


PROTOCOLS = {
    protocol.name: protocol
    for protocol in (
        Protocol(
            "full",
            "the last item of each user among all items, or among those they do not have; the default",
            lambda log, seed: leave_last_out(log),
            lambda split, seed: AllItems.of(split),
            ("HR@10", "NDCG@10", "MRR@10"),
        ),
        Protocol(
            "bench",
            "lists of 10, the last item of each user",
            lambda log, seed: leave_last_out(log, recent=_RECENT),
            lambda split, seed: AllItems.of(split),
            ("NDCG@10", "HR@10", "Coverage@10"),
            lists=10,
        ),
        Protocol(
            "seqmf",
            "next app in the session, last 14 days, among apps seen in training and the target (Saiapin et al. 2024)",
            lambda log, seed: calendar_days(drop_quick_repeats(log), recent=_SESSION),
            lambda split, seed: SeenBefore(split, plus_target=True, in_training=True),
            _at(1, 3, 5, names=("HR@{n}", "MRR@{n}", "NDCG@{n}")),
            fixed_repeats=_SEEN_ITEMS,
        ),
        Protocol(
            "seqmf-strict",
            "as seqmf, but among all apps seen before the moment, and a new app is a miss",
            lambda log, seed: calendar_days(drop_quick_repeats(log), recent=_SESSION),
            lambda split, seed: SeenBefore(split),
            _at(1, 3, 5, names=("HR@{n}", "MRR@{n}", "NDCG@{n}")),
            fixed_repeats=_SEEN_ITEMS,
        ),
        Protocol(
            "seqmf-week",
            "as seqmf, for a log of about a week: tested on the last day, validated on the day before",
            lambda log, seed: calendar_days(drop_quick_repeats(log), test=1, valid=1, recent=_SESSION),
            lambda split, seed: SeenBefore(split, plus_target=True, in_training=True),
            _at(1, 3, 5, names=("HR@{n}", "MRR@{n}", "NDCG@{n}")),
            fixed_repeats=_SEEN_ITEMS,
        ),
        Protocol(
            "first-session",
            "users never trained on, in their first session, among the apps they have",
            lambda log, seed: cold_start(drop_quick_repeats(log), sessions=0, seed=seed, recent=_SESSION),
            lambda split, seed: Installed(split),
            _at(1, 3, 5, names=("HR@{n}", "MRR@{n}", "NDCG@{n}")),
            fixed_repeats=_SEEN_ITEMS,
        ),
        Protocol(
            "dplcf",
            "the last item of each user among 99 sampled ones (Gao et al. 2020)",
            lambda log, seed: leave_last_out(log),
            lambda split, seed: Sampled(split, 99, seed),
            _at(5, 10),
        ),
        Protocol(
            "fedseqrec",
            "the last item of each month of a user among 99 sampled ones (Li et al. 2022)",
            lambda log, seed: month_sessions(log),
            lambda split, seed: Sampled(split, 99, seed),
            ("AUC", "MRR", "NDCG@5", "NDCG@10"),
            by="session",
        ),
        Protocol(
            "fpl",
            "lists of 10 for users with 20 items or more, tested on the newest fifth (Anelli et al. 2021)",
            lambda log, seed: temporal_ratio(compact(with_min_events(merge_repeats(log), 20))),
            lambda split, seed: AllItems.of(split),
            ("P@10", "R@10", "F1@10", "IC@10", "G@10"),
            lists=10,
            fixed_repeats=_MERGED,
        ),
        Protocol(
            "privrec",
            "users never trained on: half of their events adapts, tested on liked items of the rest (Wang et al. 2021)",
            lambda log, seed: held_out_users(log, seed=seed, positive=_positive),
            lambda split, seed: AllItems.of(split, "log"),
            _at(5, 10, 20, 30, names=("Hits@{n}", "NDCG@{n}")),
        ),
    )
}


def load_protocol(name: str | Protocol, *, repeats: str | None = None, ties: str = "file") -> Protocol:
    """A protocol by name; one that is loaded already stays as it is.

    Args:
        name: as `tacit protocols` lists them.
        repeats: "new" evaluates only test cases whose target the user does not have, among what they do not have;
            "all" evaluates every case and leaves nothing out; by default what fits the log.
        ties: the order of events of a user with equal time stamps: that of the "file", or a "random" draw by the seed.

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
    if found.fixed_repeats is not None and repeats not in (None, found.fixed_repeats.repeats):
        why = found.fixed_repeats.words.partition("the protocol ")[2]
        raise PlanError(f"The protocol {name} {why}: repeats must be {found.fixed_repeats.repeats!r}, got {repeats!r}.")
    chosen = None if repeats is None else requested_policy(repeats)  # pyright: ignore[reportArgumentType]
    return replace(found, chosen_repeats=chosen, ties=ties)  # pyright: ignore[reportArgumentType]
