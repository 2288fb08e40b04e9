"""Charts of the results, as Vega-Lite: plans compared, metric per round, results by group, traffic, rows of a message."""

from typing import Any

from tacit.report.chart_parts import (
    ACCENT,
    INK,
    LINE,
    QUIET,
    Spec,
    interval_marks,
    layered_chart,
    point_marks,
    point_style,
    quantity,
    row_colour,
    spread_apart,
    text_marks,
    tooltips,
)
from tacit.report.formatting import Dossier, bytes_text, metric_interval, privacy_level

ROW = 32  # pixels of one plan in a list


def comparison_chart(dossiers: list[Dossier], metric: str, narrow: bool = False) -> Spec:
    """Every plan's mean with its interval, the best first; on narrow screens, names stand above."""
    rows = []
    for one in dossiers:
        mean, low, high = metric_interval(one, metric)
        words = {"name": one["name"], "value": f"{mean:.3f}", "range": f"{low:.3f} to {high:.3f}"}
        rows.append({**words, "mean": mean, "low": low, "high": high, **point_style(one)})
    order = [row["name"] for row in sorted(rows, key=lambda row: -row["mean"])]
    most = max(row["high"] for row in rows) or 1.0
    x = quantity("mean", scale={"domain": [0, most * 1.2]}, axis={"title": metric, "tickCount": 5, "domain": False})
    y, names = _names(order, narrow)
    layers = [
        interval_marks({**x, "field": "low"}, y, x2={"field": "high"}),
        point_marks(x, y, tooltips(("name", "plan"), ("value", metric), ("range", "95 % interval"))),
        text_marks("value", {**x, "field": "high"}, y, align="left", dx=10),
        *names,
    ]
    return layered_chart(layers, rows, f"{metric} of each plan with its 95 % interval.", _height(rows, narrow))


def chart_by_round(dossiers: list[Dossier], metric: str) -> Spec | None:
    """The metric after each evaluated round; None where no plan was evaluated more than once."""
    return _lines(dossiers, {one["name"]: _evaluated(one, metric) for one in dossiers}, metric)


def chart_of_public_state(dossiers: list[Dossier], number: str) -> Spec | None:
    """An adaptive setting in each round; None where no plan changes it."""
    return _lines(dossiers, {one["name"]: _public_values(one, number) for one in dossiers}, number)


def _lines(dossiers: list[Dossier], lines: dict[str, list[tuple[int, float]]], words: str) -> Spec | None:
    """A line for each plan that has more than one point."""
    drawn = [one for one in dossiers if len(lines[one["name"]]) > 1]
    if not drawn:
        return None
    height, top = 280, max(value for one in drawn for _, value in lines[one["name"]]) or 1.0
    rows = [
        {"name": one["name"], "round": done, "value": value, "shown": f"{value:.3f}", **point_style(one)}
        for one in drawn
        for done, value in lines[one["name"]]
    ]
    ends = [{"name": one["name"], "round": lines[one["name"]][-1][0], **point_style(one)} for one in drawn]
    places = spread_apart([lines[one["name"]][-1][1] for one in drawn], 15 / height * top)
    ends = [{**row, "value": place} for row, place in zip(ends, places)]
    x = quantity(
        "round",
        axis={"title": "rounds", "grid": False, "tickMinStep": 1, "tickCount": 10},
        scale={"nice": False, "zero": False},
    )
    y = quantity("value", scale={"domainMin": 0, "domainMax": top * 1.06}, axis=_plain())
    layers = [
        {
            "mark": {"type": "line", "strokeWidth": 1.75, "opacity": 0.8},
            "encoding": {"x": x, "y": y, "stroke": row_colour("line"), "detail": {"field": "name"}},
        },
        point_marks(x, y, tooltips(("name", "plan"), ("round", "rounds"), ("shown", words)), size=24),
        {"data": {"values": ends}, **text_marks("name", x, y, align="left", dx=10)},
    ]
    return layered_chart(layers, rows, f"{words} after each round.", height)


