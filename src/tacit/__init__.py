"""Tacit: federated, privacy-preserving recommendation.

Names load when they are used: importing the package costs nothing, and importing one folder loads no other.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from tacit.core.catalog import Catalog as Catalog
    from tacit.core.plan import Plan as Plan
    from tacit.core.plan import Stage as Stage
    from tacit.device.history import History as History
    from tacit.device.method import Method as Method
    from tacit.errors import TacitError as TacitError
    from tacit.lab.audits.claim_audit import audit as audit_claim
    from tacit.lab.data import Population as Population
    from tacit.lab.data.datasets import dataset as dataset
    from tacit.lab.data.interactions import interactions as interactions
    from tacit.lab.experiments.choice import choose_plan as choose
    from tacit.lab.experiments.compare import compare as compare
    from tacit.lab.experiments.tune import tune as tune
    from tacit.lab.plans.loader import load_plan as plan
    from tacit.lab.plans.loader import price_plan as price
    from tacit.lab.runs.run import Run as Run
    from tacit.lab.runs.run import load_run as load
    from tacit.lab.runs.run import simulate as simulate
    from tacit.lab.simulation.federation import Performance as Performance
    from tacit.privacy.budget import Budget as Budget
    from tacit.privacy.mechanism import Mechanism as Mechanism
    from tacit.server.rule import Rule as Rule

_HOME = {
    "Budget": "tacit.privacy.budget:Budget",
    "Catalog": "tacit.core.catalog:Catalog",
    "History": "tacit.device.history:History",
    "Mechanism": "tacit.privacy.mechanism:Mechanism",
    "Method": "tacit.device.method:Method",
    "Performance": "tacit.lab.simulation.federation:Performance",
    "Plan": "tacit.core.plan:Plan",
    "Population": "tacit.lab.data:Population",
    "Rule": "tacit.server.rule:Rule",
    "Run": "tacit.lab.runs.run:Run",
    "Stage": "tacit.core.plan:Stage",
    "TacitError": "tacit.errors:TacitError",
    "audit_claim": "tacit.lab.audits.claim_audit:audit",
    "choose": "tacit.lab.experiments.choice:choose_plan",
    "compare": "tacit.lab.experiments.compare:compare",
    "dataset": "tacit.lab.data.datasets:dataset",
    "interactions": "tacit.lab.data.interactions:interactions",
    "load": "tacit.lab.runs.run:load_run",
    "plan": "tacit.lab.plans.loader:load_plan",
    "price": "tacit.lab.plans.loader:price_plan",
    "simulate": "tacit.lab.runs.run:simulate",
    "tune": "tacit.lab.experiments.tune:tune",
}

__all__ = [
    "Budget",
    "Catalog",
    "History",
    "Mechanism",
    "Method",
    "Performance",
    "Plan",
    "Population",
    "Rule",
    "Run",
    "Stage",
    "TacitError",
    "audit_claim",
    "choose",
    "compare",
    "dataset",
    "interactions",
    "load",
    "plan",
    "price",
    "simulate",
    "tune",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'tacit' has no attribute {name!r}")
    module, _, attribute = _HOME[name].partition(":")
    return getattr(import_module(module), attribute)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
