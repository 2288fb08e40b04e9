"""Sessions, days and cycles: how a log is cut along time."""

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
    """The cycle of each event, 0 … cycles − 1; a person's days stay whole and in order.

    `balanced` divides each person's own active days. With as many days as cycles or more, every cycle gets a nearly
    equal number of them. With fewer, a person is active in as many cycles as there are days: the days of all such
    people are assigned round-robin, so that the numbers of active people differ by one at most. Otherwise the
    calendar is cut into equal spans, whoever is active in them.
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
    """The cycle of each active day, person by person, from how many days each person has."""
    person = np.repeat(np.arange(days.size), days)
    rank = np.arange(person.size) - np.repeat(np.cumsum(days) - days, days)
    few = days[person] < cycles
    turn = (np.cumsum(few) - 1) * _stride(cycles) % cycles
    cycle = np.where(few, turn, rank * cycles // days[person])
    return cycle[np.lexsort((cycle, person))]  # a person's earlier day goes to the earlier cycle


def _stride(cycles: int) -> int:
    """The step from turn to turn: it visits every cycle, and a few turns in a row lie apart where such a step exists.

    Multiples of the golden ratio, taken modulo 1, are spread evenly however many of them there are.
    """
    coprime = np.flatnonzero(np.gcd(np.arange(cycles), cycles) == 1)
    return int(coprime[np.abs(coprime - cycles * (math.sqrt(5) - 1) / 2).argmin()])


def active_people(population: Population, cycle: np.ndarray, cycles: int) -> np.ndarray:
    """How many people are active in each of so many cycles."""
    pairs = np.unique(np.stack([cycle, owners(population)]), axis=1)
    return np.bincount(pairs[0], minlength=cycles)
