"""Files of public logs: finding them on this machine, and reading text in whatever compression."""

import gzip
import io
import tarfile
from pathlib import Path

import polars as pl

from tacit.errors import DataError
from tacit.lab.data.datasets import data_folder


def log_path(name: str, path: str | Path | None = None) -> Path:
    """The folder (or file) of one log: the given path, or its name under the data folder."""
    found = data_folder() / name if path is None else Path(path)
    if not found.exists():
        raise DataError(
            f"Dataset {name!r} must be at {str(found)!r}, and nothing is there; `tacit data get {name}` fetches it or says "
            "where to ask, or pass path=... or set TACIT_DATA."
        )
    return found


def find_file(name: str, folder: Path, *files: str) -> Path:
    """The first of some file names, plain or .gz, in a log's folder or one folder below."""
    if folder.is_file():
        return folder
    wanted = [ending for file in files for ending in (file, f"{file}.gz")]
    for pattern in (pattern for file in wanted for pattern in (file, f"*/{file}")):
        for found in sorted(folder.glob(pattern)):
            return found
    raise DataError(
        f"Dataset {name!r} needs the file {' or '.join(files)} (or .gz) in {str(folder)!r}, and it is not there."
    )


def read_bytes(path: Path, encoding: str = "utf-8") -> bytes:
    """A file's text as UTF-8: plain, gzip, or the only .tsv, .csv or .txt file of a tar archive."""
    if tarfile.is_tarfile(path):
        with tarfile.open(path) as archive:
            names = [member for member in archive if member.name.endswith((".tsv", ".csv", ".txt"))]
            inside = archive.extractfile(names[0]) if names else None
            if inside is None:
                raise DataError(f"{str(path)!r} must hold a .tsv, .csv or .txt file, and it holds none.")
            raw = inside.read()
    else:
        raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return raw if encoding == "utf-8" else raw.decode(encoding).encode()


def read_double_colon(path: Path, columns: list[str], encoding: str = "utf-8") -> pl.DataFrame:
    """A file of lines a::b::c, with these columns; all text."""
    text = pl.Series("line", io.TextIOWrapper(io.BytesIO(read_bytes(path, encoding)), "utf-8").read().splitlines())
    parts = text.filter(text != "").str.splitn("::", len(columns)).struct.rename_fields(columns).struct.unnest()
    short = parts[columns[-1]].is_null()
    if short.any():
        row = int(short.arg_max() or 0)
        raise DataError(
            f"{str(path)!r} must hold {'::'.join(columns)} in each line, got {text[row]!r} in line {row + 1:,}."
        )
    return parts


def read_separated(
    path: Path, separator: str, columns: list[str] | None = None, encoding: str = "utf-8"
) -> pl.DataFrame:
    """A file with a separator; without `columns` its first line names them; all text, quotes taken literally."""
    return pl.read_csv(
        read_bytes(path, encoding),
        separator=separator,
        has_header=columns is None,
        new_columns=columns,
        quote_char=None,
        infer_schema=False,
        truncate_ragged_lines=True,
    )
