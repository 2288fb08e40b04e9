"""The intersection attack: what somebody learns who only reads the wire, when the same people are asked again and again.

Under the asymmetric form every report holds all that a person has, so what a person does not have goes missing from one
report or another. Answers that are drawn once for life (`privacy.memoised`) leave nothing to intersect.
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


class Overheard(NamedTuple):
    """All that went over the wire: eight items a byte, in the order of ids."""

    packed: np.ndarray  # uint8[reports, people, ⌈items/8⌉]
    items: int


@dataclass(frozen=True)
class Caught:
    """What is left after intersecting so many reports of each person: means over people."""

    reports: int
    named: float  # items that all reports name
    false: float  # of these, items that the person does not have
    missed: float  # items that the person has and some report does not name

    @property
    def precision(self) -> float:
        """Which share of what is named is true."""
        return 1 - self.false / self.named if self.named else 1.0


def overhear(
    plan: Plan | str | Path, people: Population, times: int, *, settings: dict[str, Any] | None = None, seed: int = 0
) -> Overheard:
    """What people send who are asked so often, by the devices' own code.

    Asked in as many rounds of one run; where answers are memoised, in as many runs of one round: what a home keeps over
    runs is its secret.
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
    return Overheard(np.stack(heard), people.catalog.n_items)


def left_after(heard: Overheard) -> np.ndarray:
    """The attack: which items all reports so far name, bool[reports, people, items]; it takes nothing but the wire."""
    left = np.bitwise_and.accumulate(heard.packed, axis=0)
    return np.unpackbits(left, axis=-1, count=heard.items).astype(bool)


def caught(heard: Overheard, people: Population) -> list[Caught]:
    """How much of people's histories the attack names, report by report; here, and only here, the truth is looked at."""
    had = np.zeros((len(people), people.catalog.n_items), bool)
    had[owners(people), people.items] = True
    found = []
    for number, named in enumerate(left_after(heard), 1):
        counts = (part.sum(1).mean() for part in (named, named & ~had, had & ~named))
        found.append(Caught(number, *map(float, counts)))
    return found


def false_after(items: int, owned: int, q: float, reports: int) -> float:
    """How many items that a person does not have are left after so many fresh asymmetric reports, in expectation.

    >>> round(false_after(100, 20, 0.5, 3), 6)
    10.0
    """
    return (items - owned) * q**reports
