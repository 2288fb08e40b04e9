"""Privacy loss distributions: how well two neighbours can be distinguished, put on a grid and composed.

A curve is the hockey-stick divergence f(ε) = H(one ‖ other) at e^ε, for ε ≥ 0, of the worst pair of neighbours: the δ
that one event leaves at that ε. The curves here are closed forms. They are put on a grid by connecting the dots, which
never understates a loss (Doroshenko et al. 2022); dp-accounting composes them and reads ε off.
"""

import math
from collections.abc import Callable, Iterable
from functools import lru_cache, reduce
from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit, log_ndtr, ndtr

from tacit.privacy.accounting.events import (
    Event,
    FixedGaussian,
    Gaussian,
    PoissonGaussian,
    Pure,
    Relation,
    Spent,
    distance,
)
from tacit.privacy.accounting.rdp import upstream

SMALLEST_DELTA = 1e-10  # below it, rounding in the fast Fourier transform no longer goes unnoticed
_TAIL = 9.0  # standard deviations of noise inside the grid; what lies beyond, 1e-19, counts as lost
_STEP = 1e-4  # the coarsest grid, unless the range would need too many points
_POINTS = 2**18  # the most points for one event; eight times as many for a composition
_BLOCK = 1 << 14  # losses that are summed at a time
_HIGHEST = 600.0  # e^−ε is still a number; above it a grid has no information
_LEFT_OUT = 1e-15  # mass that composing may leave out
_ROUNDING = 1e-14  # what the transform may add or lose; δ is computed with this much to spare

Curve = Callable[[np.ndarray], np.ndarray]


class WorstPair(NamedTuple):
    """The worst pair of neighbours of one event: a curve in either direction, and where they end."""

    there: Curve
    back: Curve
    span: float  # losses above it have negligible mass
    spread: float  # the scale of a typical loss; the grid must be finer


class EpsilonInterval(NamedTuple):
    """What ε is at least, proved by an attack, and at most, proved by an analysis."""

    lower: float
    upper: float


def hockey_stick(log_alpha: np.ndarray, z: float) -> np.ndarray:
    """H at α of N(1, z²) against N(0, z²): Φ(1/2z − z ln α) − α Φ(−1/2z − z ln α), stable in the tails."""
    one = log_ndtr(1 / (2 * z) - z * log_alpha)
    other = log_alpha + log_ndtr(-1 / (2 * z) - z * log_alpha)
    return np.exp(one) * -np.expm1(np.minimum(other - one, 0.0))


def _remove(epsilon: np.ndarray, q: float, z: float) -> np.ndarray:
    """H of (1−q)N(0, z²) + qN(1, z²) against N(0, z²): q times the plain one at α′ = 1 + (α−1)/q."""
    small = np.log1p(np.expm1(np.minimum(epsilon, 1.0)) / q)
    large = epsilon - math.log(q) + np.log1p(-(1 - q) * np.exp(-epsilon))
    return q * hockey_stick(np.where(epsilon < 1, small, large), z)


def _add(epsilon: np.ndarray, q: float, z: float) -> np.ndarray:
    """H of N(0, z²) against (1−q)N(0, z²) + qN(1, z²): a times the plain one at αq/a, with a = 1 − α(1−q)."""
    a = q - np.expm1(np.minimum(epsilon, 1 - math.log1p(-q))) * (1 - q)
    inside = a > 0
    ratio = np.where(inside, epsilon + math.log(q) - np.log(np.where(inside, a, 1.0)), 0.0)
    return np.where(inside, a * hockey_stick(ratio, z), 0.0)


def _swap(epsilon: np.ndarray, q: float, z: float) -> np.ndarray:
    """H of (1−q)N(0, z²) + qN(−1, z²) against (1−q)N(0, z²) + qN(1, z²): all x below the point where the ratio is α."""
    with np.errstate(divide="ignore"):  # at ε = 0 the logarithm is −∞ and the sums below are right
        s = 1 / (2 * z * z) + math.log((1 - q) / q) + epsilon / 2 + np.log(-np.expm1(-epsilon) / 2)
        x = -z * z * (np.logaddexp(s, np.logaddexp(2 * s, 0.0) / 2) + epsilon / 2)
        idle = math.log1p(-q) + log_ndtr(x / z) + np.log(-np.expm1(-epsilon))
    one = math.log(q) + log_ndtr((x + 1) / z)
    other = epsilon + np.logaddexp(idle, math.log(q) + log_ndtr((x - 1) / z))
    return np.exp(one) * -np.expm1(np.minimum(other - one, 0.0))


