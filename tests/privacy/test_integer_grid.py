"""The integer grid: bounds that hold exactly, rounding that is unbiased, extremes of clip bounds and inputs, 64-bit sums."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.errors import PlanError
from tacit.privacy.mechanisms._parts import integer_grid as ig
from tacit.privacy.mechanisms._parts.integer_grid import Grid, check_clip, check_headroom, gaussian_grid, laplace_grid

pytestmark = pytest.mark.bitwise

rounded = jax.jit(ig.round_to_grid, static_argnums=3)
within = jax.jit(ig.within, static_argnums=1)
GRIDS = (gaussian_grid(1.0, 6), gaussian_grid(20.0, 6, 100), laplace_grid(2.0, "l1"), laplace_grid(50.0, "elements"))
FLOATS = st.floats(width=32, allow_nan=True, allow_infinity=True)


def holds(q, grid):
    """The bound in Python's integers."""
    sizes = [abs(int(k)) for k in np.ravel(q)]
    return {"l2": sum(k * k for k in sizes), "l1": sum(sizes), "elements": max(sizes, default=0)}[
        grid.norm
    ] <= grid.bound


def unit(grid, x):
    return {"l2": np.linalg.norm(x), "l1": np.abs(x).sum(), "elements": np.abs(x).max()}[grid.norm]


# ---- Rounding ----


@settings(deadline=None, max_examples=150)
@given(
    st.lists(FLOATS, min_size=6, max_size=6),
    st.integers(0, 2**32 - 1),
    st.sampled_from([1e-12, 1e-3, 1.0, 1e12]),
    st.sampled_from(GRIDS),
)
def test_integers_are_within_the_bound_whatever_comes(x, word, clip, grid):
    x = np.array(x, np.float32)
    q = np.asarray(rounded(jnp.uint32(word), x, clip, grid))
    assert q.dtype == np.int32
    assert holds(q, grid)
    if not np.isfinite(x).all():
        assert not q.any()
    elif unit(grid, x.astype(np.float64)) < 0.7 * clip and np.abs(x).max() > 1e-37:
        assert np.abs(q * grid.step - x.astype(np.float64) / clip).max() <= 1.01 * grid.step


@pytest.mark.parametrize("grid", GRIDS, ids=lambda grid: grid.norm)
@pytest.mark.parametrize("clip", [1e-12, 1.0, 1e12])
def test_extremes_of_clips_and_inputs(grid, clip):
    signs = np.array([1, -1, 1, 1, -1, 1], np.float32)
    for size in (3e38, 1e30, 1e3 * clip):
        q = np.asarray(rounded(jnp.uint32(1), np.float32(size) * signs, clip, grid), np.float64)
        assert holds(q, grid)
        assert unit(grid, q) * grid.step > 0.8, "what is long is as long as it may be"
        assert (q * signs > 0).all()
    for bad in (np.nan, np.inf, -np.inf):
        assert not rounded(jnp.uint32(1), signs * np.float32(bad), clip, grid).any()
        assert not rounded(jnp.uint32(1), np.array([1, 2, bad, 0, 0, 0], np.float32), clip, grid).any()
    assert not rounded(jnp.uint32(2**31), np.zeros(6, np.float32), clip, grid).any()


@pytest.mark.parametrize("grid", [*GRIDS, gaussian_grid(4.0, 6, 1)], ids=repr)
def test_rounding_is_unbiased(grid):
    x = np.array([0.31, -0.013, 0.2, 0.0, -0.0371, 0.111], np.float32) * 0.8
    words = jnp.asarray(np.random.default_rng(0).integers(0, 2**32, 40_000, dtype=np.uint32))
    q = np.asarray(jax.vmap(lambda word: rounded(word, x, 1.0, grid))(words), np.float64)
    np.testing.assert_allclose(q.mean(0), x / grid.step, atol=5 * 0.5 / math.sqrt(40_000))
    assert (q[:, 3] == 0).all()


def test_without_a_word_rounding_is_to_the_nearest():
    grid = gaussian_grid(1.0, 6)
    x = np.array([0.31, -0.013, 0.2, 0.0, -0.0371, 0.111], np.float32)
    np.testing.assert_array_equal(ig.round_to_grid(None, x, 1.0, grid), np.rint(x / grid.step))


