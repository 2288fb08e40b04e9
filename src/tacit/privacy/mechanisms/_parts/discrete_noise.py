"""Discrete noise: rounded Gaussian and discrete Laplace integers, drawn from `noise_tables`.

Floating-point noise has holes: x + noise reaches some floats that x' + noise cannot, and that tells x from x' (Mironov,
"On significance of the least significant bits for differential privacy", CCS 2012). Here the query is an integer
(`integer_grid` rounds it), the noise is an integer, and their sum is computed without rounding. Every integer within the reach of
the table has positive probability, whatever the query, and an entry is drawn from uniform words exactly.

Words must be uniform and independent. A threefry key has 64 bits and `jax.random.key(seed)` keeps 32 of its seed: that is for
simulation. `*_from_words` takes the words of a cryptographic generator.
"""

import math
from functools import reduce
from typing import Any

import jax
import jax.custom_batching
import jax.numpy as jnp
import numpy as np
from jax.extend.random import threefry2x32_p

from tacit.privacy.mechanisms._parts.noise_tables import AliasTable, GaussianTable, LaplaceTable

_BLOCK = 1 << 15  # draws at a time: a part of the counter, so that it is the same on every machine
_TIES = 1 << 31  # added to the counter of a block's words, it has those that decide its ties


def rounded_gaussian(key: jax.Array, table: GaussianTable, shape: tuple[int, ...]) -> jax.Array:
    """int32 draws of the rounded Gaussian, by a key that is used for nothing else."""
    return _draw_by_key(key, table, math.prod(shape)).reshape(shape)


def discrete_laplace(key: jax.Array, table: LaplaceTable, shape: tuple[int, ...]) -> jax.Array:
    """int32 draws of the discrete Laplace, by a key that is used for nothing else."""
    return _draw_by_key(key, table, math.prod(shape)).reshape(shape)


def gaussian_from_words(words: Any, spare: Any, table: GaussianTable) -> jax.Array:
    """int32[n] draws from words [terms, n]; a tie takes the next row of spare words [m, 2], draw by draw."""
    return _draw(table, _GivenWords(words, spare))


def laplace_from_words(words: Any, spare: Any, table: LaplaceTable) -> jax.Array:
    """int32[n] draws from words [tables, n]; a tie takes the next row of spare words [m, 2], draw by draw."""
    return _draw(table, _GivenWords(words, spare))


def spare_pairs(table: GaussianTable | LaplaceTable, count: int) -> int:
    """How many pairs of spare words so many draws need: more ties than these have probability below 2⁻¹⁰⁰."""
    ties = count * sum(2.0 ** -(32 - part.width - part.signed) for part in table.tables)
    pairs, tail = 0, 1.0
    while tail > 2.0**-100:
        pairs += 1
        tail *= ties / pairs
    return pairs


