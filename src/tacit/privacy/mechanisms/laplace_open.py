"""laplace_open: Laplace noise on an update that has no bound, its weight in the clear. For showing what that is worth."""

import math
from typing import Any, ClassVar, Literal

from tacit.core.settings import setting
from tacit.errors import PlanError
from tacit.privacy.mechanisms.laplace import Laplace


class LaplaceOpen(Laplace):
    """Add Laplace noise of a given `scale` to every number of an update, and send the weight beside it.

    Guarantee:
        None: ε = ∞ at any scale. Two updates may differ by any amount, and the weight has no noise at all.

    Paper: Li, Lin, Xiahou, Lin, Wu and Liu, "Federated low-rank tensor projections for sequential recommendation"
    (KBS 2022), Eq. 5, as printed.
    """

    clip: Literal["none"] = setting("none")
    place: Literal["local"] | None = setting(None)
    shows_weight: ClassVar[bool] = True
    suggested: ClassVar[tuple[dict[str, Any], ...]] = ({"scale": 0.5},)

    def check_settings(self) -> None:
        """A scale is all there is to say."""
        if self.epsilon is not None or self.epsilon_per_message is not None:
            raise PlanError("privacy.epsilon is a promise that laplace_open cannot keep; give scale, or use 'laplace'.")
        if self.scale is None:
            raise PlanError("privacy.scale is missing; laplace_open must be told how loud its noise is.")

    @property
    def fidelity(self) -> Literal["paper", "corrected"]:
        """As printed."""
        return "paper"

    @property
    def share(self) -> float:
        """ε of one message."""
        return math.inf

    def visible(self) -> tuple[str, ...]:
        """The weight too."""
        return (*super().visible(), "the weight of every report is visible")
