"""Privacy budget: the composed ε of one device's messages, over all its runs, and how many more fit. Arithmetic only.

Every message is an Entry. Entries are composed, not added up line by line:

- A message of its own (Pure, Gaussian, Unbounded) counts once for each entry.
- A whole-stage event (PoissonGaussian, FixedGaussian, CorrelatedGaussian, SplitGaussian, FixedPure) covers all planned rounds of a stage,
  whichever devices are drawn: a run's stage counts once, with its `rounds`, however many reports it has.
- A guarantee covers its own unit and every finer one (client(silo) > user > interaction). An entry of a finer unit than
  the budget's has no finite ε for the budget's unit, so it counts as unbounded; so does a one-sided guarantee.
- All entries are composed under replace-one, whatever relation their own ε was stated for: the accountant converts a pure ε
  before it composes (one interaction more or less counts twice, as a swap), and other events have the amount of noise.

The composition is for events fixed in advance. A server that chooses its next plan by looking at earlier results is still
covered by the proof when δ is 0 (a plain sum) or all events are Gaussian; for other mixtures it is not proven.
"""

import math
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import get_args

from tacit.errors import PlanError
from tacit.privacy.accounting.events import (
    CorrelatedGaussian,
    Event,
    FixedGaussian,
    FixedPure,
    PoissonGaussian,
    Spent,
    SplitGaussian,
    Unbounded,
    check_least_delta,
)
from tacit.privacy.claim import Relation, Unit

DAY = 86_400.0  # seconds
WHOLE_STAGE = (PoissonGaussian, FixedGaussian, CorrelatedGaussian, SplitGaussian, FixedPure)
COARSENESS: dict[Unit, int] = {"interaction": 0, "user": 1, "client(silo)": 2}
_RELATIONS = get_args(Relation)
_ROUNDING = 1 + 1e-9  # so that a budget of exactly n·ε allows n messages


@dataclass(frozen=True)
class Budget:
    """The most a device will spend: ε at δ for one unit, for life or over the last `days` days.

    >>> Budget(4.0, days=30)
    Budget(epsilon=4.0, delta=0.0, days=30, unit='user')
    """

    epsilon: float  # inf: no limit
    delta: float = 0.0
    days: float | None = None  # None: for life
    unit: Unit = "user"

    def __post_init__(self):
        if not self.epsilon > 0:
            raise PlanError(f"Budget.epsilon must be above 0 (inf is allowed), got {self.epsilon!r}.")
        if not 0 <= self.delta < 1:
            raise PlanError(f"Budget.delta must be at least 0 and below 1, got {self.delta!r}.")
        check_least_delta(self.delta, "Budget.delta")
        if self.days is not None and not 0 < self.days < math.inf:
            raise PlanError(f"Budget.days must be above 0 and finite, or None for life, got {self.days!r}.")
        _one_of("Budget.unit", self.unit, COARSENESS)

    def renewal(self, time: float) -> float:
        """When an entry of this time stops counting, in unix seconds; infinity for a budget for life."""
        return math.inf if self.days is None else time + self.days * DAY

    def covers(self, epsilon: float) -> bool:
        """Whether a total stays within the budget, to rounding."""
        return epsilon <= self.epsilon * _ROUNDING


@dataclass(frozen=True, slots=True)
class Entry:
    """One message a device sent, or was about to send. Its ε and δ are of this message alone, for showing."""

    time: float  # unix seconds
    plan: str  # the plan's digest
    run: str
    stage: int
    round: int
    unit: Unit  # what the event protects; a message with a user-level event is entered with that one
    relation: Relation  # of the ε shown
    event: Event
    epsilon: float
    delta: float
    bytes: int
    rounds: int = 1  # how many rounds a whole-stage event covers
    digest: str = ""  # of the bytes sent: two messages of one size are not one message

    def __post_init__(self):
        _whole("stage", self.stage, 0)
        _whole("round", self.round, 0)
        _whole("bytes", self.bytes, 0)
        _whole("rounds", self.rounds, 1)
        _one_of("Entry.unit", self.unit, COARSENESS)
        _one_of("Entry.relation", self.relation, _RELATIONS)
        if not isinstance(self.event, Event):
            raise PlanError(f"Entry.event must be an event such as Pure(1.0), got {self.event!r}.")
        if self.rounds > 1 and not isinstance(self.event, WHOLE_STAGE):
            raise PlanError(f"Entry.rounds must be 1 for {self.event!r}, an event of one message, got {self.rounds}.")
        if not math.isfinite(self.time):
            raise PlanError(f"Entry.time must be a finite number of seconds, got {self.time!r}.")
        if not self.epsilon >= 0:
            raise PlanError(f"Entry.epsilon must be at least 0 (inf is allowed), got {self.epsilon!r}.")
        if not 0 <= self.delta <= 1:
            raise PlanError(f"Entry.delta must be between 0 and 1, got {self.delta!r}.")


