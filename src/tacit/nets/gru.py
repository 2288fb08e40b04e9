"""Gated recurrent unit, in the two forms that papers and libraries mean by it.

`reset_after` gates what the state says after its own layer, with offsets of its own (Keras, cuDNN); `reset_before` gates
the state itself (Cho et al. 2014). equinox has the first with fewer offsets, and counts fewer parameters.
"""

from typing import Literal

import jax
import jax.numpy as jnp

Form = Literal["reset_after", "reset_before"]


def new_gru(key: jax.Array, inputs: int, size: int) -> tuple[jax.Array, jax.Array]:
    """Layers [inputs + 1, 3·size] of the input and [size + 1, 3·size] of the state: update, reset, candidate."""
    one, other = jax.random.split(key)
    x = jax.nn.initializers.glorot_uniform()(one, (inputs, 3 * size))
    h = jnp.concatenate([jax.nn.initializers.orthogonal()(k, (size, size)) for k in jax.random.split(other, 3)], axis=1)
    return tuple(jnp.concatenate([layer, jnp.zeros((1, 3 * size))]) for layer in (x, h))  # pyright: ignore[reportReturnType]


def cell(gates: jax.Array, state: jax.Array, h: jax.Array, form: Form = "reset_after") -> jax.Array:
    """The state after one step, whose input layer already made `gates` [3·size]."""
    x_z, x_r, x_c = jnp.split(gates, 3, axis=-1)
    W_z, W_r, W_c = jnp.split(state, 3, axis=1)
    z = jax.nn.sigmoid(x_z + h @ W_z[:-1] + W_z[-1])
    r = jax.nn.sigmoid(x_r + h @ W_r[:-1] + W_r[-1])
    said = r * (h @ W_c[:-1] + W_c[-1]) if form == "reset_after" else (r * h) @ W_c[:-1] + W_c[-1]
    # h ← (1 − z) h + z tanh(W_c x + ·)
    return (1 - z) * h + z * jnp.tanh(x_c + said)


def states(layers: tuple[jax.Array, jax.Array], x: jax.Array, real: jax.Array, form: Form = "reset_after") -> jax.Array:
    """The state after each step of the sequence [L, inputs], from 0; steps that are not `real` are passed over."""
    gates = x @ layers[0][:-1] + layers[0][-1]

    def step(h: jax.Array, turn: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        gate, exists = turn
        h = jnp.where(exists, cell(gate, layers[1], h, form), h)
        return h, h

    start = jnp.zeros(layers[1].shape[0] - 1)
    return jax.lax.scan(step, start, (gates, real))[1]


def last_state(
    layers: tuple[jax.Array, jax.Array], x: jax.Array, real: jax.Array, form: Form = "reset_after"
) -> jax.Array:
    """The state after the whole sequence."""
    return states(layers, x, real, form)[-1]
