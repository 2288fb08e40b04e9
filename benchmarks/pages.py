"""Pages: tables of results, put between the marks of a page of the docs."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path

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


def fill(page: str, parts: Mapping[str, Callable[[], str]]) -> None:
    """Put each part between its two marks."""
    path = DOCS / page
    text = path.read_text(encoding="utf-8")
    for name, make in parts.items():
        mark = f"<!-- {name} -->\n"
        before, _, after = text.split(mark)
        text = mark.join([before, make().rstrip("\n") + "\n", after])
    path.write_text(text, encoding="utf-8")
