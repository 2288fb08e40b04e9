"""Inference attacks: was this person among a model's training data (membership), and do they have this item (interaction)?

A membership attacker has the released model and its output for a person's features, a list of items; or, knowing the
history itself, the model's loss on it. Both attacks learn from shadow models, trained by the attacker on known people.
"""

from typing import Any, Literal, NamedTuple

import numpy as np
from scipy import stats

from tacit.audit.evidence import auc, tpr_at
from tacit.errors import PlanError, unknown

Encoding = Literal["ids", "multi-hot", "vectors"]
ENCODINGS: tuple[Encoding, ...] = ("ids", "multi-hot", "vectors")
TREES, DRAWS = 50, 5  # trees of a forest; forests, each on as many outsiders as insiders
PAIR_TREES, LEAST = 100, 5  # of the forest for pairs: trees, and pairs in a leaf


class ModelAnswers(NamedTuple):
    """The outputs of a released model for some people."""

    features: np.ndarray  # float[M, F], the people's own
    lists: np.ndarray  # int[M, k], what it recommends to such features, best first
    losses: np.ndarray  # float[M], on their histories
    vectors: np.ndarray  # float[N, d], the model's vectors of items


class Shadow(NamedTuple):
    """One model of the attacker's: who was used to train it, and its outputs for them and for the people in question."""

    used: np.ndarray  # bool[S]
    said: ModelAnswers  # of the S shadow people
    others: np.ndarray  # float[M], its losses on the people in question, none of whom it saw


class MembershipScores(NamedTuple):
    """How well members and non-members were distinguished."""

    accuracy: float
    balanced: float
    auc: float
    tpr: float  # at 1 % false alarms


def score_membership(scores: np.ndarray, members: np.ndarray) -> MembershipScores:
    """Of scores float[M], above 0 for in, against the truth.

    >>> score_membership(np.array([1.0, -1.0, 1.0, -2.0]), np.array([True, True, False, False]))[:2]
    (0.5, 0.5)
    """
    right = (scores > 0) == members
    balanced = (right[members].mean() + right[~members].mean()) / 2
    return MembershipScores(float(right.mean()), float(balanced), auc(scores, members), tpr_at(scores, members))


def encoded(said: ModelAnswers, encoding: Encoding) -> np.ndarray:
    """Features and list side by side, float[M, ·]: the numbers of the items, which items, or their mean vector.

    >>> one = ModelAnswers(np.array([[7.0]]), np.array([[2, 0]]), np.zeros(1), np.eye(3))
    >>> [encoded(one, way).tolist() for way in ENCODINGS]
    [[[7.0, 2.0, 0.0]], [[7.0, 1.0, 0.0, 1.0]], [[7.0, 0.5, 0.0, 0.5]]]
    """
    if encoding not in ENCODINGS:
        raise PlanError(unknown("Membership", encoding, ENCODINGS, "encoding"))
    if encoding == "ids":
        lists = said.lists
    elif encoding == "vectors":
        lists = said.vectors[said.lists].mean(1)
    else:
        lists = np.zeros((said.lists.shape[0], said.vectors.shape[0]))
        np.put_along_axis(lists, said.lists, 1.0, axis=1)
    return np.concatenate([said.features, lists], axis=1).astype(np.float32)


def forest_scores(shadow: Shadow, target: ModelAnswers, encoding: Encoding = "ids", seed: int = 0) -> np.ndarray:
    """By a random forest on (features, list): the share of trees that vote for membership, less a half.

    Four of five shadow people are in, so trees would call everyone a member; each forest is trained on as many of either.
    """
    forest = load_forest()
    x, asked, rng = encoded(shadow.said, encoding), encoded(target, encoding), np.random.default_rng(seed)
    inside, outside = np.flatnonzero(shadow.used), np.flatnonzero(~shadow.used)
    few = min(inside.size, outside.size)
    votes = np.zeros(asked.shape[0])
    for draw in range(DRAWS):
        some = np.concatenate([rng.permutation(part)[:few] for part in (inside, outside)])
        made = forest(n_estimators=TREES, random_state=seed + draw).fit(x[some], shadow.used[some])
        votes += made.predict_proba(asked)[:, 1] / DRAWS
    return votes - 0.5


