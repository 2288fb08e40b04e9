"""Sums: the total of mechanisms whose payload is an update in the update's own form, in numbers or in integers of a grid."""

import math
from abc import abstractmethod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tacit.core.integer_grid import (
    Int64,
    add_int64,
    is_int64,
    scatter_int64,
    sum_int64,
    to_numpy,
    zeros_int64,
)
from tacit.core.sparse_rows import Rows, coalesce, is_rows
from tacit.privacy.mechanism import Mechanism


class Summed(Mechanism):
    """A mechanism whose total is (Σ weight·payload for each weight, Σ weight).

    Integer leaves are counted, not weighted: their sums are exact up to 2³¹. For mechanisms without a claim: sums of floats
    depend on their order, and their noise has holes.
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


class IntegerSums(Mechanism):
    """A mechanism whose payload is an update in int32, and whose total is (its sums in 64 bits, the number of reports).

    Every report counts once, so that one sum serves all weights. The sums are exact: in any order, chunk by chunk or all at
    once, they are the same bits, and 2³¹ reports of 32 bits never leave 64.
    """

    @abstractmethod
    def largest(self, numbers: int) -> int:
        """The largest size of an integer in a payload of so many numbers."""

    def zero(self, params: dict, weights: int) -> Any:
        """Zeros, and no reports for each weight."""
        return jax.tree.map(lambda leaf: zeros_int64(leaf.shape), params), jnp.zeros(weights, jnp.int32)

    def add(self, total: Any, payloads: Any, weights: jax.Array, sent: jax.Array) -> Any:
        """Count a chunk in, exactly."""
        del weights  # each device counts once
        sums, reports = total
        largest = self.largest(size_of(sums))

        def one(sum: Int64, part: jax.Array | Rows) -> Int64:
            if isinstance(part, Rows):
                heard = part.with_value(jnp.where(_column(sent, part.value), part.value, 0))
                return add_int64(sum, scatter_int64(heard, sum.low.shape, largest))
            return add_int64(sum, sum_int64(jnp.where(_column(sent, part), part, 0), largest))

        return jax.tree.map(one, sums, payloads, is_leaf=is_int64), reports + sent.sum(dtype=jnp.int32)

    def merge(self, one: Any, other: Any) -> Any:
        """Sum of sums."""
        return jax.tree.map(add_int64, one[0], other[0], is_leaf=is_int64), one[1] + other[1]

    def check_payload(self, payload: Any) -> str:
        """Whether every integer is one that a device can have made."""
        largest = self.largest(size_of(payload))
        found = max(int(np.abs(np.asarray(leaf, np.int64)).max(initial=0)) for leaf in jax.tree.leaves(payload))
        return "" if found <= largest else f"every number must be from -{largest} to {largest}, got one of size {found}"

    def check_total(self, total: Any, people: int) -> str:
        """Whether so many reports can add up to these sums."""
        sums, reports = total
        counts = np.asarray(reports).ravel().tolist()
        if len(set(counts)) > 1:
            return "every weight must count the same reports"
        count = max(counts, default=0)
        if not 0 <= count <= people:
            return f"a total of {people} must count 0 to {people} reports, got {count}"
        leaves = [to_numpy(leaf) for leaf in jax.tree.leaves(sums, is_leaf=is_int64)]
        largest = count * self.largest(size_of(sums))
        found = max(max(int(leaf.max(initial=0)), -int(leaf.min(initial=0))) for leaf in leaves)
        return (
            "" if found <= largest else f"a sum of {count} reports must be at most {largest}, got one of size {found}"
        )


def _column(sent: jax.Array, part: jax.Array) -> jax.Array:
    """Who sent something, shaped to select from [c, ...]."""
    return sent.reshape((-1,) + (1,) * (part.ndim - 1))


def for_each_weight(tree: Any, reports: jax.Array) -> Any:
    """One sum, repeated along the axis of weights."""
    return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (*reports.shape, *leaf.shape)), tree)


def size_of(tree: Any) -> int:
    """How many numbers there are in arrays, in tables whose rows are few, or in sums of 64 bits."""
    leaves = jax.tree.leaves(tree, is_leaf=lambda leaf: is_int64(leaf) or is_rows(leaf))
    return sum(math.prod(_shape(leaf)) for leaf in leaves)


def _shape(leaf: Any) -> tuple[int, ...]:
    if is_rows(leaf):
        return (leaf.rows, *leaf.value.shape[1:])
    return (leaf.low if is_int64(leaf) else leaf).shape


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
