"""Wide integers: sums of many int32 numbers that are exact beyond 2³¹, without 64-bit types inside a compiled program.

A wide number is two int32 words: high·2¹⁶ + low with 0 ≤ low < 2¹⁶, so it reaches ±2⁴⁷. Sums are the same bits in any order
and any chunks.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

LIMIT = 1 << 47  # no wide number is as large
MOST_SUMMED = 1 << 16  # numbers that `wide_sum` adds at a time
LARGEST_SUMMED = (1 << 30) - 1  # and the largest size of one of them
_BITS = 16
_MASK = (1 << _BITS) - 1


class Wide(NamedTuple):
    """high·2¹⁶ + low, element by element."""

    high: Any  # int32[...]
    low: Any  # int32[...], from 0 to 2¹⁶ − 1


def wide_zeros(shape: tuple[int, ...]) -> Wide:
    """Zeros."""
    return Wide(jnp.zeros(shape, jnp.int32), jnp.zeros(shape, jnp.int32))


def wide_sum(numbers: jax.Array, counted: jax.Array) -> Wide:
    """Σ_c numbers[c, ...] over those that are counted, bool[c]; at most 2¹⁶ numbers below 2³⁰ in size."""
    if numbers.shape[0] > MOST_SUMMED:
        raise ValueError(f"wide_sum adds at most {MOST_SUMMED} numbers at a time, got {numbers.shape[0]}.")
    kept = jnp.where(counted.reshape((-1,) + (1,) * (numbers.ndim - 1)), numbers, 0)
    low = (kept & _MASK).astype(jnp.uint32).sum(axis=0, dtype=jnp.uint32)
    high = (kept >> _BITS).sum(axis=0, dtype=jnp.int32)
    return Wide(high + (low >> _BITS).astype(jnp.int32), (low & _MASK).astype(jnp.int32))


def wide_add(one: Wide, other: Wide) -> Wide:
    """The sum of two wide numbers."""
    low = one.low + other.low
    return Wide(one.high + other.high + (low >> _BITS), low & _MASK)


def wide_of(numbers: jax.Array) -> Wide:
    """int32 numbers as wide ones."""
    return Wide(numbers >> _BITS, numbers & _MASK)


def wide_to_float(wide: Wide, step: Any = 1.0) -> jax.Array:
    """step · the number, as the nearest float32 or its neighbour."""
    return wide.high.astype(jnp.float32) * (step * 2.0**_BITS) + wide.low.astype(jnp.float32) * step


def wide_to_int64(wide: Wide) -> np.ndarray:
    """The numbers on the host."""
    return (np.asarray(wide.high, np.int64) << _BITS) + np.asarray(wide.low, np.int64)


def wide_from_int64(numbers: np.ndarray) -> Wide:
    """Wide numbers from those of the host."""
    numbers = np.asarray(numbers, np.int64)
    if numbers.size and np.abs(numbers).max() >= LIMIT:
        raise ValueError(f"A wide number must be below 2^47 in size, got {int(np.abs(numbers).max())}.")
    return Wide(jnp.asarray(numbers >> _BITS, jnp.int32), jnp.asarray(numbers & _MASK, jnp.int32))


def is_wide(tree: Any) -> bool:
    """Whether this is a wide number; for `jax.tree.map(..., is_leaf=is_wide)`."""
    return isinstance(tree, Wide)
