"""Matrix factorisation: a person's rows of the item table, and the vector that fits them."""

import jax
import jax.numpy as jnp

from tacit.nets.factor.spd_solve import dot, gram, solve


def gather(table: jax.Array, index: jax.Array) -> jax.Array:
    """Rows of a table. A padded index repeats the last row: every use must carry a weight that is 0 there.

    Clipping spares the pass over [n, d] that filling with zeros costs.
    """
    return jnp.asarray(table).at[index].get(mode="clip")


def ridge(rows: jax.Array, weight: jax.Array, moment: jax.Array, penalty: jax.Array) -> jax.Array:
    """p = (Rᵀ C R + Λ)⁻¹ m, the solution of a weighted ridge regression.

    Args:
        rows: R, float[n, d].
        weight: the diagonal of C, float[n], not negative, 0 on padding.
        moment: m = Rᵀ C y, float[d].
        penalty: Λ, float[d, d], positive definite; λI, or λI plus what other rows add.
    """
    return solve(gram(rows, weight) + penalty, moment)


__all__ = ["dot", "gather", "ridge"]
