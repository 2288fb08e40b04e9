"""Frame: a vector written with more numbers than it has, all of them small, so that any one of them says as much.

Uᵀ·a = x with U of N rows and D < N orthonormal columns, and |a_i| ≤ K·‖x‖/√N: a Kashin representation. U is D random
columns of a Walsh–Hadamard matrix with random signs, so that a product with it is a fast transform.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np

SHRINK = 0.5  # η: what is left of the vector after each step
SPARE = 0.7  # δ: with η, the uncertainty principle that the frame is taken to have
_RADIX = 16  # a transform of this size is one small product


@dataclass(frozen=True, eq=False)
class Frame:
    """U: `size` rows, one column for each number of the vector."""

    size: int
    columns: np.ndarray  # int32[D], ascending: which columns of the Hadamard matrix
    signs: np.ndarray  # float32[D]
    source: np.ndarray  # int32[size]: the other way round; D where a column is not taken

    def expand(self, x: jax.Array) -> jax.Array:
        """U·x."""
        return hadamard(jnp.append(x * self.signs, 0.0)[self.source])  # a gather, quicker than a scatter

    def collect(self, a: jax.Array) -> jax.Array:
        """Uᵀ·a, over the last axis."""
        return hadamard(a)[..., self.columns] * self.signs


@lru_cache(maxsize=8)
def frame_of(numbers: int, seed: int, columns: Literal["random", "first"] = "random") -> Frame:
    """The frame for so many numbers; the same for everybody who has the seed.

    Its size is the least power of two of at least 2D. The columns must be random: rows of the first D columns come in
    equal pairs, and what is written twice is no smaller. `first` is there to show that.
    """
    size = frame_size(numbers)
    generator = np.random.Generator(np.random.Philox(np.random.SeedSequence([seed, numbers])))
    chosen = np.sort(generator.permutation(size)[:numbers]) if columns == "random" else np.arange(numbers)
    signs = generator.choice(np.array([-1, 1], np.float32), numbers)
    source = np.full(size, numbers, np.int32)
    source[chosen] = np.arange(numbers)
    return Frame(size, chosen.astype(np.int32), signs, source)


def frame_size(numbers: int) -> int:
    """N = 2^(⌈log₂ D⌉ + 1).

    >>> frame_size(100)
    256
    """
    return 2 << (numbers - 1).bit_length()


def level(shrink: float = SHRINK, spare: float = SPARE) -> float:
    """K = 1/((1 − η)·√δ): no coefficient should exceed K·‖x‖/√N.

    >>> round(level(), 3)
    2.39
    """
    return 1 / ((1 - shrink) * math.sqrt(spare))


def hadamard(x: jax.Array) -> jax.Array:
    """The orthonormal Walsh–Hadamard transform along the last axis, whose length is a power of two; its own inverse."""
    size, done, shape = x.shape[-1], 1, x.shape
    while done < size:
        radix = min(_RADIX, size // done)
        small = _sylvester(radix) / np.float32(math.sqrt(radix))
        x = x.reshape(*shape[:-1], size // (radix * done), radix, done)
        x = jnp.einsum("ij,...jb->...ib", small, x, precision=jax.lax.Precision.HIGHEST)
        done *= radix
    return x.reshape(shape)


@lru_cache(maxsize=8)
def _sylvester(size: int) -> np.ndarray:
    matrix = np.ones((1, 1), np.float32)
    while len(matrix) < size:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    return matrix


def represent(frame: Frame, x: jax.Array) -> jax.Array:
    """Coefficients a with Uᵀ·a = x, nearly level (Lyubarskii and Vershynin 2010).

    ⌊ln N⌋ times: cut U·y to ±M, take what the cut part says off y, halve M. What is left at the end is added uncut, so
    that the sum is x exactly.
    """

    def step(_: jax.Array, state: tuple[jax.Array, jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array, jax.Array]:
        y, a, M = state
        b = jnp.clip(frame.expand(y), -M, M)
        return y - frame.collect(b), a + b, SHRINK * M

    M = jnp.linalg.norm(x) / math.sqrt(SPARE * frame.size)
    start = (x, jnp.zeros(frame.size), M)
    y, a, _ = jax.lax.fori_loop(0, math.floor(math.log(frame.size)), step, start)
    return a + frame.expand(y)
