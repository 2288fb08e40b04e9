"""Repeated items: the treatment of test cases whose target the user already has.

`new`: items of the user are no candidates, so such a case has no correct answer and is not evaluated. `all`: every item is
a candidate and every case is evaluated. Anything in between is unfair: a target that the user has, among candidates that
they do not have, is found by any method that ranks known items first.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from tacit.errors import DataError
from tacit.lab.data import Population
from tacit.lab.data.selection import owners
from tacit.lab.evaluation.splits import Cases, Repeats, Split

OFTEN = 0.5  # the share of repeated events from which on repeats are allowed by default
WORDS: dict[Repeats, str] = {"new": "new items only", "all": "repeats allowed"}
OTHER: dict[Repeats, Repeats] = {"new": "all", "all": "new"}


class RepeatPolicy(NamedTuple):
    """A treatment of repeated items, and one sentence with the reason."""

    repeats: Repeats
    words: str


def repeat_share(log: Population) -> float:
    """The share of the events that repeat an item of the same user.

    >>> from tacit.lab.data import from_events
    >>> repeat_share(from_events(np.array([0, 0, 0, 1]), np.array([4, 5, 4, 4])))
    0.25
    """
    pair = owners(log) * log.catalog.n_items + log.items
    return 1.0 - np.unique(pair).size / max(pair.size, 1)


def choose_repeats(log: Population) -> RepeatPolicy:
    """The treatment that fits a log: repeats are allowed where at least half of its events are repeats."""
    share = repeat_share(log)
    repeats: Repeats = "all" if share >= OFTEN else "new"
    if share == 0:
        return RepeatPolicy(repeats, f"{WORDS[repeats]}: no user has an item twice")
    also = "evaluates these too" if repeats == "new" else "evaluates new items alone"
    why = f"{percent(share)} of the events repeat an item of the same user"
    return RepeatPolicy(repeats, f"{WORDS[repeats]}: {why}; repeats={OTHER[repeats]!r} {also}")


def requested_policy(repeats: Repeats) -> RepeatPolicy:
    """The treatment that the caller requested."""
    return RepeatPolicy(repeats, f"{WORDS[repeats]}, as requested")


def percent(share: float) -> str:
    """A share in per cent; only exactly 0 and 1 are written as 0 % and 100 %.

    >>> percent(0.419), percent(0.0004), percent(0.9996)
    ('42 %', 'less than 1 %', 'more than 99 %')
    """
    if 0 < share < 0.005 or 0.995 <= share < 1:
        return "less than 1 %" if share < 0.5 else "more than 99 %"
    return f"{100 * share:.0f} %"


def apply_policy(split: Split, choice: RepeatPolicy) -> Split:
    """The split under a treatment of repeats."""
    return (new_items_only if choice.repeats == "new" else repeats_allowed)(split, choice.words)


def new_items_only(split: Split, words: str) -> Split:
    """The split without the test cases whose target is in the history that the user may use."""
    seen, cases = split.seen, len(split.test)
    if seen.all():
        raise DataError(
            f"All {cases:,} test cases have a target that the user already has, so no new item is left to evaluate; "
            "use repeats='all' (--repeats all)."
        )
    notes = split.notes
    if seen.any():
        why = "have a target that the user already has and are not evaluated"
        notes = (*notes, f"{int(seen.sum()):,} of {cases:,} test cases {why}")
    left_out = split.test.at(seen) if seen.any() else None
    return replace(split, test=split.test.at(~seen), repeats="new", treatment=words, left_out=left_out, notes=notes)


def repeats_allowed(split: Split, words: str) -> Split:
    """The split with every test case, including those left out before."""
    test = split.test if split.left_out is None else _joined(split.test, split.left_out)
    return replace(split, test=test, repeats="all", treatment=words, left_out=None)


def _joined(some: Cases, others: Cases) -> Cases:
    """All of these cases, in the order of the log."""
    columns = {name: np.concatenate([part, getattr(others, name)]) for name, part in vars(some).items()}
    return Cases(**columns).at(np.argsort(columns["event"], kind="stable"))
