"""Population: the histories of all users as columns, never one Python object per device; and a log that grows."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tacit.core.catalog import Catalog
from tacit.device.histories import People
from tacit.errors import DataError
from tacit.lab.data.cleaning import of_marked_items


@dataclass(frozen=True, repr=False)
class Population(People):
    """All users of a log, with the names of users, items and organisations in the log."""

    silo: np.ndarray | None = None  # int32[n], the organisation of each device
    item_names: Sequence[Any] | None = None  # of the log
    silo_names: Sequence[Any] | None = None  # of the log
    notes: tuple[str, ...] = ()  # what loading dropped, merged or inferred
    frames: str = "polars"  # the kind of tables returned: "polars", or "pandas" where the log was

    @property
    def digest(self) -> str:
        """A fingerprint of the log, so that a resumed run is known to have the same log."""
        state = hashlib.sha256()
        for column in (self.offsets, self.items, self.times, self.labels, self.context, self.person, self.silo):
            state.update(b"-" if column is None else np.ascontiguousarray(column).tobytes())
        if self.never is not None:  # a log without it keeps the fingerprint it always had
            state.update(np.ascontiguousarray(self.never).tobytes())
        return state.hexdigest()[:16]

    def __repr__(self) -> str:
        """Sizes and columns; never a name or an identifier."""
        parts = [f"{len(self):,} users", f"{self.catalog.n_items:,} items", f"{self.items.size:,} events"]
        if self.silo is not None:
            parts.append(f"{np.unique(self.silo).size:,} organisations")
        columns = {"times": self.times, "labels": self.labels, "context": self.context, "user fields": self.person}
        held = [name for name, column in columns.items() if column is not None]
        return f"Population({', '.join(parts)}{'; with ' + ', '.join(held) if held else ''})"

    def require_times(self, who: str) -> np.ndarray:
        """The times, or an error that names what needs them."""
        if self.times is None:
            raise DataError(
                f"{who} needs times, and this log has none; name their column with interactions(..., time=...), "
                "or choose one that needs only the order."
            )
        return self.times

    def require_ratings(self, who: str) -> np.ndarray:
        """The ratings, or an error that names what needs them. Labels of 0 and 1 are no ratings."""
        if self.labels is None or not self.labels.size or self.labels.max() <= 1:
            raise DataError(
                f"{who} predicts ratings, and this log has none; name their column with interactions(..., weight=...), "
                "or set hyper.output = 'liking'."
            )
        return self.labels

    @property
    def device_names(self) -> Sequence[Any]:
        """A unique name for every device: the user's, and the organisation's where there are several."""
        if self.silo is None:
            return range(len(self)) if self.users is None else self.users
        silos = [str(number) if self.silo_names is None else str(self.silo_names[number]) for number in self.silo]
        return [f"{self.name(device)} @ {silo}" for device, silo in enumerate(silos)]

    def name(self, device: int) -> str:
        """The name of this device in the log."""
        return str(device) if self.users is None else str(self.users[device])


def from_events(
    user: np.ndarray, item: np.ndarray, time: np.ndarray | None = None, *, n_items: int | None = None
) -> Population:
    """A population from one row per event: user and item numbers, and times to order by (else the order given).

    >>> log = from_events(np.array([1, 0, 1]), np.array([2, 0, 1]))
    >>> len(log), log.histories(np.array([1]), 3).items.tolist()
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


# ---- a log that grows ----


def extend_log(old: Population, new: Population) -> Population:
    """The old log followed by the new one; people and items are matched by name, and new ones are added at the end.

    >>> from tacit.lab.data.interactions import interactions
    >>> import polars as pl
    >>> first = interactions(pl.DataFrame({"user_id": ["a", "b"], "item_id": ["x", "y"]}), time=None)
    >>> later = interactions(pl.DataFrame({"user_id": ["b", "c"], "item_id": ["z", "x"]}), time=None)
    >>> both = extend_log(first, later)
    >>> both.users, both.item_names, both.lengths.tolist()
    (['a', 'b', 'c'], ['x', 'y', 'z'], [1, 2, 1])
    """
    _check(old, new)
    item_names, item_of = _numbered(_items(old), _items(new))
    device_names, device_of = _numbered(old.device_names, new.device_names)
    user = np.concatenate([_owner(old), device_of[_owner(new)]])
    times = None if old.times is None or new.times is None else np.concatenate([old.times, new.times])
    # A stable sort: without times, new events come after old ones.
    order = np.argsort(user, kind="stable") if times is None else np.lexsort((times, user))

    def column(one: np.ndarray | None, other: np.ndarray | None) -> np.ndarray | None:
        return None if one is None or other is None else np.concatenate([one, other])[order]

    counts = np.bincount(user, minlength=len(device_names))
    added = _added(device_of, len(old))
    return Population(
        _catalog(old.catalog, new.catalog, item_of, len(item_names)),
        np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        np.concatenate([old.items, item_of[new.items].astype(np.int32)])[order],
        None if times is None else times[order],
        column(old.labels, new.labels),
        column(old.context, new.context),
        person=_newest(old.person, new.person, added, device_of),
        never=_never(old, new, user, item_of)[order] if _marks(old) or _marks(new) else None,
        missing=tuple({*old.missing, *new.missing}),
        silo=_rows(old.silo, new.silo, added),
        users=None if old.users is None else [*old.users, *_pick(new.users, added)],
        item_names=None if old.item_names is None else item_names,
        silo_names=old.silo_names,
        notes=old.notes,
        frames=old.frames,
    )