def _gaussian_pair(z: float) -> WorstPair:
    def curve(epsilon: np.ndarray) -> np.ndarray:
        return hockey_stick(epsilon, z)

    return WorstPair(curve, curve, _reach(z), 1 / z)


def _pure_pair(bound: float) -> WorstPair:
    def curve(epsilon: np.ndarray) -> np.ndarray:
        return expit(bound) * -np.expm1(np.minimum(epsilon - bound, 0.0))

    return WorstPair(curve, curve, bound, bound)


def _sampled_pair(q: float, z: float, kind: str) -> WorstPair:
    """`fixed` and `poisson`: z is noise over the difference between in and out of the cohort; `swap`: see below."""
    reach = float(np.logaddexp(math.log1p(-q), math.log(q) + _reach(z)))
    spread = q * math.sqrt(math.expm1(min(1 / z**2, 300.0)))
    if kind == "swap":
        swap = _with(_swap, q, z)
        return WorstPair(swap, swap, reach - math.log1p(-q), 2 * spread)
    remove = _with(_remove, q, z)
    return WorstPair(remove, remove if kind == "fixed" else _with(_add, q, z), reach, spread)


def _with(curve: Callable[[np.ndarray, float, float], np.ndarray], q: float, z: float) -> Curve:
    return lambda epsilon: curve(epsilon, q, z)


def _reach(z: float) -> float:
    """The loss of N(1, z²) against N(0, z²) that only the tail exceeds."""
    return 1 / (2 * z * z) + _TAIL / z


def worst_pair(event: Event, relation: Relation) -> WorstPair:
    """The worst pair of neighbours of an event. Events and relations are checked by the accountant.

    For a cohort of fixed size the pair is an upper bound: H of any two neighbours, at α ≥ 1, is at most that of
    (1−q)Q + qP against Q, where (P, Q) differ by a replaced contribution, and the other direction follows by symmetry.
    """
    far = distance(event, relation)
    match event:
        case Pure():
            return _pure_pair(event.epsilon)
        case Gaussian():
            return _gaussian_pair(event.noise / far)
        case FixedGaussian():
            return _sampled_pair(event.cohort / event.devices, event.noise / far, "fixed")
        case PoissonGaussian():
            return _sampled_pair(event.rate, event.noise, "swap" if relation == "replace_one" else "poisson")
        case _:
            raise TypeError(f"{event!r} has no privacy loss distribution")


def _dots(curve: Curve, span: float, step: float) -> tuple[np.ndarray, float]:
    """Mass at step, 2·step, … and at infinity of the least distribution whose curve is on or above this one."""
    epsilon = np.arange(max(2, math.ceil(span / step) + 1)) * step
    delta = np.minimum.accumulate(np.clip(curve(epsilon), 0.0, 1.0))
    fall = np.diff(delta)
    inner = (fall[1:] - fall[:-1] * math.exp(step)) / math.expm1(step)
    return np.maximum(np.append(inner, fall[-1] / math.expm1(-step)), 0.0), float(delta[-1])


def _masses(there: Curve, back: Curve, span: float, step: float) -> Any:
    """One direction of a pair on the grid: gains from `there`; losses mirror `back`, for P(−l) = e^{−l}·P_back(l)."""
    up, lost = _dots(there, span, step)
    down, _ = _dots(back, span, step)
    down = down * np.exp(-step * np.arange(1, down.size + 1))
    centre = max(0.0, 1.0 - up.sum() - down.sum() - lost)
    probabilities = np.concatenate([down[::-1], [centre], up])
    return upstream().pmf.DensePLDPmf(step, -down.size, probabilities, lost, pessimistic_estimate=True)