def test_the_l1_norm_never_grows():
    """Where all of the bound is used, and where every part is small."""
    grid = laplace_grid(2.0, "l1")
    rng = np.random.default_rng(1)
    for size in (3, 1000, 20_000):
        x = rng.laplace(size=size).astype(np.float32)
        for word in (0, 2**31, 2**32 - 1):
            q = np.asarray(rounded(jnp.uint32(word), x, 1.0, grid))
            assert grid.bound - 2 <= np.abs(q).sum() <= grid.bound


def test_what_rounding_would_push_out_of_the_bound_is_shrunk():
    """A grid that keeps all of the bound: every vector of full length is at the edge, and rounding goes beyond."""
    tight = Grid("l2", 100, 0.1, 1.0, None, 1)
    rng = np.random.default_rng(2)
    shrunk = 0
    for word in rng.integers(0, 2**32, 50, dtype=np.uint32):
        x = rng.normal(size=40).astype(np.float32)
        q = np.asarray(rounded(jnp.uint32(word), x, 1.0, tight))
        assert holds(q, tight)
        shrunk += np.abs(q).sum() == np.abs(np.trunc(10 * x / np.linalg.norm(x))).sum()
    assert shrunk > 5


def test_the_signal_that_is_kept():
    grid = gaussian_grid(50.0, 4096)
    assert 7.9 < math.sqrt(grid.bound / 4096) < 9
    x = np.random.default_rng(3).normal(size=4096)
    x = (x / np.linalg.norm(x)).astype(np.float32)
    q = np.asarray(rounded(jnp.uint32(9), x, 1.0, grid), np.float64)
    assert 0.98 < q @ x * grid.step < 1
    assert 0.9 * grid.bound < q @ q <= grid.bound


# ---- The bound, exactly ----


@settings(deadline=None, max_examples=100)
@given(
    st.lists(st.integers(-(2**31), 2**31 - 1) | st.integers(-(2**20), 2**20), min_size=4, max_size=4),
    st.integers(-2, 2),
)
def test_the_check_of_the_bound_is_exact(q, by):
    exact = sum(k * k for k in q)
    q = np.array(q, np.int32)
    for grid in (
        Grid("l2", max(1, min(2**40, exact + by)), 1.0, 1.0, None, 1),
        Grid("l1", max(1, min(2**24, int(np.abs(q.astype(np.int64)).sum()) + by)), 1.0, 1.0, None, 1),
    ):
        assert bool(ig.within(jnp.asarray(q), grid)) == holds(q, grid)


def test_the_check_counts_beyond_32_bits_and_many_numbers():
    for size in (65_536, 200_001):
        q = np.full(size, -(2**11), np.int32)
        exact = size * 2**22
        large = [Grid("l2", bound, 1.0, 1.0, None, 1) for bound in (exact, exact - 1)]
        assert [bool(within(q, grid)) for grid in large] == [True, False]
    assert not within(np.array([-(2**31)], np.int32), gaussian_grid(1.0, 1))
    with pytest.raises(ValueError, match="64 bits"):
        ig.within(jnp.zeros(2**10, jnp.int32), Grid("l2", 2**60, 1.0, 1.0, None, 1))


def test_payloads_out_of_range_are_seen():
    grid = gaussian_grid(1.0, 4)
    most = grid.largest + grid.reach
    assert [bool(ig.in_range(jnp.array([0, k]), grid)) for k in (most, -most, most + 1, -(2**31))] == [
        True,
        True,
        False,
        False,
    ]


# ---- 64 bits ----


@settings(deadline=None, max_examples=100)
@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=5), st.integers(-(2**31), 2**31 - 1))
def test_64_bit_numbers_are_those_of_numpy(numbers, more):
    numbers = np.array(numbers, np.int64)
    wide = ig.from_numpy(numbers)
    np.testing.assert_array_equal(ig.to_numpy(wide), numbers)
    with np.errstate(over="ignore"):
        total = ig.add_int64(wide, ig.widen(jnp.full(numbers.shape, more, jnp.int32)))
        np.testing.assert_array_equal(ig.to_numpy(total), numbers + np.int64(more))
    np.testing.assert_allclose(ig.to_float(wide), numbers.astype(np.float64), rtol=2.0**-22)


def test_chunks_are_summed_exactly():
    rng = np.random.default_rng(4)
    for rows in (1, 65_536, 70_000):
        chunk = rng.integers(-(2**31), 2**31, (rows, 3)).astype(np.int32)
        chunk[:, 0], chunk[:, 1] = -(2**31), 2**31 - 1
        np.testing.assert_array_equal(ig.to_numpy(jax.jit(ig.sum_int64)(chunk)), chunk.astype(np.int64).sum(0))
    assert ig.to_numpy(ig.sum_int64(jnp.zeros((0, 2), jnp.int32))).tolist() == [0, 0]


