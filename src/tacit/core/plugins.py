"""Plug-ins: classes found in the files of a folder; one file is one plug-in, and its name is the file's.

A file is a plug-in where it defines exactly one public class of the folder's kind. Files whose name starts with an
underscore, folders, and files without such a class are helpers, and never listed.
"""

import importlib
import inspect
import os
import pkgutil
import warnings
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Generic, TypeVar

from tacit.errors import PlanError, unknown

T = TypeVar("T")


class RenamedWarning(FutureWarning):
    """A plan uses a name of an earlier version; the sentence has the new one."""


class Plugins(Generic[T]):
    """The plug-ins of one kind, defined in the files of one package."""

    def __init__(self, package: ModuleType, base: type[T], kind: str) -> None:
        """`kind` is the word for one of them, as in "mechanism"."""
        self.package, self.base, self.kind = package, base, kind
        self._read: list[tuple[str, list[str]]] = []  # the folders and their files when they were last searched
        self._classes: dict[str, type[T]] = {}

    def names(self) -> list[str]:
        """Every name, sorted."""
        return sorted(self._found())

    def load(self, name: str, where: str = "Tacit") -> type[T]:
        """The class of this name; an unknown name is refused with the nearest known one."""
        found = self._found()
        if (current := self.current(name)) not in found:
            raise PlanError(unknown(where, name, found, self.kind))
        return found[current]

    def current(self, name: str) -> str:
        """The present name for a former one, with a warning; any other name unchanged."""
        found = self._found()
        for today, defined in () if name in found else found.items():
            if name in getattr(defined, "former_names", ()):
                warnings.warn(f"The {self.kind} {name!r} is now called {today!r}.", RenamedWarning, stacklevel=4)
                return today
        return name

    def add_folder(self, folder: str | Path) -> None:
        """Also find plug-ins in another folder."""
        if str(folder) not in self.package.__path__:
            self.package.__path__.append(str(folder))

    def _found(self) -> dict[str, type[T]]:
        """The class of each name; folders are searched again where a file came or went."""
        files = [(folder, _files(folder)) for folder in self.package.__path__]
        if files != self._read:
            self._classes = self._search()
            self._read = files
        return self._classes

    def _search(self) -> dict[str, type[T]]:
        files = [m.name for m in pkgutil.iter_modules(self.package.__path__) if not m.ispkg]
        return {
            name: defined
            for name in files
            if not name.startswith("_") and (defined := _defined(self.package.__name__, name, self.base, self.kind))
        }


def plugin_name(defined: type) -> str:
    """The name of a plug-in: that of its file."""
    return defined.__module__.rpartition(".")[2]


def _files(folder: str) -> list[str]:
    """The names in a folder; none where it does not exist."""
    try:
        return os.listdir(folder)
    except OSError:
        return []


@cache
def _defined(package: str, name: str, base: type[T], kind: str) -> type[T] | None:
    """The one public class of this kind that a file defines itself; None for a helper."""
    module = importlib.import_module(f"{package}.{name}")
    found = [
        value
        for label, value in vars(module).items()
        if inspect.isclass(value)
        and issubclass(value, base)
        and value.__module__ == module.__name__
        and not label.startswith("_")
    ]
    if len(found) > 1:
        raise PlanError(
            f"File {name}.py must define one {kind}, got {len(found)}; move the others to files of their own."
        )
    return found[0] if found else None
