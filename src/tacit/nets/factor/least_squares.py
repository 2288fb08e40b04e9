"""Least squares: rows of a table, small symmetric positive definite systems, and weighted ridge regression."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax

# ---- products and systems ----


LARGE = 48  # systems of this size and more are solved by gradients on a GPU too


def dot(left: jax.Array, right: jax.Array) -> jax.Array:
    """left @ right in full float32: a GPU's default precision keeps three digits, too few for a solve."""
    return jnp.matmul(left, right, precision="highest")


def weighted_gram(rows: jax.Array, weight: jax.Array) -> jax.Array:
    """Rᵀ C R, float[d, d], for rows R float[n, d] and the diagonal of C float[n]."""
    # Laid out as [d, n] before the product: under vmap the product is [b, d, n] @ [b, n, d], which CPU kernels take as
    # it is. Without the barrier XLA folds the transpose back and falls to a kernel half as fast.
    left = lax.optimization_barrier((rows * weight[:, None]).T)
    return dot(left, rows)


def solve(matrix: jax.Array, vector: jax.Array) -> jax.Array:
    """matrix⁻¹ vector, to rounding, by the fastest solver of the platform; derivatives are one more solve."""

    # A GPU factorises many small matrices fast and many larger ones slowly; conjugate gradients only multiply.
    elsewhere = solve_by_cholesky if vector.shape[0] < LARGE else solve_by_gradients

    def run(_: Callable, right: jax.Array) -> jax.Array:
        return lax.platform_dependent(matrix, right, cpu=solve_by_gradients, default=elsewhere)

    return lax.custom_linear_solve(lambda x: dot(matrix, x), vector, run, symmetric=True)


def solve_by_cholesky(matrix: jax.Array, vector: jax.Array) -> jax.Array:
    """L Lᵀ x = v, by two triangular solves."""
    low = lax.linalg.cholesky(matrix, symmetrize_input=False)
    half = lax.linalg.triangular_solve(low, vector[:, None], left_side=True, lower=True)
    return lax.linalg.triangular_solve(low, half, left_side=True, lower=True, transpose_a=True)[:, 0]


def solve_by_gradients(matrix: jax.Array, vector: jax.Array) -> jax.Array:
    """Conjugate gradients run to rounding error.

    Preferred on CPU: faster than Cholesky unless the matrix is badly conditioned, and free of LAPACK, whose batched
    calls were seen to hang the CPU client of jaxlib 0.10 on two cores.
    """
    floor = jnp.finfo(vector.dtype).eps ** 2 * (vector @ vector)
    most = 4 * vector.shape[0]  # d steps in exact arithmetic; rounding delays

    def unfinished(carry: tuple) -> jax.Array:
        return (carry[0] < most) & (carry[1][3] > floor)

    def two_steps(carry: tuple) -> tuple:
        # Two per test: under vmap each test copies the carry through a select.
        return carry[0] + 2, _step(matrix, _step(matrix, carry[1]))

    start = jnp.zeros_like(vector), vector, vector, vector @ vector
    return lax.while_loop(unfinished, two_steps, (0, start))[1][0]


def _step(matrix: jax.Array, state: tuple) -> tuple:
    """One step: solution x, residual r, direction s, and |r|²."""
    x, r, s, rr = state
    As = dot(matrix, s)
    alpha = _ratio(rr, s @ As)
    x, r = x + alpha * s, r - alpha * As
    new = r @ r
    return x, r, r + _ratio(new, rr) * s, new


def _ratio(top: jax.Array, bottom: jax.Array) -> jax.Array:
    # A converged system, or an empty one, must not move.
    return jnp.where(bottom > 0, top / jnp.where(bottom > 0, bottom, 1), 0)


# ---- ridge regression ----


def gather(table: jax.Array, index: jax.Array) -> jax.Array:
    """Rows of a table. A padded index repeats the last row: every use must weigh it with 0.

    Clipping avoids the pass over [n, d] that filling with zeros costs.
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
    return solve(weighted_gram(rows, weight) + penalty, moment)


def dual_ridge(rows: jax.Array, weight: jax.Array, target: jax.Array, penalty: float) -> jax.Array:
    """p = (RᵀC R + λI)⁻¹ RᵀC y, by a system of size min(n, d).

    Args:
        rows: R, float[n, d].
        weight: the diagonal of C, float[n], not negative, 0 on padding.
        target: y, float[n].
        penalty: λ, above 0.
    """
    n, d = rows.shape
    if d <= n:
        return solve(weighted_gram(rows, weight) + penalty * jnp.eye(d), dot(weight * target, rows))
    # With D = C^½ R, p = Dᵀ (D Dᵀ + λI)⁻¹ C^½ y: no division by a weight, which is 0 on padding.
    root = jnp.sqrt(weight)
    scaled = rows * root[:, None]
    return dot(solve(dot(scaled, scaled.T) + penalty * jnp.eye(n), root * target), scaled)