def test_order_and_chunks_change_nothing():
    chunk = np.random.default_rng(5).integers(-(2**31), 2**31, (1000, 4)).astype(np.int32)
    parts = [ig.sum_int64(jnp.asarray(part)) for part in np.array_split(chunk[::-1], 7)]
    total = ig.zeros_int64((4,))
    for part in parts:
        total = ig.add_int64(part, total)
    np.testing.assert_array_equal(ig.to_numpy(total), chunk.astype(np.int64).sum(0))


# ---- Grids ----


@pytest.mark.parametrize("noise", [0.01, 0.5, 1.0, 3.7, 30.0])
@pytest.mark.parametrize(("numbers", "people"), [(1, 1), (4000, 1), (4000, 1000), (1_000_000, 1_000_000)])
def test_rounding_costs_less_than_a_hundredth_and_noise_is_never_less(noise, numbers, people):
    grid = gaussian_grid(noise, numbers, people)
    assert grid.noise.variance >= grid.bound * noise**2 * (1 - 1e-15)
    assert grid.rounding_cost < 0.01
    assert grid.noise.deviation / math.sqrt(grid.bound) < noise * 1.01
    assert grid.bound >= 64 * numbers * (1 - 1e-9)
    assert grid.keep > 0.85
    check_headroom(grid, people, "local")
    check_headroom(grid, people, "central")


@pytest.mark.parametrize("scale", [0.01, 2.0, 1e4])
@pytest.mark.parametrize("people", [1, 100, 1_000_000])
def test_laplace_grids_cost_less_than_a_hundredth(scale, people):
    grid = laplace_grid(scale, "l1", people)
    assert grid.rounding_cost < 0.01
    assert scale <= float(grid.noise.scale) / grid.bound < 1.005 * scale
    assert ig.epsilon_of(grid) <= 2 / scale * (1 + 1e-12)
    assert ig.epsilon_of(laplace_grid(scale, "elements"), 10) <= 20 / scale * (1 + 1e-12)


def test_nearly_no_noise_has_the_finest_grid():
    for noise in (1e-3, 1e-6, 1e-9):
        grid = gaussian_grid(noise, 3, 10**6)
        assert grid.largest <= 2**20
        assert grid.noise.deviation / math.sqrt(grid.bound) >= noise
    assert gaussian_grid(0.0, 3).noise is None


def test_noise_added_on_the_grid_has_the_deviation():
    grid = gaussian_grid(2.0, 1000)
    drawn = ig.from_grid(ig.draw_noise(jax.random.key(0), grid, (200_000,)), 3.0, grid)
    assert float(drawn.std()) == pytest.approx(6.0, rel=0.01)


# ---- Limits ----


def test_clips_beyond_the_limits_are_refused():
    for clip in (1e-12, 1.0, 1e12):
        check_clip("privacy.clip", clip)
    for clip in (1e-13, 1e13, 0.0, -1.0, math.nan, math.inf):
        with pytest.raises(PlanError, match=r"privacy.clip must be from 1e-12 to 1e.12, got .*; scale the update"):
            check_clip("privacy.clip", clip)


def test_overflow_is_refused_at_the_very_number():
    grid = Grid("l1", 2**20, 1.0, 1.0, None, 1)
    check_headroom(grid, 2**11 - 1, "central", 32)
    with pytest.raises(PlanError, match=r"below 2\^31 steps .* got 2,048 reports of up to 1,048,576; draw a smaller"):
        check_headroom(grid, 2**11, "central", 32)
    check_headroom(grid, 2**43 - 1, "local")
    with pytest.raises(PlanError, match=r"below 2\^63"):
        check_headroom(grid, 2**43, "local")
    check_headroom(Grid("l1", 2**31 - 1, 1.0, 1.0, None, 1), 1, "local")
    with pytest.raises(PlanError, match=r"payloads below 2\^31 .* got 2,147,483,648"):
        check_headroom(Grid("l1", 2**31, 1.0, 1.0, None, 1), 1, "local")
    with pytest.raises(PlanError, match=r"privacy.scale must be above 0"):
        laplace_grid(1e8, "elements")
    for noise in (1e-10, -1.0, math.nan):
        with pytest.raises(PlanError, match=r"privacy.noise must be 0 or at least 1e-09"):
            gaussian_grid(noise, 3)
    with pytest.raises(PlanError, match=r"privacy.noise must be at most"):
        gaussian_grid(1e4, 10**6)
