"""inversion: the move of the rival alone tells the person's vector, and from it the item that was hidden."""

from typing import ClassVar

import numpy as np

from tacit.audit.attacks.base import Attack, Known, Seen

TOLERANCE = 1e-4  # of a score: what rounding can explain
_BLOCK = 1 << 23  # scores held at a time


class Inversion(Attack):
    """From (Δq_j, Δb_j), with everything else public:

    g = −(Δb_j + λ_b b_j), p = −(Δq_j + λ_j q_j)/g, and the score of the hidden item is ln((1 − g)/g) + b_j + p·q_j; the
    item whose score that is, is it. Where the person stepped first, p is their vector after the step, and the one
    before it is found for each item that might be hidden: p − αg(q_i − q_j) over 1 − αλ.
    """

    name: ClassVar[str] = "inversion"
    about: ClassVar[str] = "the item that explains the move of the rival was had"

    def __init__(self, known: Known, devices: int):
        super().__init__(known, devices)
        self.person: dict[int, np.ndarray] = {}  # the newest vector found of each device

    def read(self, seen: Seen) -> None:
        """One vote for the item that explains each rival's move, if one does."""
        row, place = np.nonzero((seen.bias_moves < 0) & (seen.rows < self.known.n_items))
        size = max(1, _BLOCK // self.known.n_items)
        for start in range(0, row.size, size):
            self._read_some(seen, row[start : start + size], place[start : start + size])

    def _read_some(self, seen: Seen, row: np.ndarray, place: np.ndarray) -> None:
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
