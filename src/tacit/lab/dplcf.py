"""DPLCF in the lab: what flips do to counts, what the paper printed of it, and what repeated reports give away."""

import numpy as np

from tacit.errors import PlanError
from tacit.privacy.bits import told_sparsely


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


def false_after(items: int, owned: int, q: float, reports: int) -> float:
    """How many items that a person does not have are left after intersecting so many fresh asymmetric reports.

    With p = 1 every report holds all true items, so what is left beside them shrinks by q each time.

    >>> round(false_after(100, 20, 0.5, 3), 6)
    10.0
    """
    return (items - owned) * q**reports


def intersect(rng: np.random.Generator, owned: np.ndarray, items: int, q: float, reports: int) -> np.ndarray:
    """The items that all of so many fresh asymmetric reports of one person name: the attack itself."""
    left = np.arange(items)
    for _ in range(reports):
        left = np.intersect1d(left, told_sparsely(rng, np.sort(owned), items, (2**32, round(q * 2**32))))
    return left
