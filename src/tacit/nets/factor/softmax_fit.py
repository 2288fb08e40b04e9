"""Softmax regression: the vector that maximises the likelihood of a user's choices, by Newton's method."""

import jax
import jax.numpy as jnp

from tacit.nets.factor.least_squares import dot, solve, weighted_gram


def masked_softmax(logits: jax.Array, offered: jax.Array) -> jax.Array:
    """Softmax over the offered entries, 0 elsewhere; all 0 where none is offered."""
    top = jax.lax.stop_gradient(jnp.where(offered, logits, -jnp.inf).max(axis=-1, keepdims=True))
    # Entries not offered are set to -inf before exp: their values may be anything, and must not reach a derivative.
    raised = jnp.exp(jnp.where(offered, logits - jnp.where(jnp.isfinite(top), top, 0.0), -jnp.inf))
    return raised / jnp.maximum(raised.sum(axis=-1, keepdims=True), 1e-30)


def masked_log_softmax(logits: jax.Array, offered: jax.Array) -> jax.Array:
    """log of `masked_softmax`, -inf where something is not offered."""
    return jax.nn.log_softmax(jnp.where(offered, logits, -jnp.inf), axis=-1)


def fit_softmax(
    rows: jax.Array, offsets: jax.Array, chosen: jax.Array, offered: jax.Array, penalty: float, steps: int
) -> jax.Array:
    """p = argmax Σ_sj chosen_sj log softmax_j(offset_sj + x_j·p) − λ/2 |p|², after `steps` Newton steps from 0.

    Args:
        rows: x, float[n, d].
        offsets: float[s, n], one row for each choice set.
        chosen: float[s, n], how often each was chosen; 0 on padding.
        offered: bool[n].
        penalty: λ, above 0.
        steps: number of Newton steps.
    """
    times = chosen.sum(axis=1)

    def step(_: int, p: jax.Array) -> jax.Array:
        π = masked_softmax(offsets + dot(rows, p), offered)
        slope = dot((chosen - times[:, None] * π).sum(axis=0), rows) - penalty * p
        mean = dot(π, rows)
        # −∂²: Σ_s times_s (Xᵀ diag(π_s) X − mean mean ᵀ) + λI
        curve = weighted_gram(rows, dot(times, π)) - weighted_gram(mean, times) + penalty * jnp.eye(rows.shape[1])
        return p + solve(curve, slope)

    return jax.lax.fori_loop(0, steps, step, jnp.zeros(rows.shape[1]))
