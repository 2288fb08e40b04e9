"""Population: everybody's histories, as columns. Never one Python object per device."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tacit.core.catalog import Catalog
from tacit.device.histories import People
from tacit.errors import DataError


@dataclass(frozen=True)
class Population(People):
    """Everybody, with what the log called them."""

    silo: np.ndarray | None = None  # int32[n], which organisation each device belongs to
    item_names: Sequence[Any] | None = None  # what the log called each item
    silo_names: Sequence[Any] | None = None  # what the log called each organisation
    notes: tuple[str, ...] = ()  # what loading dropped, merged or guessed
    frames: str = "polars"  # what answers are given in: "polars", or "pandas" where the log was

    @property
    def digest(self) -> str:
        """A fingerprint of the log, so that a resumed run meets the same people."""
        state = hashlib.sha256()
        for column in (self.offsets, self.items, self.times, self.labels, self.context, self.person, self.silo):
            state.update(b"-" if column is None else np.ascontiguousarray(column).tobytes())
        if self.never is not None:  # a log without it keeps the fingerprint it always had
            state.update(np.ascontiguousarray(self.never).tobytes())
        return state.hexdigest()[:16]

    def require_times(self, who: str) -> np.ndarray:
        """The times; a method, split or figure that needs them says who it is."""
        if self.times is None:
            raise DataError(
                f"{who} needs times, and this log has none; name their column with interactions(..., time=...), "
                "or choose one that needs only the order."
            )
        return self.times

    def require_ratings(self, who: str) -> np.ndarray:
        """The ratings; a method that needs them says who it is. Labels of 0 and 1 are no ratings."""
        if self.labels is None or not self.labels.size or self.labels.max() <= 1:
            raise DataError(
                f"{who} predicts ratings, and this log has none; name their column with interactions(..., weight=...), "
                "or set hyper.output = 'liking'."
            )
        return self.labels

    @property
    def device_names(self) -> Sequence[Any]:
        """A name for every device that no other has: the user's, and the organisation's where there are several."""
        if self.silo is None:
            return range(len(self)) if self.users is None else self.users
        silos = [str(number) if self.silo_names is None else str(self.silo_names[number]) for number in self.silo]
        return [f"{self.name(device)} @ {silo}" for device, silo in enumerate(silos)]

    def name(self, device: int) -> str:
        """What the log called this device."""
        return str(device) if self.users is None else str(self.users[device])


def from_events(
    user: np.ndarray, item: np.ndarray, time: np.ndarray | None = None, *, n_items: int | None = None
) -> Population:
    """A population from one row per event: user and item numbers, and times to order by (else the order given).

    >>> world = from_events(np.array([1, 0, 1]), np.array([2, 0, 1]))
    >>> len(world), world.histories(np.array([1]), 3).items.tolist()
    (2, [[2, 1, -1]])
    """
    user, item = np.asarray(user), np.asarray(item)
    if user.size == 0:
        raise DataError("A log must have at least one event, got none.")
    if user.shape != item.shape:
        raise DataError(f"A log's columns must be equally long, got {user.size} users and {item.size} items.")
    order = np.argsort(user, kind="stable") if time is None else np.lexsort((np.asarray(time), user))
    counts = np.bincount(user)
    catalog = Catalog(int(item.max()) + 1 if n_items is None else n_items)
    return Population(
        catalog,
        np.concatenate([[0], np.cumsum(counts)]),
        item[order].astype(np.int32),
        None if time is None else np.asarray(time, float)[order],
    )
