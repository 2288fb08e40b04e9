"""Strips: for every line of plans, from which ε on its noise is hopeless, weak and workable, as the outlook has it."""

import math

from tacit.report.axis import Axis
from tacit.report.marks import ACCENT, LINE, QUIET, SOFT, Spec, own, text
from tacit.report.values import Dossier, family, number

STRIP, ABOVE = 40, 12  # pixels of one strip, and above the first
_VERDICTS = {"hopeless": (LINE, 0.8), "weak": (SOFT, 1.0), "workable": (ACCENT, 0.4)}


def strips_of(dossiers: list[Dossier], axis: Axis, start: int) -> list[Spec]:
    """For every line of plans: where its noise is hopeless, weak and workable."""
    found = {family(one): one["reach"] for one in dossiers if one["reach"]}
    rows = []
    for place, (name, reach) in enumerate(found.items()):
        top = start + ABOVE + STRIP * place
        edges = [axis.low, *(_inside(axis, number(reach[word])) for word in ("weak", "workable")), axis.high]
        for word, left, right in zip(_VERDICTS, edges, edges[1:]):
            if right > left:
                fill, opacity = _VERDICTS[word]
                wide = (right - left) / (axis.high - axis.low) > 0.2
                first = left == axis.low
                row = {
                    "family": name,
                    "title": name if first else "",
                    "from": left,
                    "to": right,
                    "middle": (left + right) / 2,
                    "start": axis.low,
                }
                at = {"top": top + 17, "bottom": top + 33, "centre": top + 25.5, "above": top + 8}
                rows.append({**row, **at, "says": word if wide else "", "fill": fill, "opacity": opacity})
    return rows


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
