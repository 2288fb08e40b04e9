"""Interactions: a table with one row per event becomes a Population; every choice is an option, every change is counted."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from pathlib import Path
from typing import Any, Literal, ParamSpec

import numpy as np
import polars as pl
from narwhals.typing import IntoFrame

from tacit.core.catalog import Catalog, Field
from tacit.core.plugins import RenamedWarning
from tacit.errors import DataError
from tacit.lab.data import Population
from tacit.lab.data.cleaning import Events, drop_duplicates, drop_few, in_order, of_marked_items
from tacit.lab.data.columns import Codes, encode_ids, seconds
from tacit.lab.data.features import (
    absent_in,
    check_kinds,
    concatenate_fields,
    encode_field,
    with_item_fields,
    with_user_fields,
)
from tacit.lab.data.tables import Table

P = ParamSpec("P")


def _renamed_options(**renamed: str) -> Callable[[Callable[P, Population]], Callable[P, Population]]:
    """Accept the option names of earlier versions, with a warning."""

    def wrap(function: Callable[P, Population]) -> Callable[P, Population]:
        @wraps(function)
        def call(*args: P.args, **options: P.kwargs) -> Population:
            for old in renamed.keys() & options.keys():
                new = renamed[old]
                warnings.warn(f"The option {old!r} is now called {new!r}.", RenamedWarning, stacklevel=2)
                options[new] = options.pop(old)
            return function(*args, **options)

        return call

    return wrap


# Common alternatives to the default names of the two optional columns.
OFTEN = {"datetime": "timestamp", "weight": "rating"}
ON_FEW = ("keep", "drop", "error")
DUPLICATES = ("keep", "latest", "first", "error")


@_renamed_options(few="on_few", least="min_events")
def interactions(
    frame: IntoFrame | str | Path,
    *,
    user: str = "user_id",
    item: str = "item_id",
    time: str | None = "datetime",
    weight: str | None = "weight",
    silo: str | None = None,
    context: Sequence[str] = (),
    person: Sequence[str] = (),
    never: str | None = None,
    items: IntoFrame | str | Path | None = None,
    people: IntoFrame | str | Path | None = None,
    kinds: Mapping[str, str] | None = None,
    on_few: Literal["keep", "drop", "error"] = "keep",
    min_events: int = 2,
    duplicates: Literal["keep", "latest", "first", "error"] = "keep",
    time_format: str | None = None,
    delimiter: str | None = None,
) -> Population:
    """A population from a log: pandas, polars or pyarrow, or the path of a CSV, TSV or Parquet file.

    `user`, `item`, `time` and `weight` name the columns. `datetime` (or `timestamp`) and `weight` (or `rating`) may be
    absent; any other name must be there. Times are dates, ISO text or epoch numbers; without a zone they are UTC.
    `delimiter` is what stands between the columns of a text file, if not the comma of .csv or the tab of .tsv.
    `silo` names the column of the organisation that holds an event; a user of two organisations becomes two devices,
    as neither organisation may see the other's half. `items` and `people` are tables about items and people, with the
    same identifier column; `context` names further columns of the log, `person` columns with one value in all rows of
    a user and become fields of the user. `kinds` sets how to read a column: categorical, multi ('a|b' or a list),
    numeric or words; other columns are inferred. `never` names a column of true and false: an item that a user
    marks so in any row is never shared by that user, so no method learns from it.
    `duplicates`: "keep" every row; "latest" or "first" keeps one event for each user and item; "error" refuses a row
    that occurs twice. Then `on_few`: "drop" leaves out users with fewer than `min_events` events, "error" refuses them.
    `Population.notes` lists what was done. Numbers follow the sorted names, whatever the order of the rows.

    >>> import polars as pl
    >>> log = pl.DataFrame({"user_id": ["b", "a", "b"], "item_id": [7, 5, 5], "datetime": [20, 10, 10]})
    >>> world = interactions(log)
    >>> list(world.users), list(world.item_names), world.items.tolist()
    (['a', 'b'], [5, 7], [0, 0, 1])
    """
    _one_of("on_few", on_few, ON_FEW)
    _one_of("duplicates", duplicates, DUPLICATES)
    notes: list[str] = []
    table = Table(frame, "the log", text=[name for name in (user, item, silo) if name], delimiter=delimiter)
    ids = _ids(table, user, item, silo, text=isinstance(frame, str | Path))
    fields, extra = _context(table, context, kinds or {})
    mine = [_of_user(table, name, (kinds or {}).get(name), ids.users) for name in person]
    when, label = _times(table, time, time_format, notes), _labels(table, weight, notes)
    hidden = None if never is None else of_marked_items(ids.users.codes, ids.items.codes, _truths(table, never))
    log = Events(ids.users.codes, ids.items.codes, when, label, ids.silos.codes if ids.silos else None, extra, hidden)
    log, devices = _devices(log, ids.silos)
    log = drop_few(drop_duplicates(in_order(log), duplicates, notes), on_few, min_events, notes)
    world = _population(log, devices, ids, fields, concatenate_fields(mine))
    world = _attach(world, items, people, (user, item), kinds, [*context, *person])
    frames = "pandas" if type(frame).__module__.startswith("pandas") else "polars"
    return replace(world, notes=(*notes, *world.notes), frames=frames)


@dataclass(frozen=True)
class _Ids:
    users: Codes
    items: Codes
    silos: Codes | None


def _ids(table: Table, user: str, item: str, silo: str | None, *, text: bool) -> _Ids:
    def encoded(name: str, role: str) -> Codes:
        return encode_ids(table.column(table.require(name, f"{role}s")), role, text=text)

    ids = _Ids(encoded(user, "user"), encoded(item, "item"), encoded(silo, "silo") if silo else None)
    if ids.users.codes.size == 0:
        raise DataError(f"{table.called} must have at least one event, got an empty table.")
    return ids


def _one_of(name: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise DataError(f"interactions: {name} must be one of {', '.join(known)}, got {value!r}.")


def _optional(table: Table, name: str | None, role: str) -> str | None:
    """The column's name, or None where an optional column is absent."""
    if name is None or name in table:
        return name
    if name not in OFTEN:
        return table.require(name, role)
    return OFTEN[name] if OFTEN[name] in table else None


