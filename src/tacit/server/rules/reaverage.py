"""reaverage: a mean over organisations weighted by size and by a second weight, such as how typical their data are."""

from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp

from tacit.core.settings import setting
from tacit.errors import PlanError
from tacit.server.rule import Estimate, Rule


class Reaverage(Rule):
    """θ ← Σ ζ_k θ_k over the reports, ζ_k = δ·β_k + (1 − δ)·γ_k, from differences θ_k − θ.

    β is the first weight of a report, γ the second; β is normalised to sum to 1 over the reports. γ is meant to sum to 1
    over all organisations; `renorm` sets what happens when some do not report:

    - `gamma`: γ is normalised to sum to 1 over the reports.
    - `joint`: ζ is.
    - `none`: nothing, as in the paper. The weights then sum to less than 1, and the parameters shrink every round.

    With δ = 1, or where no γ is above 0, it is federated averaging. With `momentum` μ the mean difference is replaced by
    the decaying sum of all so far, Σ μ^age · mean.
    """

    moves_what_is_sent: ClassVar[bool] = False  # a sum over users also has the number of users
    delta: float = setting(0.2, at_least=0.0, at_most=1.0)
    renorm: Literal["gamma", "joint", "none"] = setting("gamma")
    rate: float = setting(1.0, above=0.0)
    momentum: float | None = setting(None, above=0.0, at_most=0.999)

    def init(self, params: dict) -> Any:
        """No state; with momentum, the decaying sum of earlier rounds."""
        return () if self.momentum is None else jax.tree.map(jnp.zeros_like, params)

    def finish(self, params: dict, estimate: Estimate, n: jax.Array, state: Any) -> tuple[dict, Any]:
        """θ ← keep·θ + rate·(a·Σ βΔ + b·Σ γΔ)."""
        del n
        sums, weight = estimate
        self._check(params, sums, weight)
        a, b, keep = self._shares(weight)

        def mixed(total: jax.Array) -> jax.Array:
            return a * total[0] if weight.shape[0] == 1 else a * total[0] + b * total[1]

        delta = {name: mixed(sums[name]) for name in params}
        if self.momentum is not None:
            delta = state = jax.tree.map(lambda m, d: self.momentum * m + d, state, delta)
        return {name: keep * theta + self.rate * delta[name] for name, theta in params.items()}, state

    def _shares(self, weight: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        """The factors of the two sums of differences, and of θ."""
        one, size = jnp.ones(()), jnp.maximum(weight[0], 1e-12)
        if weight.shape[0] == 1:
            return 1 / size, 0 * one, one
        second, delta = weight[1], self.delta
        a, rest = delta / size, jnp.where(second > 0, 1 - delta, 0.0)
        whole = delta + rest * second  # Σ ζ
        alone = (1 / size, 0 * one, one)
        shares = {
            "gamma": (a, rest / jnp.maximum(second, 1e-12), one),
            "joint": (a / jnp.maximum(whole, 1e-12), rest / jnp.maximum(whole, 1e-12), one),
            "none": (a, rest * one, whole),
        }[self.renorm]
        a, b, keep = (jnp.where(second > 0, some, other) for some, other in zip(shares, alone))
        return a, b, keep

    def _check(self, params: dict, sums: dict, weight: jax.Array) -> None:
        if self.delta < 1 and weight.shape[0] != 2:
            raise PlanError(
                f"server.delta = {self.delta:g} mixes two weights, and reports carry {weight.shape[0]}; let the method send "
                "a second one (hyper.second), or set delta = 1."
            )
        for name, theta in params.items():
            if name not in sums or sums[name].shape[1:] != theta.shape:
                found = sums[name].shape[1:] if name in sums else "nothing"
                raise PlanError(f"server.rule 'reaverage' needs {name!r} of shape {theta.shape}, got {found}.")
