"""Reproductions: the tables and figures of five papers, our numbers beside the printed ones. One folder for each paper.

In a paper's folder, `printed` has the paper's numbers, `study` the experiment, `orders` which of its findings hold. The
folder itself defines `reproduce(options: Options) -> Iterator[Table | Figure]`, `PARTS`, their names, and `ABOUT`, one line.
"""

import importlib
import pkgutil
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType

from tacit.errors import PlanError, unknown
from tacit_papers.tables import Cell as Cell
from tacit_papers.tables import Figure as Figure
from tacit_papers.tables import Table as Table
from tacit_papers.tables import finding as finding


@dataclass(frozen=True)
class Options:
    """What to reproduce, and how."""

    parts: tuple[str, ...] = ()  # "table1", "figure3" …; empty: all
    size: str = "small"  # "small": minutes on two cores; "paper": the paper's own sizes
    seeds: tuple[int, ...] = (0, 1, 2)
    data: str | None = None  # a dataset instead of the paper's
    quiet: bool = True

    def wants(self, part: str) -> bool:
        """Whether a table or figure is wanted."""
        return not self.parts or part in self.parts


def paper_names() -> list[str]:
    """Every paper that has a folder."""
    return sorted(m.name for m in pkgutil.iter_modules(__path__) if m.ispkg)


def reproduce(name: str, options: Options) -> Iterator[Table | Figure]:
    """The wanted tables and figures of a paper, each as soon as it is made."""
    module = paper(name)
    for part in options.parts:
        if part not in module.PARTS:
            raise PlanError(unknown(name, part, module.PARTS, "part"))
    return module.reproduce(options)


def paper(name: str) -> ModuleType:
    """The package of a paper."""
    if name not in paper_names():
        raise PlanError(unknown("Tacit", name, paper_names(), "paper to reproduce"))
    return importlib.import_module(f"tacit_papers.{name}")
