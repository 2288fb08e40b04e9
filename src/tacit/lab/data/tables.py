"""Tables: pandas, polars, pyarrow, or a CSV or Parquet file, read one column at a time."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import narwhals as nw
import polars as pl

from tacit.errors import DataError, unknown

COMPRESSED = (".gz", ".zst")
SEPARATORS = {".csv": ",", ".tsv": "\t", ".txt": "\t"}
DELIMITERS = {";": "a semicolon", "\t": "a tab", "|": "a bar", ",": "a comma"}
SHEETS = (".xlsx", ".xls", ".ods")


class Table:
    """Named columns, fetched one by one, so that a large file is never in memory whole.

    >>> table = Table(pl.DataFrame({"user_id": [1, 2], "film": ["a", "b"]}), "the log")
    >>> table.names, table.column("film").to_list()
    (('user_id', 'film'), ['a', 'b'])
    """

    def __init__(self, frame: Any, called: str, text: Iterable[str] = (), delimiter: str | None = None):
        """`called` names the table in messages; of a CSV file, the columns of `text` are read as they are written.

        `delimiter` is what stands between the columns of a text file, where it is not the comma of .csv or the tab of .tsv.
        """
        self.called = called
        self._native: Any = None
        self._lazy: pl.LazyFrame | None = None
        if isinstance(frame, str | Path):
            self.called = f"{called} ({frame})"
            self._lazy = _scan(Path(frame), set(text), delimiter)
        elif isinstance(frame, pl.DataFrame | pl.LazyFrame):
            self._lazy = frame.lazy()
        else:
            self._native = _known(frame, called)
        self.names: tuple[str, ...] = tuple(
            self._lazy.collect_schema().names() if self._lazy is not None else self._native.columns
        )

    def __contains__(self, name: str) -> bool:
        return name in self.names

    def require(self, name: str, role: str) -> str:
        """The name, if there is such a column; else a sentence with the nearest, or with the delimiter that the file has."""
        if name not in self.names:
            where = self.called[:1].upper() + self.called[1:]
            used = next((mark for mark in DELIMITERS if len(self.names) == 1 and mark in self.names[0]), None)
            if used is not None:
                raise DataError(
                    f"{where} has one column, {self.names[0]!r}; if {DELIMITERS[used]} stands between its columns, say so: "
                    f"delimiter {used!r}."
                )
            raise DataError(unknown(f"{where}, read for its {role},", name, self.names, "column"))
        return name

    def column(self, name: str) -> pl.Series:
        """One column, in the order of the rows."""
        if self._lazy is not None:
            try:
                return self._lazy.select(name).collect().to_series()
            except pl.exceptions.ComputeError as problem:
                first = str(problem).splitlines()[0]
                raise DataError(f"{self.called}: column {name!r} could not be read: {first}") from problem
        return _from_foreign(self._native[name], name, self.called)


def _known(frame: Any, called: str) -> Any:
    try:
        return nw.from_native(frame, eager_only=True)
    except TypeError as problem:
        raise DataError(
            f"{called} must be a pandas, polars or pyarrow table, or the path of a CSV or Parquet file, "
            f"got {type(frame).__name__}."
        ) from problem


def _scan(path: Path, text: set[str], delimiter: str | None = None) -> pl.LazyFrame:
    if path.is_dir():
        raise DataError(f"{str(path)!r} is a folder; give the path of one CSV, TSV or Parquet file.")
    if path.suffix.lower() in SHEETS:
        raise DataError(f"{str(path)!r} is a spreadsheet, which Tacit does not read; save the sheet as CSV.")
    if not path.is_file():
        raise DataError(f"There is no file {str(path)!r}; give the path of a CSV, TSV or Parquet file.")
    endings = [ending.lower() for ending in path.suffixes]
    packed = bool(endings) and endings[-1] in COMPRESSED
    ending = endings[-2 if packed and len(endings) > 1 else -1] if endings else ""
    if ending in (".parquet", ".pq"):
        return pl.scan_parquet(path)
    if ending not in SEPARATORS:
        known = ", ".join([*SEPARATORS, ".parquet"])
        raise DataError(f"{str(path)!r} must end in one of {known} (or .gz after it), got {ending or 'no ending'!r}.")
    return _scan_text(path, delimiter or SEPARATORS[ending], text, packed)


def _scan_text(path: Path, separator: str, text: set[str], packed: bool) -> pl.LazyFrame:
    if path.stat().st_size == 0:
        raise DataError(f"{str(path)!r} is empty; a log needs a line of column names and at least one event.")
    options: dict[str, Any] = {"separator": separator, "infer_schema_length": 10_000}
    names = pl.read_csv(path, n_rows=1, separator=separator, infer_schema=False, has_header=False).row(0)
    twice = [name for name in names if name is not None and names.count(name) > 1]
    if twice:
        raise DataError(f"{str(path)!r} has two columns {twice[0]!r}; rename or delete one of them.")
    overrides = {name: pl.String for name in names if name in text}
    if not packed:
        return pl.scan_csv(path, schema_overrides=overrides, **options)
    try:  # a compressed file cannot be entered in the middle: unpack it once
        return pl.read_csv(path, schema_overrides=overrides, **options).lazy()
    except pl.exceptions.ComputeError as problem:
        raise DataError(f"{str(path)!r} could not be read: {str(problem).splitlines()[0]}") from problem


def _from_foreign(column: Any, name: str, called: str) -> pl.Series:
    """A pandas or pyarrow column; without pyarrow installed, or with mixed values, by way of a list."""
    try:
        return column.to_polars().rename(name)
    except Exception:
        # a pandas column of objects may hold anything; NaN stands for what is missing
        values = [None if value != value else value for value in column.to_list()]
    try:
        return pl.Series(name, values, strict=True)
    except (TypeError, pl.exceptions.PolarsError) as problem:
        one, other = _two_types(values)
        raise DataError(
            f"{called}: column {name!r} mixes {one!r} ({type(one).__name__}) and {other!r} ({type(other).__name__}); "
            "make them one type, for example with .astype(str)."
        ) from problem


def _two_types(values: list[Any]) -> tuple[Any, Any]:
    """Two values of different type; two that read the same, if there are any."""
    seen: dict[str, Any] = {}
    first, other = None, None
    for value in (value for value in values if value is not None):
        twin = seen.setdefault(str(value).strip(), value)
        if type(twin) is not type(value):
            return twin, value
        first = value if first is None else first
        other = value if other is None and type(value) is not type(first) else other
    return first, other
