"""Item pairs: exact co-occurrence counts from packed bits, and scores from a table of nearest neighbours."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

# ---- co-occurrence counts, for a CPU: population counts of words of 32 rows. benchmarks/dplcf.py compares with products ----


TILE = 128  # columns of a tile: its counts stay in a core's first cache
_WORD = 32


@partial(jax.jit, static_argnames="width")
def packed_columns(packed: jax.Array, width: int) -> jax.Array:
    """Rows of bits as columns of words: uint32[tiles, words, TILE], from uint8[rows, ⌈width/8⌉] as `packbits` writes them.

    Incomplete words and tiles are padded with 0.
    """
    bits = jnp.unpackbits(packed, axis=1, count=width)
    bits = jnp.pad(bits, ((0, -packed.shape[0] % _WORD), (0, -width % TILE)))
    shift = jnp.arange(_WORD, dtype=jnp.uint32)[:, None]
    words = (bits.reshape(-1, _WORD, bits.shape[1]).astype(jnp.uint32) << shift).sum(1, dtype=jnp.uint32)
    return words.reshape(words.shape[0], -1, TILE).swapaxes(0, 1)


@jax.jit
def count_tile_pairs(words: jax.Array, left: jax.Array, right: jax.Array) -> jax.Array:
    """Co-occurrence counts of the columns of pairs of tiles, int32[t, TILE, TILE]: the ones that two words share."""

    def tile_counts(pair: tuple[jax.Array, jax.Array]) -> jax.Array:
        ours, theirs = words[pair[0]], words[pair[1]]

        def word(i: jax.Array, count: jax.Array) -> jax.Array:
            shared = ours[i][:, None] & theirs[i]
            return count + jax.lax.population_count(shared).astype(jnp.int32)

        return jax.lax.fori_loop(0, words.shape[1], word, jnp.zeros((TILE, TILE), jnp.int32))

    return jax.lax.map(tile_counts, (left, right))


def tile_pairs(tiles: int) -> tuple[np.ndarray, np.ndarray]:
    """Every pair of tiles once, as the upper triangle: the lower one is its transpose.

    >>> [index.tolist() for index in tile_pairs(2)]
    [[0, 0, 1], [0, 1, 1]]
    """
    left, right = np.triu_indices(tiles)
    return left.astype(np.int32), right.astype(np.int32)


def write_tiles(table: np.ndarray, left: np.ndarray, right: np.ndarray, counts: np.ndarray) -> None:
    """Write tiles and their transposes into a table int32[tiles·TILE, tiles·TILE]."""
    tiles = table.shape[0] // TILE
    blocks = table.reshape(tiles, TILE, tiles, TILE)
    blocks[left, :, right, :] = counts
    blocks[right, :, left, :] = counts.swapaxes(1, 2)


# ---- neighbours ----


def neighbour_scores(neighbours: jax.Array, similarity: jax.Array, items: jax.Array, weight: jax.Array) -> jax.Array:
    """score_j = Σ_i weight_i · similarity(i, j), over each owned item i's K nearest items.

    Args:
        neighbours: int32[N, K], padding N.
        similarity: float[N, K].
        items: int32[n], padding N.
        weight: float[n].

    Returns:
        float[N].
    """
    owned = items < neighbours.shape[0]
    near = jnp.where(owned[:, None], neighbours[jnp.minimum(items, neighbours.shape[0] - 1)], neighbours.shape[0])
    close = jnp.take(similarity, items, axis=0, mode="fill", fill_value=0) * weight[:, None]
    scores = jnp.zeros(neighbours.shape[0], similarity.dtype)
    return scores.at[near.reshape(-1)].add(close.reshape(-1), mode="drop")