def charts_by_group(dossiers: list[Dossier], metric: str) -> list[tuple[Dossier, Spec]]:
    """A small chart for each plan: results for users of few and of many events, the other plans faint behind."""
    having = [one for one in dossiers if one["groups"].get(metric)]
    rows = {one["name"]: [_group(one, part) for part in one["groups"][metric]] for one in having}
    top = max((row["high"] for part in rows.values() for row in part), default=1.0) or 1.0
    faint = [row for part in rows.values() for row in part]
    return [(one, _group_chart(metric, rows[one["name"]], faint, top * 1.05)) for one in having]


def _group(dossier: Dossier, part: dict[str, Any]) -> Spec:
    short = part["group"].removesuffix(" events").removesuffix(" event").replace(" to ", "–")
    value = f"{part['mean']:.3f} ({part['low']:.3f} to {part['high']:.3f})"
    return {**part, "name": dossier["name"], "short": short, "value": value, **point_style(dossier)}


def _group_chart(metric: str, rows: list[Spec], faint: list[Spec], top: float) -> Spec:
    x = {
        "field": "short",
        "type": "ordinal",
        "sort": [row["short"] for row in rows],
        "axis": {"title": None, "labelAngle": 0, "ticks": False, "labelFontSize": 11, "labelOverlap": True},
        "scale": {"paddingOuter": 0.3},
    }
    y = quantity("mean", scale={"domain": [0, top], "nice": False}, axis={**_plain(), "tickCount": 3})
    line: Spec = {"mark": {"type": "line", "stroke": LINE, "strokeWidth": 1}, "data": {"values": faint}}
    shown = tooltips(("group", "history"), ("value", metric), ("users", "users"))
    layers = [
        {**line, "encoding": {"x": x, "y": y, "detail": {"field": "name"}}},
        {
            "mark": {"type": "line", "strokeWidth": 1.5, "opacity": 0.6},
            "encoding": {"x": x, "y": y, "stroke": row_colour("line")},
        },
        interval_marks(x, {**y, "field": "low"}, y2={"field": "high"}),
        point_marks(x, y, shown, size=50),
    ]
    return layered_chart(layers, rows, f"{metric} by length of history.", 120)


def traffic_chart(dossiers: list[Dossier], narrow: bool = False) -> Spec | None:
    """Bytes a device sends and receives over the whole run; None where nothing is sent."""
    rows = [_bytes(one, way) for one in dossiers for way in ("up", "down")]
    drawn = [row for row in rows if row["bytes"]]
    if not drawn:
        return None
    nothing = [
        {**row, "says": "raw data" if row["pooled"] else "nothing"}
        for row in rows
        if row["way"] == "up" and not row["bytes"]
    ]
    low, high = min(row["bytes"] for row in drawn) / 3, max(row["bytes"] for row in drawn) * 3
    tens = [10.0**power for power in range(12) if low <= 10.0**power <= high]
    axis = {"title": None, "values": tens, "labelExpr": _UNITS, "domain": False}
    x = quantity("bytes", scale={"type": "log", "domain": [low, high], "nice": False}, axis=axis)
    y, names = _names([one["name"] for one in dossiers], narrow)
    up, down = ({"transform": [{"filter": f"datum.way == '{way}'"}]} for way in ("up", "down"))
    shown = tooltips(("name", "plan"), ("way", "way"), ("shown", "bytes"))
    layers = [
        {**down, **point_marks(x, y, shown, shape="triangle-down", size=60, yOffset=6)},
        {**up, **point_marks(x, y, shown, shape="triangle-up", yOffset=-4)},
        {**up, **text_marks("shown", x, y, align="left", dx=11, dy=-4, color=QUIET)},
        {"data": {"values": nothing}, **text_marks("says", {"value": 4}, y, align="left", color=QUIET)},
        *names,
    ]
    return layered_chart(layers, drawn, "Bytes a device sends and receives over the run.", _height(dossiers, narrow))


