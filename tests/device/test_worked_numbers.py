"""Worked numbers: what a method computes on a case small enough to check by hand."""

import jax.numpy as jnp
import numpy as np

from support.toys import close
from tacit.core.catalog import Catalog
from tacit.core.plan import Stage
from tacit.core.sparse_rows import dense
from tacit.device.history import plain_history
from tacit.device.method import build

HISTORY = jnp.array([0, 1, 2, 0, 0, 1, 0, 2])
Q = jnp.array([[0.5, -0.2], [0.1, 0.3], [-0.4, 0.6]])


def fcf(**hyper):
    stage = Stage("fcf", {"dim": 2, "penalty": 0.1, **hyper}, ("items",), rounds=1)
    method = build(stage, Catalog(3))
    own = method.prepare(plain_history(HISTORY))
    local, update, _ = method.local(None, {"items": Q}, {"vector": jnp.zeros(2)}, own)
    return own, local["vector"], dense(update["items"])


def test_fcf_own_weights():
    own, p, F = fcf(weights="own")
    np.testing.assert_allclose(dense(own), [0.5, 0.25, 0.25])
    np.testing.assert_allclose(p, [1.0350665054413541, 0.9939540507859732], rtol=1e-5)
    expected = [
        [-0.35257343964066445, -0.33856935442129227],
        [-0.15482191864945047, -0.14867244991804704],
        [-0.2115816115415489, -0.20317766902704812],
    ]
    np.testing.assert_allclose(F, expected, rtol=1e-5)


def test_own_weights_with_a_power():
    own, _, _ = fcf(weights="own", gamma=0.5)
    np.testing.assert_allclose(dense(own), [0.4142135623730951, 0.29289321881345254, 0.29289321881345254], rtol=1e-6)


def test_fcf_all_weights_is_the_textbook_solve():
    """p = (QᵀCQ + λI)⁻¹QᵀCa and F = −[c∘(a − Qp)]pᵀ over the whole catalogue, in float64."""
    history = jnp.array([0, 3, 0, 0])
    table = np.random.default_rng(0).normal(size=(5, 3))
    stage = Stage("fcf", {"dim": 3, "penalty": 0.7, "alpha": 2.0}, ("items",), rounds=1)
    method = build(stage, Catalog(5))
    own = method.prepare(plain_history(history))
    local, update, _ = method.local(None, {"items": jnp.asarray(table, jnp.float32)}, {"vector": jnp.zeros(3)}, own)
    c, a = np.array([7.0, 1, 1, 3, 1]), np.array([1.0, 0, 0, 1, 0])
    p = np.linalg.solve(table.T @ (c[:, None] * table) + 0.7 * np.eye(3), table.T @ (c * a))
    np.testing.assert_allclose(local["vector"], p, rtol=1e-4)
    np.testing.assert_allclose(update["items"], -np.outer(c * (a - table @ p), p), rtol=1e-3, atol=1e-5)


def test_the_gradient_is_the_gradient():
    """F is ∂/∂Q of ½Σ c (q·p − a)² with p held, by automatic differentiation."""
    import jax

    own, p, F = fcf(weights="own")
    c = dense(own)
    close(F, jax.grad(lambda table: 0.5 * jnp.sum(c * (table @ p - 1) ** 2))(Q))


def score(name, recent, history=HISTORY):
    method = build(Stage(name), Catalog(3))
    own = method.prepare(plain_history(history))
    return method.score({}, {}, own, jnp.array(recent), jnp.arange(3)).tolist()


def test_baselines_by_hand():
    assert score("mfu", [-1]) == [4, 2, 2]
    assert score("mru", [-1, 0, 1, 0]) == [4, 3, 0]
    assert score("mru", [-1, -1]) == [0, 0, 0]
    # 0 → 1 twice, 0 → 0 once, 0 → 2 once
    assert score("sr_od", [2, 0]) == [1, 2, 1]
    assert score("sr_od", [-1]) == [0, 0, 0]
