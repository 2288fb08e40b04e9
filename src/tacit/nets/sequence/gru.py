"""Gated recurrent unit, in its two common forms.

`reset_after` applies the reset gate after the state's own layer, with a bias of its own (Keras, cuDNN); `reset_before` gates the
state itself (Cho et al. 2014). equinox has the first with fewer biases, and counts fewer parameters.
"""

from typing import Any, Literal

import jax
import jax.numpy as jnp

GruForm = Literal["reset_after", "reset_before"]
_UNROLL = {"gpu": 10}  # scan steps unrolled: a GPU launches small kernels slowly, a CPU would only compile longer


def new_gru(key: jax.Array, inputs: int, size: int) -> tuple[jax.Array, jax.Array]:
    """Layers [inputs + 1, 3·size] of the input and [size + 1, 3·size] of the state: update, reset, candidate."""
    one, other = jax.random.split(key)
    x = jax.nn.initializers.glorot_uniform()(one, (inputs, 3 * size))
    h = jnp.concatenate([jax.nn.initializers.orthogonal()(k, (size, size)) for k in jax.random.split(other, 3)], axis=1)
    return tuple(jnp.concatenate([layer, jnp.zeros((1, 3 * size))]) for layer in (x, h))  # pyright: ignore[reportReturnType]


def gru_cell(gates: jax.Array, state: jax.Array, h: jax.Array, form: GruForm = "reset_after") -> jax.Array:
    """The state after one step, from the input layer's output `gates` [..., 3·size]."""
    return _cell(gates, (state[:-1], state[-1]), h, form)


def gru_states(
    layers: tuple[jax.Array, jax.Array], x: jax.Array, real: jax.Array, form: GruForm = "reset_after"
) -> jax.Array:
    """The state after each step of sequences [..., L, inputs], from 0; steps that are not `real` are skipped."""
    gates = jnp.moveaxis(x @ layers[0][:-1] + layers[0][-1], -2, 0)
    exists = jnp.moveaxis(real, -1, 0)[..., None]
    walk = _walk_after if form == "reset_after" else _walk_before
    return jnp.moveaxis(walk(gates, layers[1][:-1], layers[1][-1], exists), 0, -2)


def gru_last_state(
    layers: tuple[jax.Array, jax.Array], x: jax.Array, real: jax.Array, form: GruForm = "reset_after"
) -> jax.Array:
    """The state after whole sequences."""
    return gru_states(layers, x, real, form)[..., -1, :]


def _cell(gates: jax.Array, layer: tuple[jax.Array, jax.Array], h: jax.Array, form: GruForm) -> jax.Array:
    if form == "reset_after":
        z, _, c, _ = _parts(gates, h @ layer[0] + layer[1])
    else:
        x_z, x_r, x_c = jnp.split(gates, 3, axis=-1)
        (W_z, W_r, W_c), (b_z, b_r, b_c) = (jnp.split(part, 3, axis=-1) for part in layer)
        z, r = jax.nn.sigmoid(x_z + h @ W_z + b_z), jax.nn.sigmoid(x_r + h @ W_r + b_r)
        c = jnp.tanh(x_c + (r * h) @ W_c + b_c)
    return (1 - z) * h + z * c


def _parts(gates: jax.Array, recurrent: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """z, r, c and the state's part of c, for `reset_after`."""
    (x_z, x_r, x_c), (s_z, s_r, s_c) = jnp.split(gates, 3, axis=-1), jnp.split(recurrent, 3, axis=-1)
    z, r = jax.nn.sigmoid(x_z + s_z), jax.nn.sigmoid(x_r + s_r)
    return z, r, jnp.tanh(x_c + r * s_c), s_c


def _walk(gates: jax.Array, W: jax.Array, b: jax.Array, exists: jax.Array, form: GruForm) -> jax.Array:
    """The states [L, ..., size] after the steps [L, ..., 3·size]."""

    def step(h: jax.Array, turn: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        gate, there = turn
        h = jnp.where(there, _cell(gate, (W, b), h, form), h)
        return h, h

    return _scan(step, jnp.zeros((*gates.shape[1:-1], W.shape[0])), (gates, exists))


def _walk_before(gates: jax.Array, W: jax.Array, b: jax.Array, exists: jax.Array) -> jax.Array:
    return _walk(gates, W, b, exists, "reset_before")


@jax.custom_vjp
def _walk_after(gates: jax.Array, W: jax.Array, b: jax.Array, exists: jax.Array) -> jax.Array:
    return _walk(gates, W, b, exists, "reset_after")


def _forth(gates: jax.Array, W: jax.Array, b: jax.Array, exists: jax.Array) -> tuple[jax.Array, tuple]:
    after = _walk_after(gates, W, b, exists)
    return after, (gates, W, b, exists, after)


def _back(kept: tuple, slopes: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array, None]:
    """The backward pass. JAX's own adds to W's gradient in every step; here all steps are summed in one product."""
    gates, W, b, exists, after = kept
    h = jnp.concatenate([jnp.zeros_like(after[:1]), after[:-1]])
    z, r, c, s_c = _parts(gates, h @ W + b)
    # derivatives of the state by the gates; by the state's own part, the last one is r times as much
    by_c = z * (1 - c * c)
    by_gates = jnp.stack([(c - h) * z * (1 - z), by_c * s_c * r * (1 - r), by_c], axis=-2)
    by_gates = jnp.where(exists[..., None], by_gates, 0.0)
    by_said = by_gates.at[..., 2, :].multiply(r)
    stays, W_T = jnp.where(exists, 1 - z, 1.0), W.T  # made once: a product with a transposed matrix is slow on a CPU

    def step(d: jax.Array, turn: tuple[jax.Array, ...]) -> tuple[jax.Array, jax.Array]:
        slope, stay, by = turn
        d = d + slope
        return stay * d + _flat(by * d[..., None, :]) @ W_T, d

    d = _scan(step, jnp.zeros_like(after[0]), (slopes, stays, by_said), reverse=True)
    d_gates, d_recurrent = (_flat(by * d[..., None, :]) for by in (by_gates, by_said))
    rows = (-1, d_recurrent.shape[-1])
    return d_gates, h.reshape(-1, h.shape[-1]).T @ d_recurrent.reshape(rows), d_recurrent.reshape(rows).sum(0), None


def _scan(step: Any, start: jax.Array, turns: tuple, reverse: bool = False) -> jax.Array:
    return jax.lax.scan(step, start, turns, reverse=reverse, unroll=_UNROLL.get(jax.default_backend(), 1))[1]


def _flat(x: jax.Array) -> jax.Array:
    return x.reshape(*x.shape[:-2], -1)


_walk_after.defvjp(_forth, _back)
