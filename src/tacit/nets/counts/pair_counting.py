"""Gram: of how many rows are both of two columns ones? Exact counts from packed bits, in tiles, nothing rounded.

The way of a CPU: it counts the ones of words of 32 rows, and multiplies nothing. benchmarks/dplcf.py races it against
products.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

TILE = 128  # columns of a tile: its counts stay in a core's first cache
_WORD = 32


@partial(jax.jit, static_argnames="width")
def columns(packed: jax.Array, width: int) -> jax.Array:
    """Rows of bits as columns of words: uint32[tiles, words, TILE], from uint8[rows, ⌈width/8⌉] as `packbits` writes them.

    What is missing to a whole word or tile is nought.
    """
    bits = jnp.unpackbits(packed, axis=1, count=width)
    bits = jnp.pad(bits, ((0, -packed.shape[0] % _WORD), (0, -width % TILE)))
    place = jnp.arange(_WORD, dtype=jnp.uint32)[:, None]
    words = (bits.reshape(-1, _WORD, bits.shape[1]).astype(jnp.uint32) << place).sum(1, dtype=jnp.uint32)
    return words.reshape(words.shape[0], -1, TILE).swapaxes(0, 1)


@jax.jit
def by_words(words: jax.Array, left: jax.Array, right: jax.Array) -> jax.Array:
    """Counts of the pairs of some tiles' columns: int32[t, TILE, TILE], by the ones that two words share."""

    def tile(pair: tuple[jax.Array, jax.Array]) -> jax.Array:
        ours, theirs = words[pair[0]], words[pair[1]]

        def word(i: jax.Array, count: jax.Array) -> jax.Array:
            shared = ours[i][:, None] & theirs[i]
            return count + jax.lax.population_count(shared).astype(jnp.int32)

        return jax.lax.fori_loop(0, words.shape[1], word, jnp.zeros((TILE, TILE), jnp.int32))

    return jax.lax.map(tile, (left, right))


def triangle(tiles: int) -> tuple[np.ndarray, np.ndarray]:
    """Every pair of tiles once: what stands left of the diagonal mirrors what stands right of it.

    >>> [place.tolist() for place in triangle(2)]
    [[0, 0, 1], [0, 1, 1]]
    """
    left, right = np.triu_indices(tiles)
    return left.astype(np.int32), right.astype(np.int32)


def place(table: np.ndarray, left: np.ndarray, right: np.ndarray, counts: np.ndarray) -> None:
    """Write tiles, and their mirror images, where they belong in a table int32[tiles·TILE, tiles·TILE]."""
    tiles = table.shape[0] // TILE
    blocks = table.reshape(tiles, TILE, tiles, TILE)
    blocks[left, :, right, :] = counts
    blocks[right, :, left, :] = counts.swapaxes(1, 2)