def _times(table: Table, name: str | None, written: str | None, notes: list[str]) -> np.ndarray | None:
    found = _optional(table, name, "times")
    if found is None:
        notes.append("No times: the order of the rows is the order of the events.")
        return None
    times, note = seconds(table.column(found), written)
    notes.extend([note] if note else [])
    return times


def _labels(table: Table, name: str | None, notes: list[str]) -> np.ndarray | None:
    found = _optional(table, name, "weights")
    if found is None:
        return None
    column = table.column(found)
    if not column.dtype.is_numeric() or column.null_count() or (column.dtype.is_float() and column.is_nan().any()):
        raise DataError(
            f"Column {found!r} must hold a number in every row as weight, got {column.dtype} with "
            f"{column.null_count():,} missing; mend it, or pass weight=None to leave it out."
        )
    notes.extend([f"Weights are the column {found!r}."] if found != name else [])
    return column.to_numpy().astype(np.float32)


def _context(table: Table, names: Sequence[str], kinds: Mapping[str, str]) -> tuple[tuple[Field, ...], Any]:
    found = [encode_field(table.column(table.require(name, "context")), name, kinds.get(name)) for name in names]
    return concatenate_fields(found)


def _of_user(table: Table, name: str, kind: str | None, users: Codes) -> tuple[Field, np.ndarray]:
    """A column with one value in all rows of a user: the field, and a row of values for each user."""
    column = table.column(table.require(name, "users' own columns"))
    field, values = encode_field(column, name, kind)
    absent = absent_in(column)
    first = np.unique(users.codes, return_index=True)[1]
    _refuse_changes(column, np.concatenate([values, absent.to_numpy()[:, None]], 1), users, first)
    if field.kind == "numeric" and absent.any():
        who = users.names[users.codes[int(absent.arg_max() or 0)]]
        raise DataError(
            f"Column {name!r} must hold a number for every user, got nothing for user {str(who)!r}; mend it, or leave "
            "that user out."
        )
    return field, values[first]


