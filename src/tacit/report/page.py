"""Pages: the report of some runs, the tables and figures of a paper, and one chart as an SVG picture."""

import re
from datetime import UTC, datetime
from typing import Any

from tacit.errors import RunError
from tacit.report.chart_parts import (
    ACCENT,
    CONFIG,
    INK,
    QUIET,
    Spec,
    layered_chart,
    quantity,
    row_colour,
    spread_apart,
    text_marks,
    tooltips,
)
from tacit.report.claim_cards import claim_cards
from tacit.report.formatting import Dossier, comparable_groups, primary_metric, with_distinct_names
from tacit.report.html import Html, html_document, join_html, tag
from tacit.report.sample_message import sample_messages
from tacit.report.sections import Charts, figure_panel, results_section
from tacit.report.tradeoff import tradeoff_chart

# ---- the page of runs ----


_SECTIONS = (("results", "Results"), ("sent", "What one device sent"), ("claims", "What is promised"))


def report_page(dossiers: list[Dossier]) -> str:
    """The report of some runs as text."""
    dossiers = with_distinct_names(dossiers)
    charts, groups = Charts(), comparable_groups(dossiers)
    body = join_html(
        _head(dossiers),
        *(results_section(group, charts, number, len(groups)) for number, group in enumerate(groups, 1)),
        sample_messages(dossiers, charts),
        claim_cards(dossiers),
        _foot(dossiers),
    )
    return html_document(_title(dossiers), body, charts.specs)


def _title(dossiers: list[Dossier]) -> str:
    names = [one["name"] for one in dossiers]
    return f"Tacit report: {', '.join(names[:3])}{f' and {len(names) - 3} more' if len(names) > 3 else ''}"


def _head(dossiers: list[Dossier]) -> Html:
    shown = [part for part in _SECTIONS if part[0] != "sent" or any(one["specimen"] for one in dossiers)]
    links = [tag("a", words, href=f"#{name}") for name, words in shown]
    plans = f"{len(dossiers)} plans" if len(dossiers) > 1 else dossiers[0]["name"]
    return tag(
        "header",
        tag("p", "Tacit report", cls="eyebrow"),
        tag("h1", plans, _on(dossiers)),
        tag("nav", *links),
    )


def _on(dossiers: list[Dossier]) -> str:
    names = list(dict.fromkeys(one["data"]["name"] for one in dossiers if one["data"]["name"]))
    return f" on {', '.join(names)}" if names else ""


def _foot(dossiers: list[Dossier]) -> Html:
    environment = dossiers[0]["environment"]
    when = environment.get("time")
    day = f", {datetime.fromtimestamp(float(when), UTC):%d %B %Y}" if when else ""
    versions = [f"{name} {environment[name]}" for name in ("jax", "python", "backend") if name in environment]
    return tag(
        "footer",
        tag("p", f"Made by Tacit {dossiers[0]['tacit']}{day}; {', '.join(versions)}."),
        tag(
            "p", "This file is self-contained: it fetches nothing, and its content policy forbids the browser to fetch."
        ),
    )


# ---- the page of a paper ----


HEIGHT = 300
_MARKED = re.compile(r"\A(\w+ )?control", re.IGNORECASE)  # controls are drawn faint


def paper_page(found: dict[str, Any]) -> str:
    """The page of one paper, from the results of `tacit reproduce`."""
    charts = Charts()
    parts = [
        _table(part) if "rows" in part else _figure(part, number, charts) for number, part in enumerate(found["parts"])
    ]
    title = f"Tacit: {found['paper']}, ours beside the paper's"
    head = tag("header", tag("p", "Tacit report", cls="eyebrow"), tag("h1", f"{found['paper']}, reproduced"))
    says = f"Size {found['size']}, {found['seeds']} seed(s). The paper's own numbers are in brackets."
    return html_document(title, join_html(head, tag("section", tag("p", says), *parts)), charts.specs)


def _table(part: dict[str, Any]) -> Html:
    head = tag("tr", tag("th", ""), *(tag("th", column) for column in part["columns"]))
    rows = [
        tag("tr", tag("th", row), *(tag("td", texts.get(column, "–")) for column in part["columns"]))
        for row, texts in part["texts"].items()
    ]
    return figure_panel(part["title"], tag("table", head, *rows), _caption(part), "wide")


