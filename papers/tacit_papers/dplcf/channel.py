"""DPLCF in the lab: what flips do to counts, and what the paper printed of it."""

import numpy as np

from tacit.errors import PlanError


def channel(p: float, q: float) -> np.ndarray:
    """A: expected counts of what two items' answers say, from true counts; order (00, 01, 10, 11), rows are said.

    Eq. 6 of the paper, whose first column is misprinted in two rows. Columns add up to 1.

    >>> channel(0.75, 0.25).sum(0).tolist()
    [1.0, 1.0, 1.0, 1.0]
    """
    one = np.array([[1 - q, 1 - p], [q, p]])
    return np.kron(one, one)


def inverse(p: float, q: float) -> np.ndarray:
    """A⁻¹ for any p ≠ q, in closed form: B⁻¹ ⊗ B⁻¹ with B⁻¹ = [[p, p − 1], [−q, 1 − q]] / (p − q)."""
    if p == q:
        raise PlanError(f"p and q must differ, got {p} twice: answers that do not depend on the truth tell nothing.")
    one = np.array([[p, p - 1], [-q, 1 - q]]) / (p - q)
    return np.kron(one, one)


def printed_inverse(q: float) -> np.ndarray:
    """Eq. 11 of the paper as printed, for p = 1. Wrong in four places; kept to show what it would have made of counts."""
    r = 1 - q
    rows = [[1 / r, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [-(q**2) / r, 0, -q, r]]
    return np.array(rows) / r
