"""Privacy against quality: ε on a logarithmic axis, with columns for 0 and ∞, and strips that show what the noise allows."""

import math
from itertools import pairwise
from typing import Any, NamedTuple

from tacit.report.chart_parts import (
    ACCENT,
    INK,
    LINE,
    PAPER,
    QUIET,
    SOFT,
    Box,
    Spec,
    interval_marks,
    layered_chart,
    place_labels,
    point_marks,
    point_style,
    quantity,
    row_colour,
    text_marks,
    tooltips,
)
from tacit.report.formatting import Dossier, epsilon_text, line_key, line_name, metric_interval, number, worst_verdict

# ---- the ε axis ----


class EpsilonAxis(NamedTuple):
    """The ε axis in powers of ten, and a column on each side."""

    low: float
    high: float
    column: float

    def place(self, epsilon: float) -> float:
        """The position of an ε; 0 and ∞ have columns of their own."""
        if epsilon == 0:
            return self.low - 0.75 * self.column
        return self.high + 0.3 * self.column if math.isinf(epsilon) else math.log10(epsilon)

    @property
    def domain(self) -> list[float]:
        """From end to end."""
        return [self.low - self.column, self.high + self.column]

    @property
    def ticks(self) -> list[float]:
        """0, then 1, 3, 10, 30 and so on, then ∞."""
        powers = range(math.floor(self.low) - 1, math.ceil(self.high) + 1)
        steps = [power + step for power in powers for step in (0.0, math.log10(3))]
        return [self.place(0.0), *(t for t in steps if self.low <= t <= self.high), self.place(math.inf)]

    @property
    def columns(self) -> list[tuple[str, float, float]]:
        """The parts of the axis: name, left end, right end."""
        left, right = self.domain
        ends = [("nothing leaves", left, self.low), ("no guarantee", self.high, right)]
        return [ends[0], ("a finite ε", self.low, self.high), ends[1]]


def epsilon_axis(dossiers: list[Dossier], column: float) -> EpsilonAxis:
    """An axis that holds every finite ε; each column takes the share `column` of its width."""
    finite = [e for e in (number(one["whole"]["epsilon"]) for one in dossiers) if 0 < e < math.inf]
    low, high = math.log10(min(finite, default=1.0)) - 0.45, math.log10(max(finite, default=1.0)) + 0.45
    if high - low < 2.0:
        low, high = (low + high) / 2 - 1.0, (low + high) / 2 + 1.0
    return EpsilonAxis(low, high, column * (high - low))


# ---- feasibility strips below the plot ----


STRIP, ABOVE = 40, 12  # pixels of one strip, and above the first
_VERDICTS = {"hopeless": (LINE, 0.8), "weak": (SOFT, 1.0), "workable": (ACCENT, 0.4)}


def feasibility_strips(dossiers: list[Dossier], axis: EpsilonAxis, start: int) -> list[Spec]:
    """For every line of plans, the ε at which its verdict is hopeless, weak and workable; `start` is the plot's bottom."""
    found = {line_key(one): (_title(one, dossiers), one["reach"]) for one in dossiers if one["reach"]}
    rows = []
    for strip, (name, reach) in enumerate(found.values()):
        top = start + ABOVE + STRIP * strip
        edges = [axis.low, *(_inside(axis, number(reach[word])) for word in ("weak", "workable")), axis.high]
        parts = [part for part in zip(_VERDICTS, edges, edges[1:]) if part[2] > part[1]]
        rows += [{"strip": strip, **_part(axis, *part, name if i == 0 else "", top)} for i, part in enumerate(parts)]
    return rows


def _title(one: Dossier, dossiers: list[Dossier]) -> str:
    """The name of the line, and for counts the noise floor at its smallest and largest ε."""
    line = [other for other in dossiers if line_key(other) == line_key(one) and other.get("floor")]
    line = sorted(line, key=lambda other: number(other["whole"]["epsilon"]))
    ends = [line[0], line[-1]] if len(line) > 1 else line
    words = " … ".join(
        f"{other['floor']['people']:,.0f} at ε {epsilon_text(other['whole']['epsilon'])}" for other in ends
    )
    return f"{line_name(one)}; noise floor in users: {words}" if words else line_name(one)


