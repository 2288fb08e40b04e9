"""Strips: for every line of plans, from which ε on its noise is hopeless, weak and workable, as the outlook has it."""

import math

from tacit.report.chart_theme import ACCENT, LINE, QUIET, SOFT, Spec, own, text
from tacit.report.epsilon_axis import Axis
from tacit.report.formatting import Dossier, called, epsilon_text, family, number

STRIP, ABOVE = 40, 12  # pixels of one strip, and above the first
_VERDICTS = {"hopeless": (LINE, 0.8), "weak": (SOFT, 1.0), "workable": (ACCENT, 0.4)}


def strips_of(dossiers: list[Dossier], axis: Axis, start: int) -> list[Spec]:
    """For every line of plans, where its noise is hopeless, weak and workable; `start` is where the plot ends."""
    found = {family(one): (_title(one, dossiers), one["reach"]) for one in dossiers if one["reach"]}
    rows = []
    for strip, (name, reach) in enumerate(found.values()):
        top = start + ABOVE + STRIP * strip
        edges = [axis.low, *(_inside(axis, number(reach[word])) for word in ("weak", "workable")), axis.high]
        parts = [part for part in zip(_VERDICTS, edges, edges[1:]) if part[2] > part[1]]
        rows += [{"strip": strip, **_part(axis, *part, name if i == 0 else "", top)} for i, part in enumerate(parts)]
    return rows


def _title(one: Dossier, dossiers: list[Dossier]) -> str:
    """What the line is called; and where its plans estimate counts, the noise floor at its smallest and its largest ε."""
    line = [other for other in dossiers if family(other) == family(one) and other.get("floor")]
    line = sorted(line, key=lambda other: number(other["whole"]["epsilon"]))
    ends = [line[0], line[-1]] if len(line) > 1 else line
    words = " … ".join(
        f"{other['floor']['people']:,.0f} at ε {epsilon_text(other['whole']['epsilon'])}" for other in ends
    )
    return f"{called(one)}; noise floor in people: {words}" if words else called(one)


def _part(axis: Axis, verdict: str, left: float, right: float, title: str, top: int) -> Spec:
    """One verdict of one strip; it is written where there is room."""
    fill, opacity = _VERDICTS[verdict]
    says = verdict if (right - left) / (axis.high - axis.low) > 0.2 else ""
    where = {"from": left, "to": right, "middle": (left + right) / 2, "start": axis.low}
    height = {"top": top + 17, "bottom": top + 33, "centre": top + 25.5, "above": top + 8}
    return {**where, **height, "title": title, "says": says, "fill": fill, "opacity": opacity}


def _inside(axis: Axis, epsilon: float) -> float:
    if epsilon <= 0:
        return axis.low
    return min(max(math.log10(epsilon), axis.low), axis.high) if math.isfinite(epsilon) else axis.high


def verdicts(rows: list[Spec], x: Spec, font: int) -> list[Spec]:
    """The strips, drawn below a plot; x is its ε axis."""

    def pixel(field: str) -> Spec:
        return {"field": field, "type": "quantitative", "scale": None, "axis": None}

    shade = {"field": "opacity", "type": "quantitative", "scale": None, "legend": None}
    where = {"x": {**x, "field": "from"}, "x2": {"field": "to"}, "y": pixel("top"), "y2": {"field": "bottom"}}
    data = {"data": {"values": rows}}
    small = {"fontSize": font}
    name = text("title", {**x, "field": "start"}, pixel("above"), align="left", color=QUIET, **small)
    return [
        {**data, "mark": {"type": "rect"}, "encoding": {**where, "fill": own("fill"), "fillOpacity": shade}},
        {**data, **text("says", {**x, "field": "middle"}, pixel("centre"), **small)},
        {**data, **name},
    ]
