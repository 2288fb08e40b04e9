"""Least squares and neighbour scores against float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tacit.nets.counts.item_pairs import neighbour_scores
from tacit.nets.factor.least_squares import gather, ridge, solve, solve_by_cholesky, solve_by_gradients

N, WIDTH, MANY = 200, 64, 12


def problem(seed, scale, d):
    rng = np.random.default_rng(seed)
    table = (rng.normal(size=(N, d)) * scale).astype(np.float32)
    index = np.full((MANY, WIDTH), N, np.int32)
    for row in index:
        n = rng.integers(1, WIDTH + 1)
        row[:n] = np.sort(rng.choice(N, n, replace=False))
    weight = np.where(index < N, rng.random(index.shape) + 0.1, 0)
    return table, index, (weight / weight.sum(1, keepdims=True)).astype(np.float32)


def one(table, index, weight, penalty):
    rows = gather(table, index)
    return ridge(rows, weight, weight @ rows, penalty * jnp.eye(table.shape[1]))


def exact(table, index, weight, penalty):
    """The float64 solution, and how well float32 can do: a few ε times the condition number."""
    made, bound = [], 1e-5
    for i, c in zip(index, weight.astype(float)):
        rows, c = table[i[i < N]].astype(float), c[i < N]
        matrix = (rows.T * c) @ rows + penalty * np.eye(table.shape[1])
        made.append(np.linalg.solve(matrix, rows.T @ c))
        bound = max(bound, 2 * np.finfo(np.float32).eps * np.linalg.cond(matrix))
    return np.array(made), bound


def error(found, right):
    return (np.linalg.norm(np.asarray(found, float) - right, axis=-1) / np.linalg.norm(right, axis=-1)).max()


@pytest.mark.parametrize("penalty", [1e-3, 1e-2, 0.1, 1.0])
@pytest.mark.parametrize(("scale", "d"), [(0.1, 8), (0.3, 32), (1.0, 32), (0.3, 64)])
def test_ridge_is_the_float64_solution(penalty, scale, d):
    table, index, weight = problem(1, scale, d)
    right, bound = exact(table, index, weight, penalty)
    many = jax.vmap(one, (None, 0, 0, None))
    assert error(jax.jit(many)(table, index, weight, penalty), right) < bound
    alone = np.stack([one(table, i, c, penalty) for i, c in zip(index[:3], weight[:3])])
    assert error(alone, right[:3]) < bound


def test_ridge_ignores_padding():
    table, index, weight = problem(2, 0.3, 16)
    more = np.pad(index, ((0, 0), (0, 37)), constant_values=N), np.pad(weight, ((0, 0), (0, 37)))
    many = jax.vmap(one, (None, 0, 0, None))
    np.testing.assert_allclose(many(table, index, weight, 0.1), many(table, *more, 0.1), rtol=1e-5, atol=1e-6)


def test_ridge_without_rows_is_zero():
    table, index, weight = problem(3, 0.3, 8)
    np.testing.assert_array_equal(one(table, np.full_like(index[0], N), 0 * weight[0], 0.1), np.zeros(8))


def test_both_solvers_agree_and_have_derivatives():
    rng = np.random.default_rng(0)
    half = rng.normal(size=(10, 10)).astype(np.float32)
    matrix, vector = jnp.asarray(half @ half.T + np.eye(10, dtype=np.float32)), jnp.asarray(rng.normal(size=10))
    np.testing.assert_allclose(
        solve_by_gradients(matrix, vector), solve_by_cholesky(matrix, vector), rtol=2e-3, atol=1e-5
    )
    slope = jax.grad(lambda v: solve(matrix, v)[0])(vector)
    np.testing.assert_allclose(slope, np.linalg.inv(np.asarray(matrix, float))[0], rtol=2e-3, atol=1e-5)


@pytest.mark.bitwise
def test_a_converged_system_does_not_change_in_a_batch():
    """What one device gets does not depend on who is in its chunk."""
    easy, hard = jnp.eye(6), jnp.diag(jnp.geomspace(1.0, 1e4, 6))
    both = jax.vmap(solve_by_gradients)(jnp.stack([easy, hard]), jnp.ones((2, 6)))
    np.testing.assert_array_equal(both[0], solve_by_gradients(easy, jnp.ones(6)))


def test_neighbour_scores_by_hand():
    neighbours, similarity = jnp.array([[1, 2], [0, 3], [3, 3]]), jnp.array([[0.5, 0.2], [0.5, 0.0], [0.0, 0.0]])
    scores = neighbour_scores(neighbours, similarity, jnp.array([0, 1, 3]), jnp.array([1.0, 2.0, 9.0]))
    np.testing.assert_allclose(scores, [1.0, 0.5, 0.2])
