"""Sides: what a table says about the items, or the people, of a population."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import numpy as np
import polars as pl

from tacit.core.catalog import Field
from tacit.errors import DataError
from tacit.lab.data import Population
from tacit.lab.data.columns import as_integers, plain_ids
from tacit.lab.data.features import absent_in, encode, side_by_side
from tacit.lab.data.tables import Table


def describe_items(
    world: Population, table: Table, key: str, kinds: Mapping[str, str], *, text: bool = False
) -> Population:
    """The population with item fields and attributes; an item the table does not name stays unknown."""
    found, notes, _ = _fields(table, key, world.item_names, "item", kinds, text)
    attributes = {field.name: jnp.asarray(_as_stored(field, values)) for field, values in found}
    catalog = replace(world.catalog, attributes=attributes, item_fields=tuple(field for field, _ in found))
    return replace(world, catalog=catalog, notes=(*world.notes, *notes))


def describe_people(
    world: Population, table: Table, key: str, kinds: Mapping[str, str], *, text: bool = False
) -> Population:
    """The population with person fields; a device the table does not name stays unknown."""
    found, notes, missing = _fields(table, key, world.users, "user", kinds, text)
    fields, person = side_by_side(found)
    twice = {field.name for field in fields} & {field.name for field in world.catalog.person_fields}
    if twice:
        raise DataError(f"{min(twice)!r} is a column of the log and of {table.called}; leave it out of one.")
    catalog = replace(world.catalog, person_fields=(*world.catalog.person_fields, *fields))
    both = [columns for columns in (world.person, person) if columns is not None]
    person = np.concatenate(both, axis=1) if both else None
    return replace(world, catalog=catalog, person=person, notes=(*world.notes, *notes), missing=tuple(missing))


def _as_stored(field: Field, values: np.ndarray) -> np.ndarray:
    """Places are integers; a field of one number is one column."""
    if field.kind in ("categorical", "words"):
        values = values.astype(np.int32)
    return values[:, 0] if field.kind in ("categorical", "numeric") else values


def _fields(
    table: Table, key: str, names: Any, role: str, kinds: Mapping[str, str], text: bool
) -> tuple[list[tuple[Field, np.ndarray]], list[str], list[str]]:
    """The fields and their values, what there is to note, and the names of fields that somebody has no value of."""
    column = plain_ids(table.column(table.require(key, f"{role}s")), role)
    rows, notes = _match(as_integers(column) if text else column, pl.Series(names), role, table.called)
    gather = pl.Series(rows).set(pl.Series(rows < 0), None)
    others = [name for name in table.names if name != key]
    columns = {name: table.column(name).gather(gather) for name in others}
    missing = [name for name, values in columns.items() if absent_in(values).any()]
    return [encode(values, name, kinds.get(name)) for name, values in columns.items()], notes, missing


def _match(ids: pl.Series, names: pl.Series, role: str, called: str) -> tuple[np.ndarray, list[str]]:
    """For each name of the log, the table's row about it, or -1."""
    _same_type(ids, names, role, called)
    if ids.is_duplicated().any():
        twice = ids.filter(ids.is_duplicated())[0]
        raise DataError(f"{called} must describe each {role} once, got {twice!r} twice.")
    row = pl.Series(np.arange(len(ids), dtype=np.int64))
    rows = names.replace_strict(ids, row, default=-1, return_dtype=pl.Int64).to_numpy()
    known = int((rows >= 0).sum())
    if known == 0:
        raise DataError(f"{called} describes none of the log's {len(names):,} {role}s; the first is {names[0]!r}.")
    notes = []
    if known < len(names):
        notes.append(f"{len(names) - known:,} of {len(names):,} {role}s are not described; their fields are unknown.")
    spare = len(ids) - np.unique(rows[rows >= 0]).size
    if spare:
        notes.append(f"{spare:,} described {role}s have no event; left out.")
    return rows, notes


def _same_type(ids: pl.Series, names: pl.Series, role: str, called: str) -> None:
    if (ids.dtype == pl.String) == (names.dtype == pl.String):
        return
    shared = set(ids.cast(pl.String).str.strip_chars().drop_nulls()) & set(names.cast(pl.String).str.strip_chars())
    if not shared:
        in_log, in_table = names[0], ids[0]
    else:
        shown = min(shared)
        in_log, in_table = (shown, int(shown)) if names.dtype == pl.String else (int(shown), shown)
    raise DataError(
        f"{called} writes {role} {in_table!r} where the log writes {in_log!r}: identifiers must be of one type; "
        "cast one of the columns."
    )
