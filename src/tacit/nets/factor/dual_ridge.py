"""Dual: a weighted ridge regression through the smaller of its two matrices."""

import jax
import jax.numpy as jnp

from tacit.nets.factor.spd_solve import dot, gram, solve


def narrow_ridge(rows: jax.Array, weight: jax.Array, target: jax.Array, penalty: float) -> jax.Array:
    """p = (RᵀC R + λI)⁻¹ RᵀC y, by a system of size min(n, d).

    Args:
        rows: R, float[n, d].
        weight: the diagonal of C, float[n], not negative, 0 on padding.
        target: y, float[n].
        penalty: λ, above 0.
    """
    n, d = rows.shape
    if d <= n:
        return solve(gram(rows, weight) + penalty * jnp.eye(d), dot(weight * target, rows))
    # With D = C^½ R, p = Dᵀ (D Dᵀ + λI)⁻¹ C^½ y: no division by a weight, which is 0 on padding.
    root = jnp.sqrt(weight)
    scaled = rows * root[:, None]
    return dot(solve(dot(scaled, scaled.T) + penalty * jnp.eye(n), root * target), scaled)
