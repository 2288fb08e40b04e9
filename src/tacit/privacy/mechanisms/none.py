"""none: the update as it is. For measuring what privacy costs, and for public data."""

import math
from typing import Any, ClassVar

import jax

from tacit.privacy.accounting.events import Unbounded
from tacit.privacy.claim import Claim
from tacit.privacy.mechanism import Spread, Wire, messages_setting, wire_setting
from tacit.privacy.mechanisms._parts.summed import Summed
from tacit.privacy.sampler import Exposure


class NoMechanism(Summed):
    """Send the update unchanged; sum what arrives.

    Guarantee:
        None: ε = ∞, in every model, for every unit. Every receiver of a report sees the update.
    """

    messages: int | None = messages_setting()
    wire: Wire = wire_setting()
    shows_weight: ClassVar[bool] = True
    as_sent: ClassVar[bool] = True
    suggested: ClassVar[tuple[dict[str, Any], ...]] = ({}, {"wire": "rows"})

    def encode(self, key: jax.Array, update: dict, public_state: dict) -> Any:
        """The update."""
        del key, public_state
        return update

    def total_type(self, leaf: jax.Array) -> Any:
        """As they came: counts stay whole numbers."""
        return leaf.dtype

    def event(self, exposure: Exposure) -> tuple[Unbounded, int]:
        """No bound: a message reveals everything."""
        del exposure
        return Unbounded("no noise"), 1

    def claim(self, exposure: Exposure) -> tuple[Claim, ...]:
        """ε = ∞."""
        return tuple(
            Claim("local", "user", exposure.relation, math.inf, 0.0, per, "corrected", "server", self.visible())
            for per in ("message", "run")
        )

    def spread(self, numbers: int, reports: float) -> Spread:
        """No noise."""
        del numbers, reports
        return Spread(math.inf, 0.0)

    def visible(self) -> tuple[str, ...]:
        """Everything."""
        seen = ("no noise: every receiver of a report sees the update and its weight",)
        rows = ("positions are visible: the bytes reveal which rows were touched",)
        return seen + rows if self.wire == "rows" else seen
