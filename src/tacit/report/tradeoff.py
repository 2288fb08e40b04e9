"""Privacy against quality: ε on a logarithmic axis, a column for 0 and one for ∞, and what the noise allows."""

import math
from itertools import pairwise
from typing import Any

from tacit.report.chart_theme import (
    INK,
    LINE,
    PAPER,
    QUIET,
    Spec,
    chart,
    look,
    measure,
    own,
    points,
    rule,
    text,
    tips,
)
from tacit.report.epsilon_axis import Axis, axis_of
from tacit.report.feasibility_strip import ABOVE, STRIP, strips_of, verdicts
from tacit.report.formatting import Dossier, called, epsilon_text, family, interval_of, number, verdict
from tacit.report.label_placement import Box, place

HEIGHT, TOP = 320, 34  # pixels: of the plot, above its highest point
NARROW = 480  # below, a plot has room for names alone
_UNITS = {"user": "per user", "interaction": "per interaction", "client(silo)": "per organisation"}
_TRUST = {"nobody": "trusts nobody", "server": "trusts the server", "organisation": "trusts the organisation"}


def tradeoff(dossiers: list[Dossier], metric: str, width: int = 680) -> Spec:
    """The chart, with its words placed for a plot of about this width."""
    axis = axis_of(dossiers, 0.3 if width > NARROW else 0.42)
    rows = _rows(dossiers, metric, axis)
    top = max(*(row["high"] for row in rows), 1e-9) * 1.03
    _apart(rows, axis, top)
    _label(rows, axis, top, width)
    x = measure("x", scale={"domain": axis.domain, "nice": False, "zero": False}, axis=_across(axis, width))
    y = measure("y", scale={"domain": [0, top], "range": [HEIGHT, TOP]}, axis=_up(width))
    strips = strips_of(dossiers, axis, HEIGHT)
    layers = [
        *_columns(axis, x, width),
        *_floor(x, y),
        *_lines(x, y),
        rule(x, {**y, "field": "low"}, y2={"field": "high"}),
        points(x, y, _tips(metric)),
        *_words(x, y, width),
        *(verdicts(strips, x, _font(width) - 1) if strips else []),
    ]
    height = HEIGHT + (STRIP * len({row["strip"] for row in strips}) + ABOVE if strips else 0)
    return chart(layers, rows, f"{metric} of each plan against the ε of its whole run.", height)


# ---- what is drawn ----


def _rows(dossiers: list[Dossier], metric: str, axis: Axis) -> list[Spec]:
    lines = list(dict.fromkeys(family(one) for one in dossiers))
    rows = []
    for one in dossiers:
        mean, low, high = interval_of(one, metric)
        whole = one["whole"]
        epsilon = number(whole["epsilon"])
        rows.append(
            {
                "x": axis.place(epsilon),
                "y": mean,
                "low": low,
                "high": high,
                "name": one["name"],
                "family": lines.index(family(one)),
                "line_name": called(one),
                "floor": one["plan"]["stage"][-1]["method"] == "random",
                "side": "kept" if 0 < epsilon < math.inf else "none",
                "epsilon": epsilon_text(epsilon),
                "terms": f"{_UNITS[whole['unit']]}, {_TRUST[whole['trust']]}" if 0 < epsilon < math.inf else "",
                "value": f"{mean:.3f} ({low:.3f} to {high:.3f})",
                "verdict": verdict(one),
                "counts": (one.get("floor") or {}).get("says", ""),
                **look(one),
            }
        )
    return rows


def _apart(rows: list[Spec], axis: Axis, top: float) -> None:
    """Move points of a column aside that would hide each other: there, right and left mean nothing."""
    near, step = 14 / (HEIGHT - TOP) * top, 0.12 * axis.column
    for side in (0.0, math.inf):
        column = sorted((row for row in rows if row["x"] == axis.place(side)), key=lambda row: -row["y"])
        for before, row in pairwise(column):
            if before["y"] - row["y"] < near and before["x"] < axis.place(side) + 2 * step:
                row["x"] = before["x"] + step


def _label(rows: list[Spec], axis: Axis, top: float, width: int) -> None:
    """Give each point its name, where it covers least; a line of points named after it gets one, at its smallest ε."""
    (left, right), high = axis.domain, HEIGHT - TOP

    def pixel(x: float, y: float) -> tuple[float, float]:
        return (x - left) / (right - left) * width, HEIGHT - y / top * high

    first: dict[Any, Spec] = {}
    for row in sorted(rows, key=lambda row: row["x"]):
        row["called"] = row["line_name"] if row["side"] == "kept" and _named_after(row) else row["name"]
        first.setdefault(row["family"] if row["called"] != row["name"] else row["name"], row)
    labelled = sorted(first.values(), key=lambda row: -row["y"])
    terms = width > NARROW
    words = [[row["called"], row["terms"]] if terms and row["terms"] else [row["called"]] for row in labelled]
    obstacles = [_upright(pixel(row["x"], row["low"]), pixel(row["x"], row["high"])) for row in rows]
    obstacles += 4 * [(x - 7, y - 7, x + 7, y + 7) for x, y in (pixel(row["x"], row["y"]) for row in rows)]
    obstacles += [(0, at - 3, width, at + 3) for at in (pixel(0, row["y"])[1] for row in rows if row["floor"])]
    obstacles += [box for ends in _segments(rows) for box in _along(*(pixel(*end) for end in ends))]
    found = place(
        words, [pixel(row["x"], row["y"]) for row in labelled], obstacles, (0, 20, width + 8, HEIGHT), _font(width)
    )
    for row, lines, label in zip(labelled, words, found):
        lift = 7 if len(lines) > 1 else 0
        row |= {"label": lines[0], "under": lines[1] if lift else "", **label._asdict(), "lift": lift}


