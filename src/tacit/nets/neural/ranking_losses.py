"""Ranking losses of a target against rivals, weighted by how far in front a rival stands.

s_j = softmax over the rivals of their scores: what would be a maximum if it could be differentiated.
"""

import jax
import jax.numpy as jnp


def bpr_max(own: jax.Array, rivals: jax.Array, real: jax.Array, calm: float = 1.0) -> jax.Array:
    """−ln Σ_j s_j σ(y − y_j) + calm Σ_j s_j y_j², [m], of targets y [m] and rivals [m, K].

    >>> loss = bpr_max(jnp.array([1.0]), jnp.array([[1.0, 1.0]]), jnp.array([[True, False]]), 0.0)
    >>> round(float(loss[0]), 6)
    0.693147
    """
    s = _weights(rivals, real)
    ahead = (s * jax.nn.sigmoid(own[:, None] - rivals)).sum(-1)
    return -jnp.log(jnp.maximum(ahead, 1e-24)) + calm * (s * rivals**2).sum(-1)


def top1_max(own: jax.Array, rivals: jax.Array, real: jax.Array, calm: float = 1.0) -> jax.Array:
    """Σ_j s_j (σ(y_j − y) + calm σ(y_j²)), [m].

    >>> loss = top1_max(jnp.array([0.0]), jnp.array([[0.0, 9.0]]), jnp.array([[True, False]]), 1.0)
    >>> float(loss[0])
    1.0
    """
    s = _weights(rivals, real)
    return (s * (jax.nn.sigmoid(rivals - own[:, None]) + calm * jax.nn.sigmoid(rivals**2))).sum(-1)


def _weights(rivals: jax.Array, real: jax.Array) -> jax.Array:
    """Softmax among what is real; 0 for the rest."""
    return jax.nn.softmax(jnp.where(real, rivals, -1e30), axis=-1) * real
