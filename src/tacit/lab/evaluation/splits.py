"""Splits of a log into training data and test cases. Every split notes what it dropped and whether it leaks."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

import numpy as np

from tacit.device.ranking import RECENT
from tacit.errors import DataError
from tacit.lab.data import Population
from tacit.lab.data.organisations import organisations
from tacit.lab.data.selection import owners, pick, take
from tacit.lab.evaluation.sessions import days_of, first_of_each, sessions_of

Repeats = Literal["new", "all"]  # which test cases are evaluated: of new items only, or of all


class LeakWarning(UserWarning):
    """Training data holds events that came after a test case."""


@dataclass(frozen=True)
class Cases:
    """Test cases: on this device, after these events, which item came next?"""

    device: np.ndarray  # int64[m], into the population that is evaluated
    recent: np.ndarray  # int32[m, r], newest last, -1 is padding in front
    target: np.ndarray  # int32[m]
    event: np.ndarray  # int64[m], position of the target in the log that was split
    session: np.ndarray  # int64[m], cases of one session share a number

    def __len__(self) -> int:
        return self.device.size

    def at(self, which: np.ndarray) -> "Cases":
        """Some of the cases, by a mask or by their positions."""
        return Cases(**{name: column[which] for name, column in vars(self).items()})


@dataclass(frozen=True)
class Split:
    """Training data and test cases. `people` are the test users where these took no part in training."""

    log: Population  # the whole log, for the lab only
    train: Population
    test: Cases
    valid: Cases | None = None
    people: Population | None = None  # device numbers of `test` point here if set, else into `train`
    notes: tuple[str, ...] = field(default=())
    repeats: Repeats | None = None  # the treatment of targets that a user already has; set by a protocol
    treatment: str = ""  # the same as a sentence, with the reason
    left_out: Cases | None = None  # test cases that are not evaluated under this treatment

    @property
    def test_population(self) -> Population:
        """The devices of the test cases, with the history they may use."""
        return self.train if self.people is None else self.people

    def among(self, devices: np.ndarray) -> "Split":
        """The same split with the test cases of these devices only."""
        left = None if self.left_out is None else self.left_out.at(np.isin(self.left_out.device, devices))
        return replace(self, test=self.test.at(np.isin(self.test.device, devices)), left_out=left)

    @cached_property
    def seen(self) -> np.ndarray:
        """Of each test case, whether the target is in the history that the user may use; bool[m]."""
        n = self.test_population.catalog.n_items
        had = np.unique(owners(self.test_population) * n + self.test_population.items)
        return np.isin(self.test.device * n + self.test.target, had)


# ---- test cases ----


def next_in_session(population: Population, session: np.ndarray, wanted: np.ndarray, recent: int = RECENT) -> Cases:
    """A test case for each wanted event but the first of a session; `recent` has the events before it in the session."""
    first = first_of_each(session)
    events = np.flatnonzero(wanted & ~first)
    return cases_at(population, events, session, recent)


def cases_at(population: Population, events: np.ndarray, session: np.ndarray, recent: int = RECENT) -> Cases:
    """A test case for each of these events; `recent` has the earlier events of the same session."""
    at = events[:, None] - recent + np.arange(recent)
    inside = (at >= 0) & (session[np.maximum(at, 0)] == session[events][:, None])
    shown = np.where(inside, population.items[np.maximum(at, 0)], -1).astype(np.int32)
    return Cases(owners(population)[events], shown, population.items[events], events, session[events])


def latest(population: Population, devices: np.ndarray, count: int) -> np.ndarray:
    """The newest events of some devices, newest last, padded in front."""
    end = population.offsets[devices + 1]
    at = end[:, None] - count + np.arange(count)
    real = at >= population.offsets[devices][:, None]
    items = np.append(population.items, -1)  # for devices without events
    return np.where(real, items[np.where(real, at, 0)], -1).astype(np.int32)


# ---- the splits ----


def leave_last_out(population: Population, recent: int = RECENT) -> Split:
    """The last event of every user is a test case, the one before it a validation case; a single event is not evaluated."""
    lengths, end = population.lengths, population.offsets[1:]
    evaluated = np.flatnonzero(lengths >= 2)
    if evaluated.size == 0:
        raise DataError("leave_last_out needs a device with at least 2 events, got none.")
    last = end[evaluated] - 1
    before = end[np.flatnonzero(lengths >= 3)] - 2
    keep = np.ones(population.items.size, bool)
    keep[last] = False
    person = owners(population)
    test, valid = (cases_at(population, events, person, recent) for events in (last, before))
    few = lengths.size - evaluated.size
    notes = (f"{few} of {lengths.size} devices have a single event and are not evaluated",) if few else ()
    return _checked(Split(population, take(population, keep), test, valid, notes=notes))


def temporal_ratio(population: Population, test: float = 0.2, valid: float = 0.2, recent: int = RECENT) -> Split:
    """The newest ⌊test·n⌋ events of every user are test cases; of the rest, the newest ⌊valid·n⌋ are validation cases.

    Validation events stay in `train`: a final fit may use them, a tuning fit calls this on `train` again.
    """
    lengths = population.lengths
    tested = np.floor(test * lengths).astype(np.int64)
    left = lengths - tested
    validated = np.floor(valid * left).astype(np.int64)
    place = np.arange(population.items.size) - np.repeat(population.offsets[:-1], lengths)
    testing = place >= np.repeat(left, lengths)
    validating = ~testing & (place >= np.repeat(left - validated, lengths))
    person = owners(population)
    cases = [cases_at(population, np.flatnonzero(mask), person, recent) for mask in (testing, validating)]
    if len(cases[0]) == 0:
        raise DataError(f"temporal_ratio({test}) leaves no user a test case; take a larger share or longer histories.")
    short = int((tested == 0).sum())
    notes = (f"{short} of {lengths.size} devices have too few events to be evaluated",) if short else ()
    return _checked(Split(population, take(population, ~testing), cases[0], cases[1], notes=notes))


def calendar_days(
    population: Population, test: int = 14, valid: int = 7, *, gap: float = 900.0, recent: int = RECENT
) -> Split:
    """Test cases are the last `test` days of the log, validation cases the `valid` days before; session by session."""
    day, session = days_of(population), sessions_of(population, gap)
    last = day.max()
    testing, training = day > last - test, day <= last - test - valid
    if not training.any() or not testing.any():
        raise DataError(f"calendar_days needs more than {test + valid} days of log, got {last - day.min() + 1}.")
    tests, valids = (next_in_session(population, session, mask, recent) for mask in (testing, ~testing & ~training))
    if not len(tests):
        raise DataError(f"calendar_days found no session of two events in the last {test} day(s); test on more days.")
    train = take(population, ~testing)
    notes = _new_users_and_items(train, tests)
    return _checked(Split(population, train, tests, valids, notes=notes))


def cycle(population: Population, cycles: np.ndarray, now: int, *, gap: float = 900.0, recent: int = RECENT) -> Split:
    """Train on the cycles before `now`, test on cycle `now`; `cycles` is what `cycles_of` returns."""
    testing = cycles == now
    if now < 1 or not testing.any():
        raise DataError(f"cycle tests on cycles 1 to {cycles.max()}, got {now}.")
    cases = next_in_session(population, sessions_of(population, gap), testing, recent)
    train = take(population, cycles < now)
    return _checked(Split(population, train, cases, notes=_new_users_and_items(train, cases)))


def held_out_users(
    population: Population,
    share: float = 0.2,
    *,
    seed: int = 0,
    positive: Callable[[np.ndarray], np.ndarray] | None = None,
    recent: int = RECENT,
) -> Split:
    """A share of the users takes no part in training: the first half of their events adapts, the second half is tested.

    `positive` selects the test cases of the second half by label; by default all.
    """
    held = np.sort(np.random.default_rng(seed).permutation(len(population))[: max(1, int(share * len(population)))])
    rest = np.setdiff1d(np.arange(len(population)), held)
    if rest.size == 0:
        raise DataError(f"held_out_users needs at least 2 devices, got {len(population)}.")
    people = pick(population, held)
    place = np.arange(people.items.size) - np.repeat(people.offsets[:-1], people.lengths)
    second = place >= np.repeat(people.lengths // 2, people.lengths)
    labels = np.ones(people.items.size) if people.labels is None else people.labels
    wanted = second & (np.ones(labels.size, bool) if positive is None else positive(labels))
    cases = cases_at(people, np.flatnonzero(wanted), owners(people), recent)
    if len(cases) == 0:
        raise DataError("held_out_users found no test case: no held-out user has a positive event in the second half.")
    skipped = held.size - np.unique(cases.device).size
    notes = (f"{skipped} of {held.size} held-out users have no test case and are skipped",) if skipped else ()
    return Split(people, pick(population, rest), cases, people=take(people, ~second), notes=notes)


def cold_start(
    population: Population,
    *,
    sessions: int | None = None,
    days: int | None = None,
    share: float = 0.2,
    seed: int = 0,
    gap: float = 900.0,
    recent: int = RECENT,
) -> Split:
    """Users who took no part in training are tested once they have had so many sessions, or days."""
    if (sessions is None) == (days is None):
        raise DataError("cold_start takes sessions=0, 1, 2 … or days=1, 2, 5 …, exactly one of them.")
    base = held_out_users(population, share, seed=seed, recent=recent)
    people = base.log
    session = sessions_of(people, gap)
    unit, count = (session, sessions) if days is None else (days_of(people), days)
    assert count is not None
    order = _rank_within(people, unit)
    cases = next_in_session(people, session, order == count, recent)  # in the very next session or day
    if len(cases) == 0:
        raise DataError(f"cold_start found no user with more than {count} {'sessions' if days is None else 'days'}.")
    return Split(people, base.train, cases, people=take(people, order < count), notes=base.notes)


def month_sessions(population: Population, *, only_last: bool = False, recent: int = 50) -> Split:
    """A session is one calendar month of a user; the last item of every session of two or more is a test case.

    With test cases in every month, training holds later months, and the split notes it; `only_last` tests only the
    last month of a user.
    """
    times = population.require_times("month_sessions")
    months = times.astype("datetime64[s]").astype("datetime64[M]").astype(np.int64)
    session = _number(owners(population), months)
    size = np.bincount(session)[session]
    last = np.append(session[1:] != session[:-1], True)
    ends = last & (size >= 2)
    if only_last:
        ends[:-1] &= owners(population)[1:] != owners(population)[:-1]
    events = np.flatnonzero(ends)
    if events.size == 0:
        raise DataError("month_sessions found no month with two events of one user.")
    keep = np.ones(population.items.size, bool)
    keep[events] = False
    keep &= size >= 2
    alone = int((np.bincount(session) == 1).sum())
    notes = (f"{alone} months with a single event are left out",) if alone else ()
    return _checked(
        Split(population, take(population, keep), cases_at(population, events, session, recent), notes=notes)
    )


def train_on_organisations(split: Split, sequences: Literal["month", "person"] = "person") -> Split:
    """The same test cases of the same users, with the organisations as the devices that train.

    A user is evaluated with the organisation's model and their own history.
    """
    return replace(split, train=organisations(split.train, sequences), people=split.test_population)


# ---- notes and leaks ----


def _checked(split: Split) -> Split:
    """Note the test cases that precede training events of the same user, and warn if there are any."""
    if split.log.times is None or not len(split.test):
        return split
    newest = _newest(split.train)
    late = newest[split.test.device] > split.log.times[split.test.event]
    notes = split.notes
    if late.any():
        words = f"leak: {late.mean():.0%} of the test cases precede training events of the same user"
        warnings.warn(words, LeakWarning, stacklevel=3)
        notes = (*notes, words)
    others = float((newest.max() > split.log.times[split.test.event]).mean())
    if others > 0.5:
        notes = (*notes, f"{others:.0%} of the test cases are older than some training event of other users")
    return replace(split, notes=notes)


def _newest(population: Population) -> np.ndarray:
    newest = np.full(len(population), -np.inf)
    some = population.lengths > 0
    if population.times is not None and some.any():
        newest[some] = np.maximum.reduceat(population.times, population.offsets[:-1][some])
    return newest


def _new_users_and_items(train: Population, cases: Cases) -> tuple[str, ...]:
    """Notes on test users without training events and on target items that training never saw."""
    new_users = int((train.lengths[np.unique(cases.device)] == 0).sum())
    new_items = int((~np.isin(np.unique(cases.target), train.items)).sum())
    notes = []
    if new_users:
        notes.append(f"{new_users} users have no training event and are evaluated all the same")
    if new_items:
        notes.append(f"{new_items} target items never occur in training")
    return tuple(notes)


def _number(*columns: np.ndarray) -> np.ndarray:
    """One number for each distinct row, in order of appearance of sorted rows."""
    table = np.stack(columns, axis=1)
    return np.unique(table, axis=0, return_inverse=True)[1].reshape(-1)


def _rank_within(population: Population, unit: np.ndarray) -> np.ndarray:
    """For each event, the number of distinct earlier units of its user."""
    person = owners(population)
    new = np.append(True, (unit[1:] != unit[:-1]) | (person[1:] != person[:-1]))
    total = np.cumsum(new)
    return total - np.repeat(
        total[population.offsets[:-1][population.lengths > 0]], population.lengths[population.lengths > 0]
    )
