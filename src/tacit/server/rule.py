"""Rule: how an estimate moves the parameters. A rule is a file in `server/rules`; the file name is the rule's name.

A rule takes (sum, weight): Σ weight·update with a leading axis k, and Σ weight, as the mechanism estimated them.
"""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp

import tacit.server.rules
from tacit.core.catalog import Catalog
from tacit.core.plugins import Plugins
from tacit.core.settings import fill
from tacit.privacy.price import StagePrice

Estimate = tuple[dict[str, Any], jax.Array]


class Rule(eqx.Module):
    """How an estimate moves the parameters a stage trains."""

    former_names: ClassVar[tuple[str, ...]] = ()  # its names in earlier versions, which plans may still use
    former_settings: ClassVar[dict[str, str]] = {}  # former names of settings, and today's
    noise: float = eqx.field(static=True, default=0.0, kw_only=True)  # of each number of the sum, once it is known
    moves_what_is_sent: ClassVar[bool] = True  # whether updates have the leaves that are trained
    reads_pairs: ClassVar[bool] = False  # whether it needs counts of pairs in the estimate

    @property
    def moves_rows(self) -> bool:
        """Whether each row moves by its own estimate alone, and not at all where that is zero."""
        return False

    def settle(self, noise: float, catalog: Catalog) -> "Rule":
        """The same rule, told the standard deviation of the noise on each number of the sum, and what is public of the items."""
        del catalog
        return replace(self, noise=noise)

    @abstractmethod
    def init(self, params: dict) -> Any:
        """The rule's own state before the first round."""

    def asks(self, params: dict, state: Any) -> dict[str, jax.Array]:
        """Public numbers that the next round should be opened with, from what was released; the mechanism decides."""
        del params, state
        return {}

    @abstractmethod
    def finish(self, params: dict, estimate: Estimate, n: jax.Array, state: Any) -> tuple[dict, Any]:
        """The parameters after a round in which n devices reported."""


def scaled(estimate: Estimate, scale: str) -> dict:
    """The sum over devices, or their mean, under the first weight."""
    total, weight = estimate
    if scale == "sum":
        return jax.tree.map(lambda leaf: leaf[0], total)
    return jax.tree.map(lambda leaf: leaf[0] / jnp.maximum(weight[0], 1e-12), total)


_RULES = Plugins(tacit.server.rules, Rule, "rule")


def rule_names() -> list[str]:
    """Every rule: the files of `server/rules`."""
    return _RULES.names()


def rule_class(name: str, where: str = "server") -> type[Rule]:
    """The Rule of this name."""
    return _RULES.load(name, where)


def current_rule(name: str) -> str:
    """Today's name of a rule that had this name in an earlier version; any other name as it is."""
    return _RULES.current(name)


def build_rule(server: Mapping[str, Any], where: str = "server") -> Rule:
    """The rule a stage names.

    >>> build_rule({"rule": "adam", "rate": 0.01}).rate
    0.01
    """
    settings = dict(server)
    name = settings.pop("rule")
    return fill(rule_class(name, where), settings, where)


def rule_of(server: Mapping[str, Any], priced: StagePrice, catalog: Catalog) -> Rule:
    """The rule a stage names, settled for the noise that the stage is priced with."""
    rule = build_rule(server)
    if priced.mechanism is None or priced.exposure is None:
        return rule
    people = priced.exposure.cohort
    return rule.settle(priced.mechanism.spread(1, people).noise * people, catalog)
