"""weighted_mean: federated averaging of whole parameter vectors."""

from typing import Any

import jax

from tacit.server.rule import Estimate, Rule, scaled


class WeightedMean(Rule):
    """params = Σ weight·update / Σ weight: federated averaging of whole parameter vectors."""

    def init(self, params: dict) -> Any:
        """No state."""
        del params
        return ()

    def finish(self, params: dict, estimate: Estimate, n: jax.Array, state: Any) -> tuple[dict, Any]:
        """θ ← Σ n_k θ_k / Σ n_k."""
        del params, n
        return scaled(estimate, "mean"), state
