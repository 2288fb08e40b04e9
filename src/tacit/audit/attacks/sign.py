"""sign: a bias moves up for an item that was had, and down for one that was not."""

from typing import ClassVar

import numpy as np

from tacit.audit.attacks.base import Attack, Seen


class Sign(Attack):
    """Δb_i = +g > 0 and Δb_j = −g < 0: whoever shows the move of an item that they have says that they have it."""

    name: ClassVar[str] = "sign"
    about: ClassVar[str] = "an item whose bias moved up was had"

    def read(self, seen: Seen) -> None:
        """Moves add up: what chance did to one message, others undo."""
        rows = np.broadcast_to(np.arange(seen.rows.shape[0])[:, None], seen.rows.shape)
        self.add(rows, seen.rows, seen.bias_moves)
