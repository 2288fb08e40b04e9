"""The integer grid: bounded rounding of float vectors to whole numbers, and exact sums of those in 64 bits.

A bounded vector x becomes integers q on a public grid, x ≈ step·q. Privacy rests on one fact only, which `within` checks
in integers before anything is sent or added: ‖q‖₂² ≤ `bound`, ‖q‖₁ ≤ `bound`, or every |q| ≤ `bound`. How well q stands
for x is a matter of accuracy, and is computed in float32: an error there cannot break the bound.

Sums are pairs of 32-bit words (`Int64`), which are exact in jitted code with JAX's x64 off; on the host they are int64.
"""

import math
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tacit.core.sparse_rows import Rows, is_rows, is_sound

PARTS = 1024  # a bound on squares may be shared out in so many parts, one round after the other
CHUNK_ROWS = 2**16  # the most rows that one sum of halves adds without a carry
_GOLDEN = np.int32(0x4F1BBCDD)  # 2³¹·.618…: an offset that spreads the rounding of neighbours evenly
_LOW_BITS = np.int32(2**31 - 1)

Norm = Literal["l1", "l2", "elements"]


@dataclass(frozen=True)
class Grid:
    """A grid in units of the clip bound, so that the bound may move while the integers stay as they are."""

    norm: Norm
    bound: int  # the largest Σq² (l2), Σ|q| (l1) or |q| (elements)
    step: float  # in units of the clip bound
    keep: float  # the share of the bound that a float vector is shrunk to, so that its rounding stays within

    @property
    def largest(self) -> int:
        """The largest |q|."""
        return math.isqrt(self.bound) if self.norm == "l2" else self.bound


def l2_grid(bound: int, numbers: int) -> Grid:
    """The grid of vectors of so many numbers whose squares sum to at most `bound`."""
    keep = math.sqrt(max(0.25, 1 - numbers / (4 * bound) - 2 / math.sqrt(bound)))  # few roundings leave the bound
    return Grid("l2", bound, 1 / math.sqrt(bound), keep)


# ---- Vectors ----


def to_vector(tree: Any) -> jax.Array:
    """All numbers of a tree of arrays, leaf after leaf."""
    leaves = jax.tree.leaves(tree)
    return leaves[0].reshape(-1) if len(leaves) == 1 else jnp.concatenate([leaf.reshape(-1) for leaf in leaves])


def from_vector(vector: jax.Array, like: Any) -> Any:
    """The tree of this form whose numbers these are."""
    leaves, tree = jax.tree.flatten(like)
    sizes = [math.prod(leaf.shape) for leaf in leaves]
    parts = jnp.split(vector, np.cumsum(sizes)[:-1].tolist())
    return jax.tree.unflatten(tree, [part.reshape(leaf.shape) for part, leaf in zip(parts, leaves)])


def values_of(update: Any) -> tuple[jax.Array, Any]:
    """The numbers of an update that may not be zero, and the form to put them back into: of Rows, their values.

    Rows that name a row twice count as zero: their sum would be longer than the numbers that a bound is checked for.
    """
    leaves, form = jax.tree.flatten(update, is_leaf=is_rows)
    parts = [jnp.where(is_sound(leaf), leaf.value, 0) if is_rows(leaf) else leaf for leaf in leaves]
    return to_vector(parts).astype(jnp.float32), (leaves, form)


def with_values(vector: jax.Array, rest: Any) -> Any:
    """The update whose numbers were replaced by these."""
    leaves, form = rest
    parts = from_vector(vector, [leaf.value if is_rows(leaf) else leaf for leaf in leaves])
    made = [leaf.with_value(part) if is_rows(leaf) else part for leaf, part in zip(leaves, parts)]
    return jax.tree.unflatten(form, made)


# ---- Rounding ----


def round_to_grid(
    word: jax.Array | None, x: jax.Array, clip: Any, grid: Grid, part: jax.Array | None = None
) -> jax.Array:
    """The integers int32[D] for a float vector x[D], shrunk to the clip bound; what is not finite is the zero vector.

    `word` is one random uint32 for the whole vector, which makes rounding unbiased; None rounds to the nearest. With `part` the
    vector gets so many of the PARTS of the bound on its squares: it is shorter by the root of part/PARTS, steps and all.
    """
    y = in_steps(x.astype(jnp.float32), jnp.asarray(clip, jnp.float32), grid, part)
    size = jnp.abs(y)
    whole = size.astype(jnp.int32)
    fraction = ((size - whole.astype(jnp.float32)) * 2.0**31).astype(jnp.int32)
    up = _carried(word, fraction, grid.norm)
    q, towards_zero = (jnp.where(y < 0, -steps, steps) for steps in (whole + up, whole))
    if grid.norm == "elements":
        return jnp.clip(q, -grid.bound, grid.bound)
    return jnp.where(within(q, grid, part), q, jnp.where(within(towards_zero, grid, part), towards_zero, 0))


