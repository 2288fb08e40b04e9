"""Sessions, days and cycles: how a log is cut along time."""

from dataclasses import replace

import numpy as np

from tacit.errors import DataError
from tacit.lab.cut import owners, pick, take
from tacit.lab.data import Population

DAY = 86_400.0


def first_of_each(numbers: np.ndarray) -> np.ndarray:
    """True where a run of equal numbers begins."""
    return np.append(True, numbers[1:] != numbers[:-1])[: numbers.size]


def sessions_of(population: Population, gap: float = 900.0) -> np.ndarray:
    """A number for each event; a new session begins where a person paused for longer than `gap` seconds."""
    times, person = population.require_times("sessions_of"), owners(population)
    pause = np.append(True, (np.diff(times) > gap) | (np.diff(person) != 0))[: times.size]
    return np.cumsum(pause) - 1


def days_of(population: Population) -> np.ndarray:
    """The calendar day of each event (UTC), as a number."""
    return np.floor(population.require_times("days_of") / DAY).astype(np.int64)


def clean(population: Population, seconds: float = 3.0) -> Population:
    """Drop an event of the same item as the one before, less than so many seconds after it."""
    times, person = population.require_times("clean"), owners(population)
    again = (np.diff(population.items) == 0) & (np.diff(person) == 0) & (np.diff(times) < seconds)
    return take(population, ~np.append(False, again)[: times.size])


def merge_repeats(population: Population) -> Population:
    """Each item once per person, at its latest time."""
    pair = owners(population) * population.catalog.n_items + population.items
    reversed_first = np.unique(pair[::-1], return_index=True)[1]
    keep = np.zeros(pair.size, bool)
    keep[pair.size - 1 - reversed_first] = True
    return take(population, keep)


def tied(population: Population) -> np.ndarray:
    """True where an event has the time stamp of the same person's event before it; bool[events]."""
    times, person = population.require_times("A count of ties"), owners(population)
    return np.append(False, (np.diff(times) == 0) & (np.diff(person) == 0))[: times.size]


def shuffle_ties(population: Population, seed: int = 0) -> Population:
    """The same log, with a person's events of one time stamp in random order instead of the file's."""
    population.require_times("ties = 'random'")
    moment = np.cumsum(~tied(population))
    order = np.lexsort((np.random.default_rng(seed).random(moment.size), moment))

    def column(values: np.ndarray | None) -> np.ndarray | None:
        return None if values is None else values[order]

    labels, context = column(population.labels), column(population.context)
    return replace(population, items=population.items[order], labels=labels, context=context)


def at_least(population: Population, events: int) -> Population:
    """Only people with so many events."""
    kept = np.flatnonzero(population.lengths >= events)
    if kept.size == 0:
        raise DataError(f"at_least({events}) leaves nobody; the longest history has {population.lengths.max()} events.")
    return pick(population, kept)


def cycles_of(population: Population, cycles: int, balanced: bool = True) -> np.ndarray:
    """The cycle of each event, 0 … cycles − 1.

    `balanced` cuts each person's own active days, in order, into cycles of nearly equal day count, so that everybody is
    active in every cycle; otherwise the calendar is cut, and people come and go.
    """
    day, person = days_of(population), owners(population)
    if cycles < 2:
        raise DataError(f"cycles_of needs at least 2 cycles, got {cycles}.")
    if not balanced:
        span = day.max() - day.min() + 1
        return ((day - day.min()) * cycles // span).astype(np.int64)
    new = np.append(True, (np.diff(day) != 0) | (np.diff(person) != 0))[: day.size]
    total = np.cumsum(new)
    some = population.lengths > 0
    start = np.repeat(total[population.offsets[:-1][some]], population.lengths[some])
    rank = total - start
    days = np.repeat(np.maximum.reduceat(rank, population.offsets[:-1][some]) + 1, population.lengths[some])
    return rank * cycles // days


def active_people(population: Population, cycle: np.ndarray) -> np.ndarray:
    """How many people are active in each cycle."""
    pairs = np.unique(np.stack([cycle, owners(population)]), axis=1)
    return np.bincount(pairs[0])
