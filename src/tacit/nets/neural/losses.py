"""Losses: cross-entropy and squared error with masks, sampled softmax, InfoNCE, BPR-max and TOP1-max."""

import jax
import jax.numpy as jnp


def bpr_max(own: jax.Array, rivals: jax.Array, real: jax.Array, calm: float = 1.0) -> jax.Array:
    """−ln Σ_j s_j σ(y − y_j) + calm Σ_j s_j y_j², [m], of targets y [m] and negatives [m, K], with s = softmax of the negatives' scores.

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
    """s_j = softmax over the real negatives, a differentiable maximum; 0 for the rest."""
    return jax.nn.softmax(jnp.where(real, rivals, -1e30), axis=-1) * real


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


def sampled_loss(scores: jax.Array, real: jax.Array) -> jax.Array:
    """−ln softmax of the first of [b, 1 + K] scores among those that are real, [b].

    >>> scores = jnp.array([[1.2, 0.3, -0.5, 0.8, 0.0]])
    >>> round(float(sampled_loss(scores, jnp.ones((1, 5), bool))[0]), 6)
    0.940307
    """
    return jax.nn.logsumexp(jnp.where(real, scores, -1e30), axis=1) - scores[:, 0]


def info_nce(context: jax.Array, candidates: jax.Array, real: jax.Array) -> jax.Array:
    """−ln softmax of context·candidate for the first candidate, among those that are real; 0 where it is not.

    >>> c, v = jnp.array([0.5, -0.2, 0.9]), jnp.array([[0.4, 0.1, 0.8], [0.1, 0.9, -0.3], [-0.6, 0.2, 0.5]])
    >>> round(float(info_nce(c, v, jnp.ones(3, bool))), 6)
    0.546025
    """
    lost = sampled_loss((candidates @ context)[None], real[None])[0]
    return jnp.where(real[0], lost, 0.0)