def in_steps(x: jax.Array, clip: jax.Array, grid: Grid, part: jax.Array | None = None) -> jax.Array:
    """x in steps, shrunk into the bound. Norms are of x over its largest number: no square and no sum overflows."""
    steps, keep = 1 / grid.step, grid.keep
    if part is not None:
        share = part.astype(jnp.float32) / PARTS
        steps = steps * jnp.sqrt(share)  # rounding takes the same room of a smaller bound
        keep = jnp.sqrt(jnp.maximum(0.25, 1 - (1 - grid.keep**2) / jnp.maximum(share, 1 / PARTS)))
    largest = jnp.abs(x).max(initial=0.0)
    sound = jnp.isfinite(x).all() & (largest >= np.finfo(np.float32).tiny)  # smaller ones are not divided exactly
    x, largest = jnp.where(sound, x, 0.0), jnp.where(sound, largest, 1.0)
    if grid.norm == "elements":
        return jnp.clip(x, -clip, clip) / clip * steps
    x = x / largest
    norm = jnp.sqrt(jnp.square(x).sum()) if grid.norm == "l2" else jnp.abs(x).sum()
    size = largest / clip  # may be infinite
    inside = norm * size <= keep
    return x * (jnp.where(inside, size, keep / jnp.where(norm > 0, norm, 1.0)) * steps)


def _carried(word: jax.Array | None, part: jax.Array, norm: Norm) -> jax.Array:
    """Which sizes are rounded up, by parts in units of 2⁻³¹: offsets are added to them, and a sum that overflows carries."""
    if word is None:
        return part >> 30
    word = (word >> 1).astype(jnp.int32)
    if norm == "l1":
        # ⌊S_i + u⌋ − ⌊S_{i−1} + u⌋ over running sums S: as many carries as the whole norm has, or one more.
        running = (jnp.cumsum(part) + word) & _LOW_BITS
        return (running < part).astype(jnp.int32)
    offsets = (word + jnp.arange(part.size, dtype=jnp.int32) * _GOLDEN) & _LOW_BITS
    return ((part + offsets) >> 31) & 1


def within(q: jax.Array, grid: Grid, part: jax.Array | None = None) -> jax.Array:
    """Whether integers are within the bound, exactly; for the device before it sends and the server before it adds.

    With `part`, whether their squares are within so many of the PARTS of the bound.
    """
    size = sizes_of(q)
    small = size.max(initial=np.uint32(0)) <= grid.largest
    if grid.norm == "l2" and size.size * grid.bound >= 2**64:
        raise ValueError(f"The squares of {size.size} numbers of up to {grid.largest} do not fit 64 bits.")
    if grid.norm == "elements":
        return small
    size = jnp.where(small, size, 0)
    total = _sum_terms(size, grid)
    high, low = _words_of(grid.bound) if part is None else _words_of_part(grid.bound, part)
    return small & ((total[0] < high) | ((total[0] == high) & (total[1] <= low)))


def _words_of(bound: int) -> tuple[Any, Any]:
    return np.uint32(bound >> 32), np.uint32(bound & 0xFFFFFFFF)


