"""Chart parts: colours, marks and label placement that all charts share.

A chart is a Vega-Lite specification as a plain dict. Colours are names of the page's own CSS variables, so light, dark
and print need no second drawing. One colour means one thing everywhere: the privacy level of a plan.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

from tacit.report.formatting import Dossier, privacy_level

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


def point_style(dossier: Dossier) -> dict[str, str]:
    """Fill and stroke of a plan's points: black where nothing is sent, coloured with a finite ε, hollow with ε = ∞."""
    fill, stroke = _LOOKS[privacy_level(dossier)]
    return {"fill": fill, "stroke": stroke, "line": QUIET if privacy_level(dossier) == "open" else stroke}


def row_colour(field: str) -> Spec:
    """A colour given by a field of each row."""
    return {"field": field, "type": "nominal", "scale": None, "legend": None}


def quantity(field: str, **more: Any) -> Spec:
    """A quantitative channel."""
    return {"field": field, "type": "quantitative", **more}


def layered_chart(layers: list[Spec], rows: list[Spec], words: str, height: int, **more: Any) -> Spec:
    """A chart as wide as its container."""
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


def point_marks(x: Spec, y: Spec, tooltip: list[Spec] | None = None, **mark: Any) -> Spec:
    """One point a row, in the row's own colours."""
    return {
        "mark": {"type": "point", "size": 80, "strokeWidth": 1.75, "opacity": 1, "filled": False, **mark},
        "encoding": {
            "x": x,
            "y": y,
            "fill": row_colour("fill"),
            "stroke": row_colour("stroke"),
            **({"tooltip": tooltip} if tooltip else {}),
        },
    }


def interval_marks(x: Spec, y: Spec, **more: Spec) -> Spec:
    """An interval, one a row."""
    return {
        "mark": {"type": "rule", "strokeWidth": 1.75, "opacity": 0.55},
        "encoding": {"x": x, "y": y, "stroke": row_colour("line"), **more},
    }


def text_marks(field: str, x: Spec, y: Spec, **mark: Any) -> Spec:
    """Text beside a mark, at the position that each row gives."""
    return {
        "mark": {"type": "text", "baseline": "middle", "fontSize": 12, "color": INK, **mark},
        "encoding": {"x": x, "y": y, "text": {"field": field, "type": "nominal"}},
    }


def tooltips(*fields: tuple[str, str]) -> list[Spec]:
    """The tooltip of a mark."""
    return [{"field": field, "title": title, "type": "nominal"} for field, title in fields]


# ---- placement of labels ----


Box = tuple[float, float, float, float]
LETTER, LINE_HEIGHT, AWAY = 0.54, 1.25, 9.0  # of a font of one pixel, on the wide side; pixels from the point


class Label(NamedTuple):
    """The offset of a text from its point, and the text's alignment."""

    dx: float
    dy: float
    align: str


def place_labels(
    words: list[list[str]], at: list[tuple[float, float]], obstacles: Iterable[Box], frame: Box, font: float = 12
) -> list[Label]:
    """A label for every point, placed greedily where it overlaps least; `words` are its lines.

    Boxes are (left, top, right, bottom) in pixels.

    >>> place_labels([["one"], ["two"]], [(50, 50), (52, 50)], [], (0, 0, 100, 100))[1].align
    'right'
    """
    taken = [*obstacles]
    found = []
    for lines, point in zip(words, at):
        width, height = font * LETTER * max(map(len, lines)), font * LINE_HEIGHT * len(lines)
        ways = [(label, _box(label, point, width, height)) for label in _ways(height)]
        label, box = min(ways, key=lambda way: _cost(way[1], taken, frame) + abs(way[0].dy))
        taken.append(box)
        found.append(label)
    return found


def _ways(height: float) -> list[Label]:
    """Candidate positions: right, left, above, below, the corners, and farther off; dy is that of the text's middle."""
    far = AWAY + height / 2
    ways = [Label(AWAY, 0, "left"), Label(-AWAY, 0, "right")]
    ways += [Label(0, way * (far + more), "center") for more in (0, 13, 26) for way in (-1, 1)]
    corners = [
        Label(side * AWAY, way * far * 0.75, end) for way in (1, -1) for side, end in ((1, "left"), (-1, "right"))
    ]
    return ways + corners


def _box(label: Label, point: tuple[float, float], width: float, height: float) -> Box:
    x, y = point[0] + label.dx, point[1] + label.dy
    left = {"left": x, "right": x - width, "center": x - width / 2}[label.align]
    return left, y - height / 2, left + width, y + height / 2


def _cost(box: Box, taken: list[Box], frame: Box) -> float:
    """Overlapped area, and a large penalty for the area outside the frame."""
    area = (box[2] - box[0]) * (box[3] - box[1])
    return sum(_overlap(box, other) for other in taken) + 20 * (area - _overlap(box, frame))


def _overlap(one: Box, other: Box) -> float:
    width = min(one[2], other[2]) - max(one[0], other[0])
    height = min(one[3], other[3]) - max(one[1], other[1])
    return max(0.0, width) * max(0.0, height)


def spread_apart(places: list[float], gap: float) -> list[float]:
    """Positions moved apart, as little as possible and in order, until neighbours are at least a gap from each other.

    >>> spread_apart([0.0, 0.1, 5.0], 1.0)
    [-0.45, 0.55, 5.0]
    """
    order = sorted(range(len(places)), key=places.__getitem__)
    blocks: list[list[int]] = []
    for i in order:
        blocks.append([i])
        while len(blocks) > 1 and _start(blocks[-1], places, gap) < _end(blocks[-2], places, gap) + gap - 1e-12:
            last = blocks.pop()
            blocks[-1] += last
    moved = list(places)
    for block in blocks:
        for step, i in enumerate(block):
            moved[i] = round(_start(block, places, gap) + step * gap, 12)
    return moved


def _start(block: list[int], places: list[float], gap: float) -> float:
    middle = sum(places[i] for i in block) / len(block)
    return middle - gap * (len(block) - 1) / 2


def _end(block: list[int], places: list[float], gap: float) -> float:
    return _start(block, places, gap) + gap * (len(block) - 1)
