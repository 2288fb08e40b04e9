"""Functions in blocks: equal to one call, with the same gradient, and blocks of padding are skipped."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.nets.neural.chunked import map_in_blocks
from tacit.nets.neural.layers import dropout

ROWS = jnp.asarray(np.random.default_rng(0).normal(size=(23, 3)), jnp.float32)
THETA = {"a": jnp.asarray(np.random.default_rng(1).normal(size=(3, 4)), jnp.float32), "b": jnp.float32(0.3)}
FROZEN = jnp.asarray(np.random.default_rng(2).normal(size=(4,)), jnp.float32)
MADE = []


def layer(theta, frozen, rows, key):
    return jnp.tanh(dropout(key, rows, 0.5) @ theta["a"] + theta["b"]) * frozen


def counted(theta, frozen, rows, key):
    jax.debug.callback(lambda: MADE.append(rows.shape[0]))
    return layer(theta, frozen, rows, key)


def at_once(theta, begin, end):
    inside = (jnp.arange(ROWS.shape[0]) >= begin) & (jnp.arange(ROWS.shape[0]) < end)
    return jnp.where(inside[:, None], layer(theta, FROZEN, ROWS, None), 0.0)


def blocks(theta, begin, end, size, key=None):
    span = (jnp.asarray(begin), jnp.asarray(end))
    made = map_in_blocks(layer, size, theta, FROZEN, ROWS, span, key)
    inside = (jnp.arange(ROWS.shape[0]) >= begin) & (jnp.arange(ROWS.shape[0]) < end)
    return jnp.where(inside[:, None], made, 0.0)


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 23), st.integers(0, 23), st.integers(1, 30))
def test_blocks_equal_one_call(one, other, size):
    begin, end = sorted((one, other))
    np.testing.assert_allclose(blocks(THETA, begin, end, size), at_once(THETA, begin, end), atol=1e-6)
    lost = lambda rows: jnp.square(rows - 0.1).sum()  # noqa: E731
    slope = jax.grad(lambda theta: lost(blocks(theta, begin, end, size)))(THETA)
    truth = jax.grad(lambda theta: lost(at_once(theta, begin, end)))(THETA)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=2e-5), slope, truth)


def test_vmap_equals_a_loop():
    begins, ends = jnp.array([0, 3, 10, 5]), jnp.array([23, 4, 10, 17])
    thetas = jax.vmap(lambda k: jax.tree.map(lambda leaf: leaf * k, THETA))(jnp.arange(1.0, 5.0))
    slope = jax.grad(lambda theta, begin, end: jnp.square(blocks(theta, begin, end, 4)).sum())
    together = jax.jit(jax.vmap(slope))(thetas, begins, ends)
    for who in range(4):
        alone = slope(jax.tree.map(lambda leaf: leaf[who], thetas), begins[who], ends[who])  # noqa: B023
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a[who], b, atol=2e-5), together, alone)  # noqa: B023


@pytest.mark.parametrize(("end", "blocks"), [(0, 0), (1, 1), (8, 2), (9, 3)])
def test_blocks_of_padding_are_skipped(end, blocks):
    MADE.clear()
    span = (jnp.array(0), jnp.array(end))
    lost = jax.jit(jax.grad(lambda theta: map_in_blocks(counted, 4, theta, FROZEN, ROWS, span).sum()))
    jax.block_until_ready(lost(THETA))
    jax.effects_barrier()
    assert len(MADE) == 2 * blocks  # forwards, and again for the slope


def test_dropout_is_equal_in_both_passes():
    """The slope is that of the very function: it agrees with differences of its values under the same key."""
    key = jax.random.key(3)
    lost = lambda theta: jnp.square(blocks(theta, 0, 23, 5, key)).sum()  # noqa: E731
    slope, step = jax.grad(lost)(THETA), 1e-2
    for place in ((0, 0), (2, 3)):
        up, down = ({**THETA, "a": THETA["a"].at[place].add(sign * step)} for sign in (1, -1))
        assert float(slope["a"][place]) == pytest.approx(float(lost(up) - lost(down)) / (2 * step), rel=1e-3, abs=1e-3)
    other = blocks(THETA, 0, 23, 5, jax.random.key(4))
    assert not np.allclose(other, blocks(THETA, 0, 23, 5, key))
