"""The integer grid: its step, bounded rounding of float vectors to it, 64-bit sums without x64, and the limits of both.

A bounded vector x becomes integers q on a public grid, x ≈ step·q. Privacy rests on one fact only, which `within` checks
in integers before anything is sent or added: ‖q‖₂² ≤ `bound`, ‖q‖₁ ≤ `bound`, or every |q| ≤ `bound`. How well q stands
for x is a matter of accuracy, and is computed in float32: an error there cannot break the bound.

Sums are pairs of 32-bit words (`Int64`), which are exact in jitted code with JAX's x64 off; on the host they are int64.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tacit.errors import PlanError
from tacit.privacy.mechanisms._parts.discrete_noise import (
    MAX_SCALE,
    UNIT,
    GaussianTable,
    LaplaceTable,
    discrete_laplace,
    gaussian_factors,
    gaussian_table,
    gaussian_table_above,
    laplace_table,
    rounded_gaussian,
)

MAX_STEPS = 2**20  # the most steps in a clip bound: what float32 still divides
CLIPS = (1e-12, 1e12)  # the smallest and the largest clip bound
LEAST_NOISE = 1e-9  # of a clip bound; what is below is nothing on any grid
CHUNK_ROWS = 2**16  # the most rows that one sum of halves adds without a carry
_GOLDEN = np.uint32(0x9E3779B9)  # 2³²·.618…: an offset that spreads the rounding of neighbours evenly

Norm = Literal["l1", "l2", "elements"]


@dataclass(frozen=True)
class Grid:
    """A grid in units of the clip bound, so that the bound may move while the integers stay as they are."""

    norm: Norm
    bound: int  # the largest Σq² (l2), Σ|q| (l1) or |q| (elements)
    step: float  # in units of the clip bound
    keep: float  # the share of the bound that a float vector is shrunk to, so that its rounding stays within
    noise: GaussianTable | LaplaceTable | None
    people: float  # whose integers are added before the noise is

    @property
    def largest(self) -> int:
        """The largest |q|."""
        return math.isqrt(self.bound) if self.norm == "l2" else self.bound

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


def gaussian_grid(noise: float, numbers: int, people: float = 1) -> Grid:
    """The grid for noise of `noise` times an L2 bound: fine enough for the rounding of `people` vectors of so many numbers."""
    if noise == 0:
        return Grid("l2", MAX_STEPS**2, 1 / MAX_STEPS, _keep(numbers, MAX_STEPS**2), None, people)
    if not noise >= LEAST_NOISE:
        raise PlanError(
            f"privacy.noise must be 0 or at least {LEAST_NOISE:g} of the clip bound, got {noise:g}; give 0 for none."
        )
    steps = min(max(8 * math.sqrt(numbers), 3 * math.sqrt(people) / noise), MAX_STEPS)
    exact = Fraction(noise)
    if noise * MAX_STEPS < math.sqrt(UNIT):
        table = gaussian_table_above(noise * MAX_STEPS)  # σ below 256 steps, or the steps would be too many
    else:
        table = gaussian_table(UNIT, gaussian_factors((exact * Fraction(steps)) ** 2))
    bound = min(math.floor(table.variance / exact**2), MAX_STEPS**2)
    return Grid("l2", bound, 1 / math.sqrt(bound), _keep(numbers, bound), table, people)


def _keep(numbers: int, bound: int) -> float:
    """√(1 − p/(4R²) − 2/R): a rounded vector of this length is within the bound but for rare draws."""
    return math.sqrt(max(0.25, 1 - numbers / (4 * bound) - 2 / math.sqrt(bound)))


def laplace_grid(scale: float, norm: Norm, people: float = 1) -> Grid:
    """The grid for Laplace noise of `scale` times a bound on the L1 norm, or on each number."""
    if not 0 < scale <= MAX_SCALE:
        raise PlanError(
            f"privacy.scale must be above 0 and at most {MAX_SCALE:,} bounds, got {scale:.3g}; give a larger epsilon, or "
            "train fewer numbers."
        )
    wanted = max(1024.0, 256 / scale, 2.1 * math.sqrt(people) / scale)
    bound = max(1, math.floor(min(wanted, MAX_STEPS, MAX_SCALE / scale)))
    table = laplace_table(math.ceil(bound * Fraction(scale)))
    keep = 1 - 2.0**-18 if norm == "l1" else 1.0  # a sum of floats may be a little more than it should
    return Grid(norm, bound, 1 / bound, keep, table, people)


def epsilon_of(grid: Grid, numbers: int = 1) -> float:
    """The pure ε of the integers themselves, replace-one: 2R/s for L1, 2DR/s for elements."""
    if not isinstance(grid.noise, LaplaceTable):
        raise TypeError("Only a grid with Laplace noise has a pure ε.")
    differ = 2 * grid.bound * (numbers if grid.norm == "elements" else 1)
    return float(differ / grid.noise.scale) * (1 + 2.0**-50)


# ---- Rounding ----


def round_to_grid(word: jax.Array | None, x: jax.Array, clip: Any, grid: Grid) -> jax.Array:
    """The integers int32[D] for a float vector x[D], shrunk to the clip bound; what is not finite is the zero vector.

    `word` is one random uint32 for the whole vector, which makes rounding unbiased; None rounds to the nearest.
    """
    y = _scaled(x.astype(jnp.float32), jnp.asarray(clip, jnp.float32), grid)
    size = jnp.abs(y) if grid.norm == "l1" else y
    whole = jnp.floor(size)
    part = (jnp.minimum(size - whole, 1 - 2.0**-24) * 2.0**32).astype(jnp.uint32)
    up = _carried(word, part, grid.norm)
    towards_zero = jnp.trunc(y).astype(jnp.int32)
    q = whole.astype(jnp.int32) + up
    q = jnp.where(y < 0, -q, q) if grid.norm == "l1" else q
    if grid.norm == "elements":
        return jnp.clip(q, -grid.bound, grid.bound)
    return jnp.where(within(q, grid), q, jnp.where(within(towards_zero, grid), towards_zero, 0))


def draw_noise(key: jax.Array, grid: Grid, shape: tuple[int, ...]) -> jax.Array:
    """int32 draws of a grid's noise; zeros where it has none."""
    if grid.noise is None:
        return jnp.zeros(shape, jnp.int32)
    if isinstance(grid.noise, GaussianTable):
        return rounded_gaussian(key, grid.noise, shape)
    return discrete_laplace(key, grid.noise, shape)