def _part(axis: EpsilonAxis, verdict: str, left: float, right: float, title: str, top: int) -> Spec:
    """One verdict of one strip, labelled where there is room."""
    fill, opacity = _VERDICTS[verdict]
    says = verdict if (right - left) / (axis.high - axis.low) > 0.2 else ""
    where = {"from": left, "to": right, "middle": (left + right) / 2, "start": axis.low}
    height = {"top": top + 17, "bottom": top + 33, "centre": top + 25.5, "above": top + 8}
    return {**where, **height, "title": title, "says": says, "fill": fill, "opacity": opacity}


def _inside(axis: EpsilonAxis, epsilon: float) -> float:
    if epsilon <= 0:
        return axis.low
    return min(max(math.log10(epsilon), axis.low), axis.high) if math.isfinite(epsilon) else axis.high


def strip_marks(rows: list[Spec], x: Spec, font: int) -> list[Spec]:
    """The strips, drawn below a plot; x is its ε axis."""

    def pixel(field: str) -> Spec:
        return {"field": field, "type": "quantitative", "scale": None, "axis": None}

    shade = {"field": "opacity", "type": "quantitative", "scale": None, "legend": None}
    where = {"x": {**x, "field": "from"}, "x2": {"field": "to"}, "y": pixel("top"), "y2": {"field": "bottom"}}
    data = {"data": {"values": rows}}
    small = {"fontSize": font}
    name = text_marks("title", {**x, "field": "start"}, pixel("above"), align="left", color=QUIET, **small)
    return [
        {**data, "mark": {"type": "rect"}, "encoding": {**where, "fill": row_colour("fill"), "fillOpacity": shade}},
        {**data, **text_marks("says", {**x, "field": "middle"}, pixel("centre"), **small)},
        {**data, **name},
    ]


# ---- the chart ----


HEIGHT, TOP = 320, 34  # pixels: of the plot, above its highest point
NARROW = 480  # below, a plot has room for names alone
_UNITS = {"user": "per user", "interaction": "per interaction", "client(silo)": "per organisation"}
_TRUST = {"nobody": "trusts nobody", "server": "trusts the server", "organisation": "trusts the organisation"}


def tradeoff_chart(dossiers: list[Dossier], metric: str, width: int = 680) -> Spec:
    """The chart, with labels placed for a plot of about this width."""
    axis = epsilon_axis(dossiers, 0.3 if width > NARROW else 0.42)
    rows = _rows(dossiers, metric, axis)
    top = max(*(row["high"] for row in rows), 1e-9) * 1.03
    _apart(rows, axis, top)
    _label(rows, axis, top, width)
    x = quantity("x", scale={"domain": axis.domain, "nice": False, "zero": False}, axis=_across(axis, width))
    y = quantity("y", scale={"domain": [0, top], "range": [HEIGHT, TOP]}, axis=_up(width))
    strips = feasibility_strips(dossiers, axis, HEIGHT)
    layers = [
        *_columns(axis, x, width),
        *_floor(x, y),
        *_lines(x, y),
        interval_marks(x, {**y, "field": "low"}, y2={"field": "high"}),
        point_marks(x, y, _tips(metric)),
        *_words(x, y, width),
        *(strip_marks(strips, x, _font(width) - 1) if strips else []),
    ]
    height = HEIGHT + (STRIP * len({row["strip"] for row in strips}) + ABOVE if strips else 0)
    return layered_chart(layers, rows, f"{metric} of each plan against the ε of its whole run.", height)


# ---- its rows and labels ----


def _rows(dossiers: list[Dossier], metric: str, axis: EpsilonAxis) -> list[Spec]:
    lines = list(dict.fromkeys(line_key(one) for one in dossiers))
    rows = []
    for one in dossiers:
        mean, low, high = metric_interval(one, metric)
        whole = one["whole"]
        epsilon = number(whole["epsilon"])
        rows.append(
            {
                "x": axis.place(epsilon),
                "y": mean,
                "low": low,
                "high": high,
                "name": one["name"],
                "family": lines.index(line_key(one)),
                "line_name": line_name(one),
                "floor": one["plan"]["stage"][-1]["method"] == "random",
                "side": "kept" if 0 < epsilon < math.inf else "none",
                "epsilon": epsilon_text(epsilon),
                "terms": f"{_UNITS[whole['unit']]}, {_TRUST[whole['trust']]}" if 0 < epsilon < math.inf else "",
                "value": f"{mean:.3f} ({low:.3f} to {high:.3f})",
                "verdict": worst_verdict(one),
                "counts": (one.get("floor") or {}).get("says", ""),
                **point_style(one),
            }
        )
    return rows


