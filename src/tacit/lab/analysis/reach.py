"""Reach: from which ε on a plan's noise lets it learn anything. The outlook's verdict, turned round."""

import math
from dataclasses import replace
from typing import Any

from scipy.optimize import brentq

from tacit.core.plan import Plan, Stage
from tacit.core.settings import thaw
from tacit.errors import PlanError
from tacit.lab.analysis.feasibility import HOPELESS, WEAK
from tacit.privacy.price import settle

_RANGE = (1e-3, 1e4)  # no ε outside is worth a line
_NOISES = ("noise", "scale", "epsilon", "epsilon_per_message")  # what says how loud the noise is


def reach(plan: Plan, devices: int, numbers: tuple[int, ...]) -> dict[str, Any] | None:
    """The ε of a run at which the outlook turns from hopeless to weak, and from weak to workable.

    `numbers` says how many numbers an update has, stage by stage. None where no single stage adds all the noise, or
    where its noise cannot be set by an ε. An ε out of sight is 0 or ∞.
    """
    noisy = [number for number, stage in enumerate(plan.stages) if stage.rounds and numbers[number]]
    if len(noisy) != 1 or plan.stages[noisy[0]].privacy["mechanism"] == "none":
        return None
    stage, count = plan.stages[noisy[0]], numbers[noisy[0]]
    try:
        found = [_epsilon(stage, devices, count, ratio) for ratio in (HOPELESS, WEAK)]
    except PlanError:  # a form that promises no ε
        return None
    return {"method": stage.method, "mechanism": stage.privacy["mechanism"], "weak": found[0], "workable": found[1]}


def _epsilon(stage: Stage, devices: int, numbers: int, ratio: float) -> float:
    """The ε at which signal to noise over the run is `ratio`."""
    if stage.privacy["mechanism"] == "gaussian":  # finding its noise for an ε takes long; the other way is one step
        noise = _ratio(_with(stage, noise=1.0), devices, numbers) / ratio
        mechanism, exposure = settle(_with(stage, noise=noise), devices)
        epsilon = next(claim.epsilon for claim in mechanism.claim(exposure) if claim.per == "run")
        return epsilon if _RANGE[0] <= epsilon <= _RANGE[1] else 0.0 if epsilon < 1 else math.inf

    def excess(log_epsilon: float) -> float:
        return math.log(_ratio(_with(stage, epsilon=math.exp(log_epsilon)), devices, numbers) / ratio)

    first, last = map(math.log, _RANGE)
    high = first  # upwards step by step: a mechanism need not have an answer for an ε far beyond what it needs
    while excess(high) < 0:
        high += 1.0
        if high > last:
            return math.inf
    if high == first:
        return 0.0
    return math.exp(float(brentq(excess, high - 1.0, high, xtol=1e-3)))  # pyright: ignore[reportArgumentType]


def _ratio(stage: Stage, devices: int, numbers: int) -> float:
    """As the outlook has it: rounds that agree add up, their noise as the root."""
    mechanism, exposure = settle(stage, devices)
    signal, noise = mechanism.spread(numbers, exposure.cohort)
    return signal / noise * math.sqrt(stage.rounds)


def _with(stage: Stage, **noise: float) -> Stage:
    kept = {name: value for name, value in thaw(stage.privacy).items() if name not in _NOISES}
    return replace(stage, privacy={**kept, **noise})
