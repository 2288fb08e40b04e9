"""Rows: a dense table in memory, of which only some rows are not zero.

Rows is a form in memory, not a message. Which rows a person touched is as private as what stands in
them; `wire` writes a Rows leaf as the dense table it stands for unless the plan says otherwise.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp


class Rows(NamedTuple):
    """Row `index[i]` of a table is `value[i]`; the other rows are zero.

    The index is strictly increasing; padding is the number of rows (out of range, so a scatter in
    `drop` mode passes it over) and its value is zero.
    """

    index: jax.Array  # int32[n]  # pyright: ignore[reportIncompatibleMethodOverride]
    value: jax.Array  # [n, ...]


def is_rows(leaf: object) -> bool:
    """For `is_leaf` in tree functions: stop at a Rows."""
    return isinstance(leaf, Rows)


def coalesce(index: jax.Array, value: jax.Array, rows: int) -> Rows:
    """Sort by index and sum what shares one; a negative or too large index is padding."""
    index = jnp.where((index < 0) | (index >= rows), rows, index).astype(jnp.int32)
    order = jnp.argsort(index, stable=True)
    index, value = index[order], value[order]
    new = jnp.concatenate([jnp.ones(1, bool), index[1:] != index[:-1]])
    group = jnp.cumsum(new) - 1  # which distinct index this entry belongs to
    real = (index < rows).reshape(index.shape + (1,) * (value.ndim - 1))
    summed = jnp.zeros_like(value).at[group].add(jnp.where(real, value, 0))
    distinct = jnp.full(index.shape, rows, jnp.int32).at[group].set(index)
    return Rows(distinct, summed)


def dense(leaf: jax.Array | Rows, rows: int | None = None) -> jax.Array:
    """The table a leaf stands for."""
    if not isinstance(leaf, Rows):
        return leaf
    assert rows is not None
    table = jnp.zeros((rows, *leaf.value.shape[1:]), leaf.value.dtype)
    return table.at[leaf.index].add(leaf.value, mode="drop")


def zero_unless(keep: jax.Array, tree: Any) -> Any:
    """The tree where `keep` holds, else zeros in the same form; rows then point nowhere, and tell nothing."""

    def one(leaf: jax.Array | Rows) -> jax.Array | Rows:
        if isinstance(leaf, Rows):
            nowhere = jnp.iinfo(leaf.index.dtype).max
            return Rows(jnp.where(keep, leaf.index, nowhere), jnp.where(keep, leaf.value, jnp.zeros_like(leaf.value)))
        return jnp.where(keep, leaf, jnp.zeros_like(leaf))

    return jax.tree.map(one, tree, is_leaf=is_rows)


def lookup(rows: Rows, index: jax.Array) -> jax.Array:
    """The values at some rows of the table, 0 where it has none; cheaper than the dense table for a few."""
    place = jnp.minimum(jnp.searchsorted(rows.index, index), rows.index.shape[0] - 1)
    return jnp.where(rows.index[place] == index, rows.value[place], 0)


def dense_like(update: dict, params: dict) -> dict:
    """Every Rows of an update as the dense table it stands for, shaped like `params`."""
    return jax.tree.map(lambda leaf, like: dense(leaf, like.shape[0]), update, params, is_leaf=is_rows)