class BudgetTally:
    """What is spent of a budget, updated one entry at a time. The order of entries does not matter."""

    def __init__(self, budget: Budget, entries: Iterable[Entry] = ()):
        self.budget = budget
        self._messages: Counter[Event] = Counter()
        self._stages: dict[tuple[str, int, Event], Counter[int]] = {}  # for each: planned rounds -> reports
        for entry in entries:
            self.add(entry)

    def add(self, entry: Entry, times: int = 1) -> None:
        """Count an entry so many times; a negative number takes it away again."""
        event = _counted(entry, self.budget)
        if isinstance(event, WHOLE_STAGE):
            key = (entry.run, entry.stage, event)
            reports = self._stages.setdefault(key, Counter())
            _move(reports, entry.rounds, times)
            if not reports:
                del self._stages[key]
        else:
            _move(self._messages, event, times)

    @property
    def events(self) -> Spent:
        """The events and how often each happened, sorted."""
        total = Counter(self._messages)
        for (_, _, event), reports in self._stages.items():
            # More reports than planned rounds are not covered by the stage's claim: count each report.
            total[event] += max(*reports, reports.total())
        return tuple(sorted(total.items(), key=repr))

    @property
    def epsilon(self) -> float:
        """The composed ε at the budget's δ."""
        return _composed(self.events, self.budget.delta)

    def epsilon_with(self, entry: Entry, times: int = 1) -> float:
        """The composed ε if this entry were added so many times."""
        self.add(entry, times)
        try:
            return self.epsilon
        finally:
            self.add(entry, -times)

    def room(self, entry: Entry, most: int) -> int:
        """The largest number, at most `most`, of further messages like this one that the budget covers."""
        if most < 1 or self.budget.covers(self.epsilon_with(entry, most)):
            return max(most, 0)
        fits, too_many = 0, most
        while too_many - fits > 1:
            middle = (fits + too_many) // 2
            if self.budget.covers(self.epsilon_with(entry, middle)):
                fits = middle
            else:
                too_many = middle
        return fits


def spent(entries: Iterable[Entry], budget: Budget, now: float) -> float:
    """The composed ε of the entries that still count, for the budget's unit at the budget's δ."""
    return BudgetTally(budget, _current(entries, budget, now)).epsilon


def allowance(
    entries: Iterable[Entry],
    event: Event,
    budget: Budget,
    now: float,
    most: int,
    rounds: int = 1,
    *,
    unit: Unit = "user",
    relation: Relation = "replace_one",
    run: str = "",
    stage: int = 0,
) -> int:
    """The largest number, at most `most`, of further messages with this event that the budget covers.

    A whole-stage event is counted as a whole, so up to its `rounds` the answer is `most` or 0; name the run and the
    stage when it may have been counted already. Left empty, it is a run that has not begun.
    """
    message = Entry(now, "", run, stage, 0, unit, relation, event, 0.0, 0.0, 0, rounds)
    return BudgetTally(budget, _current(entries, budget, now)).room(message, most)


def _current(entries: Iterable[Entry], budget: Budget, now: float) -> Iterable[Entry]:
    return (entry for entry in entries if budget.renewal(entry.time) > now)


def _counted(entry: Entry, budget: Budget) -> Event:
    """What an entry means for the budget's unit, in both directions."""
    if COARSENESS[entry.unit] < COARSENESS[budget.unit]:
        return Unbounded(f"{entry.unit}-level only")
    if entry.relation == "one_sided_1_to_0":
        return Unbounded("one direction only")
    return entry.event


@lru_cache(maxsize=4096)
def _composed(events: Spent, delta: float) -> float:
    if not events:
        return 0.0
    from tacit.privacy.accounting.accountant import compose  # here: a slow import, only needed once something is sent

    return float(compose(events, delta, relation="replace_one").epsilon)


def _move(counter: Counter, key: object, times: int) -> None:
    counter[key] += times
    if not counter[key]:
        del counter[key]


def _whole(name: str, value: int, least: int) -> None:
    if type(value) is not int or value < least:
        raise PlanError(f"Entry.{name} must be a whole number, at least {least}, got {value!r}.")


def _one_of(name: str, value: object, known: Collection[str]) -> None:
    if value not in known:
        raise PlanError(f"{name} must be one of {', '.join(known)}, got {value!r}.")
