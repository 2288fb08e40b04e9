"""Correlated noise: the noise of a round takes back part of the noise of earlier rounds, so that it adds up to less.

A model that is trained for n rounds is the sum of what n rounds release. Independent noise adds up to √n times the noise of
a round. Here the server draws fresh noise z_t in each round and releases

    x_t + e_t,   e = C⁻¹z,   with x_t the round's sum and C a lower triangular matrix with ones on its diagonal.

What is priced is C·x + z, one Gaussian mechanism for all rounds together (the matrix mechanism); the releases follow from it,
as x + e = C⁻¹(C·x + z). A device that reports in at most k rounds, at least b apart, changes C·x by at most

    sensitivity = max over such sets of rounds of ‖Σ columns of C‖₂

clip bounds, and the noise in the sum of the first t rounds has the variance σ²·Σ_{i<t} (C⁻¹₀ + … + C⁻¹ᵢ)².

C is a buffered linear Toeplitz matrix (BLT): its first column is 1 and c_i = Σ_j ω_j·θ_j^(i−1), with a few decays θ_j and scales
ω_j, where 0 ≤ θ_j ≤ 1, ω_j ≥ 0 and Σ ω_j ≤ 1. The column never grows and is never negative, so the sensitivity is that of
reports exactly b rounds apart from the first round on (Kalinin and Lampert, theorem 2). And e = C⁻¹z needs one buffer as large
as the model for each j:

    e_t = z_t − Σ_j ω_j·s_j,   then   s_j ← θ_j·s_j + e_t.

All of it is in integers. z_t is a rounded Gaussian (`discrete_noise`), θ_j and ω_j are multiples of 2⁻¹⁵, a buffer has 15 bits
behind the point, and Σ_j ω_j·s_j is rounded to an integer. What this rounding costs is priced:

- Given the earlier releases, a release is m_t + z_t with an integer m_t = x_t − round(Σ_j ω_j·s_j), for the buffers follow from
  the earlier releases and sums. As m_t + round(N) = round(m_t + N), it post-processes a Gaussian mechanism with mean m_t.
- Whatever was released, two neighbours' m_t differ by the difference of C·x, and by less than `rounding_error` in each number.
  Over n rounds of D numbers, m differs by less than sensitivity·R + rounding_error·√(n·D) in L2 norm, with R the clip bound
  in units of the grid. Gaussian mechanisms chosen one after the other, whose means differ by at most so much together on
  every path, are one Gaussian mechanism with that difference (Smith and Thakurta).
- A grid with R ≥ `least_steps` keeps the second part below a fiftieth of the first, and `cost` has it.

So the price is exact, but for the δ of the tables and a chance below 2⁻¹⁰⁰ that a buffer overflows (`check_buffers`).

The buffers are noise of earlier rounds: whoever has them and what was released learns more about the sums than is priced.
They stay in the memory of the server and are never written to disk. A server that was restarted goes on with empty buffers.
That costs accuracy and no privacy: C without the entries that link later rounds to earlier ones has no entry that is larger,
and none is negative, so its sensitivity is not larger either. A round that releases nothing still draws noise and moves the
buffers, so that the rounds between two reports of a device stay as many as were priced.

Papers: Denisov, McMahan, Rush, Smith and Thakurta, "Improved differential privacy for SGD via optimal private linear
operators on adaptive streams" (NeurIPS 2022); Dvijotham, McMahan, Pillutla, Steinke and Thakurta, "Efficient and near-optimal
noise generation for streaming differential privacy" (FOCS 2024); McMahan, Xu and Zhang, "A hassle-free algorithm for strong
differential privacy in federated learning systems" (EMNLP 2024); Kalinin and Lampert, "Banded square root matrix factorization
for differentially private model training" (NeurIPS 2024); Smith and Thakurta, "Fully adaptive composition for Gaussian
differential privacy" (2022).
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import minimize
from scipy.signal import lfilter

from tacit.errors import PlanError

Error = Literal["max", "mean"]
_BITS = 15  # of decays and scales, and of a buffer behind the point
_UNIT = 1 << _BITS
_MOST_BUFFERS = 5
_CLOSE = 1.01  # fewer buffers are chosen where they come so close to the least squared error
_ROUNDING = 0.02  # the part of the noise that pays for rounding
_FAR = 16  # a buffer has room for so many of its standard deviations: more have probability below 2⁻¹⁰⁰ in all numbers


@dataclass(frozen=True)
class Correlation:
    """A BLT matrix C: its decays and scales, in units of 2⁻¹⁵. Without buffers C is the identity: independent noise.

    >>> Correlation((16384,), (8192,)).column(4)
    array([1.    , 0.25  , 0.125 , 0.0625])
    """

    decays: tuple[int, ...] = ()
    scales: tuple[int, ...] = ()

    def __post_init__(self):
        if len(self.decays) != len(self.scales):
            raise ValueError(f"Correlation needs a scale for each decay, got {self.decays} and {self.scales}.")
        if not all(0 <= decay <= _UNIT for decay in self.decays) or not all(scale >= 0 for scale in self.scales):
            raise ValueError(f"Correlation needs decays of 0 to 1 and scales from 0, got {self.decays}, {self.scales}.")
        if sum(self.scales) > _UNIT:
            raise ValueError(f"Correlation needs scales that sum to at most 1, got {self.scales}.")

    def column(self, rounds: int) -> np.ndarray:
        """The first column of C: float64[rounds]."""
        decays, scales = self._numbers()
        powers = decays ** np.arange(rounds - 1)[:, None]
        return np.concatenate([[1.0], powers @ scales])

    def inverse_column(self, rounds: int) -> np.ndarray:
        """The first column of C⁻¹: float64[rounds]; what becomes of fresh noise of 1 in the first round."""
        decays, scales = self._numbers()
        buffers, column = np.zeros(len(decays)), np.zeros(rounds)
        for round in range(rounds):
            column[round] = (round == 0) - scales @ buffers
            buffers = decays * buffers + column[round]
        return column

    def _numbers(self) -> tuple[np.ndarray, np.ndarray]:
        return np.array(self.decays, float) / _UNIT, np.array(self.scales, float) / _UNIT


# ---- Sensitivity and error ----


class Participation(NamedTuple):
    """How often a device reports: in so many rounds, at least `separation` apart, at most `reports` times.

    >>> Participation(10, 4).most, Participation(10, 4, 2).most, Participation(10).most
    (3, 2, 10)
    """

    rounds: int
    separation: int = 1
    reports: int | None = None

    @property
    def most(self) -> int:
        """The most reports that fit."""
        fit = -(-self.rounds // self.separation)
        return fit if self.reports is None else min(self.reports, fit)


class Correlated(NamedTuple):
    """A correlation, and how often a device reports where it is used."""

    correlation: Correlation
    pattern: Participation


def sensitivity(correlation: Correlation, pattern: Participation) -> float:
    """The most that one device's reports, each at most 1 long, change C·x in L2 norm.

    >>> sensitivity(Correlation(), Participation(rounds=8, separation=2))
    2.0
    """
    return float(np.linalg.norm(_every(correlation.column(pattern.rounds), pattern)))


def _every(column: np.ndarray, pattern: Participation) -> np.ndarray:
    """The sum of the columns 0, b, 2b, … of the Toeplitz matrix with this first column, k of them."""
    separation, reports = pattern.separation, pattern.most
    rows = -(-len(column) // separation)
    total = np.pad(column, (0, rows * separation - len(column))).reshape(rows, separation).cumsum(0)
    total[reports:] -= total[:-reports].copy()
    return total.reshape(-1)[: len(column)]


def squared_errors(correlation: Correlation, rounds: int) -> np.ndarray:
    """The variance of the noise in the sum of the first 1, 2, … rounds, for fresh noise of variance 1; it only grows.

    >>> squared_errors(Correlation(), 3)
    array([1., 2., 3.])
    """
    return np.cumsum(np.cumsum(correlation.inverse_column(rounds)) ** 2)


def final_noise(correlation: Correlation, pattern: Participation) -> float:
    """The noise in the sum of all rounds, for one Gaussian mechanism of multiplier 1 and reports at most 1 long."""
    return math.sqrt(_loss(correlation, pattern, "max"))


# ---- The best correlation ----


@lru_cache(maxsize=64)
def best_correlation(pattern: Participation, error: Error = "max", buffers: int | None = None) -> Correlation:
    """The BLT with the least squared error at equal privacy: of the final sum (`max`), or of all of them on average (`mean`).

    It has as few buffers as come close to it, unless their number is given: none, where every device reports in every round.
    """
    if min(number for number in pattern if number is not None) < 1:
        raise ValueError(f"Rounds, separation and reports must be at least 1, got {pattern}.")
    counts = range(_MOST_BUFFERS + 1) if buffers is None else (buffers,)
    found = [_with_buffers(pattern, error, count) for count in counts]
    losses = [_loss(correlation, pattern, error) for correlation in found]
    return next(best for best, loss in zip(found, losses) if loss <= min(losses) * _CLOSE)


def _loss(correlation: Correlation, pattern: Participation, error: Error) -> float:
    """The squared error for one Gaussian mechanism of multiplier 1."""
    errors = squared_errors(correlation, pattern.rounds)
    return sensitivity(correlation, pattern) ** 2 * float(errors[-1] if error == "max" else errors.mean())


def _with_buffers(pattern: Participation, error: Error, buffers: int) -> Correlation:
    """The best of so many buffers, to 2⁻¹⁵.

    C is the product of (1 − ĥ_j·x)/(1 − θ_j·x) over j, as power series in x, with 1 > θ_1 > ĥ_1 > θ_2 > ĥ_2 … > 0: then both C
    and C⁻¹ are BLTs, ω_j > 0 and Σ ω_j = Σ (θ_j − ĥ_j) < 1. The search is over the ratios of neighbours in this chain.
    """
    rounds = pattern.rounds
    if not buffers or rounds == 1:
        return Correlation()
    weights = np.ones(rounds) if error == "max" else np.arange(rounds, 0, -1) / rounds

    def loss(logits: np.ndarray) -> tuple[float, np.ndarray]:
        return _log_loss(logits, pattern, weights)

    found = [
        minimize(loss, _start(nearest, buffers), jac=True, method="L-BFGS-B", bounds=[(-12.0, 16.0)] * 2 * buffers)
        for nearest in (1 / (rounds + 1), 1 / math.sqrt(rounds + 1))
    ]
    return _rounded(_chain(min(found, key=lambda each: each.fun).x))


def _start(nearest: float, buffers: int) -> np.ndarray:
    """The logits of a chain whose distances from 1 begin at `nearest` and grow by the same factor."""
    chain = 1 - 0.9 * np.geomspace(nearest, 1, 2 * buffers + 1)[:-1]
    ratios = chain / np.concatenate([[1.0], chain[:-1]])
    return np.log(ratios) - np.log1p(-ratios)


def _chain(logits: np.ndarray) -> np.ndarray:
    """θ_1 > ĥ_1 > θ_2 > …"""
    return np.cumprod(1 / (1 + np.exp(-logits)))


def _log_loss(logits: np.ndarray, pattern: Participation, weights: np.ndarray) -> tuple[float, np.ndarray]:
    """log(sensitivity²·error) and its gradient."""
    chain = _chain(logits)
    column = np.zeros_like(weights)
    column[0] = 1.0
    sums = np.ones_like(weights)  # of the first column of C⁻¹: the weights of fresh noise in the sum of the rounds
    for decay, inverse in zip(chain[::2], chain[1::2]):
        column = _filtered([1, -inverse], decay, column)
        sums = _filtered([1, -decay], inverse, sums)
    reported = _every(column, pattern)
    squared, error = reported @ reported, weights @ sums**2
    slopes = np.zeros_like(chain)
    for place, root in enumerate(chain):
        sign = 1 if place % 2 == 0 else -1
        moved, summed = (_filtered([0, 1], root, series) for series in (column, sums))
        slopes[place] = 2 * sign * (reported @ _every(moved, pattern) / squared)
        slopes[place] -= 2 * sign * (weights @ (sums * summed) / error)
    ratios = 1 / (1 + np.exp(-logits))
    gradient = (1 - ratios) * np.cumsum((slopes * chain)[::-1])[::-1]
    return math.log(squared * error), gradient


def _filtered(numerator: list[float], root: float, series: np.ndarray) -> np.ndarray:
    """The coefficients of series·numerator/(1 − root·x)."""
    return np.asarray(lfilter(numerator, [1, -root], series))


def _rounded(chain: np.ndarray) -> Correlation:
    """The decays and the scales of a chain, in units of 2⁻¹⁵; a buffer of scale 0 is left out."""
    decays, inverses = chain[::2], chain[1::2]
    apart = decays[:, None] - decays
    np.fill_diagonal(apart, 1.0)
    scales = np.prod(decays[:, None] - inverses, axis=1) / np.prod(apart, axis=1)
    kept = [(round(decay * _UNIT), math.floor(scale * _UNIT)) for decay, scale in zip(decays, scales)]
    kept = [(decay, scale) for decay, scale in kept if scale > 0]
    return Correlation(tuple(decay for decay, _ in kept), tuple(scale for _, scale in kept))


# ---- Noise, round by round ----


class Buffers(NamedTuple):
    """The state between rounds, int32[buffers, D] each: whole numbers, and what is behind the point in units of 2⁻¹⁵."""

    whole: jax.Array
    part: jax.Array


def empty_buffers(correlation: Correlation, numbers: int) -> Buffers:
    """The buffers before the first round."""
    shape = (len(correlation.decays), numbers)
    return Buffers(jnp.zeros(shape, jnp.int32), jnp.zeros(shape, jnp.int32))  # two, for a program may take both over


def correlate(correlation: Correlation, buffers: Buffers, fresh: jax.Array) -> tuple[jax.Array, Buffers]:
    """The round's noise int32[D], made of fresh integer noise and the buffers; and the buffers of the next round."""
    decays, scales = (jnp.array(units, jnp.int32)[:, None] for units in (correlation.decays, correlation.scales))
    whole, part = _times(buffers, scales)
    taken_back = whole.sum(0) + ((part.sum(0) + _UNIT // 2) >> _BITS)
    noise = fresh - taken_back
    decayed = _times(buffers, decays)
    return noise, Buffers(decayed.whole + noise, decayed.part)


def _times(buffers: Buffers, factor: jax.Array) -> Buffers:
    """Buffers times a factor in units of 2⁻¹⁵, rounded down behind the last bit; |whole| must be below 2³⁰."""
    above, below = buffers.whole >> _BITS, buffers.whole & (_UNIT - 1)
    middle = below * factor
    last = (middle & (_UNIT - 1)) + (buffers.part * factor >> _BITS)
    return Buffers(above * factor + (middle >> _BITS) + (last >> _BITS), last & (_UNIT - 1))


# ---- What it costs ----


def rounding_error(correlation: Correlation, rounds: int) -> float:
    """More than rounding can change the difference of two neighbours' m_t, in one number of one round.

    Rounding Σ_j ω_j·s_j changes a difference by less than 1. Each product is rounded down by less than 2⁻¹⁵, and what a
    buffer was rounded by decays with it.
    """
    decays, scales = (np.array(units, float) / _UNIT for units in (correlation.decays, correlation.scales))
    kept = (decays ** np.arange(rounds)[:, None]).sum(0)
    return 1 + (len(decays) + scales @ kept) / _UNIT


@lru_cache(maxsize=256)
def least_steps(correlation: Correlation, pattern: Participation, numbers: int) -> float:
    """R: how many units of the grid a clip bound must have, so that `cost` covers the rounding of so many numbers."""
    if not correlation.decays:
        return 0.0
    rounding = rounding_error(correlation, pattern.rounds) * math.sqrt(pattern.rounds * numbers)
    return rounding / (_ROUNDING * sensitivity(correlation, pattern))


@lru_cache(maxsize=256)
def cost(correlation: Correlation, pattern: Participation, rounds: int | None = None) -> float:
    """How far one device moves what is priced, rounding included, in clip bounds; in the first so many rounds alone.

    Fresh noise of so many clip bounds in each round is one Gaussian mechanism of multiplier 1 for them together.
    """
    rounding = _ROUNDING * sensitivity(correlation, pattern) if correlation.decays else 0.0
    return sensitivity(correlation, pattern if rounds is None else pattern._replace(rounds=rounds)) + rounding


def check_buffers(correlation: Correlation, pattern: Participation, deviation: float) -> None:
    """Refuse fresh noise, in units of the grid, for which a buffer may overflow."""
    most = _largest_deviation(correlation, pattern.rounds)
    if deviation > most:
        raise PlanError(
            f"privacy.noise must be at most {most:.3g} units of its grid of whole numbers where it is correlated over "
            f"{pattern.rounds} rounds, got {deviation:.3g}; give a smaller noise, or fewer rounds."
        )


@lru_cache(maxsize=64)
def _largest_deviation(correlation: Correlation, rounds: int) -> float:
    """The fresh noise with which no buffer overflows, but for a chance below 2⁻¹⁰⁰."""
    inverse = correlation.inverse_column(rounds)
    sizes = [np.linalg.norm(_filtered([1], decay / _UNIT, inverse)) for decay in correlation.decays]
    return 2**30 / (_FAR * float(max(sizes, default=1.0)))
