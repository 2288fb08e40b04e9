"""Sessions, days and cycles: division of a log along time, and what is cleaned first."""

import math
from dataclasses import replace

import numpy as np

from tacit.errors import DataError
from tacit.lab.data import Population
from tacit.lab.data.selection import owners, pick, take

DAY = 86_400.0


def first_of_each(numbers: np.ndarray) -> np.ndarray:
    """True where a run of equal numbers begins."""
    return np.append(True, numbers[1:] != numbers[:-1])[: numbers.size]


def sessions_of(population: Population, gap: float = 900.0) -> np.ndarray:
    """A number for each event; a new session begins after a pause of more than `gap` seconds."""
    times, person = population.require_times("sessions_of"), owners(population)
    pause = np.append(True, (np.diff(times) > gap) | (np.diff(person) != 0))[: times.size]
    return np.cumsum(pause) - 1


def days_of(population: Population) -> np.ndarray:
    """The calendar day of each event (UTC), as a number."""
    return np.floor(population.require_times("days_of") / DAY).astype(np.int64)


def drop_quick_repeats(population: Population, seconds: float = 3.0) -> Population:
    """Drop an event that repeats the item of the event before it within so many seconds."""
    times, person = population.require_times("drop_quick_repeats"), owners(population)
    again = (np.diff(population.items) == 0) & (np.diff(person) == 0) & (np.diff(times) < seconds)
    return take(population, ~np.append(False, again)[: times.size])


def merge_repeats(population: Population) -> Population:
    """Each item once per person, at its latest time."""
    pair = owners(population) * population.catalog.n_items + population.items
    reversed_first = np.unique(pair[::-1], return_index=True)[1]
    keep = np.zeros(pair.size, bool)
    keep[pair.size - 1 - reversed_first] = True
    return take(population, keep)


def tied_events(population: Population) -> np.ndarray:
    """True where an event has the time stamp of the same user's event before it; bool[events]."""
    times, person = population.require_times("A count of ties"), owners(population)
    return np.append(False, (np.diff(times) == 0) & (np.diff(person) == 0))[: times.size]


def shuffle_ties(population: Population, seed: int = 0) -> Population:
    """The same log with events of equal time stamps of a user in random order, not in the order of the file."""
    population.require_times("ties = 'random'")
    moment = np.cumsum(~tied_events(population))
    order = np.lexsort((np.random.default_rng(seed).random(moment.size), moment))

    def column(values: np.ndarray | None) -> np.ndarray | None:
        return None if values is None else values[order]

    labels, context = column(population.labels), column(population.context)
    return replace(population, items=population.items[order], labels=labels, context=context)


def with_min_events(population: Population, events: int) -> Population:
    """Only the users with at least so many events."""
    kept = np.flatnonzero(population.lengths >= events)
    if kept.size == 0:
        raise DataError(
            f"with_min_events({events}) leaves no user; the longest history has {population.lengths.max()} events."
        )
    return pick(population, kept)


def cycles_of(population: Population, cycles: int, balanced: bool = True) -> np.ndarray:
    """The cycle of each event, 0 … cycles − 1; the days of a user stay whole and in order.

    `balanced` divides the active days of each user. With as many days as cycles or more, every cycle gets a nearly
    equal number of them. With fewer, a user is active in as many cycles as there are days: the days of all such
    users are assigned round-robin, so that the numbers of active users differ by one at most. Otherwise the
    calendar is divided into equal spans, whichever users are active in them.
    """
    day, person = days_of(population), owners(population)
    if cycles < 2:
        raise DataError(f"cycles_of needs at least 2 cycles, got {cycles}.")
    if not balanced:
        span = day.max() - day.min() + 1
        return ((day - day.min()) * cycles // span).astype(np.int64)
    new = np.append(True, (np.diff(day) != 0) | (np.diff(person) != 0))[: day.size]
    return _round_robin(np.bincount(person[new], minlength=len(population)), cycles)[np.cumsum(new) - 1]


def _round_robin(days: np.ndarray, cycles: int) -> np.ndarray:
    """The cycle of each active day, user by user, from the number of days of each user."""
    person = np.repeat(np.arange(days.size), days)
    rank = np.arange(person.size) - np.repeat(np.cumsum(days) - days, days)
    few = days[person] < cycles
    turn = (np.cumsum(few) - 1) * _stride(cycles) % cycles
    cycle = np.where(few, turn, rank * cycles // days[person])
    return cycle[np.lexsort((cycle, person))]  # the earlier day of a user goes to the earlier cycle


def _stride(cycles: int) -> int:
    """A step coprime to the number of cycles, so that it visits all of them, and consecutive ones lie apart.

    Multiples of the golden ratio, taken modulo 1, are spread evenly however many of them there are.
    """
    coprime = np.flatnonzero(np.gcd(np.arange(cycles), cycles) == 1)
    return int(coprime[np.abs(coprime - cycles * (math.sqrt(5) - 1) / 2).argmin()])


def active_users(population: Population, cycle: np.ndarray, cycles: int) -> np.ndarray:
    """The number of active users in each of so many cycles."""
    pairs = np.unique(np.stack([cycle, owners(population)]), axis=1)
    return np.bincount(pairs[0], minlength=cycles)
