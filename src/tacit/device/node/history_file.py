"""History file: the histories of a node's people, read from a CSV or Parquet file that never leaves the machine.

Columns: `item_id`; `datetime`, where the order is not that of the file; `user_id`, where there are several people; `label`
for a rating or a weight; and a column for each event or person field of the catalog, by its name.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from tacit.core.catalog import Field
from tacit.deploy.bundle import Bundle
from tacit.device.histories import People
from tacit.device.history import History
from tacit.errors import DataError, unknown

_READERS = {".csv": pl.read_csv, ".parquet": pl.read_parquet}
_FINITE = "must be a finite number in every row; leave the row out, or the whole column"


@dataclass(frozen=True)
class NodeHistories(People):
    """The histories of the people of one node."""

    users: Sequence[Any] = ()  # their names in the file
    origin: float | None = None  # the origin of all times, where the plan folder has one
    share: np.ndarray | None = None  # float32[n], the share of items that each person chose to disclose; nan: no choice

    @property
    def began(self) -> float:
        """The origin of all times: the plan folder's, or else the node's first event."""
        return super().began if self.origin is None else self.origin

    def histories(self, devices: np.ndarray, length: int) -> History:
        """The stacked histories, with the share that each person chose to disclose."""
        made = super().histories(devices, length)
        return made if self.share is None else made._replace(share=self.share[devices])


def read_history_file(path: str | Path, bundle: Bundle) -> NodeHistories:
    """The histories in a file, with items numbered as in the plan folder's catalog."""
    table = _read(Path(path))
    if "item_id" not in table.columns:
        raise DataError(unknown(str(path), "item_id", table.columns, "column"))
    if not table.height:
        raise DataError(f"{path} holds no events; a history has at least one.")
    table = table.with_columns(_user=pl.col("user_id") if "user_id" in table.columns else pl.lit(0))
    if table["_user"].null_count():
        raise DataError(f"{path}: every event must name its user, got {table['_user'].null_count()} that do not.")
    if "datetime" in table.columns:
        times = _finite(_seconds(table["datetime"]), "datetime", path)
        table = table.with_columns(_time=times).sort("_time", maintain_order=True)
    users = sorted(table["_user"].unique().to_list(), key=str)
    place = table["_user"].replace_strict(users, list(range(len(users))), return_dtype=pl.Int64).to_numpy()
    order = np.argsort(place, kind="stable")
    table = table[order]
    offsets = np.concatenate([[0], np.cumsum(np.bincount(place, minlength=len(users)))])
    times = table["_time"].to_numpy() if "_time" in table.columns else None
    labels = _numbers(table["label"], "label", path).to_numpy() if "label" in table.columns else None
    context, person = (
        _columns(table, fields, path) for fields in (bundle.catalog.event_fields, bundle.catalog.person_fields)
    )
    _refuse_changes(person, offsets, users, bundle.catalog.person_fields, path)
    items, first = _items(table["item_id"], bundle, path), offsets[:-1]
    columns = (offsets, items, times, labels, context, person[first])
    return NodeHistories(bundle.catalog, *columns, users=users, origin=bundle.began)


def _refuse_changes(
    person: np.ndarray, offsets: np.ndarray, users: Sequence[Any], fields: tuple[Field, ...], path: str | Path
) -> None:
    """Fields of a person must be the same in all of the person's rows."""
    owner = np.repeat(np.arange(len(users)), np.diff(offsets))
    differs = np.argwhere(~np.isclose(person, person[offsets[owner]], rtol=0, atol=0, equal_nan=True))
    if differs.size:
        row, column = map(int, differs[0])
        person_at = int(owner[row])
        name = [field.name for field in fields for _ in range(field.width)][column]
        one, other = person[offsets[person_at], column], person[row, column]
        raise DataError(
            f"{path}: column {name!r} must have the same value in every row of a person, got {one:g} and {other:g} for "
            f"{str(users[person_at])!r}; correct it."
        )


