"""Transformer: blocks in which every step looks at every other, then thinks for itself; both added to what was there.

x ← norm(x + attention(x)),  x ← norm(x + W₂ gelu(W₁ x)). Offsets are the last rows of their layers; all blocks are one array.
"""

from typing import Any

import jax
import jax.numpy as jnp

from tacit.nets.neural.dropout import dropped
from tacit.nets.sequence.attention import attend

BLOCKS = ("block_attention", "block_wide", "block_narrow", "block_norms")


def new_blocks(key: jax.Array, count: int, size: int, wide: int) -> dict[str, jax.Array]:
    """Query, key, value and output layers, the two of each step's own, and the two norms, for each block.

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


def transformed(
    theta: dict, x: jax.Array, real: jax.Array, heads: int, drop: float = 0.0, key: Any = None
) -> jax.Array:
    """A sequence [T, size] after all blocks; nobody looks at a step that is not `real`."""
    count = theta["block_norms"].shape[0]
    keys = None if key is None or drop == 0 else jax.random.split(key, count)

    def block(x: jax.Array, turn: tuple) -> tuple[jax.Array, None]:
        (attention, wide, narrow, norms), key = turn
        first, second = (None, None) if key is None else jax.random.split(key)
        q, k, v = (_dense(layer, x) for layer in attention[:3])
        seen = _dense(attention[3], attend(q, k, v, real, heads))
        x = _norm(norms[0], x + dropped(first, seen, drop))
        own = _dense(narrow, jax.nn.gelu(_dense(wide, x)))
        return _norm(norms[1], x + dropped(second, own, drop)), None

    return jax.lax.scan(block, x, (tuple(theta[name] for name in BLOCKS), keys))[0]


def _dense(layer: jax.Array, x: jax.Array) -> jax.Array:
    return x @ layer[:-1] + layer[-1]


def _norm(scale_and_shift: jax.Array, x: jax.Array) -> jax.Array:
    """Each step with mean 0 and variance 1, then scaled and shifted."""
    spread = jax.lax.rsqrt(x.var(axis=-1, keepdims=True) + 1e-6)
    return (x - x.mean(axis=-1, keepdims=True)) * spread * scale_and_shift[0] + scale_and_shift[1]
