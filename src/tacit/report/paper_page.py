"""A paper's page: its tables with our numbers beside the printed ones, and its figures drawn."""

import re
from typing import Any

from tacit.report.chart_theme import ACCENT, INK, QUIET, Spec, chart, measure, own, text, tips
from tacit.report.formatting import spread
from tacit.report.html import Html, join, tag
from tacit.report.page import document
from tacit.report.sections import Charts, panel

HEIGHT = 300
_MARKED = re.compile(r"\A(\w+ )?control", re.IGNORECASE)  # controls are drawn faint: what every gain must beat


def paper_page(found: dict[str, Any]) -> str:
    """The page of one paper, from what `tacit reproduce` found."""
    charts = Charts()
    parts = [
        _table(part) if "rows" in part else _figure(part, number, charts) for number, part in enumerate(found["parts"])
    ]
    title = f"Tacit: {found['paper']}, ours beside the paper's"
    head = tag("header", tag("p", "Tacit report", cls="eyebrow"), tag("h1", f"{found['paper']}, reproduced"))
    says = f"Size {found['size']}, {found['seeds']} seed(s). The paper's own numbers stand in brackets."
    return document(title, join(head, tag("section", tag("p", says), *parts)), charts.specs)


def _table(part: dict[str, Any]) -> Html:
    head = tag("tr", tag("th", ""), *(tag("th", column) for column in part["columns"]))
    rows = [
        tag("tr", tag("th", row), *(tag("td", texts.get(column, "–")) for column in part["columns"]))
        for row, texts in part["texts"].items()
    ]
    return panel(part["title"], tag("table", head, *rows), _caption(part), "wide")


def _figure(part: dict[str, Any], number: int, charts: Charts) -> Html:
    return panel(part["title"], charts.place(f"figure-{number}", curves(part)), _caption(part), "wide")


def _caption(part: dict[str, Any]) -> Html:
    return join(tag("p", f"Measured on: {part['data']}."), *(tag("p", note) for note in part["notes"]))


def curves(part: dict[str, Any]) -> Spec:
    """One line a series, its name at its end."""
    lines = {name: [point for point in points if point[1] is not None] for name, points in part["series"].items()}
    values = [y for points in lines.values() for _, y in points]
    low, high = min(values), max(values)
    room = (high - low) or 1.0
    rows = [
        {"name": name, "x": x, "y": y, "shown": f"{y:.3f}", **_look(name, number)}
        for number, (name, points) in enumerate(lines.items())
        for x, y in points
    ]
    places = spread([points[-1][1] for points in lines.values()], 15 / HEIGHT * room * 1.1)
    ends = [{"name": name, "x": points[-1][0], "y": place} for (name, points), place in zip(lines.items(), places)]
    x = measure("x", axis={"title": part["x"], "grid": False}, scale={"nice": False, "zero": False})
    domain = [min(low, *places) - 0.04 * room, max(high, *places) + 0.04 * room]
    y = measure(
        "y", axis={"title": part["y"], "domain": False, "ticks": False}, scale={"domain": domain, "nice": False}
    )
    shown = tips(("name", "curve"), ("x", part["x"]), ("shown", part["y"]))
    dash = {"field": "dash", "type": "nominal", "scale": None, "legend": None}
    encoding = {
        "x": x,
        "y": y,
        "stroke": own("line"),
        "strokeDash": dash,
        "detail": {"field": "name"},
        "tooltip": shown,
    }
    layers = [
        {"mark": {"type": "line", "strokeWidth": 1.75, "point": False}, "encoding": encoding},
        {"data": {"values": ends}, **text("name", x, y, align="left", dx=8, fontSize=11)},
    ]
    return chart(layers, rows, part["title"], HEIGHT)


def _look(name: str, number: int) -> Spec:
    """The first curve in colour, controls faint and dashed, the others in ink."""
    if _MARKED.match(name):
        return {"line": QUIET, "dash": [4, 3]}
    return {"line": ACCENT if number == 0 else INK, "dash": [1, 0]}
