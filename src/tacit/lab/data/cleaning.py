"""Cleaning of a log: ordering, duplicates, users with few events. Each step counts what it changes."""

from dataclasses import dataclass

import numpy as np

from tacit.errors import DataError


@dataclass(frozen=True)
class Events:
    """The log while it is being cleaned: one entry per event in every column."""

    user: np.ndarray
    item: np.ndarray
    time: np.ndarray | None
    label: np.ndarray | None
    silo: np.ndarray | None
    context: np.ndarray | None
    never: np.ndarray | None = None

    def __len__(self) -> int:
        return self.user.size

    def take(self, rows: np.ndarray) -> "Events":
        """Some rows, or the rows in another order."""
        columns = (self.user, self.item, self.time, self.label, self.silo, self.context, self.never)
        return Events(*(None if column is None else column[rows] for column in columns))  # pyright: ignore


def of_marked_items(user: np.ndarray, item: np.ndarray, marked: np.ndarray) -> np.ndarray:
    """Every event of an item that its user marked at least once.

    >>> of_marked_items(np.array([0, 0, 1]), np.array([5, 5, 5]), np.array([True, False, False])).tolist()
    [True, True, False]
    """
    pair = user.astype(np.int64) * (int(item.max(initial=0)) + 1) + item
    return np.isin(pair, pair[marked])


def in_order(log: Events) -> Events:
    """By device, then time; events of the same time stay in the order of the rows."""
    order = np.argsort(log.user, kind="stable") if log.time is None else np.lexsort((log.time, log.user))
    return log if np.array_equal(order, np.arange(order.size)) else log.take(order)


def drop_duplicates(log: Events, policy: str, notes: list[str]) -> Events:
    """One event for each device and item, or every event; the log is in order of device and time."""
    if policy == "latest":
        keep = _last_of_pair(log)
    elif policy == "first":
        keep = _last_of_pair(log.take(np.arange(len(log))[::-1]))[::-1]
    else:
        _count_repeats(log, policy, notes)
        return log
    if len(log) - keep.sum():
        notes.append(f"{len(log) - keep.sum():,} repeated events of a user and an item merged into the {policy} one.")
    return log.take(keep)


def _last_of_pair(log: Events) -> np.ndarray:
    """Whether an event is the last row of its device and item."""
    order = np.lexsort((log.item, log.user))  # stable: rows of a pair stay in their order
    user, item = log.user[order], log.item[order]
    last = np.ones(order.size, bool)
    last[:-1] = (user[1:] != user[:-1]) | (item[1:] != item[:-1])
    keep = np.zeros(order.size, bool)
    keep[order[last]] = True
    return keep


def _count_repeats(log: Events, policy: str, notes: list[str]) -> None:
    """Rows that say again what another row found: same device, item and time."""
    if log.time is None:
        return
    again = (log.user[1:] == log.user[:-1]) & (log.time[1:] == log.time[:-1])
    # only rows that share user and time with a neighbour can repeat one: a small part of the log
    some = np.flatnonzero(np.append(again, False) | np.append(False, again))
    some = some[np.lexsort((log.item[some], log.time[some], log.user[some]))]
    one, other = some[:-1], some[1:]
    again = (log.user[one] == log.user[other]) & (log.item[one] == log.item[other])
    again &= log.time[one] == log.time[other]
    count = int(again.sum())
    if count and policy == "error":
        raise DataError(
            f"duplicates='error': {count:,} rows repeat a user, an item and a time; choose duplicates='latest', "
            "'first' or 'keep'."
        )
    if count:
        notes.append(f"{count:,} rows repeat another row's user, item and time; kept.")


def drop_few(log: Events, policy: str, min_events: int, notes: list[str]) -> Events:
    """Users with fewer than `min_events` events: kept, dropped or refused."""
    counts = np.bincount(log.user)
    few = (counts < min_events) & (counts > 0)
    if not few.any():
        return log
    found = f"{int(few.sum()):,} of {int((counts > 0).sum()):,} users have fewer than {min_events} events"
    if policy == "error":
        raise DataError(f"on_few='error': {found}; choose on_few='drop' or 'keep', or a smaller min_events.")
    if policy == "keep":
        notes.append(f"{found}; kept.")
        return log
    keep = ~few[log.user]
    if not keep.any():
        raise DataError(f"on_few='drop': {found}, so no user is left; choose a smaller min_events.")
    notes.append(f"{found}; dropped with their {int((~keep).sum()):,} events.")
    return log.take(keep)
