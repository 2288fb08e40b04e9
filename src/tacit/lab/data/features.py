"""Features of items, users and events: columns encoded as numbers, each with the Field that describes them."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Literal, cast

import jax.numpy as jnp
import numpy as np
import polars as pl

from tacit.core.catalog import Field
from tacit.errors import DataError, unknown
from tacit.lab.data.columns import as_integers, plain_ids
from tacit.lab.data.population import Population
from tacit.lab.data.tables import Table

Kind = Literal["categorical", "multi", "numeric", "words"]
KINDS = ("categorical", "multi", "numeric", "words")
MOST_VALUES = 10_000  # a multi-valued field takes one number for each value and row
SPLIT = r"[^\p{L}\p{N}]+"


def infer_kind(column: pl.Series) -> Kind:
    """The most likely kind of a column: lists and 'a|b' are multi, numbers numeric, varied phrases words, else categorical.

    >>> infer_kind(pl.Series(["Drama|Crime", "Drama"])), infer_kind(pl.Series(["Toy Story", "Heat"]))
    ('multi', 'words')
    """
    if isinstance(column.dtype, pl.List | pl.Array):
        return "multi"
    if column.dtype.is_numeric():
        return "numeric"
    text = column.cast(pl.String).drop_nulls()
    if text.str.contains("|", literal=True).any():
        return "multi"
    phrases = text.str.strip_chars().str.contains(r"\s").any()
    return "words" if phrases and text.n_unique() > 0.5 * len(text) else "categorical"


def encode_field(column: pl.Series, name: str, kind: str | None = None) -> tuple[Field, np.ndarray]:
    """The field and its values, one row of numbers for each entry of the column.

    >>> field, values = encode_field(pl.Series(["b", "a", None]), "colour")
    >>> field.values, values.ravel().tolist()
    (('a', 'b'), [1.0, 0.0, -1.0])
    """
    kind = infer_kind(column) if kind is None else kind
    if kind not in KINDS:
        raise DataError(f"Field {name!r}: kind must be one of {', '.join(KINDS)}, got {kind!r}.")
    if kind == "numeric":
        return Field(name, "numeric"), _numeric(column, name)
    if kind == "categorical":
        return _categorical(column, name)
    return _multi(column, name) if kind == "multi" else _words(column, name)


def absent_in(column: pl.Series) -> pl.Series:
    """Where a column is null or not a number."""
    return column.is_null() | column.is_nan().fill_null(False) if column.dtype.is_float() else column.is_null()


def check_kinds(kinds: Mapping[str, str] | None, names: Iterable[str]) -> Mapping[str, str]:
    """The given kinds, if each names an existing column."""
    names = list(names)
    for name in kinds or {}:
        if name not in names:
            raise DataError(unknown("kinds", name, names, "column"))
    return kinds or {}


def concatenate_fields(fields: list[tuple[Field, np.ndarray]]) -> tuple[tuple[Field, ...], np.ndarray | None]:
    """Several fields as one float32 array, their widths side by side."""
    if not fields:
        return (), None
    return tuple(field for field, _ in fields), np.concatenate([values for _, values in fields], 1).astype(np.float32)


def _numeric(column: pl.Series, name: str) -> np.ndarray:
    numbers = column.cast(pl.Float64, strict=False).fill_nan(None)
    bad = column.is_not_null() & numbers.is_null()
    if column.dtype == pl.String and bad.any():
        row = int(bad.arg_max() or 0)
        raise DataError(f"Field {name!r} must be numeric, got {column[row]!r} in row {row + 1:,}.")
    mean = numbers.mean()

    return numbers.fill_null(0.0 if mean is None else cast(float, mean)).to_numpy().astype(np.float32)[:, None]


def _categorical(column: pl.Series, name: str) -> tuple[Field, np.ndarray]:
    distinct = column.drop_nulls().unique().sort()
    numbers = pl.Series(np.arange(len(distinct), dtype=np.int32))
    codes = column.replace_strict(distinct, numbers, default=-1, return_dtype=pl.Int32).to_numpy()
    values = tuple(distinct.cast(pl.String).to_list())
    return Field(name, "categorical", len(values), values), codes.astype(np.float32)[:, None]


def _parts(column: pl.Series, words: bool) -> pl.DataFrame:
    """One line for each part of each value: row, part."""
    if not isinstance(column.dtype, pl.List | pl.Array):
        text = column.cast(pl.String)
        if words:
            column = text.str.to_lowercase().str.replace_all(SPLIT, " ").str.strip_chars().str.split(" ")
        else:
            column = text.str.split("|")
    frame = pl.DataFrame({"part": column}).with_row_index("row").explode("part")
    return frame.with_columns(pl.col("part").cast(pl.String).str.strip_chars()).filter(
        pl.col("part").is_not_null() & (pl.col("part") != "")
    )


def _coded(parts: pl.DataFrame) -> tuple[tuple[str, ...], np.ndarray, np.ndarray]:
    distinct = parts["part"].unique().sort()
    numbers = pl.Series(np.arange(len(distinct), dtype=np.int32))
    codes = parts["part"].replace_strict(distinct, numbers, return_dtype=pl.Int32).to_numpy()
    return tuple(distinct.to_list()), parts["row"].to_numpy(), codes


def _multi(column: pl.Series, name: str) -> tuple[Field, np.ndarray]:
    values, row, code = _coded(_parts(column, words=False))
    if len(values) > MOST_VALUES:
        raise DataError(
            f"Field {name!r}: multi takes at most {MOST_VALUES:,} values, got {len(values):,}; "
            f"use kinds={{{name!r}: 'words'}}."
        )
    table = np.zeros((len(column), len(values)), np.float32)
    table[row, code] = 1.0
    return Field(name, "multi", len(values), values), table


def _words(column: pl.Series, name: str) -> tuple[Field, np.ndarray]:
    parts = _parts(column, words=True)
    values, row, code = _coded(parts)
    starts = np.flatnonzero(np.diff(row, prepend=-1)) if row.size else np.zeros(0, int)
    position = np.arange(row.size) - np.repeat(starts, np.diff(np.append(starts, row.size)))
    longest = int(position.max(initial=-1)) + 1
    table = np.full((len(column), longest), -1.0, np.float32)
    table[row, position] = code
    return Field(name, "words", longest, values), table


def split_title(column: pl.Series) -> tuple[pl.Series, pl.Series]:
    """A film's title without its year, and the year: 'Heat (1995)' is 'Heat' and 1995.

    >>> [part.to_list() for part in split_title(pl.Series(["Heat (1995)", "Babel"]))]
    [['Heat', 'Babel'], [1995, None]]
    """
    year = column.str.extract(r"\((\d{4})[^()]*\)\s*$").cast(pl.Int32)
    return column.str.replace(r"\s*\((\d{4})[^()]*\)\s*$", ""), year


# ---- tables about items and users ----


def with_item_fields(
    log: Population, table: Table, key: str, kinds: Mapping[str, str], *, text: bool = False
) -> Population:
    """The population with item fields and attributes; an item the table does not name stays unknown."""
    found, notes, _ = _fields(table, key, log.item_names, "item", kinds, text)
    attributes = {field.name: jnp.asarray(_as_stored(field, values)) for field, values in found}
    catalog = replace(log.catalog, attributes=attributes, item_fields=tuple(field for field, _ in found))
    return replace(log, catalog=catalog, notes=(*log.notes, *notes))


def with_user_fields(
    log: Population, table: Table, key: str, kinds: Mapping[str, str], *, text: bool = False
) -> Population:
    """The population with person fields; a device the table does not name stays unknown."""
    found, notes, missing = _fields(table, key, log.users, "user", kinds, text)
    fields, person = concatenate_fields(found)
    twice = {field.name for field in fields} & {field.name for field in log.catalog.person_fields}
    if twice:
        raise DataError(f"{min(twice)!r} is a column of the log and of {table.called}; leave it out of one.")
    catalog = replace(log.catalog, person_fields=(*log.catalog.person_fields, *fields))
    both = [columns for columns in (log.person, person) if columns is not None]
    person = np.concatenate(both, axis=1) if both else None
    return replace(log, catalog=catalog, person=person, notes=(*log.notes, *notes), missing=tuple(missing))


def _as_stored(field: Field, values: np.ndarray) -> np.ndarray:
    """Category and word numbers are integers; a field of one number is one column."""
    if field.kind in ("categorical", "words"):
        values = values.astype(np.int32)
    return values[:, 0] if field.kind in ("categorical", "numeric") else values


def _fields(
    table: Table, key: str, names: Any, role: str, kinds: Mapping[str, str], text: bool
) -> tuple[list[tuple[Field, np.ndarray]], list[str], list[str]]:
    """The fields and their values, notes, and the names of fields that some user has no value of."""
    column = plain_ids(table.column(table.require(key, f"{role}s")), role)
    rows, notes = _match(as_integers(column) if text else column, pl.Series(names), role, table.called)
    gather = pl.Series(rows).set(pl.Series(rows < 0), None)
    others = [name for name in table.names if name != key]
    columns = {name: table.column(name).gather(gather) for name in others}
    missing = [name for name, values in columns.items() if absent_in(values).any()]
    return [encode_field(values, name, kinds.get(name)) for name, values in columns.items()], notes, missing


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
