"""Attention: multi-head self-attention, additive attention that pools a sequence, and transformer blocks.

One block: x ← norm(x + attention(x)),  x ← norm(x + W₂ gelu(W₁ x)). Biases are the last rows of their layers; all blocks are
one array.
"""

from typing import Any

import jax
import jax.numpy as jnp

from tacit.nets.neural.layers import dropout


def new_attention(key: jax.Array, size: int) -> jax.Array:
    """Query, key and value layers [3, size, size], without biases."""
    return jax.nn.initializers.glorot_uniform(batch_axis=0)(key, (3, size, size))


def self_attention(layers: jax.Array, x: jax.Array, real: jax.Array, heads: int) -> jax.Array:
    """Self-attention over the steps of [T, size] with these query, key and value layers."""
    q, k, v = jnp.einsum("td,nde->nte", x, layers)
    return dot_product_attention(q, k, v, real, heads)


def dot_product_attention(q: jax.Array, k: jax.Array, v: jax.Array, real: jax.Array, heads: int) -> jax.Array:
    """softmax(Q Kᵀ/√(size of a head)) V, head by head, [T, size]; steps that are not `real` are masked."""
    steps, size = q.shape
    q, k, v = (part.reshape(steps, heads, size // heads) for part in (q, k, v))
    close = jnp.einsum("ihe,jhe->hij", q, k) / jnp.sqrt(size // heads)
    return jnp.einsum("hij,jhe->ihe", _softmax(close, real), v).reshape(steps, size)


def new_additive_attention(key: jax.Array, size: int, hidden: int) -> tuple[jax.Array, jax.Array]:
    """The layer [size + 1, hidden] and the query vector [hidden + 1], biases last."""
    one, other = jax.random.split(key)
    layer = jax.nn.initializers.glorot_uniform()(one, (size, hidden))
    out = jax.nn.initializers.glorot_uniform()(other, (hidden, 1))
    return jnp.concatenate([layer, jnp.zeros((1, hidden))]), jnp.append(out[:, 0], 0.0)


def attention_weights(vote: tuple[jax.Array, jax.Array], x: jax.Array, real: jax.Array) -> jax.Array:
    """α = softmax(w₂ · tanh(W₁ x + b₁) + b₂) over the real steps of [T, size]; 0 for the others."""
    layer, out = vote
    hidden = jnp.tanh(x @ layer[:-1] + layer[-1])
    return _softmax(hidden @ out[:-1] + out[-1], real)


def additive_attention(vote: tuple[jax.Array, jax.Array], x: jax.Array, real: jax.Array) -> jax.Array:
    """Σ α x, [size]; 0 where nothing is real."""
    return attention_weights(vote, x, real) @ x


def _softmax(logits: jax.Array, real: jax.Array) -> jax.Array:
    """Softmax over the real entries of the last axis; all 0 where none is real."""
    top = jnp.max(logits, axis=-1, keepdims=True, where=real, initial=-1e30)
    power = jnp.where(real, jnp.exp(jnp.where(real, logits - jax.lax.stop_gradient(top), 0.0)), 0.0)
    return power / jnp.maximum(power.sum(axis=-1, keepdims=True), 1e-30)


# ---- transformer blocks ----


BLOCKS = ("block_attention", "block_wide", "block_narrow", "block_norms")


def new_blocks(key: jax.Array, count: int, size: int, wide: int) -> dict[str, jax.Array]:
    """Query, key, value and output layers, the two feed-forward layers, and the two norms, for each block.

    >>> sum(leaf.size for leaf in new_blocks(jax.random.key(0), 4, 100, 512).values())
    575248
    """
    one, two, three = jax.random.split(key, 3)

    def layer(key: jax.Array, *shape: int) -> jax.Array:
        made = 0.02 * jax.random.truncated_normal(key, -2, 2, (count, *shape))
        return made.at[..., -1, :].set(0.0)

    norms = jnp.tile(jnp.array([1.0, 0.0])[:, None], (count, 2, 1, size))
    return dict(
        zip(BLOCKS, (layer(one, 4, size + 1, size), layer(two, size + 1, wide), layer(three, wide + 1, size), norms))
    )


def transformer(
    theta: dict, x: jax.Array, real: jax.Array, heads: int, drop: float = 0.0, key: Any = None
) -> jax.Array:
    """A sequence [T, size] after all blocks; steps that are not `real` are masked."""
    count = theta["block_norms"].shape[0]
    keys = None if key is None or drop == 0 else jax.random.split(key, count)

    def block(x: jax.Array, turn: tuple) -> tuple[jax.Array, None]:
        (attention, wide, narrow, norms), key = turn
        first, second = (None, None) if key is None else jax.random.split(key)
        q, k, v = (_dense(layer, x) for layer in attention[:3])
        seen = _dense(attention[3], dot_product_attention(q, k, v, real, heads))
        x = _norm(norms[0], x + dropout(first, seen, drop))
        own = _dense(narrow, jax.nn.gelu(_dense(wide, x)))
        return _norm(norms[1], x + dropout(second, own, drop)), None

    return jax.lax.scan(block, x, (tuple(theta[name] for name in BLOCKS), keys))[0]


def _dense(layer: jax.Array, x: jax.Array) -> jax.Array:
    return x @ layer[:-1] + layer[-1]


def _norm(scale_and_shift: jax.Array, x: jax.Array) -> jax.Array:
    """Layer normalisation of each step, then scale and shift."""
    spread = jax.lax.rsqrt(x.var(axis=-1, keepdims=True) + 1e-6)
    return (x - x.mean(axis=-1, keepdims=True)) * spread * scale_and_shift[0] + scale_and_shift[1]
