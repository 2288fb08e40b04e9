"""Noise: Laplace and normal numbers with tails as long as a claim needs.

`jax.random` turns 23 random bits into a number, so its normal ends at 5.4 deviations and its Laplace at 16 scales. What
one input can reach beyond that and its neighbour cannot tells them apart: more often than δ = 10⁻⁷. Here 64 bits make
an exponential that reaches 44, which is beyond what any δ in use can see, and is as fine near 0 as float32 is.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp


def exponential(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """Standard exponential numbers, from 64 bits each: −ln u where u is small, −ln(1 − w) where w = 1 − u is."""
    high, low = jax.random.bits(key, (2, *shape), jnp.uint32)
    small = high < jnp.uint32(2**31)
    # u, or 1 − u, as a sum of two floats: the low half counts where the high half is small
    u = _fraction(jnp.where(small, high, ~high), jnp.where(small, low, ~low))
    return jnp.where(small, -jnp.log(u), -jnp.log1p(-u))


def laplace(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """Standard Laplace numbers: an exponential with a random sign."""
    size, sign = jax.random.split(key)
    return exponential(size, shape) * jax.random.rademacher(sign, shape, jnp.float32)


def normal(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """Standard normal numbers, two from each radius and angle (Box and Muller 1958)."""
    count = math.prod(shape)
    half = -(-count // 2)
    size, turn = jax.random.split(key)
    radius = jnp.sqrt(2 * exponential(size, (half,)))
    # An angle is a quarter turn from 24 bits and one of four quarters, so that it is as fine near each axis.
    bits = jax.random.bits(turn, (half,), jnp.uint32)
    angle = (math.pi / 2) * ((bits >> 8).astype(jnp.float32) + 0.5) * 2.0**-24
    one, other = radius * jnp.cos(angle), radius * jnp.sin(angle)
    signs = (1 - 2 * (bits & 1).astype(jnp.float32), 1 - (bits & 2).astype(jnp.float32))
    return jnp.concatenate([one * signs[0], other * signs[1]])[:count].reshape(shape)


def add_normal(key: jax.Array, tree: Any, deviation: Any) -> Any:
    """A tree with normal noise on every number; one deviation for all, or one for each leaf."""
    leaves, shape = jax.tree.flatten(tree)
    deviations = jax.tree.leaves(jax.tree.broadcast(deviation, tree))
    keys = jax.random.split(key, len(leaves))
    return jax.tree.unflatten(shape, [x + s * normal(k, x.shape) for k, x, s in zip(keys, leaves, deviations)])


def add_laplace(key: jax.Array, tree: Any, scale: float) -> Any:
    """A tree with Laplace noise of one scale on every number."""
    leaves, shape = jax.tree.flatten(tree)
    keys = jax.random.split(key, len(leaves))
    return jax.tree.unflatten(shape, [x + scale * laplace(k, x.shape) for k, x in zip(keys, leaves)])


def _fraction(high: jax.Array, low: jax.Array) -> jax.Array:
    """(high·2³² + low + ½)·2⁻⁶⁴, never 0."""
    return high.astype(jnp.float32) * 2.0**-32 + (low.astype(jnp.float32) + 0.5) * 2.0**-64