def loss_scores(shadows: list[Shadow], target: ModelAnswers) -> np.ndarray:
    """ln of the likelihood of in over out, of each person's loss less what models that never saw them lose.

    Both are normal, as fitted to the shadow people. Carlini et al., "Membership inference attacks from first principles"
    (S&P 2022), with shadow people in place of the person in question.
    """
    if len(shadows) < 2:
        raise PlanError(f"loss_scores needs at least 2 shadow models, to compare one with, got {len(shadows)}.")
    used, losses = np.stack([one.used for one in shadows]), np.stack([one.said.losses for one in shadows])
    strangers = np.where(used, np.nan, losses)
    gap = []
    for number in range(len(shadows)):
        others = np.delete(strangers, number, axis=0)
        known = ~np.isnan(others)
        mean = np.where(known, others, 0.0).sum(0) / np.maximum(known.sum(0), 1)
        gap.append(np.where(known.any(0), losses[number] - mean, np.nan))
    gaps = np.stack(gap)
    mine = target.losses - np.mean([one.others for one in shadows], axis=0)
    return _log_density(mine, gaps[used]) - _log_density(mine, gaps[~used])


def _log_density(at: np.ndarray, sample: np.ndarray) -> np.ndarray:
    sample = sample[np.isfinite(sample)]
    return stats.norm.logpdf(at, sample.mean(), max(sample.std(), 1e-9))


def load_forest() -> Any:
    """The random forest of scikit-learn, which comes with the extra `audit`."""
    try:
        from sklearn.ensemble import RandomForestClassifier
    except ModuleNotFoundError:
        words = "Membership by lists needs scikit-learn, which is not installed; pip install 'tacit[audit]'."
        raise PlanError(words) from None
    return RandomForestClassifier


# ---- interactions: did this person have this item? ----


class InteractionScores(NamedTuple):
    """How well pairs of a person and an item were classified, with as many positives as negatives."""

    accuracy: np.ndarray  # float[M], each person's share of right guesses
    auc: float
    tpr: float  # at 1 % false alarms


def row_features(heard: dict[str, np.ndarray], n_items: int) -> np.ndarray:
    """float[M, N, F] from leaves [M, ...]: of each table with a row for every item, size and sum, alone and compared.

    >>> row_features({"x": np.array([[0.0, 3.0]]), "other": np.zeros((1, 7))}, 2)[0].tolist()
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
    """The same with how many of the people whose items are known have each item, which the attacker knows in any case."""
    known = np.broadcast_to(counts[None, :, None], (*evidence.shape[:2], 1))
    return np.concatenate([evidence, known], axis=2)


def balanced_pairs(had: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Person, item and truth of every item had, and of as many of the person's others, drawn blindly.

    >>> person, item, truth = balanced_pairs(np.array([[True, False, False]]), 0)
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


def guess_interactions(evidence: np.ndarray, had: np.ndarray, told: np.ndarray, seed: int = 0) -> InteractionScores:
    """Train on the people known to the attacker, bool[M], and guess for the others."""
    person, item, truth = balanced_pairs(had, seed)
    x, known = evidence[person, item], told[person]
    forest = load_forest()(n_estimators=PAIR_TREES, min_samples_leaf=LEAST, random_state=seed)
    scores = forest.fit(x[known], truth[known]).predict_proba(x[~known])[:, 1] - 0.5
    asked, truth = person[~known], truth[~known]
    right = np.bincount(asked, (scores > 0) == truth, had.shape[0]) / np.maximum(
        np.bincount(asked, minlength=had.shape[0]), 1
    )
    return InteractionScores(right[np.unique(asked)], auc(scores, truth), tpr_at(scores, truth))
