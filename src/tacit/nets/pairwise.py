"""Pairwise ranking: how an item had and one not had are drawn, and one step of BPR for a person and the two."""

from typing import NamedTuple

import jax
import jax.numpy as jnp


class Penalties(NamedTuple):
    """λ of the person's vector, of the item had, of the rival, and of their biases."""

    person: float
    had: float
    rival: float
    bias: float = 0.0


class Slopes(NamedTuple):
    """The direction of steepest ascent of ln σ(x_ui − x_uj), less the penalties."""

    g: jax.Array  # how wrong the order still is, float[]
    person: jax.Array  # Δp, float[d]
    had: jax.Array  # Δq_i, float[d]
    rival: jax.Array  # Δq_j, float[d]
    bias_had: jax.Array  # Δb_i, float[]
    bias_rival: jax.Array  # Δb_j, float[]


def slopes(
    p: jax.Array, q_i: jax.Array, q_j: jax.Array, b_i: jax.Array, b_j: jax.Array, penalties: Penalties
) -> Slopes:
    """One step of BPR, with x_ui = b_i + p·q_i and g = σ(x_uj − x_ui).

    >>> made = slopes(jnp.ones(1), jnp.zeros(1), jnp.zeros(1), jnp.zeros(()), jnp.zeros(()), Penalties(0, 0, 0))
    >>> float(made.had[0]), float(made.rival[0]), float(made.bias_had)
    (0.5, -0.5, 0.5)
    """
    g = jax.nn.sigmoid(b_j - b_i + (p * (q_j - q_i)).sum())
    return Slopes(
        g,
        g * (q_i - q_j) - penalties.person * p,
        g * p - penalties.had * q_i,
        -g * p - penalties.rival * q_j,
        g - penalties.bias * b_i,
        -g - penalties.bias * b_j,
    )


def not_had(k: jax.Array, had: jax.Array, size: jax.Array) -> jax.Array:
    """The k-th item that is not had, from 0: k plus the number of items had before it.

    >>> [int(not_had(k, jnp.array([1, 3, 4, 9]), 3)) for k in range(4)]
    [0, 2, 5, 6]
    """
    # had[m] − m items not had stand before had[m]. Halving would look at fewer, but compiles to far more code.
    place = jnp.arange(had.shape[0])
    return k + ((place < size) & (had - place <= k)).sum(dtype=jnp.int32)


def draw_pair(key: jax.Array, had: jax.Array, size: jax.Array, n_items: int) -> tuple[jax.Array, jax.Array, jax.Array]:
    """An item had and one not had, each uniformly; and a third number for a coin, uniform in [0, 1).

    Nothing is drawn twice: the rival is the k-th item not had. Remainders of 32 random bits are uniform to one part in
    2³² / n.

    Args:
        key: the randomness.
        had: int32[L], strictly increasing in its first `size` places.
        size: int32[], at least 1 and less than `n_items` for the answer to mean anything.
        n_items: how many items there are.
    """
    bits = jax.random.bits(key, (3,))
    i = had[_remainder(bits[0], size)]
    k = _remainder(bits[1], n_items - size)
    j = not_had(k, had, size)
    coin = (bits[2] >> 8).astype(jnp.float32) * 2.0**-24
    return i, j, coin


def _remainder(bits: jax.Array, size: jax.Array) -> jax.Array:
    return (bits % jnp.maximum(size, 1).astype(jnp.uint32)).astype(jnp.int32)
