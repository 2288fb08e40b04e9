"""The ε axis: powers of ten, and a column of its own on each side, for 0 and for ∞."""

import math
from typing import NamedTuple

from tacit.report.formatting import Dossier, number


class Axis(NamedTuple):
    """The ε axis in powers of ten, and a column on each side."""

    low: float
    high: float
    column: float

    def place(self, epsilon: float) -> float:
        """Where an ε stands; 0 and ∞ stand in their columns."""
        if epsilon == 0:
            return self.low - 0.75 * self.column
        return self.high + 0.3 * self.column if math.isinf(epsilon) else math.log10(epsilon)

    @property
    def domain(self) -> list[float]:
        """The whole width."""
        return [self.low - self.column, self.high + self.column]

    @property
    def ticks(self) -> list[float]:
        """0, then 1, 3, 10, 30 and so on, then ∞."""
        powers = range(math.floor(self.low) - 1, math.ceil(self.high) + 1)
        steps = [power + step for power in powers for step in (0.0, math.log10(3))]
        return [self.place(0.0), *(t for t in steps if self.low <= t <= self.high), self.place(math.inf)]

    @property
    def columns(self) -> list[tuple[str, float, float]]:
        """What each part of the axis stands for, from where to where."""
        left, right = self.domain
        ends = [("nothing leaves", left, self.low), ("no promise", self.high, right)]
        return [ends[0], ("a finite promise", self.low, self.high), ends[1]]


def axis_of(dossiers: list[Dossier], column: float) -> Axis:
    """An axis that holds every finite ε; a column is as wide as this share of it."""
    finite = [e for e in (number(one["whole"]["epsilon"]) for one in dossiers) if 0 < e < math.inf]
    low, high = math.log10(min(finite, default=1.0)) - 0.45, math.log10(max(finite, default=1.0)) + 0.45
    if high - low < 2.0:
        low, high = (low + high) / 2 - 1.0, (low + high) / 2 + 1.0
    return Axis(low, high, column * (high - low))