def from_grid(integers: Any, clip: Any, grid: Grid) -> jax.Array:
    """The float32 numbers that integers (int32 or Int64) stand for."""
    numbers = to_float(integers) if isinstance(integers, Int64) else integers.astype(jnp.float32)
    return numbers * (jnp.asarray(clip, jnp.float32) * grid.step)


def _scaled(x: jax.Array, clip: jax.Array, grid: Grid) -> jax.Array:
    """x in steps, shrunk into the bound. Norms are of x over its largest number: no square and no sum overflows."""
    steps = 1 / grid.step
    largest = jnp.abs(x).max(initial=0.0)
    sound = jnp.isfinite(x).all() & (largest >= np.finfo(np.float32).tiny)  # smaller ones are not divided exactly
    x, largest = jnp.where(sound, x, 0.0), jnp.where(sound, largest, 1.0)
    if grid.norm == "elements":
        return jnp.clip(x, -clip, clip) / clip * steps
    x = x / largest
    norm = jnp.sqrt(jnp.square(x).sum()) if grid.norm == "l2" else jnp.abs(x).sum()
    size = largest / clip  # may be infinite
    inside = norm * size <= grid.keep
    return x * (jnp.where(inside, size, grid.keep / jnp.where(norm > 0, norm, 1.0)) * steps)


def _carried(word: jax.Array | None, part: jax.Array, norm: Norm) -> jax.Array:
    """Which numbers are rounded up, by parts in units of 2⁻³²: offsets are added to them, and a sum that wraps carries."""
    if word is None:
        return (part >= np.uint32(2**31)).astype(jnp.int32)
    if norm == "l1":
        # ⌊S_i + u⌋ − ⌊S_{i−1} + u⌋ over running sums S: as many carries as the whole norm has, or one more.
        running = jnp.cumsum(part, dtype=jnp.uint32) + word
        return (running < part).astype(jnp.int32)
    offsets = word + jnp.arange(part.size, dtype=jnp.uint32) * _GOLDEN
    return (part + offsets < part).astype(jnp.int32)


def within(q: jax.Array, grid: Grid) -> jax.Array:
    """Whether integers are within the bound, exactly; for the device before it sends and the server before it adds."""
    size = _magnitude(q)
    small = size.max(initial=np.uint32(0)) <= grid.largest
    if grid.norm == "l2" and size.size * grid.bound >= 2**64:
        raise ValueError(f"The squares of {size.size} numbers of up to {grid.largest} do not fit 64 bits.")
    if grid.norm == "elements":
        return small
    size = jnp.where(small, size, 0)
    total = _sum_words(*(_square(size) if grid.norm == "l2" else (jnp.zeros_like(size), size)))
    high, low = np.uint32(grid.bound >> 32), np.uint32(grid.bound & 0xFFFFFFFF)
    return small & ((total[0] < high) | ((total[0] == high) & (total[1] <= low)))


def in_range(payload: jax.Array, grid: Grid) -> jax.Array:
    """Whether a payload with noise is one that a device can have made: every |number| ≤ largest + reach."""
    return _magnitude(payload).max(initial=np.uint32(0)) <= grid.largest + grid.reach


def _magnitude(q: jax.Array) -> jax.Array:
    return jnp.where(q < 0, -q, q).astype(jnp.uint32)  # −2³¹ is 2³¹


