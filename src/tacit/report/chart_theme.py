"""Marks: what all charts share: colours that the page's style decides, points, intervals, and the frame around them.

A chart is a Vega-Lite specification as a plain dict. Colours are names of the page's own CSS variables, so light, dark
and print need no second drawing. One colour means one thing everywhere: how private a plan is.
"""

from typing import Any

from tacit.report.formatting import Dossier, kind

Spec = dict[str, Any]
INK, QUIET, LINE, ACCENT, SOFT, PAPER = (
    f"var(--{name})" for name in ("ink", "quiet", "line", "accent", "soft", "paper")
)
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
_LOOKS = {"home": (INK, INK), "kept": (ACCENT, ACCENT), "open": (PAPER, INK)}

CONFIG: Spec = {
    "font": FONT,
    "background": "transparent",
    "view": {"stroke": None},
    "text": {"color": INK, "fontSize": 12},
    "axis": {
        "labelColor": QUIET,
        "titleColor": QUIET,
        "domainColor": LINE,
        "tickColor": LINE,
        "gridColor": LINE,
        "labelFontSize": 12,
        "titleFontSize": 12,
        "titleFontWeight": "normal",
        "labelPadding": 6,
        "titlePadding": 10,
        "tickSize": 4,
    },
}


def look(dossier: Dossier) -> dict[str, str]:
    """Fill and stroke of a plan's points: black where nothing leaves, coloured where a promise is kept, hollow else."""
    fill, stroke = _LOOKS[kind(dossier)]
    return {"fill": fill, "stroke": stroke, "line": QUIET if kind(dossier) == "open" else stroke}


def own(field: str) -> Spec:
    """A colour that each row brings with it."""
    return {"field": field, "type": "nominal", "scale": None, "legend": None}


def measure(field: str, **more: Any) -> Spec:
    """A quantity."""
    return {"field": field, "type": "quantitative", **more}


def chart(layers: list[Spec], rows: list[Spec], words: str, height: int, **more: Any) -> Spec:
    """A chart as wide as its place on the page."""
    return {
        "description": words,
        "width": "container",
        "height": height,
        "autosize": {"type": "fit-x", "contains": "padding"},
        "padding": {"left": 2, "right": 6, "top": 4, "bottom": 2},
        "data": {"values": rows},
        "layer": layers,
        **more,
    }


def points(x: Spec, y: Spec, tooltip: list[Spec] | None = None, **mark: Any) -> Spec:
    """One point a row, in the row's own colours."""
    return {
        "mark": {"type": "point", "size": 80, "strokeWidth": 1.75, "opacity": 1, "filled": False, **mark},
        "encoding": {
            "x": x,
            "y": y,
            "fill": own("fill"),
            "stroke": own("stroke"),
            **({"tooltip": tooltip} if tooltip else {}),
        },
    }


def rule(x: Spec, y: Spec, **more: Spec) -> Spec:
    """An interval, one a row."""
    return {
        "mark": {"type": "rule", "strokeWidth": 1.75, "opacity": 0.55},
        "encoding": {"x": x, "y": y, "stroke": own("line"), **more},
    }


def text(field: str, x: Spec, y: Spec, **mark: Any) -> Spec:
    """Words beside a mark; where they stand, each row may say itself."""
    return {
        "mark": {"type": "text", "baseline": "middle", "fontSize": 12, "color": INK, **mark},
        "encoding": {"x": x, "y": y, "text": {"field": field, "type": "nominal"}},
    }


def tips(*fields: tuple[str, str]) -> list[Spec]:
    """What is shown where somebody points."""
    return [{"field": field, "title": title, "type": "nominal"} for field, title in fields]