def grid_step(parts: Iterable[tuple[WorstPair, int]]) -> float:
    """A step that is fine against every event's losses and leaves a manageable number of points."""
    parts = list(parts)
    variance = sum(count * min(p.spread, p.span) ** 2 for p, count in parts)
    width = min(variance + 16 * math.sqrt(variance), 2 * sum(count * p.span for p, count in parts))
    fine = min(_STEP, *(p.spread / 10 for p, _ in parts))
    return max(fine, max(p.span for p, _ in parts) / _POINTS, width / (8 * _POINTS))


@lru_cache(maxsize=32)
def _one(event: Event, relation: Relation, step: float) -> Any:
    """One event's distribution on the grid, in both directions where they differ."""
    there, back, span, _ = worst_pair(event, relation)
    ways = [(there, back)] if there is back else [(there, back), (back, there)]
    return upstream().pld.PrivacyLossDistribution(*(_masses(*way, span, step) for way in ways))


@lru_cache(maxsize=32)
def composed(spent: Spent, relation: Relation, coarse: float = 1.0) -> Any:
    """The distribution of all these events together, never understated; it gives ε for any δ.

    `coarse` multiplies the step of the grid: quicker, and still a bound.
    """
    step = grid_step([(worst_pair(event, relation), count) for event, count in spent]) * coarse
    with _quiet():
        parts = [_one(event, relation, step).self_compose(count, _LEFT_OUT) for event, count in spent]
        return reduce(lambda one, other: one.compose(other, _LEFT_OUT), parts)


@lru_cache(maxsize=1024)
def composed_epsilon(spent: Spent, relation: Relation, delta: float, coarse: float = 1.0) -> float:
    """An upper bound on ε for these events together; infinite where the grid is too small."""
    if not all(_fits(worst_pair(event, relation)) for event, _ in spent):
        return math.inf
    epsilon = _read(composed(spent, relation, coarse), delta - _ROUNDING)
    return epsilon if epsilon < _HIGHEST else math.inf


def _fits(pair: WorstPair) -> bool:
    """Whether a grid can hold it: with next to no noise a loss may be anything."""
    return pair.span < 2 * _HIGHEST


def _read(distribution: Any, delta: float) -> float:
    """ε at δ of a distribution, or of one of its two directions: the larger."""
    ways = {id(way): way for way in (getattr(distribution, name, distribution) for name in ("_pmf_remove", "_pmf_add"))}
    return max(read_epsilon(way.to_dense_pmf(), delta) for way in ways.values())


def read_epsilon(pmf: Any, delta: float) -> float:
    """The smallest ε at which the divergence max(0, Σ p·(1 − e^{ε−l})) over the losses l above ε is at most δ.

    dp-accounting goes through the losses one by one, largest first; this makes the same sums, many at a time.
    """
    if pmf._infinity_mass > delta:
        return math.inf
    upper, lower = pmf._infinity_mass, 0.0  # Σ p and Σ p·e^{−l} of the losses so far
    for end in range(pmf.size, 0, -_BLOCK):
        places = np.arange(end - 1, max(0, end - _BLOCK) - 1, -1)
        loss, mass = (places + pmf._lower_loss) * pmf._discretization, np.asarray(pmf._probs)[places]
        uppers = np.cumsum(np.concatenate([[upper], mass]))
        with _quiet():
            lowers = np.cumsum(np.concatenate([[lower], mass * np.exp(-loss)]))
            past = (uppers[:-1] > delta) & (lowers[:-1] > 0) & (np.log((uppers[:-1] - delta) / lowers[:-1]) >= loss)
        vast = (uppers[1:] >= delta) & (lowers[1:] == 0)  # losses so large that e^{−l} is 0
        if vast.any():
            return max(0.0, float(loss[vast.argmax()]))
        at = int(past.argmax()) if past.any() else -1
        upper, lower = float(uppers[at]), float(lowers[at])
        if past.any():
            break
    return 0.0 if upper <= lower + delta else math.log((upper - delta) / lower)


def _quiet() -> Any:
    """Overflow in dp-accounting is harmless: in a bound on lengths that is then not used, and in ε above _HIGHEST."""
    return np.errstate(over="ignore", divide="ignore", invalid="ignore")


# ---- what an attack achieves ----


