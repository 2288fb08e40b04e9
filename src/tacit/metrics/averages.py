"""Averages: over cases, sessions, users, in the order each paper takes them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from tacit.errors import DataError, PlanError, unknown


@dataclass(frozen=True)
class Average:
    """A mean, and the values it is the mean of: one for each outermost group."""

    value: float
    values: np.ndarray  # float[g]
    groups: np.ndarray  # [g], what the groups are called, ascending


def average(values: np.ndarray, groups: Sequence[np.ndarray] = ()) -> Average:
    """Mean within the first groups, then of those within the next, and so on; `levels` names the usual ways.

    Args:
        values: float[m], one for each case.
        groups: labels [m] of each case, inner first, such as (session, user). Sessions of different users are
            different sessions even where they are called the same.

    >>> average(np.array([1.0, 0.0, 0.5]), (np.array([7, 7, 8]),)).values.tolist()
    [0.5, 0.5]
    """
    values, labels = np.asarray(values, float), [np.asarray(label) for label in groups]
    if values.size == 0:
        raise DataError("An average needs at least one value, got none.")
    if any(label.shape != values.shape for label in labels):
        raise DataError(
            f"Groups must label each of {values.size} values, got {[label.size for label in labels]} labels."
        )
    names = np.arange(values.size)
    while labels:
        cell, first = _cells(labels)
        values = np.bincount(cell, values) / np.bincount(cell)
        names, labels = labels[0][first], [label[first] for label in labels[1:]]
    return Average(float(values.mean()), values, names)


def levels(
    by: Literal["user", "session", "micro"], user: np.ndarray, session: np.ndarray | None = None
) -> tuple[np.ndarray, ...]:
    """The groups to average over: `user` (cases, then a user's sessions, then users), `session` or `micro` (cases).

    Without sessions, `user` is cases, then users.
    """
    ways = ("user", "session", "micro")
    if by not in ways:
        raise PlanError(unknown("Averaging", by, ways, "way"))
    if by == "micro":
        return ()
    if by == "user":
        return (user,) if session is None else (session, user)
    if session is None:
        raise DataError("Averaging by session needs the session of each case, got none; pass `session`.")
    return (_cells([np.asarray(session), np.asarray(user)])[0],)


def _cells(labels: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Number the different combinations of labels, the last label weighing most; and where each first stands."""
    cell = first = np.zeros(labels[0].size, int)
    for label in reversed(labels):
        _, at = np.unique(label, return_inverse=True)
        _, first, cell = np.unique(cell * (at.max() + 1) + at, return_index=True, return_inverse=True)
    return cell, first
