"""Computation in chunks: a function of rows in blocks, and sums of clipped contributions, with bounded memory."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

# ---- a function of rows, in blocks ----


Make = Callable[[Any, Any, jax.Array, Any], jax.Array]  # (theta, frozen, rows, key) -> a vector for each row


def map_in_blocks(
    make: Make, size: int, theta: Any, frozen: Any, rows: jax.Array, span: tuple[jax.Array, jax.Array], key: Any = None
) -> jax.Array:
    """make(θ, frozen, rows, key) of the rows in span = (begin, end), `size` at a time; others are 0 or anything.

    It is differentiable in θ alone. `make` must be the same object in each call, or programs are compiled anew; each block
    gets a key of its own. Blocks of padding are skipped in both passes; the backward pass recomputes a block instead of
    storing it.

    >>> times = lambda theta, frozen, rows, key: theta * rows[:, None]
    >>> map_in_blocks(times, 2, jnp.array(2.0), (), jnp.arange(8.0), (jnp.array(1), jnp.array(4)))[1:4, 0].tolist()
    [2.0, 4.0, 6.0]
    """
    return _in_blocks(make, size, theta, frozen, rows, span, key)  # pyright: ignore[reportReturnType]


@partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _in_blocks(make: Make, size: int, theta: Any, frozen: Any, rows: jax.Array, span: Any, key: Any) -> jax.Array:
    padded = _padded(rows, size)
    shape = jax.eval_shape(lambda: make(theta, frozen, padded[:size], key))
    out = jnp.zeros((padded.shape[0], *shape.shape[1:]), shape.dtype)

    def turn(number: jax.Array, out: jax.Array) -> jax.Array:
        at = span[0] + number * size
        return _put(out, make(theta, frozen, _taken(padded, at, size), _own(key, at)), at)

    return jax.lax.fori_loop(0, _blocks(span, size), turn, out)[: rows.shape[0]]


def _forwards(make: Make, size: int, *given: Any) -> tuple[jax.Array, Any]:
    return _in_blocks(make, size, *given), given


def _backwards(make: Make, size: int, given: Any, slope: jax.Array) -> tuple:
    theta, frozen, rows, (begin, end), key = given
    padded, slopes = _padded(rows, size), _padded(slope, size)

    def turn(number: jax.Array, total: Any) -> Any:
        at = begin + number * size
        mine = ((at + jnp.arange(size)) < end).reshape(-1, *(1,) * (slope.ndim - 1))
        _, pull = jax.vjp(lambda theta: make(theta, frozen, _taken(padded, at, size), _own(key, at)), theta)
        return jax.tree.map(jnp.add, total, pull(jnp.where(mine, _taken(slopes, at, size), 0.0))[0])

    nothing = jax.tree.map(jnp.zeros_like, theta)
    return jax.lax.fori_loop(0, _blocks((begin, end), size), turn, nothing), None, None, None, None


_in_blocks.defvjp(_forwards, _backwards)


def _blocks(span: tuple[jax.Array, jax.Array], size: int) -> jax.Array:
    return -(-(span[1] - span[0]) // size)


def _own(key: Any, at: jax.Array) -> Any:
    return None if key is None else jax.random.fold_in(key, at)


def _padded(rows: jax.Array, size: int) -> jax.Array:
    """With room for a last block: a slice past the end would be shifted back."""
    return jnp.pad(rows, ((0, size), *((0, 0),) * (rows.ndim - 1)))


def _taken(rows: jax.Array, at: jax.Array, size: int) -> jax.Array:
    return jax.lax.dynamic_slice_in_dim(rows, at, size)


def _put(rows: jax.Array, some: jax.Array, at: jax.Array) -> jax.Array:
    return jax.lax.dynamic_update_slice_in_dim(rows, some, at, axis=0)


# ---- clipped sums ----


def clipped_to_unit(tree: Any, bound: float) -> Any:
    """x/bound, clipped to L2 norm 1 over all leaves together; 0 where it is not finite.

    >>> clipped_to_unit({"a": jnp.array([3.0, 4.0])}, 1.0)["a"].tolist()
    [0.6000000238418579, 0.800000011920929]
    """
    length = jnp.sqrt(sum(jnp.square(leaf).sum() for leaf in jax.tree.leaves(tree)))
    finite = jnp.isfinite(length)
    shrink = jnp.where(finite, 1.0 / jnp.maximum(length, bound), 0.0)
    return jax.tree.map(lambda leaf: jnp.where(finite, leaf, 0.0) * shrink, tree)


def sum_in_chunks(one: Callable[[jax.Array], Any], count: jax.Array, group: int) -> Any:
    """Σ_{i < count} one(i), `group` at a time: memory does not grow with `count`."""
    zero = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), jax.eval_shape(one, jnp.zeros((), jnp.int32)))

    def add(turn: jax.Array, total: Any) -> Any:
        who = turn * group + jnp.arange(group)
        made = jax.vmap(one)(who)
        there = who < count
        return jax.tree.map(
            lambda t, m: t + jnp.where(there.reshape((-1,) + (1,) * (m.ndim - 1)), m, 0).sum(axis=0), total, made
        )

    return jax.lax.fori_loop(0, -(-count // group), add, zero)