def _check(old: Population, new: Population) -> None:
    for name in ("users", "item_names", "times", "labels", "context", "person", "silo"):
        if (getattr(old, name) is None) != (getattr(new, name) is None):
            has, lacks = (
                ("the run's log", "the new one") if getattr(new, name) is None else ("the new log", "the run's")
            )
            raise DataError(f"A log can only go on with the same columns: {has} has {name}, {lacks} has none.")
    for name in ("item_fields", "person_fields", "event_fields"):
        if getattr(old.catalog, name) != getattr(new.catalog, name):
            raise DataError(
                f"A log can only go on with the same {name.replace('_', ' ')}: the run's are "
                f"{_words(getattr(old.catalog, name))}, the new log's are {_words(getattr(new.catalog, name))}."
            )
    if old.silo_names is not None and list(old.silo_names) != list(new.silo_names or ()):
        raise DataError("A log can only go on with the same organisations, named in the same order.")


def _words(fields: Sequence[Any]) -> str:
    return ", ".join(f"{field.name} ({field.kind}, {field.size})" for field in fields) or "none"


def _items(population: Population) -> Sequence[Any]:
    return range(population.catalog.n_items) if population.item_names is None else population.item_names


def _numbered(old: Sequence[Any], new: Sequence[Any]) -> tuple[list[Any], np.ndarray]:
    """All names, the old ones first; and the position of each new name among them."""
    position = {str(name): number for number, name in enumerate(old)}
    names = [*old, *(name for name in new if str(name) not in position)]
    position = {str(name): number for number, name in enumerate(names)}
    return names, np.array([position[str(name)] for name in new], np.int64)


def _owner(population: Population) -> np.ndarray:
    return np.repeat(np.arange(len(population)), population.lengths)


def _added(position: np.ndarray, known: int) -> np.ndarray:
    """Which of the new names are not among the old ones, in order of their numbers."""
    fresh = np.flatnonzero(position >= known)
    return fresh[np.argsort(position[fresh])]


def _marks(log: Population) -> bool:
    return log.never is not None


def _never(old: Population, new: Population, user: np.ndarray, item_of: np.ndarray) -> np.ndarray:
    """Which events are never shared, old ones first: an item that either log marks is never shared in both."""
    marked = [np.zeros(log.items.size, bool) if log.never is None else log.never for log in (old, new)]
    return of_marked_items(user, np.concatenate([old.items, item_of[new.items]]), np.concatenate(marked))


def _pick(names: Sequence[Any] | None, which: np.ndarray) -> list[Any]:
    return [] if names is None else [names[number] for number in which]


def _newest(
    old: np.ndarray | None, new: np.ndarray | None, added: np.ndarray, position: np.ndarray
) -> np.ndarray | None:
    """The user fields of the newest log, which reposition older ones."""
    rows = _rows(old, new, added)
    if rows is not None:
        rows[position] = new
    return rows


def _rows(old: np.ndarray | None, new: np.ndarray | None, added: np.ndarray) -> np.ndarray | None:
    return None if old is None or new is None else np.concatenate([old, new[added]])


def _catalog(old: Catalog, new: Catalog, item_of: np.ndarray, n_items: int) -> Catalog:
    added = _added(item_of, old.n_items)
    attributes = {
        name: np.concatenate([np.asarray(column), np.asarray(new.attributes[name])[added]])
        for name, column in old.attributes.items()
    }
    return replace(old, n_items=n_items, attributes=attributes)