def _read(path: Path) -> pl.DataFrame:
    if path.suffix not in _READERS:
        raise DataError(f"A history must be a .csv or .parquet file, got {path.name!r}.")
    try:
        return _READERS[path.suffix](path, glob=False)  # a name is the name of one file, whatever characters it has
    except FileNotFoundError:
        raise DataError(f"{path} does not exist; name the file that holds the history.") from None
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError, ValueError) as problem:
        reason = (str(problem).splitlines() or [type(problem).__name__])[0]
        raise DataError(f"{path} cannot be read: {reason}.") from None


def _seconds(column: pl.Series) -> pl.Series:
    """Times as unix seconds, from numbers, dates or text."""
    if column.dtype.is_numeric():
        return column.cast(pl.Float64)
    try:
        moment = column.str.to_datetime() if column.dtype == pl.String else column.cast(pl.Datetime)
    except pl.exceptions.PolarsError:
        raise DataError(f"datetime must hold seconds or dates, got {column[0]!r}.") from None
    return moment.dt.epoch("us").cast(pl.Float64) / 1e6


def _items(column: pl.Series, bundle: Bundle, path: str | Path) -> np.ndarray:
    if column.null_count():
        raise DataError(
            f"{path}: every event must name an item, got {column.null_count()} that do not; leave those rows out."
        )
    if bundle.names is None:
        outside = (
            column
            if not column.dtype.is_integer()
            else column.filter((column < 0) | (column >= bundle.catalog.n_items))
        )
        if outside.len():
            raise DataError(f"{path}: items are numbers from 0 to {bundle.catalog.n_items - 1}, got {outside[0]!r}.")
        return column.cast(pl.Int32).to_numpy()
    known = {str(name): number for number, name in enumerate(bundle.names)}
    names = column.cast(pl.String)
    missing = names.filter(~names.is_in(list(known)))
    if missing.len():
        raise DataError(unknown(f"The catalog ({path})", missing[0], list(known)[:20], "item"))
    return names.replace_strict(list(known), list(known.values()), return_dtype=pl.Int32).to_numpy()


def _columns(table: pl.DataFrame, fields: tuple[Field, ...], path: str | Path) -> np.ndarray:
    """The catalog's fields, side by side, float32[events, width]."""
    found = [_column(table, field, path) for field in fields]
    return np.concatenate([np.zeros((table.height, 0), np.float32), *found], axis=1)


def _column(table: pl.DataFrame, field: Field, path: str | Path) -> np.ndarray:
    """One field; one of several numbers stands in columns name.0, name.1, …"""
    names = [f"{field.name}.{n}" for n in range(field.width)] if field.width > 1 else [field.name]
    for name in names:
        if name not in table.columns:
            raise DataError(unknown(str(path), name, table.columns, "column"))
    if field.kind == "categorical" and table[field.name].dtype == pl.String:
        known = {value: float(place) for place, value in enumerate(field.values)}
        places = table[field.name].replace_strict(list(known), list(known.values()), default=-1.0)
        return places.cast(pl.Float32).to_numpy()[:, None]
    return table.select(_numbers(table[name], name, path, holes=True).alias(name) for name in names).to_numpy()


def _numbers(column: pl.Series, name: str, path: str | Path, holes: bool = False) -> pl.Series:
    """A column of finite numbers; with `holes`, some may be missing, which the method that reads them checks."""
    try:
        cast = column.cast(pl.Float32)
        _finite(cast.drop_nulls().drop_nans() if holes else cast, name, path)
        return cast
    except pl.exceptions.PolarsError:
        raise DataError(f"{path}: {name} {_FINITE}.") from None


def _finite(column: pl.Series, name: str, path: str | Path) -> pl.Series:
    if column.null_count() or not column.is_finite().all():
        raise DataError(f"{path}: {name} {_FINITE}.")
    return column
