"""Puts the numbers of the results into docs/fedseqrec.md: every number of its tables comes from a file in results.

tacit reproduce fedseqrec --out benchmarks/results/reproduce-fedseqrec.json
python benchmarks/fedseqrec_page.py
"""

from typing import Any

from pages import RESULTS, fill, read, table

from tacit.lab.reproduce import paper

NAME = "reproduce-fedseqrec"


def made(*kinds: str) -> list[dict[str, Any]]:
    """The tables or figures there are."""
    parts = read(NAME)["parts"] if (RESULTS / f"{NAME}.json").is_file() else []
    return [one for one in parts if one["name"].startswith(kinds)]


def said(one: dict[str, Any], body: str) -> str:
    """A part under its title, with its notes."""
    notes = "\n".join(f"- {note}" for note in one["notes"])
    return f"**{one['title']}** ({one['data']})\n\n{body}\n\n{notes}\n"


def tables() -> str:
    """Tables 2 to 4, the paper's numbers in brackets."""
    return "\n".join(said(one, _rows(one)) for one in made("table"))


def figures() -> str:
    """Figures 5 to 10: those that compare a few as tables, curves point by point; and what has not been run yet."""
    drawn = [said(one, _rows(one) if "rows" in one else _points(one)) for one in made("figure")]
    missing = [
        part for part in paper("fedseqrec").PARTS if part not in {one["name"] for one in made("table", "figure")}
    ]
    words = [f"Not run here yet: {', '.join(missing)} (`tacit reproduce fedseqrec --part NAME`).\n"] if missing else []
    return "\n".join([*drawn, *words])


def _rows(one: dict[str, Any]) -> str:
    return table(["", *one["columns"]], [[row, *texts.values()] for row, texts in one["texts"].items()])


def _points(one: dict[str, Any]) -> str:
    places = sorted({x for points in one["series"].values() for x, _ in points})
    curves = [dict(map(tuple, points)) for points in one["series"].values()]
    lines = [[f"{x:g}", *(f"{curve[x]:.2f}" if x in curve else "–" for curve in curves)] for x in places]
    return table([one["x"], *one["series"]], lines)


PARTS = {"tables": tables, "figures": figures}


if __name__ == "__main__":
    fill("fedseqrec.md", PARTS)
