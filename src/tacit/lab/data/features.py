"""Features: columns about items, people and events as numbers, each with the Field that says how to read them."""

from collections.abc import Iterable, Mapping
from typing import Literal, cast

import numpy as np
import polars as pl

from tacit.core.catalog import Field
from tacit.errors import DataError, unknown

Kind = Literal["categorical", "multi", "numeric", "words"]
KINDS = ("categorical", "multi", "numeric", "words")
MOST_VALUES = 10_000  # a multi-valued field takes one number for each value and row
SPLIT = r"[^\p{L}\p{N}]+"


def infer_kind(column: pl.Series) -> Kind:
    """What a column most likely is: lists and 'a|b' are multi, numbers numeric, varied phrases words, else categorical.

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


def encode(column: pl.Series, name: str, kind: str | None = None) -> tuple[Field, np.ndarray]:
    """The field and its values, one row of numbers for each entry of the column.

    >>> field, values = encode(pl.Series(["b", "a", None]), "colour")
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
    """Where a column holds nothing, or a float that is no number."""
    return column.is_null() | column.is_nan().fill_null(False) if column.dtype.is_float() else column.is_null()


def check_kinds(kinds: Mapping[str, str] | None, names: Iterable[str]) -> Mapping[str, str]:
    """The kinds asked for, if each names a column that is there."""
    names = list(names)
    for name in kinds or {}:
        if name not in names:
            raise DataError(unknown("kinds", name, names, "column"))
    return kinds or {}


def side_by_side(fields: list[tuple[Field, np.ndarray]]) -> tuple[tuple[Field, ...], np.ndarray | None]:
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
    # what is missing is written as the mean: it says nothing, and it breaks no arithmetic
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
    place = np.arange(row.size) - np.repeat(starts, np.diff(np.append(starts, row.size)))
    longest = int(place.max(initial=-1)) + 1
    table = np.full((len(column), longest), -1.0, np.float32)
    table[row, place] = code
    return Field(name, "words", longest, values), table


def split_title(column: pl.Series) -> tuple[pl.Series, pl.Series]:
    """A film's title without its year, and the year: 'Heat (1995)' is 'Heat' and 1995.

    >>> [part.to_list() for part in split_title(pl.Series(["Heat (1995)", "Babel"]))]
    [['Heat', 'Babel'], [1995, None]]
    """
    year = column.str.extract(r"\((\d{4})[^()]*\)\s*$").cast(pl.Int32)
    return column.str.replace(r"\s*\((\d{4})[^()]*\)\s*$", ""), year
