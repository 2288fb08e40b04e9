"""Merge: a log goes on. More events, new people, new items; what was numbered keeps its number."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tacit.core.catalog import Catalog
from tacit.errors import DataError
from tacit.lab.data.cleaning import of_marked_items
from tacit.lab.data.population import Population


def merge(old: Population, new: Population) -> Population:
    """The old log followed by the new one; people and items are matched by name, and new ones are added at the end.

    >>> from tacit.lab.data.interactions import interactions
    >>> import polars as pl
    >>> first = interactions(pl.DataFrame({"user_id": ["a", "b"], "item_id": ["x", "y"]}), time=None)
    >>> later = interactions(pl.DataFrame({"user_id": ["b", "c"], "item_id": ["z", "x"]}), time=None)
    >>> both = merge(first, later)
    >>> both.users, both.item_names, both.lengths.tolist()
    (['a', 'b', 'c'], ['x', 'y', 'z'], [1, 2, 1])
    """
    _check(old, new)
    item_names, item_of = _numbered(_items(old), _items(new))
    device_names, device_of = _numbered(old.device_names, new.device_names)
    user = np.concatenate([_owner(old), device_of[_owner(new)]])
    times = None if old.times is None or new.times is None else np.concatenate([old.times, new.times])
    # A stable sort: without times, what is new comes after what is old.
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
    """All names, the old ones first; and where each new name stands among them."""
    place = {str(name): number for number, name in enumerate(old)}
    names = [*old, *(name for name in new if str(name) not in place)]
    place = {str(name): number for number, name in enumerate(names)}
    return names, np.array([place[str(name)] for name in new], np.int64)


def _owner(population: Population) -> np.ndarray:
    return np.repeat(np.arange(len(population)), population.lengths)


def _added(place: np.ndarray, known: int) -> np.ndarray:
    """Which of the new ones were not there, in the order of their numbers."""
    fresh = np.flatnonzero(place >= known)
    return fresh[np.argsort(place[fresh])]


def _marks(log: Population) -> bool:
    return log.never is not None


def _never(old: Population, new: Population, user: np.ndarray, item_of: np.ndarray) -> np.ndarray:
    """What is never shared, old events first: an item that either log marks is never shared in both."""
    marked = [np.zeros(log.items.size, bool) if log.never is None else log.never for log in (old, new)]
    return of_marked_items(user, np.concatenate([old.items, item_of[new.items]]), np.concatenate(marked))


def _pick(names: Sequence[Any] | None, which: np.ndarray) -> list[Any]:
    return [] if names is None else [names[number] for number in which]


def _newest(old: np.ndarray | None, new: np.ndarray | None, added: np.ndarray, place: np.ndarray) -> np.ndarray | None:
    """Everybody's fields as the newest log has them: people may change their mind."""
    rows = _rows(old, new, added)
    if rows is not None:
        rows[place] = new
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
