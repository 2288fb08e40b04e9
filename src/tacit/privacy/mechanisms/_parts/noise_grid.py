"""Noise on the integer grid: which grid a noise needs, so that rounding costs less than 1 % of it, and how exact it is."""

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from tacit.core.integer_grid import Grid, Norm, add_int64, from_vector, is_int64, l2_grid, sizes_of, widen
from tacit.errors import PlanError
from tacit.privacy.mechanisms._parts.discrete_noise import discrete_laplace, rounded_gaussian
from tacit.privacy.mechanisms._parts.noise_tables import (
    MAX_SCALE,
    UNIT,
    GaussianTable,
    LaplaceTable,
    gaussian_factors,
    gaussian_table,
    gaussian_table_above,
    laplace_table,
)

MAX_STEPS = 2**20  # the most steps in a clip bound: what float32 still divides
MAX_DEVIATION = 4e6  # the largest σ, in steps, that tables compose
CLIPS = (1e-12, 1e12)  # the smallest and the largest clip bound
LEAST_NOISE = 1e-9  # of a clip bound; what is below is nothing on any grid
MOST_NUMBERS = 2**22  # in one message or sum: more, and what tables leave to δ would be more than is stated
TAU = 1.2e-25  # the most that one draw of any table here differs from its law, in total variation
GAP = MOST_NUMBERS * TAU  # the same for a message or a sum; what it takes off δ is the accountant's business


@dataclass(frozen=True)
class NoiseGrid(Grid):
    """A grid, and the integers that are added to what is on it."""

    noise: GaussianTable | LaplaceTable | None = None
    people: float = 1  # whose integers are added before the noise is

    @property
    def reach(self) -> int:
        """The largest |noise|."""
        return 0 if self.noise is None else self.noise.reach

    @property
    def rounding_cost(self) -> float:
        """How much rounding adds to the noise's standard deviation, relative to it: below .01 except on the finest grid."""
        if self.noise is None:
            return 0.0
        own = float(self.noise.variance) if isinstance(self.noise, GaussianTable) else 2 * float(self.noise.scale) ** 2
        return math.sqrt(1 + self.people / 6 / own) - 1  # a rounding has variance f(1 − f), 1/6 on average


@lru_cache(maxsize=256)
def gaussian_grid(noise: float, numbers: int, people: float = 1, least: float = 0.0, wanted: float = 0.0) -> NoiseGrid:
    """The grid for noise of `noise` times an L2 bound: fine enough for the rounding of `people` vectors of so many numbers.

    The bound has at least `least` steps, and `wanted` as far as the noise has room for them.
    """
    _check_numbers(numbers)
    if noise == 0:
        return _with_noise(l2_grid(MAX_STEPS**2, numbers), None, people)
    check_noise(noise)
    fine = max(8 * math.sqrt(numbers), 3 * math.sqrt(people) / noise, 1.01 * least, wanted)
    steps = max(1.0, min(fine, MAX_STEPS, MAX_DEVIATION / noise))
    if steps < least:
        raise PlanError(
            f"privacy.correlation requires a grid of {least:.3g} steps in a clip bound for {numbers:,} numbers, and noise = "
            f"{noise:.3g} leaves {steps:.3g}; train fewer numbers or rounds, or give a larger epsilon."
        )
    exact = Fraction(noise)
    if noise * MAX_STEPS < math.sqrt(UNIT):
        table = gaussian_table_above(noise * MAX_STEPS)  # σ below 256 steps, or the steps would be too many
    else:
        table = gaussian_table(UNIT, gaussian_factors((exact * Fraction(steps)) ** 2))
    bound = max(1, min(math.floor(table.variance / exact**2), MAX_STEPS**2))
    return _with_noise(l2_grid(bound, numbers), table, people)


@lru_cache(maxsize=256)
def unit_grid(noise: float, steps: int, numbers: int, people: float = 1) -> NoiseGrid:
    """The grid of a given number of steps in a bound of 1, with normal noise of at least `noise`."""
    _check_numbers(numbers)
    most = MAX_DEVIATION / steps
    if not (noise == 0 or LEAST_NOISE <= noise <= most):
        raise PlanError(
            f"privacy.noise must be 0 or from {LEAST_NOISE:g} to {most:.3g} in units of what one person adds, got "
            f"{noise:g}; give 0 for none, or a larger epsilon."
        )
    return _with_noise(l2_grid(steps**2, numbers), gaussian_table_above(noise * steps) if noise else None, people)