def _refuse_changes(column: pl.Series, values: np.ndarray, users: Codes, first: np.ndarray) -> None:
    """Refuse a column that differs from a user's first row in another row of the user."""
    differs = np.flatnonzero((values != values[first][users.codes]).any(1))
    if differs.size:
        row = int(differs[0])
        one, other = (column[at] for at in (int(first[users.codes[row]]), row))
        raise DataError(
            f"Column {column.name!r} must have one value in every row of a user, got {one!r} and {other!r} for user "
            f"{str(users.names[users.codes[row]])!r}; mend it, or pass a table of people with one row each."
        )


def _truths(table: Table, name: str) -> np.ndarray:
    """A column of true and false."""
    column = table.column(table.require(name, "items never shared"))
    if column.null_count() or (column.dtype != pl.Boolean and not column.is_in([0, 1]).all()):
        raise DataError(
            f"Column {name!r} must hold true or false in every row, got {column.dtype} with {column.null_count():,} missing."
        )
    return column.cast(pl.Boolean).to_numpy()


def _devices(log: Events, silos: Codes | None) -> tuple[Events, np.ndarray]:
    """The devices: each user, or each user in each silo; rows of (user, silo)."""
    if silos is None or log.silo is None:
        found = np.flatnonzero(np.bincount(log.user))
        return log, np.stack([found, np.zeros_like(found)], 1)
    pair = log.user.astype(np.int64) * len(silos.names) + log.silo
    found, device = np.unique(pair, return_inverse=True)
    return replace(log, user=device.astype(np.int32)), np.stack(np.divmod(found, len(silos.names)), 1)


def _population(
    log: Events, devices: np.ndarray, ids: _Ids, fields: tuple[Field, ...], mine: tuple[tuple[Field, ...], Any]
) -> Population:
    """Columns by device; devices and items without events are left out."""
    counts = np.bincount(log.user)
    who = np.flatnonzero(counts)
    seen = np.flatnonzero(np.bincount(log.item, minlength=len(ids.items.names)))
    number = np.zeros(len(ids.items.names), np.int32)
    number[seen] = np.arange(seen.size, dtype=np.int32)
    return Population(
        Catalog(int(seen.size), event_fields=fields, person_fields=mine[0]),
        np.concatenate([[0], np.cumsum(counts[who])]).astype(np.int64),
        number[log.item],
        log.time,
        log.label,
        log.context,
        person=None if mine[1] is None else mine[1][devices[who, 0]],
        never=log.never,
        silo=None if ids.silos is None else devices[who, 1].astype(np.int32),
        users=ids.users.names[devices[who, 0]].tolist(),
        item_names=ids.items.names[seen].tolist(),
        silo_names=None if ids.silos is None else ids.silos.names.tolist(),
    )


def _attach(
    world: Population, items: Any, people: Any, ids: tuple[str, str], kinds: Mapping[str, str] | None, known: list[str]
) -> Population:
    user, item = ids
    about_items = None if items is None else Table(items, "the table of items", text=[item])
    about_people = None if people is None else Table(people, "the table of people", text=[user])
    for table in (about_items, about_people):
        known.extend(table.names if table else ())
    kinds = check_kinds(kinds, known)
    if about_items is not None:
        world = with_item_fields(world, about_items, item, kinds, text=isinstance(items, str | Path))
    if about_people is not None:
        world = with_user_fields(world, about_people, user, kinds, text=isinstance(people, str | Path))
    return world
