"""Tacit: recommendations learned from what users never have to tell anyone.

Names load when they are used: importing the package costs nothing, and importing a room loads no other room.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from tacit.core.plan import Plan as Plan
    from tacit.core.plan import Stage as Stage
    from tacit.errors import TacitError as TacitError
    from tacit.lab.data.datasets import dataset as dataset
    from tacit.lab.data.interactions import interactions as interactions
    from tacit.lab.plans.loader import load_plan as plan
    from tacit.lab.plans.loader import price_plan as price
    from tacit.lab.runs.run import Run as Run
    from tacit.lab.runs.run import simulate as simulate
    from tacit.privacy.budget import Budget as Budget

_HOME = {
    "Budget": "tacit.privacy.budget:Budget",
    "Plan": "tacit.core.plan:Plan",
    "Run": "tacit.lab.runs.run:Run",
    "Stage": "tacit.core.plan:Stage",
    "TacitError": "tacit.errors:TacitError",
    "dataset": "tacit.lab.data.datasets:dataset",
    "interactions": "tacit.lab.data.interactions:interactions",
    "plan": "tacit.lab.plans.loader:load_plan",
    "price": "tacit.lab.plans.loader:price_plan",
    "simulate": "tacit.lab.runs.run:simulate",
}

__all__ = ["Budget", "Plan", "Run", "Stage", "TacitError", "dataset", "interactions", "plan", "price", "simulate"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'tacit' has no attribute {name!r}")
    module, _, attribute = _HOME[name].partition(":")
    return getattr(import_module(module), attribute)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])