@lru_cache(maxsize=256)
def laplace_grid(
    scale: Fraction | float, norm: Norm, numbers: int = 1, people: float = 1, steps: int | None = None
) -> NoiseGrid:
    """The grid for Laplace noise of `scale` times a bound on the L1 norm, or on each number; of so many steps where given."""
    _check_numbers(numbers)
    if not 0 < scale <= MAX_SCALE:
        raise PlanError(
            f"privacy.scale must be above 0 and at most {MAX_SCALE:,} bounds, got {float(scale):.3g}; give a larger "
            "epsilon, or train fewer numbers."
        )
    wanted = max(1024.0, 256 / scale, 2.1 * math.sqrt(people) / scale)
    bound = steps or max(1, math.floor(min(wanted, MAX_STEPS, MAX_SCALE / scale)))
    table = laplace_table(math.ceil(bound * Fraction(scale)))
    keep = 1 - 2.0**-18 if norm == "l1" else 1.0  # a sum of floats may be a little more than it should
    return NoiseGrid(norm, bound, 1 / bound, keep, table, people)


def epsilon_of(grid: NoiseGrid, numbers: int = 1) -> float:
    """The pure ε of the integers themselves, replace-one: 2R/s for L1, 2DR/s for elements."""
    if not isinstance(grid.noise, LaplaceTable):
        raise TypeError("Only a grid with Laplace noise has a pure ε.")
    differ = 2 * grid.bound * (numbers if grid.norm == "elements" else 1)
    return float(differ / grid.noise.scale) * (1 + 2.0**-50)


def _with_noise(grid: Grid, table: GaussianTable | None, people: float) -> NoiseGrid:
    return NoiseGrid(grid.norm, grid.bound, grid.step, grid.keep, table, people)


# ---- Noise ----


def draw_noise(key: jax.Array, grid: NoiseGrid, shape: tuple[int, ...]) -> jax.Array:
    """int32 draws of a grid's noise; zeros where it has none."""
    if grid.noise is None:
        return jnp.zeros(shape, jnp.int32)
    if isinstance(grid.noise, GaussianTable):
        return rounded_gaussian(key, grid.noise, shape)
    return discrete_laplace(key, grid.noise, shape)


def add_noise(key: jax.Array, grid: NoiseGrid, sums: Any) -> Any:
    """A tree of 64-bit sums with a grid's noise on every number, in one draw."""
    numbers = sum(leaf.low.size for leaf in jax.tree.leaves(sums, is_leaf=is_int64))
    return add_integers(sums, draw_noise(key, grid, (numbers,)))


def add_integers(sums: Any, integers: jax.Array) -> Any:
    """A tree of 64-bit sums with int32 added to every number, leaf after leaf."""
    shapes = jax.tree.map(lambda leaf: leaf.low, sums, is_leaf=is_int64)
    added = from_vector(integers, shapes)
    return jax.tree.map(lambda leaf, each: add_int64(leaf, widen(each)), sums, added, is_leaf=is_int64)


def in_range(payload: Any, grid: NoiseGrid) -> jax.Array:
    """Whether a payload with noise is one that a device can have made: every |number| ≤ largest + reach."""
    return sizes_of(payload).max(initial=np.uint32(0)) <= grid.largest + grid.reach


# ---- Limits ----


def _check_numbers(numbers: int) -> None:
    if numbers > MOST_NUMBERS:
        raise PlanError(
            f"A message with noise must have at most {MOST_NUMBERS:,} numbers, got {numbers:,}; train fewer of them, or "
            "choose a smaller model."
        )


def check_clip(name: str, clip: float) -> None:
    """Refuse a bound outside of what float32 divides exactly enough."""
    if not CLIPS[0] <= clip <= CLIPS[1]:
        raise PlanError(
            f"{name} must be from {CLIPS[0]:g} to {CLIPS[1]:g}, got {clip:g}; scale the update, for example by the "
            "learning rate."
        )


def check_noise(noise: float) -> None:
    """Refuse noise that no grid is for."""
    if not (noise == 0 or LEAST_NOISE <= noise <= MAX_DEVIATION):
        raise PlanError(
            f"privacy.noise must be 0 or from {LEAST_NOISE:g} to {MAX_DEVIATION:g} of the clip bound, got {noise:g}; give "
            "0 for none, or a larger epsilon."
        )


def check_headroom(grid: NoiseGrid, place: Literal["local", "central"]) -> None:
    """Refuse a grid whose payloads, or whose noise, overflow 32 bits; sums of 2³¹ such payloads then fit 64."""
    most = max(grid.largest + (grid.reach if place == "local" else 0), grid.reach)
    if most >= 2**31:
        raise PlanError(
            f"privacy.noise must leave payloads below 2^31 steps of the grid, got {most:,}; give a smaller noise, or train "
            "fewer numbers."
        )