_UNITS = (
    "datum.value >= 1e9 ? format(datum.value/1e9, '~g') + ' GB' : datum.value >= 1e6 ? format(datum.value/1e6, '~g')"
    " + ' MB' : datum.value >= 1e3 ? format(datum.value/1e3, '~g') + ' kB' : format(datum.value, '~g') + ' B'"
)


def _bytes(dossier: Dossier, way: str) -> Spec:
    size = dossier[f"bytes_{way}_per_device"]
    hollow = {"fill": "transparent", "stroke": QUIET} if way == "down" else {}
    shown = "raw data" if dossier["pooled"] else bytes_text(size)
    words = {"name": dossier["name"], "way": way, "shown": shown, "pooled": dossier["pooled"]}
    return {**words, "bytes": size, **point_style(dossier), **hollow}


def row_sizes_chart(view: dict[str, Any]) -> Spec:
    """The rows of a message with the largest values, the history's own in colour."""
    named = [{**row, "place": i + 1, "whose": _whose(row)} for i, row in enumerate(view["rows"])]
    rows = [{**row, "fill": ACCENT if row.get("own") else QUIET} for row in named]
    x = {"field": "place", "type": "ordinal", "axis": None, "scale": {"paddingInner": 0.25, "paddingOuter": 0}}
    y = quantity("along", axis={**_plain(), "tickCount": 3})
    encoding = {
        "x": x,
        "y": y,
        "fill": row_colour("fill"),
        "opacity": {"condition": {"test": "datum.own", "value": 1}, "value": 0.45},
        "tooltip": tooltips(("label", "row"), ("along", "stands out by"), ("whose", "truth")),
    }
    layers: list[Spec] = [{"mark": {"type": "bar"}, "encoding": encoding}]
    return layered_chart(layers, rows, "The rows of the message with the largest values.", 110)


def _whose(row: dict[str, Any]) -> str:
    return "in the history" if row.get("own") else "not in the history"


def _evaluated(dossier: Dossier, metric: str) -> list[tuple[int, float]]:
    """(rounds done, value) of each evaluation, the last one included."""
    found = {row["done"]: row["metrics"][metric] for row in dossier["rounds"] if metric in row.get("metrics", {})}
    if dossier["round_count"]:
        found.setdefault(dossier["round_count"], dossier["metrics"][metric])
    return sorted(found.items())


def _public_values(dossier: Dossier, number: str) -> list[tuple[int, float]]:
    return [
        (row["done"], row["public_state"][number]) for row in dossier["rounds"] if number in row.get("public_state", {})
    ]


def _names(order: list[str], narrow: bool) -> tuple[Spec, list[Spec]]:
    """The names of plans, one below the other: as an axis, or on narrow screens as text above each row."""
    axis = {"title": None, "ticks": False, "domain": False, "labelColor": INK, "labelLimit": 240, "labelPadding": 10}
    y = {"field": "name", "type": "nominal", "sort": order, "axis": None if narrow else axis}
    above = {
        "data": {"values": [{"name": name} for name in order]},
        **text_marks("name", {"value": 0}, y, align="left", dy=-16),
    }
    return y, [above] if narrow else []


def _height(rows: list, narrow: bool) -> int:
    return len(rows) * (ROW + 14 if narrow else ROW)


def _plain() -> Spec:
    return {"title": None, "domain": False, "ticks": False, "tickCount": 5, "gridOpacity": 0.7}


def colour_legend(dossiers: list[Dossier]) -> list[tuple[str, str]]:
    """What the colours mean, as far as they are used: (privacy level, words)."""
    words = {"home": "nothing leaves the device", "kept": "a finite ε", "open": "no guarantee: ε = ∞"}
    used = {privacy_level(one) for one in dossiers}
    return [(one, says) for one, says in words.items() if one in used]
