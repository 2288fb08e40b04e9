"""Datasets by name: public logs and synthetic ones, with their owners' terms. Nothing is downloaded by looking one up.

A file of `sources` (public logs) or `synthetic` (generated ones) declares its datasets as `DATASETS` and is found by being
there; a file whose name starts with an underscore is a helper.
"""

import importlib
import os
import pkgutil
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from narwhals.typing import IntoFrame

from tacit.core.plan import Plan
from tacit.core.plugins import RenamedWarning
from tacit.device.method import person_fields
from tacit.errors import DataError, unknown
from tacit.lab.data import Population

# A log: a population, a table (polars, pandas or pyarrow), a file, or the name of a dataset.
Log = Population | IntoFrame | str | Path
_FOLDERS = ("tacit.lab.data.sources", "tacit.lab.data.synthetic")


def data_folder() -> Path:
    """The folder of all public logs: the environment variable TACIT_DATA, or ./data."""
    return Path(os.environ.get("TACIT_DATA") or "data")


@dataclass(frozen=True)
class RemoteFile:
    """One file at its owner's address; what is not known for certain is None."""

    url: str
    size: int | None = None  # bytes
    sha256: str | None = None


@dataclass(frozen=True)
class Dataset:
    """A public or synthetic log: what it is, how it is read, who owns it and on what terms."""

    name: str
    about: str
    read: Callable[..., Population]  # a path and options; of a synthetic log the options alone
    terms: str
    cite: str = ""
    page: str = ""  # the owner's page
    files: tuple[RemoteFile, ...] = ()  # empty: no automatic download
    needs: tuple[str, ...] = ()  # other datasets it is made of; empty for one with its own folder
    sample: Mapping[str, str] = field(default_factory=dict)  # file name -> a few lines in the format that `read` reads
    built_in: bool = False
    former_names: tuple[str, ...] = ()  # what earlier versions called it

    @classmethod
    def synthetic(
        cls, name: str, about: str, make: Callable[..., Population], former: tuple[str, ...] = ()
    ) -> "Dataset":
        """A log that this package generates: `make` takes users=, seed= and its own options."""
        terms = "made by this package; no person is in it"
        return cls(name, f"synthetic: {about}", make, terms, built_in=True, former_names=former)

    @property
    def present(self) -> bool:
        """Whether its files are in the data folder; a synthetic log always is."""
        folders = [data_folder() / name for name in (self.needs or (self.name,))]
        return self.built_in or all(folder.is_file() or any(folder.glob("*")) for folder in folders)

    @property
    def size(self) -> int | None:
        """Bytes to download, where the size of every file is known."""
        sizes = [file.size for file in self.files]
        return None if not sizes or None in sizes else sum(size for size in sizes if size)


_REGISTERED: dict[str, Dataset] = {}


@cache
def _shipped() -> dict[str, Dataset]:
    """The datasets that the files of the two folders declare."""
    found: dict[str, Dataset] = {}
    for folder in _FOLDERS:
        for file in pkgutil.iter_modules(importlib.import_module(folder).__path__):
            if not file.name.startswith("_"):
                module = importlib.import_module(f"{folder}.{file.name}")
                found |= {entry.name: entry for entry in getattr(module, "DATASETS", ())}
    return found


def _known() -> dict[str, Dataset]:
    return {**_shipped(), **_REGISTERED}


def register_dataset(entry: Dataset) -> None:
    """Add a dataset of your own to the list."""
    if entry.name in _known():
        raise DataError(f"There already is a dataset {entry.name!r}; choose another name.")
    _REGISTERED[entry.name] = entry


def dataset_names() -> list[str]:
    """The names of all datasets, in order."""
    return sorted(_known())


def is_dataset(name: str) -> bool:
    """Whether a dataset has, or had, this name."""
    return any(name == entry.name or name in entry.former_names for entry in _known().values())


def about_dataset(name: str) -> Dataset:
    """What is known about a dataset: terms, citation, address, whether it is present."""
    known = _known()
    if name in known:
        return known[name]
    for entry in known.values():
        if name in entry.former_names:
            warnings.warn(f"The dataset {name!r} is now called {entry.name!r}.", RenamedWarning, stacklevel=3)
            return entry
    raise DataError(unknown("The list of datasets", name, known, "dataset"))


def dataset(name: str, path: str | Path | None = None, **options: Any) -> Population:
    """A public or synthetic log, by its name.

    `path` is where a public log lies; by default the folder of its name under TACIT_DATA (or ./data). `options` go to its
    reader: negatives=2 for frappe, say, or on_few="drop", min_events=20, duplicates="latest" for any public log.
    """
    entry = about_dataset(name)
    if entry.built_in:
        if path is not None:
            raise DataError(f"Dataset {name!r} is made by this package and takes no path, got {str(path)!r}.")
        return entry.read(**options)
    return entry.read(path, **options)


def as_population(log: Log, plans: Sequence[Plan] = ()) -> Population:
    """A log in any form: a population, a table, a file, or the name of a dataset.

    Of a table or a file, the columns that settings of the plans name as fields of a person are read as such.
    """
    if isinstance(log, Population):
        return log
    if isinstance(log, Path) or (isinstance(log, str) and Path(log).suffix and not is_dataset(log)):
        return _for_plans(log, plans)
    return dataset(log) if isinstance(log, str) else _for_plans(log, plans)


def _for_plans(frame: Any, plans: Sequence[Plan], columns: Mapping[str, str] | None = None) -> Population:
    from tacit.lab.data.interactions import interactions

    options: dict[str, Any] = dict(columns or {})
    named = dict.fromkeys(wanted.name for plan in plans for stage in plan.stages for wanted in person_fields(stage))
    return interactions(frame, person=[*named], kinds=dict.fromkeys(named, "numeric"), **options)


def open_log(
    name: str, devices: int | None, seed: int, plans: Sequence[Plan] = (), columns: Mapping[str, str] | None = None
) -> Population:
    """A log as the command line names it: a file, a public dataset, or a synthetic one with so many devices (None: its own number).

    `columns` are options of `interactions` that say how to read a file: user, item, time, weight, silo, delimiter.
    """
    if not is_dataset(name) and (Path(name).suffix or Path(name).exists()):
        return _for_plans(name, plans, columns)
    if columns:
        raise DataError(f"--{next(iter(columns))} says how to read a file, but {name!r} is not one; leave it out.")
    if about_dataset(name).built_in:
        options: dict[str, Any] = {} if devices is None else {"users": devices}
        return dataset(name, seed=seed, **options)
    return dataset(name)
