"""Findings of Wang et al. 2021: whether each holds in our measurements, as one sentence."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from tacit_papers.tables import finding

Points = Sequence[tuple[float, float]]


def order(name: str, means: Mapping[str, float], metric: str) -> str:
    """Each is above the next."""
    broken = [
        f"{low} ({b:.4f}) is not below {high} ({a:.4f})" for (high, a), (low, b) in pairwise(means.items()) if a <= b
    ]
    words = " > ".join(f"{row} {value:.4f}" for row, value in means.items())
    return finding(name, not broken, f"{metric}: " + ("; ".join(broken) if broken else words))


def plateau(name: str, x: str, curve: Mapping[int, float]) -> str:
    """Quality rises, and the second half of the way adds less than the first."""
    values = list(curve.values())
    middle = values[len(values) // 2]
    held = values[-1] > values[0] and values[-1] - middle < middle - values[0]
    return finding(f"{name} in {x}", held, f"from {values[0]:.4f} over {middle:.4f} to {values[-1]:.4f}")


def rises(name: str, row: str, points: Points) -> str:
    """Quality rises with ε, by a tenth or more: less is what another draw of the noise may change."""
    values = [y for _, y in points]
    words = f"{row} goes from {values[0]:.4f} at ε = {points[0][0]:g} to {values[-1]:.4f} at ε = {points[-1][0]:g}"
    return finding(f"{name}, rising with ε", values[-1] > 1.1 * values[0], words)


def reached(name: str, row: str, points: Points, without: float) -> str:
    """Below what there is without noise."""
    best = max(y for _, y in points)
    return finding(
        f"{name}, PrivRec as the bound", best < without, f"the best of {row} is {best:.4f}, without noise {without:.4f}"
    )


def faster(name: str, ours: Points, theirs: Points) -> str:
    """First order takes less time than second, at every number of people."""
    gains = [1 - a / b for (_, a), (_, b) in zip(ours, theirs)]
    words = f"first order takes {min(gains):.0%} to {max(gains):.0%} less time than second"
    return finding(f"{name}, by 10 % or more", min(gains) > 0.0999, words)


def falls(name: str, cells: Sequence[Mapping[str, Any]]) -> list[str]:
    """ε falls with the share of people selected and with a larger δ; the reproduced cells are the printed ones."""

    def ordered(by: str, fixed: str, sign: int) -> bool:
        groups: dict[Any, list] = {}
        for cell in sorted(cells, key=lambda cell: sign * cell[by]):
            groups.setdefault(cell[fixed], []).append(cell["upper"])
        return all(a < b for values in groups.values() for a, b in pairwise(values))

    off = max(abs(cell["printed"] - cell["reproduced"]) for cell in cells)
    factor = [cell["factor"] for cell in cells]
    return [
        finding(f"{name}, smaller cohorts", ordered("cohort", "delta", 1), "ε falls with the share of people selected"),
        finding(f"{name}, larger δ", ordered("delta", "cohort", -1), "ε falls with a larger δ"),
        finding(f"{name}, reproduced", off < 2e-4, f"the largest difference to the printed cells is {off:.1e}"),
        f"The printed ε is {min(factor):.1f} to {max(factor):.1f} times what 1000 rounds cost at most.",
    ]