def _figure(part: dict[str, Any], number: int, charts: Charts) -> Html:
    return figure_panel(part["title"], charts.place(f"figure-{number}", curves_chart(part)), _caption(part), "wide")


def _caption(part: dict[str, Any]) -> Html:
    return join_html(tag("p", f"Measured on: {part['data']}."), *(tag("p", note) for note in part["notes"]))


def curves_chart(part: dict[str, Any]) -> Spec:
    """One line a series, with its name at its end."""
    lines = {name: [point for point in points if point[1] is not None] for name, points in part["series"].items()}
    values = [y for points in lines.values() for _, y in points]
    low, high = min(values), max(values)
    room = (high - low) or 1.0
    rows = [
        {"name": name, "x": x, "y": y, "shown": f"{y:.3f}", **_look(name, number)}
        for number, (name, points) in enumerate(lines.items())
        for x, y in points
    ]
    places = spread_apart([points[-1][1] for points in lines.values()], 15 / HEIGHT * room * 1.1)
    ends = [{"name": name, "x": points[-1][0], "y": place} for (name, points), place in zip(lines.items(), places)]
    x = quantity("x", axis={"title": part["x"], "grid": False}, scale={"nice": False, "zero": False})
    domain = [min(low, *places) - 0.04 * room, max(high, *places) + 0.04 * room]
    y = quantity(
        "y", axis={"title": part["y"], "domain": False, "ticks": False}, scale={"domain": domain, "nice": False}
    )
    shown = tooltips(("name", "curve"), ("x", part["x"]), ("shown", part["y"]))
    dash = {"field": "dash", "type": "nominal", "scale": None, "legend": None}
    encoding = {
        "x": x,
        "y": y,
        "stroke": row_colour("line"),
        "strokeDash": dash,
        "detail": {"field": "name"},
        "tooltip": shown,
    }
    layers = [
        {"mark": {"type": "line", "strokeWidth": 1.75, "point": False}, "encoding": encoding},
        {"data": {"values": ends}, **text_marks("name", x, y, align="left", dx=8, fontSize=11)},
    ]
    return layered_chart(layers, rows, part["title"], HEIGHT)


def _look(name: str, number: int) -> Spec:
    """The first curve in colour, controls faint and dashed, the others in ink."""
    if _MARKED.match(name):
        return {"line": QUIET, "dash": [4, 3]}
    return {"line": ACCENT if number == 0 else INK, "dash": [1, 0]}


# ---- the picture ----


WIDTH = 720
# Colours of the page's style: light, dark. A picture is embedded in other pages, so it has its own background.
COLOURS = {
    "paper": ("#fdfdfb", "#14171a"),
    "ink": ("#1b1f24", "#e9e7e2"),
    "quiet": ("#667079", "#9aa3ab"),
    "line": ("#dcdfe1", "#343a40"),
    "accent": ("#0a7a6b", "#4fc3ae"),
    "soft": ("#cfe8e2", "#1f4a44"),
}


def svg_picture(dossiers: list[Dossier]) -> str:
    """The SVG as text; plans with different evaluations do not fit in one picture."""
    import vl_convert

    groups = comparable_groups(dossiers)
    metric = primary_metric(dossiers)
    if len(groups) > 1 or metric is None:
        raise RunError(
            f"A picture shows plans with the same evaluation on the same users, got {len(groups)} settings; "
            "choose the runs of one."
        )
    spec = tradeoff_chart(with_distinct_names(dossiers), metric)
    del spec["autosize"]
    title = {"text": metric, "anchor": "start", "fontSize": 13, "fontWeight": "normal", "color": "var(--quiet)"}
    spec |= {"width": WIDTH, "title": title, "config": CONFIG, "padding": 16, "background": "var(--paper)"}
    return _coloured(vl_convert.vegalite_to_svg(spec))


def _coloured(svg: str) -> str:
    """Colour variables become light colours; a style sheet replaces them where a dark scheme is preferred."""
    svg = re.sub(r"var\(--(\w+)\)", lambda found: COLOURS[found[1]][0], svg)
    rules = [f'[{part}="{light}"]{{{part}:{dark}}}' for light, dark in COLOURS.values() for part in ("fill", "stroke")]
    style = f"<style>text{{paint-order:stroke}}@media(prefers-color-scheme:dark){{{''.join(rules)}}}</style>"
    return svg.replace(">", f">{style}", 1)
