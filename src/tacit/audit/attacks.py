"""Reconstruction attacks: from what devices sent in pairwise learning, round by round, to the items they have.

Every attack gathers evidence for every device and item, and guesses. `load_attack` has them by name; the scores at the end
compare guesses with the truth, which only the lab has.
"""

from abc import ABC, abstractmethod
from typing import Any, ClassVar, NamedTuple

import numpy as np

from tacit.errors import PlanError, unknown

TOLERANCE = 1e-4  # of a score: what rounding can explain
_BLOCK = 1 << 23  # scores held at a time


class PublicFacts(NamedTuple):
    """What is public about pairwise learning: the size of the catalogue, the local step, the penalties."""

    n_items: int
    rate: float = 0.05
    person: float = 0.0  # λ of the person's vector
    rival: float = 0.0  # λ of the rival's vector
    bias: float = 0.0  # λ of a bias
    person_first: bool = False  # whether items' moves are taken after the person's own step


class ObservedRound(NamedTuple):
    """One round of some devices as an eavesdropper sees it: the broadcast, and the rows that each device changed."""

    items: np.ndarray  # float[N, d], broadcast
    bias: np.ndarray  # float[N], broadcast
    rows: np.ndarray  # int[M, r], which; N is padding
    item_moves: np.ndarray  # float[M, r, d]
    bias_moves: np.ndarray  # float[M, r]

    @classmethod
    def read(cls, params: dict[str, Any], tables: list[dict[str, Any]]) -> "ObservedRound":
        """From unpacked messages, whose tables are dense: every row that is not zero counts.

        >>> tables = [{"items": np.array([[0.0], [2.0]]), "bias": np.array([0.0, 1.0])}]
        >>> ObservedRound.read({"items": np.zeros((2, 1)), "bias": np.zeros(2)}, tables).rows.tolist()
        [[1]]
        """
        n = len(params["bias"])
        moved = [np.flatnonzero((one["items"] != 0).any(1) | (one["bias"] != 0)) for one in tables]
        width = max(1, *(rows.size for rows in moved))
        index = np.stack([np.pad(rows, (0, width - rows.size), constant_values=n) for rows in moved])
        padded = [{name: np.concatenate([one[name], np.zeros_like(one[name][:1])]) for name in one} for one in tables]
        values = {name: np.stack([one[name][at] for one, at in zip(padded, index)]) for name in ("items", "bias")}
        return cls(np.asarray(params["items"]), np.asarray(params["bias"]), index, values["items"], values["bias"])


class Attack(ABC):
    """Evidence for every device and item; above 0 is a guess that the device has the item."""

    name: ClassVar[str]
    about: ClassVar[str]

    def __init__(self, known: PublicFacts, devices: int):
        self.known = known
        self.evidence = np.zeros((devices, known.n_items + 1), np.float32)  # the last column is padding's

    @abstractmethod
    def read(self, seen: ObservedRound) -> None:
        """Take one more round into account."""

    def guess(self, sizes: np.ndarray | None = None) -> np.ndarray:
        """What each device is taken to have, bool[M, N]; with `sizes`, as many as that, by most evidence."""
        evidence = self.evidence[:, :-1]
        return evidence > 0 if sizes is None else most_likely(evidence, sizes)

    def add(self, rows: np.ndarray, index: np.ndarray, amount: np.ndarray | float) -> None:
        """Add evidence for pairs of device and item."""
        np.add.at(self.evidence, (rows, index), amount)


