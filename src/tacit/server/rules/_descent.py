"""Base class of the rules that take one optimiser step against the gradient."""

from abc import abstractmethod
from typing import Any, Literal

import jax
import optax

from tacit.core.settings import setting
from tacit.server.rule import Estimate, Rule, scaled


class Descent(Rule):
    """One step of an optax optimiser against the gradient, with `decay`·params added for the shared tables' penalty."""

    rate: float = setting(above=0.0)
    decay: float = setting(0.0, at_least=0.0)
    scale: Literal["mean", "sum"] = setting("mean")

    @abstractmethod
    def optimiser(self) -> optax.GradientTransformation:
        """The optax optimiser."""

    def init(self, params: dict) -> Any:
        """The optimiser's moments."""
        return self.optimiser().init(params)

    def finish(self, params: dict, estimate: Estimate, n: jax.Array, state: Any) -> tuple[dict, Any]:
        """One descent step on scale(update) + decay · params."""
        del n
        # ∂L/∂Q = Σ_u F(u) + λQ
        gradient = jax.tree.map(lambda g, p: g + self.decay * p, scaled(estimate, self.scale), params)
        moves, state = self.optimiser().update(gradient, state, params)
        return {**optax.apply_updates(params, moves)}, state  # pyright: ignore[reportGeneralTypeIssues, reportCallIssue]
