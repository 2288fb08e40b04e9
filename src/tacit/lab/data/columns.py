"""Columns of a log: identifiers become numbers, dates become seconds. Ambiguous values are refused."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from tacit.errors import DataError

# An epoch number this large would lie beyond the year 5000 if it counted seconds.
UNITS = ((1e17, "nanoseconds", 1e9), (1e14, "microseconds", 1e6), (1e11, "milliseconds", 1e3), (0.0, "seconds", 1.0))
EARLIEST_DATE = 1e8  # seconds to March 1973: smaller numbers may be counters, not dates
OFFSET = r"(Z|[+-]\d{2}:?\d{2})$"
FORMATS = ("%Y-%m-%d %H:%M:%S%.f", "%Y-%m-%d %H:%M", "%Y-%m-%d")


@dataclass(frozen=True)
class Codes:
    """Numbers in place of identifiers: `names[codes[row]]` is the identifier of the row."""

    codes: np.ndarray  # int32[rows]
    names: np.ndarray  # sorted; integers or strings


def encode_ids(column: pl.Series, role: str, *, text: bool = False) -> Codes:
    """Identifiers to numbers, in sorted order, so that the same log gives the same numbers in any order of rows.

    With `text` (a CSV file), identifiers that are all written as integers become integers.

    >>> encode_ids(pl.Series(["b", "a", "b"]), "user").codes.tolist()
    [1, 0, 1]
    """
    column = plain_ids(column, role)
    if column.null_count():
        raise DataError(
            f"Column {column.name!r} must name a {role} in every row, got {column.null_count():,} missing of "
            f"{len(column):,}; drop those rows first."
        )
    distinct = column.unique().sort()
    refuse_whitespace_twins(distinct, role)
    if text:
        distinct = distinct.gather(as_integers(distinct).arg_sort())
    numbers = pl.Series(np.arange(len(distinct), dtype=np.int32))
    codes = column.replace_strict(distinct, numbers, return_dtype=pl.Int32).to_numpy()
    return Codes(codes, (as_integers(distinct) if text else distinct).to_numpy())


def plain_ids(column: pl.Series, role: str) -> pl.Series:
    """Strings and integers as they are; categories as strings; whole floats as integers."""
    kind = column.dtype
    if kind == pl.String or kind.is_integer() or kind == pl.Null:
        return column
    if kind.is_float():
        column = column.fill_nan(None)
        odd = column.filter(column != column.floor())
        if len(odd):
            raise DataError(f"Column {column.name!r} must hold strings or integers as {role}s, got {odd[0]!r}.")
        return column.cast(pl.Int64)
    if isinstance(kind, pl.Categorical | pl.Enum):
        return column.cast(pl.String)
    raise DataError(f"Column {column.name!r} must hold strings or integers as {role}s, got {kind}.")


def refuse_whitespace_twins(distinct: pl.Series, role: str) -> None:
    """Refuse two identifiers that differ only in surrounding white space."""
    if distinct.dtype != pl.String:
        return
    frame = pl.DataFrame({"id": distinct, "bare": distinct.str.strip_chars()})
    twins = frame.filter(pl.col("bare").is_duplicated()).sort("bare", "id")
    if len(twins):
        one, other = twins["id"][0], twins["id"][1]
        raise DataError(
            f"Two {role}s differ only in surrounding white space, {one!r} and {other!r}; strip the column "
            f"{distinct.name!r} if they are one."
        )


def as_integers(column: pl.Series) -> pl.Series:
    """A text column of a file as integers, if every value is written exactly as an integer would be.

    >>> as_integers(pl.Series(["7", "10"])).dtype, as_integers(pl.Series(["007", "10"])).dtype
    (Int64, String)
    """
    if column.dtype != pl.String:
        return column
    numbers = column.cast(pl.Int64, strict=False)
    same = (numbers.cast(pl.String) == column).fill_null(False) | column.is_null()
    return numbers if len(column) and bool(same.all()) else column


def seconds(column: pl.Series, written: str | None = None) -> tuple[np.ndarray, str | None]:
    """Times as seconds since 1970, and a note where a unit had to be guessed; a time without a zone is UTC.

    >>> seconds(pl.Series(["1970-01-02", "1970-01-01T00:00:01+00:00"]))[0].tolist()
    [86400.0, 1.0]
    """
    if column.dtype == pl.String:
        parsed, note = _read_written(column, written)
    elif column.dtype.is_numeric():
        parsed, note = _epoch(column)
    elif column.dtype in (pl.Date, pl.Datetime):
        parsed, note = _since_1970(column), None
    else:
        raise DataError(f"Column {column.name!r} must hold dates or numbers as times, got {column.dtype}.")
    bad = parsed.is_null() | parsed.is_nan() | parsed.is_infinite()
    if bad.any():
        row = int(bad.arg_max() or 0)
        raise DataError(
            f"Column {column.name!r} must hold a time in every row, got {column[row]!r} in row {row + 1:,} "
            f"({int(bad.sum()):,} such rows); write dates as 2024-05-31 18:00:00 or seconds, or drop those rows."
        )
    return parsed.to_numpy(), note


def _since_1970(column: pl.Series) -> pl.Series:
    return column.cast(pl.Datetime("us")).dt.timestamp("us").cast(pl.Float64) / 1e6


def _epoch(column: pl.Series) -> tuple[pl.Series, str | None]:
    values = column.cast(pl.Float64)
    size = values.fill_nan(None).abs()
    unit, least = (_unit(_number(end)) for end in (size.max(), size.min()))
    if unit != least and _number(size.min()) > EARLIEST_DATE:
        raise DataError(
            f"Column {column.name!r} must hold times in one unit, got {_number(size.min()):.0f} ({least[0]}) and "
            f"{_number(size.max()):.0f} ({unit[0]}); convert it to seconds."
        )
    note = None if unit[0] == "seconds" else f"Times of column {column.name!r} read as {unit[0]} by their size."
    return values / unit[1], note


def _number(value: Any) -> float:
    return 0.0 if value is None else float(value)


def _unit(size: float) -> tuple[str, float]:
    return next((name, scale) for limit, name, scale in UNITS if size >= limit)


def _read_written(column: pl.Series, written: str | None) -> tuple[pl.Series, str | None]:
    if written is not None:
        return _since_1970(column.str.to_datetime(written, strict=False)), None
    numbers = column.str.strip_chars().cast(pl.Float64, strict=False)
    if 2 * numbers.count() > column.count():  # numbers, but perhaps for a few rows, which are the bad ones
        return _epoch(numbers.rename(column.name))
    return _iso(column), None


def _iso(column: pl.Series) -> pl.Series:
    """ISO 8601 as usually written: a T or a space, fractions, an offset, or a date alone."""
    text = column.str.strip_chars().str.replace("T", " ", literal=True)
    timed = text.str.contains(":")
    offset = pl.select(pl.when(timed).then(text.str.extract(OFFSET))).to_series().fill_null("Z")
    bare = pl.select(pl.when(timed).then(text.str.replace(OFFSET, "")).otherwise(text)).to_series().str.strip_chars()
    tries = [bare.str.to_datetime(form, strict=False, time_unit="us") for form in FORMATS]
    moment = _since_1970(pl.select(pl.coalesce(tries)).to_series())
    digits = offset.str.replace_all(r"[Z:]", "")
    hours = digits.str.slice(0, 3).cast(pl.Float64, strict=False).fill_null(0.0)
    minutes = digits.str.slice(3, 2).cast(pl.Float64, strict=False).fill_null(0.0)
    sign = pl.select(pl.when(digits.str.starts_with("-")).then(-1.0).otherwise(1.0)).to_series()
    return moment - hours * 3600 - sign * minutes * 60