def most_likely(evidence: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """The `sizes[u]` items of most evidence of each row, bool[M, N].

    Ties are broken at random, the same way each time: by the order of items, they might reveal something.

    >>> most_likely(np.array([[0.1, 0.9, 0.5]]), np.array([2])).tolist()
    [[False, True, True]]
    """
    shuffled = np.random.default_rng(0).permutation(evidence.shape[1])
    order = shuffled[np.argsort(-evidence[:, shuffled], axis=1, kind="stable")]
    chosen = np.arange(evidence.shape[1]) < np.asarray(sizes)[:, None]
    guess = np.zeros(evidence.shape, bool)
    np.put_along_axis(guess, order, chosen, axis=1)
    return guess


class Sign(Attack):
    """Δb_i = +g > 0 and Δb_j = −g < 0: a device that moves the row of an item it has reveals that it has it."""

    name: ClassVar[str] = "sign"
    about: ClassVar[str] = "an item whose bias moved up was had"

    def read(self, seen: ObservedRound) -> None:
        """Moves add up: what chance did to one message, others undo."""
        rows = np.broadcast_to(np.arange(seen.rows.shape[0])[:, None], seen.rows.shape)
        self.add(rows, seen.rows, seen.bias_moves)


class Inversion(Attack):
    """From (Δq_j, Δb_j), with everything else public:

    g = −(Δb_j + λ_b b_j), p = −(Δq_j + λ_j q_j)/g, and the score of the hidden item is ln((1 − g)/g) + b_j + p·q_j; the
    item whose score that is, is it. Where the person stepped first, p is their vector after the step, and the one
    before it is found for each item that might be hidden: p − αg(q_i − q_j) over 1 − αλ.
    """

    name: ClassVar[str] = "inversion"
    about: ClassVar[str] = "the item that explains the move of the rival was had"

    def __init__(self, known: PublicFacts, devices: int):
        super().__init__(known, devices)
        self.person: dict[int, np.ndarray] = {}  # the newest vector found of each device

    def read(self, seen: ObservedRound) -> None:
        """One vote for the item that explains each rival's move, if one does."""
        row, place = np.nonzero((seen.bias_moves < 0) & (seen.rows < self.known.n_items))
        size = max(1, _BLOCK // self.known.n_items)
        for start in range(0, row.size, size):
            self._read_some(seen, row[start : start + size], place[start : start + size])

    def _read_some(self, seen: ObservedRound, row: np.ndarray, place: np.ndarray) -> None:
        Q, b, j = seen.items.astype(float), seen.bias.astype(float), seen.rows[row, place]
        g = -(seen.bias_moves[row, place].astype(float) + self.known.bias * b[j])
        found = (g > 0) & (g < 1)
        row, j, g = row[found], j[found], g[found]
        p = -(seen.item_moves[row, place[found]].astype(float) + self.known.rival * Q[j]) / g[:, None]
        self.person.update(zip(row.tolist(), p))
        off = np.abs(self._ahead(Q, b, p, j, g) - np.log((1 - g) / g)[:, None])
        off[np.arange(j.size), j] = np.inf
        i = off.argmin(1)
        sure = off[np.arange(j.size), i] < TOLERANCE
        self.add(row[sure], i[sure], 1.0)

    def _ahead(self, Q: np.ndarray, b: np.ndarray, p: np.ndarray, j: np.ndarray, g: np.ndarray) -> np.ndarray:
        """x_ui − x_uj for every item i that might be hidden, float[K, N]."""
        biases, along = b - b[j][:, None], p @ Q.T - (p * Q[j]).sum(1, keepdims=True)
        if not self.known.person_first:
            return biases + along
        apart = (Q**2).sum(1) - 2 * Q[j] @ Q.T + (Q[j] ** 2).sum(1)[:, None]  # |q_i − q_j|²
        step = self.known.rate
        return biases + (along - step * g[:, None] * apart) / (1 - step * self.known.person)


class Complement(Attack):
    """Rivals are drawn from what a person does not have, so after many rounds the rest is what they have."""

    name: ClassVar[str] = "complement"
    about: ClassVar[str] = "what was never shown as not had, was had"

    def read(self, seen: ObservedRound) -> None:
        """Count how often each item was the rival."""
        row, place = np.nonzero(seen.bias_moves < 0)
        self.add(row, seen.rows[row, place], -1.0)

    def guess(self, sizes: np.ndarray | None = None) -> np.ndarray:
        """Everything never seen as a rival; with `sizes`, what was seen so least."""
        return self.evidence[:, :-1] >= 0 if sizes is None else super().guess(sizes)


ATTACKS: dict[str, type[Attack]] = {attack.name: attack for attack in (Sign, Inversion, Complement)}


def load_attack(name: str) -> type[Attack]:
    """An attack by name.

    >>> load_attack("sign").about
    'an item whose bias moved up was had'
    """
    if name not in ATTACKS:
        raise PlanError(unknown("Tacit", name, ATTACKS, "attack"))
    return ATTACKS[name]


# ---- how much of a history was guessed ----


class Reconstruction(NamedTuple):
    """Means over devices: the share of the guess that is right, the share of the history that was guessed, and F1."""

    precision: float
    recall: float
    f1: float


def score_reconstruction(guess: np.ndarray, truth: np.ndarray) -> Reconstruction:
    """Of guesses bool[M, N] against histories bool[M, N]; who guesses nothing is right in nothing.

    >>> score_reconstruction(np.array([[True, True, False, False]]), np.array([[True, False, False, False]]))
    Reconstruction(precision=0.5, recall=1.0, f1=0.6666666666666666)
    """
    right = (guess & truth).sum(1)
    precision, recall = right / np.maximum(guess.sum(1), 1), right / np.maximum(truth.sum(1), 1)
    f1 = 2 * right / np.maximum(guess.sum(1) + truth.sum(1), 1)
    return Reconstruction(float(precision.mean()), float(recall.mean()), float(f1.mean()))


def by_chance(truth: np.ndarray) -> Reconstruction:
    """What is expected of as many items as the history has, drawn blindly: n/N of them are right."""
    share = float((truth.sum(1) / truth.shape[1]).mean())
    return Reconstruction(share, share, share)


def by_popularity(truth: np.ndarray, counts: np.ndarray) -> Reconstruction:
    """What the most popular items get right, as many as the history has."""
    return score_reconstruction(most_likely(np.broadcast_to(counts, truth.shape), truth.sum(1)), truth)


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