def _apart(rows: list[Spec], axis: EpsilonAxis, top: float) -> None:
    """Move overlapping points of the columns for 0 and ∞ sideways: there the horizontal position has no meaning."""
    near, step = 14 / (HEIGHT - TOP) * top, 0.12 * axis.column
    for side in (0.0, math.inf):
        column = sorted((row for row in rows if row["x"] == axis.place(side)), key=lambda row: -row["y"])
        for before, row in pairwise(column):
            if before["y"] - row["y"] < near and before["x"] < axis.place(side) + 2 * step:
                row["x"] = before["x"] + step


def _label(rows: list[Spec], axis: EpsilonAxis, top: float, width: int) -> None:
    """Label each point where it overlaps least; a line of points with one name is labelled once, at its smallest ε."""
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
    found = place_labels(
        words, [pixel(row["x"], row["y"]) for row in labelled], obstacles, (0, 20, width + 8, HEIGHT), _font(width)
    )
    for row, lines, label in zip(labelled, words, found):
        lift = 7 if len(lines) > 1 else 0
        row |= {"label": lines[0], "under": lines[1] if lift else "", **label._asdict(), "lift": lift}


def _font(width: int) -> int:
    return 12 if width > NARROW else 11


def _named_after(row: Spec) -> bool:
    """Whether a name is its line's name and its ε."""
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


# ---- its layers ----


def _across(axis: EpsilonAxis, width: int) -> Spec:
    left, right = axis.low, axis.high
    return {
        "values": axis.ticks,
        "labelExpr": f"datum.value < {left} ? '0' : datum.value > {right} ? '∞' : format(pow(10, datum.value), '.2~r')",
        "title": "ε of the whole run: smaller is more private" if width > NARROW else "ε of the whole run",
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


def _columns(axis: EpsilonAxis, x: Spec, width: int) -> list[Spec]:
    """Shaded columns for 0 and ∞, and the names of the parts."""
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
            **text_marks(
                "says", {**x, "field": "middle"}, {"value": 12}, color=QUIET, fontSize=_font(width) - (width <= NARROW)
            ),
        },
    ]


def _floor(x: Spec, y: Spec) -> list[Spec]:
    """The result of random guessing, as a horizontal line."""
    del x
    mark = {"type": "rule", "stroke": QUIET, "strokeDash": [2, 3], "strokeWidth": 1}
    return [{"transform": [{"filter": "datum.floor"}], "mark": mark, "encoding": {"y": y}}]


def _lines(x: Spec, y: Spec) -> list[Spec]:
    """One line for plans that differ in their ε alone."""
    kept = [{"filter": "datum.side == 'kept'"}]
    encoding = {"x": x, "y": y, "detail": {"field": "family"}, "stroke": row_colour("line")}
    return [{"transform": kept, "mark": {"type": "line", "strokeWidth": 1.5, "opacity": 0.6}, "encoding": encoding}]


def _words(x: Spec, y: Spec, width: int) -> list[Spec]:
    said = {"transform": [{"filter": "isValid(datum.label)"}]}
    near = {"align": {"expr": "datum.align"}, "dx": {"expr": "datum.dx"}, "fontSize": _font(width)}
    near |= {"stroke": PAPER, "strokeWidth": 3, "strokeOpacity": 0.8}  # a halo, painted under the text
    name = text_marks("label", x, y, **near, dy={"expr": "datum.dy - datum.lift"})
    terms = text_marks("under", x, y, **{**near, "fontSize": 11, "color": QUIET}, dy={"expr": "datum.dy + datum.lift"})
    return [{**said, **name}, {**said, **terms}]


def _tips(metric: str) -> list[Spec]:
    return tooltips(
        ("name", "plan"),
        ("value", metric),
        ("epsilon", "ε"),
        ("terms", "terms"),
        ("verdict", "feasibility"),
        ("counts", "counts"),
    )
