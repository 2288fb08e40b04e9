"""Tacit: recommendations learned from what users never have to tell anyone.

Names load when they are used: importing the package costs nothing, and importing a room loads no other room.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from tacit.errors import TacitError as TacitError
    from tacit.lab.data.datasets import dataset as dataset
    from tacit.lab.data.interactions import interactions as interactions
    from tacit.lab.run import Run as Run
    from tacit.lab.shelf import load_plan as plan
    from tacit.lab.shelf import price_plan as price
    from tacit.lab.simulate import simulate as simulate
    from tacit.plans import Plan as Plan
    from tacit.plans import Stage as Stage
    from tacit.privacy.budget import Budget as Budget

_HOME = {
    "Budget": "tacit.privacy.budget:Budget",
    "Plan": "tacit.plans:Plan",
    "Run": "tacit.lab.run:Run",
    "Stage": "tacit.plans:Stage",
    "TacitError": "tacit.errors:TacitError",
    "dataset": "tacit.lab.data.datasets:dataset",
    "interactions": "tacit.lab.data.interactions:interactions",
    "plan": "tacit.lab.shelf:load_plan",
    "price": "tacit.lab.shelf:price_plan",
    "simulate": "tacit.lab.simulate:simulate",
}

__all__ = ["Budget", "Plan", "Run", "Stage", "TacitError", "dataset", "interactions", "plan", "price", "simulate"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'tacit' has no attribute {name!r}")
    module, _, attribute = _HOME[name].partition(":")
    return getattr(import_module(module), attribute)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])
