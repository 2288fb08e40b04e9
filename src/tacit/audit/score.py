"""Score: how much of a history an attack got right, and what a guess without any message would."""

from typing import NamedTuple

import numpy as np

from tacit.audit.attacks.base import best


class Success(NamedTuple):
    """Means over devices: the share of the guess that is right, the share of the history that was guessed, and F1."""

    precision: float
    recall: float
    f1: float


def success(guess: np.ndarray, truth: np.ndarray) -> Success:
    """Of guesses bool[M, N] against histories bool[M, N]; who guesses nothing is right in nothing.

    >>> success(np.array([[True, True, False, False]]), np.array([[True, False, False, False]]))
    Success(precision=0.5, recall=1.0, f1=0.6666666666666666)
    """
    right = (guess & truth).sum(1)
    precision, recall = right / np.maximum(guess.sum(1), 1), right / np.maximum(truth.sum(1), 1)
    f1 = 2 * right / np.maximum(guess.sum(1) + truth.sum(1), 1)
    return Success(float(precision.mean()), float(recall.mean()), float(f1.mean()))


def by_chance(truth: np.ndarray) -> Success:
    """What is expected of as many items as the history has, drawn blindly: n/N of them are right."""
    share = float((truth.sum(1) / truth.shape[1]).mean())
    return Success(share, share, share)


def by_popularity(truth: np.ndarray, counts: np.ndarray) -> Success:
    """What the most popular items get right, as many as the history has."""
    return success(best(np.broadcast_to(counts, truth.shape), truth.sum(1)), truth)


def expected_recall(history: float, rounds: float, shown: float = 1.0) -> float:
    """The share of a history of so many items that was drawn at least once, each triple counting with chance `shown`.

    >>> round(expected_recall(20, 60), 7), round(expected_recall(34.34, 1717, 0.1), 7)
    (0.9539302, 0.993311)
    """
    return 1 - (1 - shown / history) ** rounds


def expected_precision_of_complement(items: float, history: float, rounds: float) -> float:
    """n over n and the items not had that were never drawn as a rival.

    >>> round(expected_precision_of_complement(1682, 60, 5000), 3)
    0.447
    """
    others = items - history
    return history / (history + others * (1 - 1 / others) ** rounds)
