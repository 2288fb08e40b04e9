"""Repeats: what evaluation does with test cases whose target the person already has.

`new`: the candidates leave out what a person has, so such a case has no right answer and is not evaluated. `all`: nothing
is left out and every case is evaluated. Anything in between is unfair: a target that the person has, among rivals that
they do not have, is found by any method that puts known items first.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from tacit.errors import DataError
from tacit.lab.data import Population
from tacit.lab.data.selection import owners
from tacit.lab.evaluation.splits import Cases, Repeats, Split

OFTEN = 0.5  # the share of repeated events from which on a log counts as one where people come back to things
WORDS: dict[Repeats, str] = {"new": "new items only", "all": "repeats allowed"}
OTHER: dict[Repeats, Repeats] = {"new": "all", "all": "new"}


class Choice(NamedTuple):
    """How repeats are treated, and one sentence that says why."""

    repeats: Repeats
    words: str


def repeat_share(log: Population) -> float:
    """The share of the events that repeat an item of the same person.

    >>> from tacit.lab.data import from_events
    >>> repeat_share(from_events(np.array([0, 0, 0, 1]), np.array([4, 5, 4, 4])))
    0.25
    """
    pair = owners(log) * log.catalog.n_items + log.items
    return 1.0 - np.unique(pair).size / max(pair.size, 1)


def choose_repeats(log: Population) -> Choice:
    """The treatment that fits a log: repeats are allowed where at least half of its events are repeats."""
    share = repeat_share(log)
    repeats: Repeats = "all" if share >= OFTEN else "new"
    if share == 0:
        return Choice(repeats, f"{WORDS[repeats]}: no person has an item twice")
    also = "evaluates these too" if repeats == "new" else "evaluates new items alone"
    why = f"{percent(share)} of the events repeat an item of the same person"
    return Choice(repeats, f"{WORDS[repeats]}: {why}; repeats={OTHER[repeats]!r} {also}")


def requested(repeats: Repeats) -> Choice:
    """The treatment that somebody asked for."""
    return Choice(repeats, f"{WORDS[repeats]}, as requested")


def percent(share: float) -> str:
    """A share as a person reads it: what is more than nothing is not called 0 %, what is not all is not called 100 %.

    >>> percent(0.419), percent(0.0004), percent(0.9996)
    ('42 %', 'less than 1 %', 'more than 99 %')
    """
    if 0 < share < 0.005 or 0.995 <= share < 1:
        return "less than 1 %" if share < 0.5 else "more than 99 %"
    return f"{100 * share:.0f} %"


def treat(split: Split, choice: Choice) -> Split:
    """The split under a treatment."""
    return (new_items_only if choice.repeats == "new" else repeats_allowed)(split, choice.words)


def new_items_only(split: Split, words: str) -> Split:
    """Without the test cases whose target is in the history that the person may use."""
    seen, cases = split.seen, len(split.test)
    if seen.all():
        raise DataError(
            f"All {cases:,} test cases ask for an item that the person already has, so no new item is left to evaluate; "
            "take repeats='all' (--repeats all)."
        )
    notes = split.notes
    if seen.any():
        why = "ask for an item that the person already has and are not evaluated"
        notes = (*notes, f"{int(seen.sum()):,} of {cases:,} test cases {why}")
    left_out = split.test.at(seen) if seen.any() else None
    return replace(split, test=split.test.at(~seen), repeats="new", treatment=words, left_out=left_out, notes=notes)


def repeats_allowed(split: Split, words: str) -> Split:
    """With every test case, those left out before included."""
    test = split.test if split.left_out is None else _joined(split.test, split.left_out)
    return replace(split, test=test, repeats="all", treatment=words, left_out=None)


def _joined(some: Cases, others: Cases) -> Cases:
    """All of these cases, in the order of the log."""
    columns = {name: np.concatenate([part, getattr(others, name)]) for name, part in vars(some).items()}
    return Cases(**columns).at(np.argsort(columns["event"], kind="stable"))
