"""Attention: steps of a sequence look at each other, and vote for one vector that stands for all of them."""

import jax
import jax.numpy as jnp


def new_attention(key: jax.Array, size: int) -> jax.Array:
    """Query, key and value layers [3, size, size], without offsets."""
    return jax.nn.initializers.glorot_uniform(batch_axis=0)(key, (3, size, size))


def self_attention(layers: jax.Array, x: jax.Array, real: jax.Array, heads: int) -> jax.Array:
    """What each step of [T, size] sees of the others through its query, key and value layers."""
    q, k, v = jnp.einsum("td,nde->nte", x, layers)
    return attend(q, k, v, real, heads)


def attend(q: jax.Array, k: jax.Array, v: jax.Array, real: jax.Array, heads: int) -> jax.Array:
    """softmax(Q Kᵀ/√(size of a head)) V, head by head, [T, size]; nobody looks at a step that is not `real`."""
    steps, size = q.shape
    q, k, v = (part.reshape(steps, heads, size // heads) for part in (q, k, v))
    close = jnp.einsum("ihe,jhe->hij", q, k) / jnp.sqrt(size // heads)
    return jnp.einsum("hij,jhe->ihe", _softmax(close, real), v).reshape(steps, size)


def new_vote(key: jax.Array, size: int, hidden: int) -> tuple[jax.Array, jax.Array]:
    """The layer [size + 1, hidden] and the voting vector [hidden + 1], offsets last."""
    one, other = jax.random.split(key)
    layer = jax.nn.initializers.glorot_uniform()(one, (size, hidden))
    out = jax.nn.initializers.glorot_uniform()(other, (hidden, 1))
    return jnp.concatenate([layer, jnp.zeros((1, hidden))]), jnp.append(out[:, 0], 0.0)


def votes(vote: tuple[jax.Array, jax.Array], x: jax.Array, real: jax.Array) -> jax.Array:
    """α = softmax(w₂ · tanh(W₁ x + b₁) + b₂) over the real steps of [T, size]; 0 for the others."""
    layer, out = vote
    said = jnp.tanh(x @ layer[:-1] + layer[-1])
    return _softmax(said @ out[:-1] + out[-1], real)


def pooled(vote: tuple[jax.Array, jax.Array], x: jax.Array, real: jax.Array) -> jax.Array:
    """Σ α x, [size]; 0 where nothing is real."""
    return votes(vote, x, real) @ x


def _softmax(logits: jax.Array, real: jax.Array) -> jax.Array:
    """Over the last axis, among what is real; 0 everywhere where nothing is."""
    top = jnp.max(logits, axis=-1, keepdims=True, where=real, initial=-1e30)
    power = jnp.where(real, jnp.exp(jnp.where(real, logits - jax.lax.stop_gradient(top), 0.0)), 0.0)
    return power / jnp.maximum(power.sum(axis=-1, keepdims=True), 1e-30)
