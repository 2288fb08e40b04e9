"""Intersection attack: what an eavesdropper learns when the same devices report again and again.

Under the asymmetric form every report has all items of a person, so the false ones are missing from one report or another.
Answers that are drawn once (`privacy.memoised`) leave nothing to intersect.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tacit.core.plan import Plan
from tacit.lab.data import Population
from tacit.lab.data.selection import owners
from tacit.lab.plans.loader import choose
from tacit.lab.simulation.federation import Federation, Performance
from tacit.lab.simulation.report_collection import GRID, collect_reports, cooccurrence_job, enter_devices


class ObservedReports(NamedTuple):
    """All reports that were sent: eight items a byte, in the order of ids."""

    packed: np.ndarray  # uint8[reports, people, ⌈items/8⌉]
    items: int


@dataclass(frozen=True)
class IntersectionScores:
    """What is left after intersecting so many reports of each person: means over people."""

    reports: int
    named: float  # items that all reports name
    false: float  # of these, items that the person does not have
    missed: float  # items that the person has and some report does not name

    @property
    def precision(self) -> float:
        """Which share of what is named is true."""
        return 1 - self.false / self.named if self.named else 1.0


def observe_reports(
    plan: Plan | str | Path, people: Population, times: int, *, settings: dict[str, Any] | None = None, seed: int = 0
) -> ObservedReports:
    """What devices send over so many rounds, by their own code.

    These are rounds of one run; where answers are memoised, as many runs of one round by the same devices, which keep their
    secret for life.
    """
    chosen = choose(plan, settings)
    memoised = bool(chosen.stages[0].privacy.get("memoised"))
    rounds = 1 if memoised else times
    federation = Federation(
        chosen.with_setting("rounds", rounds), people, seed=seed, performance=Performance(grid=GRID)
    )
    job, heard = cooccurrence_job(federation, rounds), []
    for number in range(times):
        if memoised or number == 0:
            enter_devices(federation, job)
        heard.append(collect_reports(federation, job, number=0 if memoised else number).packed)
    return ObservedReports(np.stack(heard), people.catalog.n_items)


def items_in_all_reports(heard: ObservedReports) -> np.ndarray:
    """The attack: which items all reports so far name, bool[reports, people, items]; it uses the reports alone."""
    left = np.bitwise_and.accumulate(heard.packed, axis=0)
    return np.unpackbits(left, axis=-1, count=heard.items).astype(bool)


def score_intersection(heard: ObservedReports, people: Population) -> list[IntersectionScores]:
    """How much of people's histories the attack names, report by report; only this function uses the truth."""
    had = np.zeros((len(people), people.catalog.n_items), bool)
    had[owners(people), people.items] = True
    found = []
    for number, named in enumerate(items_in_all_reports(heard), 1):
        counts = (part.sum(1).mean() for part in (named, named & ~had, had & ~named))
        found.append(IntersectionScores(number, *map(float, counts)))
    return found


def expected_false_items(items: int, owned: int, q: float, reports: int) -> float:
    """How many items that a person does not have are left after so many fresh asymmetric reports, in expectation.

    >>> round(expected_false_items(100, 20, 0.5, 3), 6)
    10.0
    """
    return (items - owned) * q**reports
