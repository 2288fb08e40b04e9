"""Claim: a privacy guarantee with its unit, neighbours, trust and conditions. An ε alone is not a claim."""

import math
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from tacit.errors import PlanError
from tacit.privacy.accounting.events import Relation as Relation

Model = Literal["local", "central"]
Unit = Literal["interaction", "user", "client(silo)"]
Per = Literal["message", "round", "run"]
Fidelity = Literal["paper", "corrected"]
Trust = Literal["nobody", "server", "organisation"]


@dataclass(frozen=True)
class Claim:
    """What is guaranteed, for whom, against whom, and under which conditions.

    An infinite ε is a value, not an absence: a message without a finite guarantee has one.
    """

    model: Model
    unit: Unit
    relation: Relation
    epsilon: float
    delta: float
    per: Per
    fidelity: Fidelity
    trust: Trust  # who must be trusted for the claim to hold
    conditions: tuple[str, ...] = ()

    def __post_init__(self):
        kinds = {"model": Model, "unit": Unit, "relation": Relation, "per": Per, "fidelity": Fidelity, "trust": Trust}
        for name, kind in kinds.items():
            if getattr(self, name) not in get_args(kind):
                raise PlanError(
                    f"Claim.{name} must be one of {', '.join(get_args(kind))}, got {getattr(self, name)!r}."
                )
        if not self.epsilon >= 0:
            raise PlanError(f"Claim.epsilon must be at least 0 (inf is allowed), got {self.epsilon!r}.")
        if not 0 <= self.delta <= 1:
            raise PlanError(f"Claim.delta must be between 0 and 1, got {self.delta!r}.")

    def __str__(self) -> str:
        epsilon = "∞" if math.isinf(self.epsilon) else f"{self.epsilon:.4g}"
        delta = f", δ = {self.delta:.1e}" if self.delta else ""
        terms = f" ({'; '.join(self.conditions)})" if self.conditions else ""
        printed = ", as printed in its paper" if self.fidelity == "paper" else ""
        return (
            f"ε = {epsilon}{delta} per {self.per}{printed}, {self.model}, unit {self.unit}, {self.relation.replace('_', '-')}, "
            f"trust: {self.trust}{terms}"
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self)
