"""Layers: dense layers with the bias as last row, an MLP head on two vectors, dropout."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp


def new_dense(key: jax.Array, inputs: int, outputs: int, gain: float = 2.0) -> jax.Array:
    """A layer [inputs + 1, outputs], its last row the bias: random weights of variance gain/inputs, bias 0."""
    weights = jnp.sqrt(gain / inputs) * jax.random.normal(key, (inputs, outputs))
    return jnp.concatenate([weights, jnp.zeros((1, outputs))])


def relu_layer(layer: jax.Array, x: jax.Array) -> jax.Array:
    """relu(x W + b), [n, outputs]."""
    return jax.nn.relu(x @ layer[:-1] + layer[-1])


def new_head(key: jax.Array, sizes: Sequence[int], last: float = 1.0) -> jax.Array:
    """An MLP of the given layer sizes as one vector; the last layer has no relu, and its weights have the gain `last`."""
    layers = list(pairwise(sizes))
    gains = [2.0] * (len(layers) - 1) + [last]
    keys = jax.random.split(key, len(layers))
    return jnp.concatenate([new_dense(k, a, b, gain).ravel() for k, (a, b), gain in zip(keys, layers, gains)])


def head_layers(head: jax.Array, sizes: Sequence[int]) -> list[jax.Array]:
    """The layers [inputs + 1, outputs] stored in one vector."""
    layers, at = [], 0
    for a, b in pairwise(sizes):
        layers.append(head[at : at + (a + 1) * b].reshape(a + 1, b))
        at += (a + 1) * b
    return layers


def head_log_odds(head: jax.Array, sizes: Sequence[int], u: jax.Array, v: jax.Array) -> jax.Array:
    """ln(ŷ / (1 − ŷ)) of one user u [1, h] and items v [n, h]."""
    first, *others = head_layers(head, sizes)
    width = u.shape[1]
    # [u, v] W = u W_u + v W_v: the user's part is the same for every item.
    x = u @ first[:width] + v @ first[width:-1] + first[-1]
    for layer in others:
        x = jax.nn.relu(x) @ layer[:-1] + layer[-1]
    return x[:, 0]


def dropout(key: Any, x: jax.Array, rate: float) -> jax.Array:
    """Each number with probability `rate` as 0, else x/(1 − rate); without a key, x."""
    if key is None or rate == 0:
        return x
    return jnp.where(jax.random.bernoulli(key, 1 - rate, x.shape), x / (1 - rate), 0.0)
