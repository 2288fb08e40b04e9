"""Labels: where words stand beside points and cover least. Boxes are (left, top, right, bottom) in pixels."""

from collections.abc import Iterable
from typing import NamedTuple

Box = tuple[float, float, float, float]
LETTER, LINE_HEIGHT, AWAY = 0.54, 1.25, 9.0  # of a font of one pixel, on the wide side; pixels from the point


class Label(NamedTuple):
    """An offset from the point, and which end of the words stands there."""

    dx: float
    dy: float
    align: str


def place(
    words: list[list[str]], at: list[tuple[float, float]], obstacles: Iterable[Box], frame: Box, font: float = 12
) -> list[Label]:
    """A label for every point, one after another, each where it covers least; `words` are its lines.

    >>> place([["one"], ["two"]], [(50, 50), (52, 50)], [], (0, 0, 100, 100))[1].align
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
    """Right, left, above, below, the corners, and farther off; dy is that of the middle of the words."""
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
    """Covered area, and far more for what leaves the frame."""
    area = (box[2] - box[0]) * (box[3] - box[1])
    return sum(_overlap(box, other) for other in taken) + 20 * (area - _overlap(box, frame))


def _overlap(one: Box, other: Box) -> float:
    width = min(one[2], other[2]) - max(one[0], other[0])
    height = min(one[3], other[3]) - max(one[1], other[1])
    return max(0.0, width) * max(0.0, height)
