"""Rules: how an estimate moves the parameters. One class each; an optimiser of optax is a rule by its name.

A rule takes (sum, weight): Σ weight·update with a leading axis k, and Σ weight, as the mechanism estimated them.
"""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

from tacit.errors import PlanError, unknown
from tacit.settings import fill, setting

Estimate = tuple[dict[str, Any], jax.Array]
_OPTIMISERS = {
    "adam": optax.adam,
    "adagrad": optax.adagrad,
    "rmsprop": optax.rmsprop,
    "yogi": optax.yogi,
    "lamb": optax.lamb,
}


class Rule(eqx.Module):
    """How an estimate moves the parameters a stage trains."""

    name: ClassVar[str]
    moves_what_is_sent: ClassVar[bool] = True  # whether updates have the leaves that are trained
    reads_pairs: ClassVar[bool] = False  # whether it needs counts of pairs in the estimate

    @property
    def moves_rows(self) -> bool:
        """Whether each row moves by its own estimate alone, and not at all where that is zero."""
        return False

    @abstractmethod
    def init(self, params: dict) -> Any:
        """The rule's own state before the first round."""

    @abstractmethod
    def finish(self, params: dict, estimate: Estimate, n: jax.Array, state: Any) -> tuple[dict, Any]:
        """The parameters after a round in which n devices reported."""


def _scaled(estimate: Estimate, scale: str) -> dict:
    """The sum over devices, or their mean, under the first weight."""
    total, weight = estimate
    if scale == "sum":
        return jax.tree.map(lambda leaf: leaf[0], total)
    return jax.tree.map(lambda leaf: leaf[0] / jnp.maximum(weight[0], 1e-12), total)


class MeanStep(Rule):
    """params + rate · mean(update): REPTILE's step; with rate 1 and updates as differences, federated averaging.

    With `momentum` β the mean is replaced by what is left of all means so far, Σ β^age · mean.
    """

    name: ClassVar[str] = "mean_step"
    rate: float = setting(1.0, above=0.0)
    scale: Literal["mean", "sum"] = setting("mean")
    momentum: float | None = setting(None, above=0.0, at_most=0.999)

    @property
    def moves_rows(self) -> bool:
        """Without momentum, which goes on moving what nobody sent."""
        return self.momentum is None

    def init(self, params: dict) -> Any:
        """No state; with momentum, what is left of earlier rounds."""
        return () if self.momentum is None else jax.tree.map(jnp.zeros_like, params)

    def finish(self, params: dict, estimate: Estimate, n: jax.Array, state: Any) -> tuple[dict, Any]:
        """θ ← θ + α · mean(Δ), or with momentum m ← β·m + mean(Δ), θ ← θ + α · m."""
        del n
        delta = _scaled(estimate, self.scale)
        if self.momentum is not None:
            delta = state = jax.tree.map(lambda m, d: self.momentum * m + d, state, delta)
        return jax.tree.map(lambda p, d: p + self.rate * d, params, delta), state


class WeightedMean(Rule):
    """params = Σ weight·update / Σ weight: federated averaging of whole parameter vectors."""

    name: ClassVar[str] = "weighted_mean"

    def init(self, params: dict) -> Any:
        """No state."""
        del params
        return ()

    def finish(self, params: dict, estimate: Estimate, n: jax.Array, state: Any) -> tuple[dict, Any]:
        """θ ← Σ n_k θ_k / Σ n_k."""
        del params, n
        return _scaled(estimate, "mean"), state


class Count(Rule):
    """params + Σ update, exactly: for integer counts."""

    name: ClassVar[str] = "count"

    def init(self, params: dict) -> Any:
        """No state."""
        del params
        return ()

    def finish(self, params: dict, estimate: Estimate, n: jax.Array, state: Any) -> tuple[dict, Any]:
        """c ← c + Σ c_u."""
        del n
        return jax.tree.map(lambda p, c: p + _whole(c).astype(p.dtype), params, _scaled(estimate, "sum")), state


def _whole(count: jax.Array) -> jax.Array:
    """The nearest whole number, where noise has made it a fraction."""
    return jnp.round(count) if jnp.issubdtype(count.dtype, jnp.floating) else count


class Descent(Rule):
    """One step of an optax optimiser against the gradient, with `decay`·params added for the shared tables' penalty."""

    rate: float = setting(above=0.0)
    decay: float = setting(0.0, at_least=0.0)
    scale: Literal["mean", "sum"] = setting("mean")

    @abstractmethod
    def _optax(self) -> optax.GradientTransformation:
        """The optimiser."""

    def init(self, params: dict) -> Any:
        """The optimiser's moments."""
        return self._optax().init(params)

    def finish(self, params: dict, estimate: Estimate, n: jax.Array, state: Any) -> tuple[dict, Any]:
        """One descent step on scale(update) + decay · params."""
        del n
        # ∂L/∂Q = Σ_u F(u) + λQ
        gradient = jax.tree.map(lambda g, p: g + self.decay * p, _scaled(estimate, self.scale), params)
        moves, state = self._optax().update(gradient, state, params)
        return {**optax.apply_updates(params, moves)}, state  # pyright: ignore[reportGeneralTypeIssues, reportCallIssue]


class GradientDescent(Descent):
    """params − rate · gradient; with `momentum` β, params − rate · m, where m ← β·m + gradient."""

    name: ClassVar[str] = "sgd"
    momentum: float | None = setting(None, above=0.0, at_most=0.999)

    @property
    def moves_rows(self) -> bool:
        """Without decay and without momentum, which go on moving what nobody sent."""
        return self.decay == 0 and self.momentum is None

    def _optax(self) -> optax.GradientTransformation:
        return optax.sgd(self.rate, self.momentum)


class Optimiser(Descent):
    """An adaptive optimiser of optax, by its name."""

    name: ClassVar[str] = "optimiser"
    optimiser: str = eqx.field(static=True, kw_only=True)

    def _optax(self) -> optax.GradientTransformation:
        return _OPTIMISERS[self.optimiser](self.rate)


RULES: dict[str, type[Rule]] = {rule.name: rule for rule in (MeanStep, WeightedMean, Count, GradientDescent)}


def build_rule(server: Mapping[str, Any], where: str = "server") -> Rule:
    """The rule a stage names: `mean_step`, `weighted_mean`, `count`, `similarity`, `sgd`, or an optax optimiser.

    >>> build_rule({"rule": "adam", "rate": 0.01}).optimiser
    'adam'
    """
    settings = dict(server)
    name = settings.pop("rule")
    if name in _OPTIMISERS:
        return fill(Optimiser, settings, where, optimiser=name)
    if name not in RULES:
        raise PlanError(unknown(where, name, [*RULES, *_OPTIMISERS], "rule"))
    return fill(RULES[name], settings, where)


import tacit.server.directions  # noqa: E402 - they stand on the above, and add themselves to RULES
import tacit.server.similarity  # noqa: E402, F401