@lru_cache(maxsize=32)
def _test(q: float, z: float, step: float) -> tuple[Any, float]:
    """Telling (1−q)N(0, z²) + qN(1, z²) from N(0, z²) by one output, never overstated; and a shift of the grid.

    Outputs are pooled into bins, which can only hide something. The loss of a bin is rounded down to the grid plus a
    shift, which is small to second order in the step because the edges lie half-way between grid points.
    """
    edges, first = _edges(q, z, step)
    absent, present = _between(edges / z), _between((edges - 1) / z)
    upper = (1 - q) * absent + q * present
    kept = upper > 1e-22  # a bin left out is a gain not claimed
    index, upper = np.arange(first, first + upper.size)[kept], upper[kept]
    rest = np.log(upper / np.maximum(absent[kept], 1e-300)) - index * step
    shift = float(rest[upper > 1e-16].min())
    index += np.minimum(np.floor((rest - shift) / step), 0).astype(int)
    low = int(index.min())
    masses = np.bincount(index - low, weights=upper)
    return upstream().pmf.DensePLDPmf(step, low, masses, 0.0, pessimistic_estimate=False), shift


def _edges(q: float, z: float, step: float) -> tuple[np.ndarray, int]:
    """Outputs x whose loss ln(1−q + q e^((2x−1)/2z²)) is half-way between grid points, and the first bin's point."""
    first = math.ceil(math.log1p(-q) / step - 0.5)
    last = math.ceil(_sampled_pair(q, z, "poisson").span / step)
    loss = (np.arange(first, last + 1) + 0.5) * step
    inner = z * z * (np.log(np.maximum(np.expm1(loss) + q, 1e-300)) - math.log(q)) + 0.5
    return np.concatenate([[-np.inf], inner, [np.inf]]), first


def _between(edges: np.ndarray) -> np.ndarray:
    """Normal mass between neighbouring edges, taken from the nearer tail."""
    left, right = edges[:-1], edges[1:]
    upper_half = left > 0
    return ndtr(np.where(upper_half, -left, right)) - ndtr(np.where(upper_half, -right, left))


@lru_cache(maxsize=32)
def _tests(q: float, z: float, rounds: int) -> tuple[Any, float]:
    step = grid_step([(_sampled_pair(q, z, "poisson"), rounds)]) / 4
    pmf, shift = _test(q, z, step)
    with _quiet():
        return pmf.self_compose(rounds, _LEFT_OUT), rounds * shift


def attack_lower_bound(q: float, z: float, rounds: int, delta: float) -> float:
    """A lower bound on ε: what testing for one device's presence, drawn at rate q under noise z, achieves."""
    if not _fits(_sampled_pair(q, z, "poisson")):
        return 0.0
    pmf, shift = _tests(q, z, rounds)
    return max(0.0, min(_read(pmf, delta + _ROUNDING + 2 * _LEFT_OUT), _HIGHEST) + shift)


# ---- by name ----


def pld_fixed(devices: int, cohort: int, multiplier: float, rounds: int, delta: float) -> EpsilonInterval:
    """ε of `rounds` rounds, each with a cohort of fixed size drawn without replacement; replace-one.

    `multiplier` is the standard deviation of the noise over how far the cohort's result moves when one member is
    replaced: z in σ = z·2S/M. The lower end is reached when one device sends the opposite of all others.
    """
    spent = ((FixedGaussian(2 * multiplier, cohort, devices), rounds),)
    lower = attack_lower_bound(cohort / devices, multiplier, rounds, delta)
    return EpsilonInterval(lower, composed_epsilon(spent, "replace_one", delta))


def pld_poisson(rate: float, multiplier: float, rounds: int, delta: float) -> float:
    """ε of `rounds` rounds in which each device is drawn by its own coin; add-remove.

    `multiplier` is the standard deviation of the noise over the most one device contributes.
    """
    return composed_epsilon(((PoissonGaussian(multiplier, rate), rounds),), "add_remove", delta)


def pld_poisson_replace(rate: float, multiplier: float, rounds: int, delta: float) -> float:
    """ε of `rounds` rounds in which each device is drawn by its own coin; replace-one.

    `multiplier` is the standard deviation of the noise over the most one device contributes, not over the difference
    that replacing it makes.
    """
    return composed_epsilon(((PoissonGaussian(multiplier, rate), rounds),), "replace_one", delta)
