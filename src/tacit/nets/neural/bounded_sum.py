"""Sums over many people, none of whom can move them far: each contribution is bounded, then added, a few at a time."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp


def unit(tree: Any, bound: float) -> Any:
    """x/bound, shrunk to length 1 where it is longer, over all leaves together.

    >>> unit({"a": jnp.array([3.0, 4.0])}, 1.0)["a"].tolist()
    [0.6000000238418579, 0.800000011920929]
    """
    length = jnp.sqrt(sum(jnp.square(leaf).sum() for leaf in jax.tree.leaves(tree)))
    finite = jnp.isfinite(length)
    shrink = jnp.where(finite, 1.0 / jnp.maximum(length, bound), 0.0)
    return jax.tree.map(lambda leaf: jnp.where(finite, leaf, 0.0) * shrink, tree)


def summed(one: Callable[[jax.Array], Any], count: jax.Array, group: int) -> Any:
    """Σ_{i < count} one(i), `group` at a time: memory does not grow with how many there are."""
    zero = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), jax.eval_shape(one, jnp.zeros((), jnp.int32)))

    def add(turn: jax.Array, total: Any) -> Any:
        who = turn * group + jnp.arange(group)
        made = jax.vmap(one)(who)
        there = who < count
        return jax.tree.map(
            lambda t, m: t + jnp.where(there.reshape((-1,) + (1,) * (m.ndim - 1)), m, 0).sum(axis=0), total, made
        )

    return jax.lax.fori_loop(0, -(-count // group), add, zero)
