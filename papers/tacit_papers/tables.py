"""Tables and figures of a paper: the printed numbers, ours, and notes about the difference."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from tacit.lab.evaluation.statistics import ConfidenceInterval


@dataclass(frozen=True)
class Cell:
    """One number: ours, with an interval if there is one, and the paper's, if it printed one."""

    ours: float | None = None
    low: float | None = None
    high: float | None = None
    paper: float | None = None

    @classmethod
    def of(cls, span: ConfidenceInterval, paper: float | None = None) -> "Cell":
        """An interval's mean and ends, beside the paper's number."""
        return cls(span.mean, span.low, span.high, paper)

    def text(self, digits: int) -> str:
        """`.305 ± .012 (.297)`: ours, half the interval, and the paper's in brackets."""
        if self.ours is None:
            return "–" if self.paper is None else f"({_number(self.paper, digits)})"
        spread = "" if self.low is None or self.high is None else f" ± {(self.high - self.low) / 2:.{digits}f}"
        beside = "" if self.paper is None else f" ({_number(self.paper, digits)})"
        return f"{_number(self.ours, digits)}{spread}{beside}"


def finding(order: str, held: bool, words: str) -> str:
    """The sentence on whether an order that a paper reports or implies is found here.

    >>> finding("R1", False, "b is above a")
    'R1 does not hold: b is above a.'
    """
    return f"{order} {'holds' if held else 'does not hold'}: {words}."


def _number(value: float, digits: int) -> str:
    """A number with this many digits; counts, whole by type or large, have none."""
    if math.isinf(value):
        return "∞"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.0f}" if value >= 1000 and value == int(value) else f"{value:.{digits}f}"


@dataclass
class Table:
    """Rows of cells, with the data and plans that made them."""

    name: str  # "table1"
    title: str
    data: str  # the data of our numbers, marked if synthetic
    columns: tuple[str, ...]
    digits: int = 3
    rows: dict[str, dict[str, Cell]] = field(default_factory=dict)
    digests: dict[str, str] = field(default_factory=dict)  # row -> digest of the plan that made it
    notes: list[str] = field(default_factory=list)  # which expected orders hold, which do not, and why

    def add(self, row: str, cells: dict[str, Cell], digest: str | None = None) -> None:
        """Add a row."""
        self.rows[row] = cells
        if digest is not None:
            self.digests[row] = digest

    def to_markdown(self) -> str:
        """The table as Markdown."""
        printed = any(cell.paper is not None for cells in self.rows.values() for cell in cells.values())
        beside = "; the paper's numbers in brackets" if printed else ""
        lines = [f"**{self.title}** ({self.data}{beside})", ""]
        heads = (column.replace("|", r"\|") for column in self.columns)  # |I| is a size, not two columns
        lines += [f"| | {' | '.join(heads)} |", f"|---|{'---|' * len(self.columns)}"]
        lines += [f"| {row} | {' | '.join(texts.values())} |" for row, texts in self.texts().items()]
        return "\n".join([*lines, "", *(f"- {note}" for note in self.notes)])

    def texts(self) -> dict[str, dict[str, str]]:
        """Every cell as text."""
        return {
            row: {column: cells.get(column, Cell()).text(self.digits) for column in self.columns}
            for row, cells in self.rows.items()
        }

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        rows = {row: {name: vars(cell) for name, cell in cells.items()} for row, cells in self.rows.items()}
        return {
            "name": self.name,
            "title": self.title,
            "data": self.data,
            "columns": list(self.columns),
            "rows": rows,
            "texts": self.texts(),
            "digests": self.digests,
            "notes": self.notes,
        }


@dataclass
class Figure:
    """Curves, as their points."""

    name: str  # "figure3"
    title: str
    data: str
    x: str
    y: str
    series: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    digests: dict[str, list[str]] = field(default_factory=dict)  # curve -> digests of the plans that made it, in order
    notes: list[str] = field(default_factory=list)

    def draw(self, curve: str, points: Iterable[tuple[float, float]], digests: Iterable[str] = ()) -> None:
        """Add a curve, with the digests of its plans; points measured without a plan have none."""
        self.series[curve] = [(float(x), float(y)) for x, y in points]
        if made_by := list(dict.fromkeys(digests)):
            self.digests[curve] = made_by

    def to_markdown(self) -> str:
        """The points as a table: one row an x, one column a curve."""
        places = sorted({x for points in self.series.values() for x, _ in points})
        lines = [f"**{self.title}** ({self.data})", "", f"| {self.x} | {' | '.join(self.series)} |"]
        lines.append(f"|---|{'---|' * len(self.series)}")
        for place in places:
            found = (dict(points).get(place) for points in self.series.values())
            lines.append(f"| {place:g} | {' | '.join('–' if y is None else f'{y:.3f}' for y in found)} |")
        return "\n".join([*lines, "", *(f"- {note}" for note in self.notes)])

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "name": self.name,
            "title": self.title,
            "data": self.data,
            "x": self.x,
            "y": self.y,
            "series": self.series,
            "digests": self.digests,
            "notes": self.notes,
        }
