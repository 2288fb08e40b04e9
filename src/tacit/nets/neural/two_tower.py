"""Two towers: one dense layer makes a vector of a person, one of an item; layers on both together make the log-odds.

u = relu(W_p · fields of the person),  v = relu(W_i · [item vector, fields of the item])
x = relu layers of [u, v],  ŷ = σ(w · x + b)
"""

from collections.abc import Sequence
from itertools import pairwise

import jax
import jax.numpy as jnp


def dense(key: jax.Array, inputs: int, outputs: int, gain: float = 2.0) -> jax.Array:
    """A layer [inputs + 1, outputs], its last row the offset: random weights of variance gain/inputs, no offset."""
    weights = jnp.sqrt(gain / inputs) * jax.random.normal(key, (inputs, outputs))
    return jnp.concatenate([weights, jnp.zeros((1, outputs))])


def tower(layer: jax.Array, x: jax.Array) -> jax.Array:
    """relu(x W + b), [n, outputs]."""
    return jax.nn.relu(x @ layer[:-1] + layer[-1])


def new_head(key: jax.Array, sizes: Sequence[int], last: float = 1.0) -> jax.Array:
    """All layers of the given sizes as one vector; the last has no relu, and its weights have the gain `last`."""
    layers = list(pairwise(sizes))
    gains = [2.0] * (len(layers) - 1) + [last]
    keys = jax.random.split(key, len(layers))
    return jnp.concatenate([dense(k, a, b, gain).ravel() for k, (a, b), gain in zip(keys, layers, gains)])


def head_layers(head: jax.Array, sizes: Sequence[int]) -> list[jax.Array]:
    """The layers [inputs + 1, outputs] that one vector holds."""
    layers, at = [], 0
    for a, b in pairwise(sizes):
        layers.append(head[at : at + (a + 1) * b].reshape(a + 1, b))
        at += (a + 1) * b
    return layers


def log_odds(head: jax.Array, sizes: Sequence[int], u: jax.Array, v: jax.Array) -> jax.Array:
    """ln(ŷ / (1 − ŷ)) of one person u [1, h] and items v [n, h]."""
    first, *others = head_layers(head, sizes)
    width = u.shape[1]
    # [u, v] W = u W_u + v W_v: the person's part is the same for every item.
    x = u @ first[:width] + v @ first[width:-1] + first[-1]
    for layer in others:
        x = jax.nn.relu(x) @ layer[:-1] + layer[-1]
    return x[:, 0]


def cross_entropy(odds: jax.Array, y: jax.Array, real: jax.Array) -> jax.Array:
    """−[y ln ŷ + (1 − y) ln(1 − ŷ)], the mean over the rows that are real."""
    lost = y * jax.nn.softplus(-odds) + (1 - y) * jax.nn.softplus(odds)
    return (real * lost).sum() / jnp.maximum(real.sum(), 1.0)


def squared_error(predicted: jax.Array, y: jax.Array, real: jax.Array) -> jax.Array:
    """(ŷ − y)², the mean over the rows that are real: of a linear output ŷ = w · x + b.

    >>> float(squared_error(jnp.array([3.5, 1.0, 9.0]), jnp.array([4.0, 2.0, 0.0]), jnp.array([1.0, 1.0, 0.0])))
    0.625
    """
    return (real * jnp.square(predicted - y)).sum() / jnp.maximum(real.sum(), 1.0)