def _draw_by_key(key: jax.Array, table: GaussianTable | LaplaceTable, count: int) -> jax.Array:
    """Draws in blocks that fit a cache, a batch of keys as well: memory costs more than the draws do."""
    data = jax.random.key_data(key)
    if data.ndim != 1:
        raise TypeError(f"A key must be one key, got keys of shape {data.shape[:-1]}.")
    if data.shape != (2,):
        return _draw(table, _words_of(key, table, count))

    def block(data: jax.Array, number: Any, size: int) -> jax.Array:
        return _draw(table, _KeyWords(data, number, len(table.tables), size))

    def all_blocks(data: jax.Array) -> jax.Array:
        whole, rest = divmod(count, _BLOCK)
        if not whole:
            return block(data, jnp.uint32(0), rest)
        drawn = _each(lambda number: block(data, number, _BLOCK), jnp.arange(whole, dtype=jnp.uint32), 1).reshape(-1)
        return jnp.concatenate([drawn, block(data, jnp.uint32(whole), rest)]) if rest else drawn

    by_key = jax.custom_batching.custom_vmap(all_blocks)

    @by_key.def_vmap
    def _(size: int, batched: list[bool], many: jax.Array) -> tuple[jax.Array, bool]:
        del size, batched
        return _each(all_blocks, many, max(1, _BLOCK // max(1, count))), True

    return by_key(data)


def _words_of(key: jax.Array, table: GaussianTable | LaplaceTable, count: int) -> "_GivenWords":
    """The words of a key of another generator, such as ChaCha20."""
    words, spare = (jax.random.fold_in(key, purpose) for purpose in (0, 1))
    pairs = jax.random.bits(spare, (spare_pairs(table, count), 2), jnp.uint32)
    return _GivenWords(jax.random.bits(words, (len(table.tables), count), jnp.uint32), pairs)


def _each(function: Any, inputs: jax.Array, together: int) -> jax.Array:
    """The function of each input, so many at a time; all at once where there is no cache to fit."""
    if jax.default_backend() != "cpu" or inputs.shape[0] <= together:
        return jax.vmap(function)(inputs)
    return jax.lax.map(function, inputs, batch_size=together if together > 1 else None)


class _KeyWords:
    """Words of one block of a key's draws; both halves of what the cipher returns are used."""

    def __init__(self, key: jax.Array, block: jax.Array, rows: int, count: int):
        self.key, self.block, self.count = key, block, count
        self.half = -(-rows * count // 2)
        halves = self._cipher(block, jnp.arange(self.half, dtype=jnp.uint32))
        # Without a copy where two rows are two halves, so that drawing them and choosing by them are one pass.
        both = halves if rows == 2 else jnp.concatenate(halves)[: rows * count].reshape(rows, count)
        self.rows = [both[row] for row in range(rows)]

    def column(self, at: jax.Array) -> list[jax.Array]:
        """The words of one draw."""
        flat = [at.astype(jnp.uint32) + np.uint32(row * self.count) for row in range(len(self.rows))]
        halves = [self._cipher(self.block, place % self.half) for place in flat]
        return [jnp.where(place < self.half, *both) for place, both in zip(flat, halves)]

    def pair(self, count: jax.Array) -> list[jax.Array]:
        """The two words that decide a tie."""
        return self._cipher(self.block + np.uint32(_TIES), count)

    def _cipher(self, high: jax.Array, low: jax.Array) -> list[jax.Array]:
        # A zero of all three, so that under nested vmaps all operands are batched alike; the cipher takes no others.
        zero = (self.key[0] & 0) + (high & 0) + (low & 0)
        return threefry2x32_p.bind(self.key[0] + zero, self.key[1] + zero, high + zero, low + zero)


class _GivenWords:
    """Words [rows, n] from elsewhere, and spare ones [m, 2]."""

    def __init__(self, words: Any, spare: Any):
        self.rows = list(jnp.asarray(words, jnp.uint32))
        self.count = self.rows[0].size
        self.spare = jnp.asarray(spare, jnp.uint32).reshape(-1, 2)
        if not self.spare.shape[0]:
            raise ValueError("Spare words must be at least one pair, got none; spare_pairs has how many.")

    def column(self, at: jax.Array) -> list[jax.Array]:
        """The words of one draw."""
        return [row[at] for row in self.rows]

    def pair(self, count: jax.Array) -> list[jax.Array]:
        """The two words that decide a tie."""
        return list(self.spare[jnp.minimum(count, self.spare.shape[0] - 1)])


def _draw(table: GaussianTable | LaplaceTable, words: _KeyWords | _GivenWords) -> jax.Array:
    """The draws that the words make, int32[n]."""
    if not words.count:
        return jnp.zeros(0, jnp.int32)
    chosen = [_choose(part, row) for part, row in zip(table.tables, words.rows)]
    draws = table.combine([entry for entry, _ in chosen], words.rows)
    ties = reduce(jnp.logical_or, (tie for _, tie in chosen))

    # A tie is rare: one in 2^(31 − width). A loop that is seldom entered costs nothing, under vmap as well.
    def settle(carry: tuple) -> tuple:
        count, draws, ties = carry
        at = jnp.argmax(ties)
        column, entries = words.column(at), []
        for part, word in zip(table.tables, column):
            entry, tie = _choose(part, word)
            entries.append(jnp.where(tie, _decide(part, word, *words.pair(count)), entry))
            count = count + tie
        return count, draws.at[at].set(table.combine(entries, column)), ties.at[at].set(False)

    return jax.lax.while_loop(lambda carry: carry[2].any(), settle, (jnp.uint32(0), draws, ties))[1]


def _choose(table: AliasTable, words: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The entries, and where the word alone does not decide."""
    index = words & (2**table.width - 1)
    first = jnp.asarray(table.words[0]).at[index].get(mode="promise_in_bounds")
    fraction, threshold = words >> (table.width + table.signed), first >> table.width
    return jnp.where(fraction < threshold, index, first & (2**table.width - 1)), fraction == threshold


def _decide(table: AliasTable, word: jax.Array, one: jax.Array, other: jax.Array) -> jax.Array:
    """The entry where the first bits are equal: by the rest of the threshold."""
    index = word & (2**table.width - 1)
    first, middle, last = (jnp.asarray(row)[index] for row in table.words)
    below = (one < middle) | ((one == middle) & (other < last))
    return jnp.where(below, index, first & (2**table.width - 1))