def _font(width: int) -> int:
    return 12 if width > NARROW else 11


def _named_after(row: Spec) -> bool:
    """Whether a name says no more than its line and its ε."""
    return row["name"].startswith(f"{row['line_name']} ε")


def _segments(rows: list[Spec]) -> list[tuple]:
    """The lines between plans that differ in their ε alone, and from the last of them to the plan without noise."""
    found = []
    for name in dict.fromkeys(row["family"] for row in rows if row["side"] == "kept"):
        line = sorted(
            (row for row in rows if row["family"] == name and row["side"] == "kept"), key=lambda row: row["x"]
        )
        found += [((a["x"], a["y"]), (b["x"], b["y"])) for a, b in pairwise(line)]
    return found


def _upright(one: tuple[float, float], other: tuple[float, float]) -> Box:
    return one[0] - 2, min(one[1], other[1]), one[0] + 2, max(one[1], other[1])


def _along(one: tuple[float, float], other: tuple[float, float]) -> list[Box]:
    """Small boxes along a line."""
    steps = [(one[0] + t / 12 * (other[0] - one[0]), one[1] + t / 12 * (other[1] - one[1])) for t in range(13)]
    return [(x - 6, y - 4, x + 6, y + 4) for x, y in steps]


# ---- how it is drawn ----


def _across(axis: Axis, width: int) -> Spec:
    left, right = axis.low, axis.high
    return {
        "values": axis.ticks,
        "labelExpr": f"datum.value < {left} ? '0' : datum.value > {right} ? '∞' : format(pow(10, datum.value), '.2~r')",
        "title": "ε of the whole run: smaller is safer" if width > NARROW else "ε of the whole run",
        "grid": False,
        "labelFontSize": 13,
        "labelColor": INK,
        "domain": False,
        "labelOverlap": True,
    }


def _up(width: int) -> Spec:
    return {
        "title": None,
        "tickCount": 5,
        "domain": False,
        "ticks": False,
        "minExtent": 40 if width > NARROW else 30,
        "gridOpacity": 0.7,
    }


def _columns(axis: Axis, x: Spec, width: int) -> list[Spec]:
    """Shaded columns for 0 and ∞, and what the parts are called."""
    parts = [
        {"says": says, "from": left, "to": right, "middle": (left + right) / 2} for says, left, right in axis.columns
    ]
    where = {"y": {"value": 0}, "y2": {"value": HEIGHT}}
    return [
        {
            "data": {"values": [parts[0], parts[2]]},
            "mark": {"type": "rect", "fill": LINE, "opacity": 0.4},
            "encoding": {"x": {**x, "field": "from"}, "x2": {"field": "to"}, **where},
        },
        {
            "data": {"values": parts},
            **text(
                "says", {**x, "field": "middle"}, {"value": 12}, color=QUIET, fontSize=_font(width) - (width <= NARROW)
            ),
        },
    ]


def _floor(x: Spec, y: Spec) -> list[Spec]:
    """What guessing gets, as a line across."""
    del x
    mark = {"type": "rule", "stroke": QUIET, "strokeDash": [2, 3], "strokeWidth": 1}
    return [{"transform": [{"filter": "datum.floor"}], "mark": mark, "encoding": {"y": y}}]


def _lines(x: Spec, y: Spec) -> list[Spec]:
    """One line for plans that differ in their ε alone."""
    kept = [{"filter": "datum.side == 'kept'"}]
    encoding = {"x": x, "y": y, "detail": {"field": "family"}, "stroke": own("line")}
    return [{"transform": kept, "mark": {"type": "line", "strokeWidth": 1.5, "opacity": 0.6}, "encoding": encoding}]


def _words(x: Spec, y: Spec, width: int) -> list[Spec]:
    said = {"transform": [{"filter": "isValid(datum.label)"}]}
    near = {"align": {"expr": "datum.align"}, "dx": {"expr": "datum.dx"}, "fontSize": _font(width)}
    near |= {"stroke": PAPER, "strokeWidth": 3, "strokeOpacity": 0.8}  # a halo: the style paints it first
    name = text("label", x, y, **near, dy={"expr": "datum.dy - datum.lift"})
    terms = text("under", x, y, **{**near, "fontSize": 11, "color": QUIET}, dy={"expr": "datum.dy + datum.lift"})
    return [{**said, **name}, {**said, **terms}]


def _tips(metric: str) -> list[Spec]:
    return tips(
        ("name", "plan"),
        ("value", metric),
        ("epsilon", "ε"),
        ("terms", "terms"),
        ("verdict", "outlook"),
        ("counts", "counts"),
    )
