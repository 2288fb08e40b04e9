"""Attack: what all of them share. They read rounds, gather evidence for every device and item, and guess."""

from abc import ABC, abstractmethod
from typing import Any, ClassVar, NamedTuple

import numpy as np


class Known(NamedTuple):
    """What is public about pairwise learning: the size of the catalogue, the step at home, the penalties."""

    n_items: int
    rate: float = 0.05
    person: float = 0.0  # λ of the person's vector
    rival: float = 0.0  # λ of the rival's vector
    bias: float = 0.0  # λ of a bias
    person_first: bool = False  # whether items' moves are taken after the person's own step


class Seen(NamedTuple):
    """One round of some devices, as a reader of the wire has it: the broadcast, and the rows each of them moved."""

    items: np.ndarray  # float[N, d], broadcast
    bias: np.ndarray  # float[N], broadcast
    rows: np.ndarray  # int[M, r], which; N is padding
    item_moves: np.ndarray  # float[M, r, d]
    bias_moves: np.ndarray  # float[M, r]

    @classmethod
    def read(cls, params: dict[str, Any], tables: list[dict[str, Any]]) -> "Seen":
        """From unpacked messages, whose tables are dense: every row that is not zero counts.

        >>> tables = [{"items": np.array([[0.0], [2.0]]), "bias": np.array([0.0, 1.0])}]
        >>> Seen.read({"items": np.zeros((2, 1)), "bias": np.zeros(2)}, tables).rows.tolist()
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

    def __init__(self, known: Known, devices: int):
        self.known = known
        self.evidence = np.zeros((devices, known.n_items + 1), np.float32)  # the last column is padding's

    @abstractmethod
    def read(self, seen: Seen) -> None:
        """Take one more round into account."""

    def guess(self, sizes: np.ndarray | None = None) -> np.ndarray:
        """What each device is taken to have, bool[M, N]; with `sizes`, as many as that, by most evidence."""
        evidence = self.evidence[:, :-1]
        return evidence > 0 if sizes is None else best(evidence, sizes)

    def add(self, rows: np.ndarray, index: np.ndarray, amount: np.ndarray | float) -> None:
        """Add evidence for pairs of device and item."""
        np.add.at(self.evidence, (rows, index), amount)


def best(evidence: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """The `sizes[u]` items of most evidence of each row, bool[M, N].

    Of equals, any: the numbers of items may say something about them, so chance decides, the same each time.

    >>> best(np.array([[0.1, 0.9, 0.5]]), np.array([2])).tolist()
    [[False, True, True]]
    """
    shuffled = np.random.default_rng(0).permutation(evidence.shape[1])
    order = shuffled[np.argsort(-evidence[:, shuffled], axis=1, kind="stable")]
    chosen = np.arange(evidence.shape[1]) < np.asarray(sizes)[:, None]
    guess = np.zeros(evidence.shape, bool)
    np.put_along_axis(guess, order, chosen, axis=1)
    return guess
