"""complement: an item shown as not had is not had; what is never shown so, may be."""

from typing import ClassVar

import numpy as np

from tacit.audit.attacks.base import Attack, Seen


class Complement(Attack):
    """Rivals are drawn from what a person does not have, so after many rounds the rest is what they have."""

    name: ClassVar[str] = "complement"
    about: ClassVar[str] = "what was never shown as not had, was had"

    def read(self, seen: Seen) -> None:
        """Count how often each item was the rival."""
        row, place = np.nonzero(seen.bias_moves < 0)
        self.add(row, seen.rows[row, place], -1.0)

    def guess(self, sizes: np.ndarray | None = None) -> np.ndarray:
        """Everything never seen as a rival; with `sizes`, what was seen so least."""
        return self.evidence[:, :-1] >= 0 if sizes is None else super().guess(sizes)