def _square(size: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The two words of a square."""
    high, low = size >> 16, size & 0xFFFF
    cross, last = high * low, low * low
    first = last + (cross << 17)
    return high * high + (cross >> 15) + (first < last), first


def _sum_words(high: jax.Array, low: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The sum of 64-bit numbers [n] that are two words each, in vectorised 32-bit sums of half words."""
    rows = -(-low.size // CHUNK_ROWS)
    if rows > 1:
        fill = rows * CHUNK_ROWS - low.size
        high, low = (jnp.pad(part, (0, fill)).reshape(rows, CHUNK_ROWS) for part in (high, low))
    halves = [half.sum(-1, dtype=jnp.uint32) for part in (low, high) for half in (part & 0xFFFF, part >> 16)]
    first = halves[0] + (halves[1] << 16)
    second = halves[2] + (halves[3] << 16) + (halves[1] >> 16) + (first < halves[0])

    def add(one: tuple, other: tuple) -> tuple:
        low = one[1] + other[1]
        return one[0] + other[0] + (low < one[1]).astype(jnp.uint32), low

    zero = np.uint32(0)
    return jax.lax.reduce((second, first), (zero, zero), add, (0,)) if rows > 1 else (second, first)


# ---- 64-bit sums ----


class Int64(NamedTuple):
    """Integers of 64 bits, in two's complement, as two arrays of 32."""

    high: Any  # int32
    low: Any  # uint32


def zeros_int64(shape: tuple[int, ...]) -> Int64:
    """Zeros."""
    return Int64(jnp.zeros(shape, jnp.int32), jnp.zeros(shape, jnp.uint32))


def widen(numbers: jax.Array) -> Int64:
    """int32 as 64 bits."""
    return Int64(numbers >> 31, numbers.astype(jnp.uint32))


def add_int64(one: Int64, other: Int64) -> Int64:
    """Their sum, modulo 2⁶⁴."""
    low = one.low + other.low
    return Int64(one.high + other.high + (low < one.low), low)


def sum_int64(numbers: jax.Array) -> Int64:
    """The sum of int32 [rows, ...] over their rows, exactly."""
    total = zeros_int64(numbers.shape[1:])
    for at in range(0, numbers.shape[0], CHUNK_ROWS):
        rows = numbers[at : at + CHUNK_ROWS]
        high, low = (rows >> 16).sum(0, dtype=jnp.int32), (rows & 0xFFFF).astype(jnp.uint32).sum(0, dtype=jnp.uint32)
        total = add_int64(
            total, add_int64(Int64(high >> 16, high.astype(jnp.uint32) << 16), Int64(jnp.zeros_like(high), low))
        )
    return total


def to_float(numbers: Int64) -> jax.Array:
    """The nearest float32, but for one rounding more."""
    negative = numbers.high < 0
    low = jnp.where(negative, -numbers.low, numbers.low)
    high = jnp.where(negative, ~numbers.high + (numbers.low == 0), numbers.high).astype(jnp.uint32)
    size = high.astype(jnp.float32) * 2.0**32 + low.astype(jnp.float32)
    return jnp.where(negative, -size, size)


def to_numpy(numbers: Int64) -> np.ndarray:
    """int64, on the host."""
    return np.asarray(numbers.high, np.int64) << 32 | np.asarray(numbers.low, np.int64)


def from_numpy(numbers: np.ndarray) -> Int64:
    """From int64, on the host."""
    numbers = np.asarray(numbers, np.int64)
    return Int64((numbers >> 32).astype(np.int32), (numbers & 0xFFFFFFFF).astype(np.uint32))


# ---- Limits ----


def check_clip(name: str, clip: float) -> None:
    """Refuse a bound outside of what float32 divides exactly enough."""
    if not CLIPS[0] <= clip <= CLIPS[1]:
        raise PlanError(
            f"{name} must be from {CLIPS[0]:g} to {CLIPS[1]:g}, got {clip:g}; scale the update, for example by the "
            "learning rate."
        )


def check_headroom(
    grid: Grid, reports: int, place: Literal["local", "central"], total_bits: Literal[32, 64] = 64
) -> None:
    """Refuse a grid whose payloads overflow 32 bits, or whose sums over so many reports overflow the total's."""
    noisy = grid.largest + (grid.reach if place == "local" else 0)
    if noisy >= 2**31:
        raise PlanError(
            f"privacy.noise must leave payloads below 2^31 steps of the grid, got {noisy:,}; give a smaller noise, or "
            "train fewer numbers."
        )
    total = reports * noisy + (grid.reach if place == "central" else 0)
    if total >= 2 ** (total_bits - 1):
        raise PlanError(
            f"A cohort must keep its sum below 2^{total_bits - 1} steps of the grid, got {reports:,} reports of up to "
            f"{noisy:,}; draw a smaller cohort, or give a larger noise for a coarser grid."
        )
