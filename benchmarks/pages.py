"""Pages: tables of results, put between the marks of a page of the docs."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
DOCS = Path(__file__).parent.parent / "docs"


def read(name: str) -> dict:
    """A file of results."""
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))


def table(head: list[str], rows: list[list[str]]) -> str:
    """As Markdown."""
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows))


def span(values: list[float]) -> str:
    """A mean, and half of its interval."""
    return f"{values[0]:.3f} ± {(values[2] - values[1]) / 2:.3f}"


def reproduced(name: str, digits: int = 3, only: tuple[str, ...] = ()) -> str:
    """The tables and figures that a run of `tacit reproduce` wrote, all or some, where there is its file."""
    return "\n".join(part(one, digits) for one in parts_of(name) if not only or one["name"] in only)


def parts_of(name: str) -> list[dict[str, Any]]:
    """What a run of `tacit reproduce` wrote, where there is its file."""
    return read(name)["parts"] if (RESULTS / f"{name}.json").is_file() else []


def part(one: dict[str, Any], digits: int = 3) -> str:
    """A table or a figure under its title, with its notes."""
    notes = "\n".join(f"- {note}" for note in one["notes"])
    body = _rows(one) if "rows" in one else _points(one, digits)
    beside = "; the paper's numbers in brackets" if _printed(one) else ""
    return f"**{one['title']}** ({one['data']}{beside})\n\n{body}\n\n{notes}\n"


def _printed(one: dict[str, Any]) -> bool:
    """Whether the paper prints any number of this part."""
    return any(cell.get("paper") is not None for cells in one.get("rows", {}).values() for cell in cells.values())


def _rows(one: dict[str, Any]) -> str:
    heads = (column.replace("|", r"\|") for column in one["columns"])  # |I| is a size, not two columns
    return table(["", *heads], [[row, *texts.values()] for row, texts in one["texts"].items()])


def _points(one: dict[str, Any], digits: int) -> str:
    curves = {name: dict(map(tuple, points)) for name, points in one["series"].items()}
    places = sorted({x for curve in curves.values() for x in curve})
    lines = [
        [f"{x:g}", *(f"{curve[x]:.{digits}f}" if x in curve else "–" for curve in curves.values())] for x in places
    ]
    return table([one["x"], *curves], lines)


def fill(page: str, parts: Mapping[str, Callable[[], str]]) -> None:
    """Put each part between its two marks."""
    path = DOCS / page
    text = path.read_text(encoding="utf-8")
    for name, make in parts.items():
        mark = f"<!-- {name} -->\n"
        before, _, after = text.split(mark)
        text = mark.join([before, make().rstrip("\n") + "\n", after])
    path.write_text(text, encoding="utf-8")