def _words_of_part(bound: int, part: jax.Array) -> tuple[jax.Array, jax.Array]:
    """⌊bound·part/PARTS⌋ in two words, from a table: exact, whatever the bound."""
    words = [_words_of(bound * many // PARTS) for many in range(PARTS + 1)]
    at = jnp.clip(part, 0, PARTS)
    high, low = (jnp.asarray(np.array(column, np.uint32))[at] for column in zip(*words))
    return high, low


def _sum_terms(size: jax.Array, grid: Grid) -> tuple[jax.Array, jax.Array]:
    """The sum of squares (l2) or sizes (l1) of numbers up to the largest, exactly, as two words."""
    squares = grid.norm == "l2"
    together = min(CHUNK_ROWS, 2**32 // (grid.largest ** (2 if squares else 1) + 1))  # terms whose sum fits 32 bits
    together = min(together, size.size)
    if together < min(16, size.size):
        return _sum_words(*(_square(size) if squares else (jnp.zeros_like(size), size)))
    fill = -size.size % max(1, together)
    blocks = jnp.pad(size, (0, fill)).reshape(-1, max(1, together))
    sums = (blocks * blocks if squares else blocks).sum(-1, dtype=jnp.uint32)
    return _sum_words(jnp.zeros_like(sums), sums)


def sizes_of(q: jax.Array) -> jax.Array:
    """|q|, of every int32."""
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


def is_int64(leaf: object) -> bool:
    """For `is_leaf` in tree functions: stop at an Int64."""
    return isinstance(leaf, Int64)


def _together(largest: int) -> int:
    """How many numbers of this size have a sum that surely fits 32 bits."""
    return max(1, (2**31 - 1) // largest)


def sum_int64(numbers: jax.Array, largest: int = 2**31) -> Int64:
    """The exact sum over the rows of int32 [rows, ...], none of them larger than `largest`."""
    if numbers.shape[0] <= _together(largest):
        return widen(numbers.sum(0, dtype=jnp.int32))
    total = zeros_int64(numbers.shape[1:])
    for at in range(0, numbers.shape[0], CHUNK_ROWS):
        rows = numbers[at : at + CHUNK_ROWS]
        high, low = (rows >> 16).sum(0, dtype=jnp.int32), _low_half(rows).sum(0, dtype=jnp.uint32)
        total = add_int64(total, _joined(high, low))
    return total


def scatter_int64(rows: Rows, shape: tuple[int, ...], largest: int = 2**31) -> Int64:
    """The exact sum, of this shape, of many devices' rows of a table, [c, n] and [c, n, ...]; no device names a row twice.

    No number is larger than `largest`. It costs the rows that are there, and one table.
    """

    def scattered(index: jax.Array, value: jax.Array) -> jax.Array:
        return jnp.zeros(shape, value.dtype).at[index.reshape(-1)].add(value.reshape(-1, *shape[1:]), mode="drop")

    devices = rows.index.shape[0]
    if devices <= _together(largest):
        return widen(scattered(rows.index, rows.value))
    total = zeros_int64(shape)
    for at in range(0, devices, CHUNK_ROWS):
        index, value = (leaf[at : at + CHUNK_ROWS] for leaf in (rows.index, rows.value))
        total = add_int64(total, _joined(scattered(index, value >> 16), scattered(index, _low_half(value))))
    return total


def _low_half(numbers: jax.Array) -> jax.Array:
    return (numbers & 0xFFFF).astype(jnp.uint32)


def _joined(high: jax.Array, low: jax.Array) -> Int64:
    """high·2¹⁶ + low."""
    return add_int64(Int64(high >> 16, high.astype(jnp.uint32) << 16), Int64(jnp.zeros_like(high), low))


def to_float(numbers: Int64) -> jax.Array:
    """The nearest float32, but for one rounding more."""
    negative = numbers.high < 0
    low = jnp.where(negative, -numbers.low, numbers.low)
    high = jnp.where(negative, ~numbers.high + (numbers.low == 0), numbers.high).astype(jnp.uint32)
    size = high.astype(jnp.float32) * 2.0**32 + low.astype(jnp.float32)
    return jnp.where(negative, -size, size)


def as_float(numbers: Any) -> jax.Array:
    """int32 or Int64 as float32."""
    return to_float(numbers) if isinstance(numbers, Int64) else numbers.astype(jnp.float32)


def to_numpy(numbers: Int64) -> np.ndarray:
    """int64, on the host."""
    return np.asarray(numbers.high, np.int64) << 32 | np.asarray(numbers.low, np.int64)


def from_numpy(numbers: np.ndarray) -> Int64:
    """From int64, on the host."""
    numbers = np.asarray(numbers, np.int64)
    return Int64((numbers >> 32).astype(np.int32), (numbers & 0xFFFFFFFF).astype(np.uint32))


def from_grid(integers: Any, clip: Any, grid: Grid) -> jax.Array:
    """The float32 numbers that integers (int32 or Int64) stand for."""
    return as_float(integers) * (jnp.asarray(clip, jnp.float32) * grid.step)


# ---- Sums over the people of one device ----

PEOPLE = "people"  # the leaf of an update that counts the people it is a sum over
PERSON_STEPS = 2**12  # of the grid, in the length 1 that a person adds at most
MOST_PEOPLE = 2**18  # whose integers of a device still add up in 32 bits
_EXACT = 2**24 - 1  # the largest integer that float32 and all below it have


def person_on_grid(key: jax.Array, tree: Any) -> Any:
    """One person's part of a sum: int32, whose squares sum to at most PERSON_STEPS²."""
    vector = to_vector(tree)
    word = jax.random.bits(key, (), jnp.uint32)
    return from_vector(round_to_grid(word, vector, 1.0, l2_grid(PERSON_STEPS**2, vector.size)), tree)


def shares_of(counted: jax.Array, whose: jax.Array) -> jax.Array:
    """PERSON_STEPS shared out evenly over the counted events of each person, int32[events]; 0 where not counted."""
    length = whose.shape[0]
    at = jnp.where(counted, whose, length)
    many = jnp.zeros(length, jnp.int32).at[at].add(1, mode="drop")[jnp.minimum(at, length - 1)]
    order = jnp.argsort(at, stable=True)  # a person's counted events, one after the other
    first = jnp.searchsorted(at[order], at)
    rank = jnp.zeros(length, jnp.int32).at[order].set(jnp.arange(length, dtype=jnp.int32)) - first
    many = jnp.maximum(many, 1)
    return jnp.where(counted, PERSON_STEPS // many + (rank < PERSON_STEPS % many), 0).astype(jnp.int32)


def from_people_grid(total: Any, people: jax.Array) -> dict:
    """The update of a device: its people's integers, summed, as the float32 numbers they stand for exactly, and a count."""
    sums = jax.tree.map(lambda leaf: jnp.clip(leaf, -_EXACT, _EXACT).astype(jnp.float32) / PERSON_STEPS, total)
    return {**sums, PEOPLE: people.astype(jnp.float32)}


def to_people_grid(numbers: jax.Array) -> jax.Array:
    """The integers that `from_people_grid` was given."""
    return jnp.clip(jnp.round(numbers * PERSON_STEPS), -_EXACT, _EXACT).astype(jnp.int32)
