"""Bill: what several runs of the same people cost one of them, added up by the accountant."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tacit.privacy.accounting.accountant import compose
from tacit.privacy.accounting.events import Pure, Relation, Unbounded
from tacit.privacy.claim import Unit
from tacit.privacy.price import Price


@dataclass(frozen=True)
class Bill:
    """ε at δ of some runs together; all of them count, also those whose result is thrown away."""

    epsilon: float
    delta: float
    runs: int
    unit: Unit = "user"
    relation: Relation = "replace_one"

    def __str__(self) -> str:
        return "ε = ∞" if math.isinf(self.epsilon) else f"ε = {self.epsilon:.4g}"

    @property
    def terms(self) -> str:
        """What the ε is of."""
        delta = f"δ = {self.delta:.1e}, " if self.delta else ""
        return f"{delta}unit {self.unit}, {self.relation.replace('_', '-')}"

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self)


def together(prices: Sequence[Price], delta: float | None = None) -> Bill:
    """The bill for these runs, at the largest δ that one of them gives up, or at one of your own.

    Runs that protect different units have no ε in common; runs for different neighbours are added up between any two
    histories, which covers adding and removing one.

    >>> from tacit.core.plan import Plan, Stage
    >>> from tacit.privacy.price import price
    >>> print(bill := together([price(Plan("p", (Stage("mfu"),)), 10)] * 3), bill.terms, sep="; ")
    ε = 0; unit user, replace-one
    """
    costly = [one.whole for one in prices if any(stage.event is not None for stage in one.stages)]
    delta = max((claim.delta for claim in costly), default=0.0) if delta is None else delta
    if not costly:
        return Bill(0.0, delta, len(prices))
    spent = [part for one in prices for stage in one.stages for part in stage.spent]
    units: list[Unit] = list({claim.unit for claim in costly})
    relations: list[Relation] = list({claim.relation for claim in costly})
    # A pure event is between any two inputs, so it has no relation of its own to be added up under.
    pure = all(isinstance(event, Pure | Unbounded) for event, _ in spent)
    relation: Relation = relations[0] if len(relations) == 1 and not pure else "replace_one"
    if len(units) > 1:
        return Bill(math.inf, delta, len(prices), relation=relation)
    return Bill(compose(spent, delta, relation).epsilon, delta, len(prices), units[0], relation)
