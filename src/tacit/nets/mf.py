"""Matrix factorisation: one person's vector and the item gradient it implies."""

import jax
import jax.numpy as jnp


def gather(table: jax.Array, index: jax.Array) -> jax.Array:
    """Rows of a table; an index out of range is a row of zeros."""
    return jnp.take(table, index, axis=0, mode="fill", fill_value=0)


def ridge(rows: jax.Array, weight: jax.Array, moment: jax.Array, penalty: jax.Array) -> jax.Array:
    """p = (Rᵀ C R + Λ)⁻¹ m, the solution of a weighted ridge regression.

    Args:
        rows: R, float[n, d].
        weight: the diagonal of C, float[n], not negative.
        moment: m = Rᵀ C y, float[d].
        penalty: Λ, float[d, d], positive definite; λI, or λI plus what other rows add.
    """
    gram = (rows * weight[:, None]).T @ rows + penalty
    return jax.scipy.linalg.cho_solve(jax.scipy.linalg.cho_factor(gram), moment)
