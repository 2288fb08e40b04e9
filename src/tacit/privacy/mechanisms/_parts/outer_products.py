"""Outer products x xᵀ on the integer grid: the factor is rounded, so what is sent is v vᵀ with whole numbers v, exactly.

Two of them are not further apart than √2 bounds: ‖A − B‖² = ‖A‖² + ‖B‖² − 2⟨A, B⟩, and ⟨v vᵀ, w wᵀ⟩ = (v·w)² ≥ 0. Rounding the
numbers of x xᵀ one by one would not keep that: those of x = (1, .1) and w = (.1, −1), whose product is 0, may become
(1 1; 1 0) and (0 −1; −1 1), whose product is −2.

Both triangles are sent, so that the product of two messages is that of the matrices, without a factor √2 that no grid has.
Each has noise of its own, and the mean of the two has the noise that a single triangle times √2 would have.
"""

import math
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tacit.core.integer_grid import Grid, from_vector, in_steps, to_vector, within
from tacit.errors import PlanError

STEPS = 2.0**16  # of a bound, for a factor of 256 steps


def steps_for(noise: float, people: float) -> float:
    """The steps in a bound for which rounding the factors of so many people costs less than the noise's hundredth.

    A number of v vᵀ is off by at most v_i/2 and v_j/2 at random, and one of the diagonal by ¼ on average at most.
    """
    return max(STEPS, 16 * people / noise**2, 3 * people / noise) if noise else STEPS


def check_square(update: dict) -> None:
    """Refuse an update that cannot be outer products."""
    for name, leaf in update.items():
        if leaf.ndim < 2 or leaf.shape[-1] != leaf.shape[-2]:
            raise PlanError(
                "privacy.update_form = 'outer_products' needs square matrices in an update, got "
                f"{name!r} of shape {leaf.shape}; leave it out."
            )


def round_outer_products(key: jax.Array, update: dict, clip: Any, grid: Grid) -> dict:
    """The integers v vᵀ, int32[..., K, K], for matrices that should be x xᵀ, all together shrunk to the clip bound.

    Of a matrix that is no outer product, what its largest number on the diagonal shows as a factor is left.
    """
    check_square(update)
    steps, numbers = grid.largest, sum(math.prod(leaf.shape[:-1]) for leaf in update.values())
    keep = 1 - numbers / (4 * steps) - 2 / math.sqrt(steps)  # few roundings leave the bound
    inside = replace(grid, keep=min(grid.keep, max(0.25, keep)))
    products = _outer(jax.tree.map(_factor, update))
    factors = jax.tree.map(_factor, from_vector(in_steps(to_vector(products), clip, inside), products))
    flat = to_vector(factors)
    size = jnp.minimum(jnp.abs(flat), math.isqrt(steps) + 1)  # more is refused below; no product overflows
    up = (size - jnp.floor(size)) > jax.random.uniform(key, size.shape)
    sign = jnp.sign(flat).astype(jnp.int32)
    whole = jnp.floor(size).astype(jnp.int32)
    near, inner = (_outer(from_vector(sign * rounded, factors)) for rounded in (whole + up, whole))
    fits, inner_fits = (within(to_vector(made), grid) for made in (near, inner))
    return jax.tree.map(lambda q, less: jnp.where(fits, q, jnp.where(inner_fits, less, 0)), near, inner)


def why_not_outer_products(payload: dict) -> str:
    """Why these integers are no outer products, in whole numbers; empty where they are."""
    for name, leaf in payload.items():
        for matrix in np.asarray(leaf, np.int64).reshape(-1, *leaf.shape[-2:]):
            at = int(np.argmax(np.diagonal(matrix)))
            row, pivot = matrix[at], int(matrix[at, at])
            one = pivot > 0 and (pivot * matrix == np.outer(row, row)).all()
            if not one and matrix.any():
                return f"every matrix of {name!r} must be the outer product of a vector with itself"
    return ""


def _factor(matrix: jax.Array) -> jax.Array:
    """x of x xᵀ, but for its sign, float[..., K]; zeros where there is none."""
    diagonal = jnp.diagonal(matrix, axis1=-2, axis2=-1)
    at = jnp.argmax(diagonal, axis=-1)
    row = jnp.take_along_axis(matrix, at[..., None, None], axis=-2)[..., 0, :]
    pivot = jnp.take_along_axis(diagonal, at[..., None], axis=-1)
    found = row / jnp.sqrt(jnp.where(pivot > 0, pivot, 1.0))
    return jnp.where((pivot > 0) & jnp.isfinite(found).all(-1, keepdims=True), found, 0.0)


def _outer(factors: Any) -> Any:
    return jax.tree.map(lambda v: v[..., :, None] * v[..., None, :], factors)
