"""Interactions: did this person have this item? Asked of what was heard from them, and learned on people who told.

For every item a few numbers are read off what was heard, whatever the method: how large its row is, and of which sign,
beside the person's other rows. A forest that has seen some people's truth says what they mean.
"""

from typing import NamedTuple

import numpy as np

from tacit.audit.evidence import auc, tpr_at
from tacit.audit.membership import load_forest

TREES, LEAST = 100, 5  # of the forest: trees, and pairs in a leaf


class Guess(NamedTuple):
    """How well pairs of a person and an item were told apart, as many had as not."""

    accuracy: np.ndarray  # float[M], each person's share of right guesses
    auc: float
    tpr: float  # at 1 % false alarms


def read(heard: dict[str, np.ndarray], n_items: int) -> np.ndarray:
    """float[M, N, F] from leaves [M, ...]: of each table with a row for every item, size and sum, alone and compared.

    >>> read({"x": np.array([[0.0, 3.0]]), "other": np.zeros((1, 7))}, 2)[0].tolist()
    [[0.0, 0.0, 0.0], [3.0, 3.0, 2.0]]
    """
    columns = []
    for leaf in heard.values():
        if leaf.ndim > 1 and leaf.shape[1] == n_items:
            rows = leaf.reshape(*leaf.shape[:2], -1)
            size = np.sqrt((rows**2).sum(2))
            beside = size / np.maximum(size.mean(1, keepdims=True), 1e-30)
            columns += [size, rows.sum(2), beside]
    devices = len(next(iter(heard.values())))
    return np.stack(columns, axis=2) if columns else np.zeros((devices, n_items, 0))


def with_popularity(evidence: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """The same with how many of the people who told have each item, which the attacker knows anyway."""
    known = np.broadcast_to(counts[None, :, None], (*evidence.shape[:2], 1))
    return np.concatenate([evidence, known], axis=2)


def pairs(had: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Person, item and truth of every item had, and of as many of the person's others, drawn blindly.

    >>> person, item, truth = pairs(np.array([[True, False, False]]), 0)
    >>> truth.tolist(), item.tolist()[0]
    ([True, False], 0)
    """
    rng = np.random.default_rng(seed)
    order = np.where(had, 2.0, rng.random(had.shape)).argsort(1).argsort(1)  # those not had come first, shuffled
    most = had.shape[1] - had.sum(1)
    drawn = ~had & (order < np.minimum(had.sum(1), most)[:, None])
    (one, item), (other, lacking) = np.nonzero(had), np.nonzero(drawn)
    truth = np.repeat([True, False], [one.size, other.size])
    return np.concatenate([one, other]), np.concatenate([item, lacking]), truth


def guess(evidence: np.ndarray, had: np.ndarray, told: np.ndarray, seed: int = 0) -> Guess:
    """Learn on the people who told, bool[M], and ask about the others."""
    person, item, truth = pairs(had, seed)
    x, known = evidence[person, item], told[person]
    forest = load_forest()(n_estimators=TREES, min_samples_leaf=LEAST, random_state=seed)
    scores = forest.fit(x[known], truth[known]).predict_proba(x[~known])[:, 1] - 0.5
    asked, truth = person[~known], truth[~known]
    right = np.bincount(asked, (scores > 0) == truth, had.shape[0]) / np.maximum(
        np.bincount(asked, minlength=had.shape[0]), 1
    )
    return Guess(right[np.unique(asked)], auc(scores, truth), tpr_at(scores, truth))
