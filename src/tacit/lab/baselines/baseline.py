"""Baseline: how the lab fits a method without rounds. A baseline is a file in `central` or `helpers`; nothing else lists it."""

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np

import tacit.lab.baselines.central
import tacit.lab.baselines.helpers
from tacit.core.plugins import Plugins
from tacit.device.method import Method
from tacit.errors import PlanError
from tacit.lab.data import Population


class Baseline(ABC):
    """Finds the parameters of some methods from the histories of all users."""

    methods: ClassVar[tuple[str, ...]]  # the names of the methods it fits

    @staticmethod
    @abstractmethod
    def fit(method: Any, population: Population) -> dict:
        """The parameters of a method."""


_BASELINES = {
    "pooled": Plugins(tacit.lab.baselines.central, Baseline, "baseline"),
    "helped": Plugins(tacit.lab.baselines.helpers, Baseline, "baseline"),
}


def fitted_methods(fitted: str) -> list[str]:
    """The methods that the lab can fit in one way, "pooled" or "helped".

    >>> fitted_methods("helped")
    ['fedgnn', 'fedrec_plus']
    """
    return sorted(_found(fitted))


def fit_in_lab(fitted: str, name: str, method: Method, population: Population) -> dict:
    """The parameters of the method of this name, fitted from the histories of all users."""
    found = _found(fitted)
    if name not in found:
        raise PlanError(
            f"cohort.sampler {fitted!r} fits {', '.join(sorted(found))} in the lab, got method {name!r}; choose another "
            "sampler."
        )
    return found[name].fit(method, population)


def _found(fitted: str) -> dict[str, type[Baseline]]:
    baselines = _BASELINES[fitted]
    return {method: made for name in baselines.names() for made in [baselines.load(name)] for method in made.methods}


def liked_in_log(population: Population, above: float) -> np.ndarray:
    """Which events are liked: rated above a number, or all in a log without ratings."""
    if population.labels is None or not population.labels.size or population.labels.max() <= 1:
        return np.ones(population.items.size, bool)
    return population.labels > above
