"""mean_step: a step along the mean update, as in REPTILE and federated averaging."""

from typing import Any, Literal

import jax
import jax.numpy as jnp

from tacit.core.settings import setting
from tacit.server.rule import Estimate, Rule, scaled


class MeanStep(Rule):
    """params + rate · mean(update): REPTILE's step; with rate 1 and updates as differences, federated averaging.

    With `momentum` β the mean is replaced by the decaying sum of all means so far, Σ β^age · mean.
    """

    rate: float = setting(1.0, above=0.0)
    scale: Literal["mean", "sum"] = setting("mean")
    momentum: float | None = setting(None, above=0.0, at_most=0.999)

    @property
    def moves_rows(self) -> bool:
        """Without momentum, which moves rows that were not sent."""
        return self.momentum is None

    def init(self, params: dict) -> Any:
        """No state; with momentum, the decaying sum of earlier rounds."""
        return () if self.momentum is None else jax.tree.map(jnp.zeros_like, params)

    def finish(self, params: dict, estimate: Estimate, n: jax.Array, state: Any) -> tuple[dict, Any]:
        """θ ← θ + α · mean(Δ), or with momentum m ← β·m + mean(Δ), θ ← θ + α · m."""
        del n
        delta = scaled(estimate, self.scale)
        if self.momentum is not None:
            delta = state = jax.tree.map(lambda m, d: self.momentum * m + d, state, delta)
        return jax.tree.map(lambda p, d: p + self.rate * d, params, delta), state
