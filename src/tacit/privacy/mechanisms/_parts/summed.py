"""Sums: the total of mechanisms whose payload is an update in the update's own form."""

from typing import Any

import jax
import jax.numpy as jnp

from tacit.core.sparse_rows import Rows, coalesce, is_rows
from tacit.privacy.mechanism import Mechanism


class Summed(Mechanism):
    """A mechanism whose total is (Σ weight·payload for each weight, Σ weight).

    Integer leaves are counted, not weighted: their sums are exact up to 2³¹.
    """

    def zero(self, params: dict, weights: int) -> Any:
        """Zeros, with one sum for each weight."""
        sums = jax.tree.map(lambda leaf: jnp.zeros((weights, *leaf.shape), self.total_type(leaf)), params)
        return sums, jnp.zeros(weights, jnp.float32)

    def total_type(self, leaf: jax.Array) -> Any:
        """The type of numbers a leaf's payload is made of: floats, once there is noise in them."""
        del leaf
        return jnp.float32

    def add(self, total: Any, payloads: Any, weights: jax.Array, sent: jax.Array) -> Any:
        """Fold a chunk in; row-sparse leaves stay row-sparse until the sum."""
        sums, weight = total
        counted = jnp.where(sent[:, None], weights, 0.0)  # [c, k]
        leaves, tree = jax.tree.flatten(sums)
        parts = tree.flatten_up_to(payloads)
        leaves = [_add_leaf(leaf, part, counted, sent) for leaf, part in zip(leaves, parts)]
        return jax.tree.unflatten(tree, leaves), weight + counted.sum(0)

    def merge(self, one: Any, other: Any) -> Any:
        """Sum of sums."""
        return jax.tree.map(jnp.add, one, other)

    def estimate(self, key: jax.Array, total: Any, n: jax.Array, public_state: dict) -> tuple[dict, jax.Array]:
        """The sums themselves: nothing to debias, nothing to add."""
        del key, n, public_state
        return total


def same_for_every_weight(tree: Any, like: Any) -> Any:
    """One sum, repeated along the axis of weights."""
    return jax.tree.map(lambda leaf, many: jnp.broadcast_to(leaf, many.shape), tree, like)


Heard = tuple[Any, jax.Array, jax.Array]  # payloads [c, ...], weights [c, k], sent [c]


def sum_rows(stacks: list[Heard]) -> tuple[Any, jax.Array]:
    """The total of a few row-sparse payloads, as Rows whose values are [rows, k, ...], and Σ weight.

    It stands for the same numbers as `Summed.add` to zeros, added up in the same order, but takes no pass over a table.
    """
    counted = [jnp.where(sent[:, None], weights, 0.0) for _, weights, sent in stacks]  # each [c, k]

    def one(*parts: Rows) -> Rows:
        weighed = [_weigh(part, many, sent) for part, many, (_, _, sent) in zip(parts, counted, stacks)]
        index, value = (jnp.concatenate(leaves) for leaves in zip(*weighed))
        alone = len(parts) == 1 and parts[0].index.shape[0] == 1  # one device's rows are sorted and distinct already
        return Rows(index, value, parts[0].rows) if alone else coalesce(index, value, parts[0].rows)

    sums = jax.tree.map(one, *(payloads for payloads, _, _ in stacks), is_leaf=is_rows)
    return sums, jnp.stack([many.sum(0) for many in counted]).sum(0)


def _weigh(part: Rows, counted: jax.Array, sent: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Positions [c·n] and values [c·n, k, ...] of a stack of rows; who sent nothing points nowhere."""
    counted = _counted(part.value.dtype, counted, sent)
    index = jnp.where(sent[:, None], part.index, part.rows)
    scale = counted.reshape((counted.shape[0], 1, counted.shape[1]) + (1,) * (part.value.ndim - 2))
    value = part.value[:, :, None] * scale
    return index.reshape(-1), value.reshape((-1, *value.shape[2:]))


def _counted(dtype: Any, counted: jax.Array, sent: jax.Array) -> jax.Array:
    """The weights of a leaf: whole numbers are counted, not weighted."""
    if not jnp.issubdtype(dtype, jnp.integer):
        return counted
    return jnp.broadcast_to(sent[:, None], counted.shape).astype(dtype)


def _add_leaf(total: jax.Array, part: Any, counted: jax.Array, sent: jax.Array) -> jax.Array:
    """One leaf of one chunk: total[k, ...] += Σ_c counted[c, k]·part[c, ...]."""
    counted = _counted(total.dtype, counted, sent)
    if not is_rows(part):
        return total + jnp.einsum("ck,c...->k...", counted, part)
    # One flat table for all weights: a slice for each would be copied out and back for every chunk.
    weights, rows, *rest = total.shape
    flat = total.reshape(weights * rows, *rest)
    for w in range(weights):
        scale = counted[:, w].reshape((-1, 1) + (1,) * len(rest))
        place = jnp.where(part.index < rows, part.index + w * rows, weights * rows)  # padding stays out of range
        flat = _scatter(flat, place, part.value * scale)
    return flat.reshape(total.shape)


def _scatter(table: jax.Array, index: jax.Array, value: jax.Array) -> jax.Array:
    """Add the rows of many devices, [c, n] and [c, n, ...], into one table."""
    index = index.reshape(-1)
    return table.at[index].add(value.reshape(index.shape + table.shape[1:]), mode="drop")
