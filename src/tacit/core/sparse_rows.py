"""Sparse rows: a table in memory of which only some rows are not zero.

Rows is a representation in memory, not a message. Which rows a person touched is as private as their values, so a message
holds the dense table in place of a Rows leaf, unless the plan says otherwise.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


@partial(jax.tree_util.register_dataclass, data_fields=["index", "value"], meta_fields=["rows"])
@dataclass(frozen=True)
class Rows:
    """Row `index[i]` of a table with `rows` rows is `value[i]`; the other rows are zero.

    The index is strictly increasing; padding is the number of rows (out of range, so a scatter in
    `drop` mode passes it over) and its value is zero.
    """

    index: jax.Array  # int32[n]
    value: jax.Array  # [n, ...]
    rows: int

    def with_value(self, value: jax.Array) -> "Rows":
        """The same positions with other values."""
        return replace(self, value=value)


def is_rows(leaf: object) -> bool:
    """For `is_leaf` in tree functions: stop at a Rows."""
    return isinstance(leaf, Rows)


def is_sound(rows: Rows) -> jax.Array:
    """Whether the index is what it must be: no row twice, none before the first."""
    index = rows.index
    return (index >= 0).all() & ((index[1:] > index[:-1]) | (index[1:] >= rows.rows)).all()


def coalesce(index: jax.Array, value: jax.Array, rows: int) -> Rows:
    """Sort by index and sum what shares one; a negative or too large index is padding."""
    index = jnp.where((index < 0) | (index >= rows), rows, index).astype(jnp.int32)
    order = jnp.argsort(index, stable=True)
    return coalesce_sorted(index[order], value[order], rows)


def coalesce_sorted(index: jax.Array, value: jax.Array, rows: int) -> Rows:
    """`coalesce` of an index that ascends already, with padding at `rows`."""
    new = jnp.concatenate([jnp.ones(1, bool), index[1:] != index[:-1]])
    group = jnp.cumsum(new) - 1  # which distinct index this entry belongs to
    real = (index < rows).reshape(index.shape + (1,) * (value.ndim - 1))
    summed = jnp.zeros_like(value).at[group].add(jnp.where(real, value, 0))
    distinct = jnp.full(index.shape, rows, jnp.int32).at[group].set(index)
    return Rows(distinct, summed, rows)


def distinct(index: jax.Array, rows: int, dtype: Any = jnp.float32) -> Rows:
    """Each index once, with a 1.

    >>> distinct(jnp.array([7, 2, 7, -1]), 9).value.tolist()
    [1.0, 1.0, 0.0, 0.0]
    """
    own = coalesce(index, jnp.ones(index.shape, dtype), rows)
    return own.with_value(jnp.minimum(own.value, 1))


def held(index: jax.Array, real: jax.Array, rows: int) -> tuple[jax.Array, jax.Array]:
    """The rows that really occur, ascending, each once, then padding; and where each entry of `index` stands among them.

    >>> [part.tolist() for part in held(jnp.array([7, 2, 7, 5]), jnp.array([True, True, True, False]), 9)]
    [[2, 7, 9, 9], [1, 0, 1, 1]]
    """
    once = coalesce(jnp.where(real, index, rows), jnp.zeros(index.shape), rows).index
    return once, jnp.minimum(jnp.searchsorted(once, index), once.shape[0] - 1)


def dense(leaf: jax.Array | Rows) -> jax.Array:
    """The table a leaf stands for."""
    if not isinstance(leaf, Rows):
        return leaf
    table = jnp.zeros((leaf.rows, *leaf.value.shape[1:]), leaf.value.dtype)
    return table.at[leaf.index].add(leaf.value, mode="drop")


def dense_tree(tree: Any) -> Any:
    """A tree with every Rows as the dense table it stands for."""
    return jax.tree.map(dense, tree, is_leaf=is_rows)


def zero_unless(keep: jax.Array, tree: Any) -> Any:
    """The tree where `keep` holds, else zeros in the same form; rows then have no positions, and reveal nothing."""

    def one(leaf: jax.Array | Rows) -> jax.Array | Rows:
        if isinstance(leaf, Rows):
            index = jnp.where(keep, leaf.index, leaf.rows)
            return Rows(index, jnp.where(keep, leaf.value, jnp.zeros_like(leaf.value)), leaf.rows)
        return jnp.where(keep, leaf, jnp.zeros_like(leaf))

    return jax.tree.map(one, tree, is_leaf=is_rows)


def lookup(rows: Rows, index: jax.Array) -> jax.Array:
    """The values at some rows of the table, 0 where it has none; cheaper than the dense table for a few."""
    place = jnp.minimum(jnp.searchsorted(rows.index, index), rows.index.shape[0] - 1)
    return jnp.where(rows.index[place] == index, rows.value[place], 0)


def all_finite(tree: object) -> jax.Array:
    """Whether every floating-point number of a tree is finite."""
    floats = [leaf for leaf in jax.tree.leaves(tree) if jnp.issubdtype(leaf.dtype, jnp.floating)]
    return jnp.stack([_leaf_finite(leaf) for leaf in floats]).all() if floats else jnp.asarray(True)


def _leaf_finite(leaf: jax.Array) -> jax.Array:
    # Without the sign, a float's bits read as an integer increase with its size, and infinity and NaN are the largest. The
    # maximum of integers takes a third of the time of testing each float.
    whole = jnp.dtype(f"int{8 * leaf.dtype.itemsize}")
    infinity = np.array(np.inf, leaf.dtype).view(whole)
    size = jax.lax.bitcast_convert_type(leaf, whole) & np.array(np.iinfo(whole).max, whole)
    return size.max(initial=0) < infinity
