"""The integer grid: bounds that hold exactly, rounding that is unbiased, extremes of clip bounds and inputs, 64-bit sums."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.core import integer_grid as ig
from tacit.core.integer_grid import Grid, l2_grid
from tacit.core.sparse_rows import Rows, dense_tree

pytestmark = pytest.mark.bitwise

rounded = jax.jit(ig.round_to_grid, static_argnums=3)
within = jax.jit(ig.within, static_argnums=1)
GRIDS = (
    l2_grid(2**16, 6),
    l2_grid(2**40, 6),
    Grid("l1", 1024, 2.0**-10, 1 - 2.0**-18),
    Grid("elements", 1024, 2.0**-10, 1.0),
)
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


@pytest.mark.parametrize("grid", [*GRIDS, l2_grid(4096, 6)], ids=repr)
def test_rounding_is_unbiased(grid):
    x = np.array([0.31, -0.013, 0.2, 0.0, -0.0371, 0.111], np.float32) * 0.8
    words = jnp.asarray(np.random.default_rng(0).integers(0, 2**32, 40_000, dtype=np.uint32))
    q = np.asarray(jax.vmap(lambda word: rounded(word, x, 1.0, grid))(words), np.float64)
    np.testing.assert_allclose(q.mean(0), x / grid.step, atol=5 * 0.5 / math.sqrt(40_000))
    assert (q[:, 3] == 0).all()


def test_without_a_word_rounding_is_to_the_nearest():
    grid = GRIDS[0]
    x = np.array([0.31, -0.013, 0.2, 0.0, -0.0371, 0.111], np.float32)
    np.testing.assert_array_equal(ig.round_to_grid(None, x, 1.0, grid), np.rint(x / grid.step))


def test_the_l1_norm_never_grows():
    """Where all of the bound is used, and where every part is small."""
    grid = GRIDS[2]
    rng = np.random.default_rng(1)
    for size in (3, 1000, 20_000):
        x = rng.laplace(size=size).astype(np.float32)
        for word in (0, 2**31, 2**32 - 1):
            q = np.asarray(rounded(jnp.uint32(word), x, 1.0, grid))
            assert grid.bound - 2 <= np.abs(q).sum() <= grid.bound


def test_what_rounding_would_push_out_of_the_bound_is_shrunk():
    """A grid that keeps all of the bound: every vector of full length is at the edge, and rounding goes beyond."""
    tight = Grid("l2", 100, 0.1, 1.0)
    rng = np.random.default_rng(2)
    shrunk = 0
    for word in rng.integers(0, 2**32, 50, dtype=np.uint32):
        x = rng.normal(size=40).astype(np.float32)
        q = np.asarray(rounded(jnp.uint32(word), x, 1.0, tight))
        assert holds(q, tight)
        shrunk += np.abs(q).sum() == np.abs(np.trunc(10 * x / np.linalg.norm(x))).sum()
    assert shrunk > 5


def test_the_signal_that_is_kept():
    grid = l2_grid(64 * 4096, 4096)
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
        Grid("l2", max(1, min(2**40, exact + by)), 1.0, 1.0),
        Grid("l1", max(1, min(2**24, int(np.abs(q.astype(np.int64)).sum()) + by)), 1.0, 1.0),
    ):
        assert bool(ig.within(jnp.asarray(q), grid)) == holds(q, grid)


def test_the_check_counts_beyond_32_bits_and_many_numbers():
    for size in (65_536, 200_001):
        q = np.full(size, -(2**11), np.int32)
        exact = size * 2**22
        large = [Grid("l2", bound, 1.0, 1.0) for bound in (exact, exact - 1)]
        assert [bool(within(q, grid)) for grid in large] == [True, False]
    assert not within(np.array([-(2**31)], np.int32), GRIDS[0])
    with pytest.raises(ValueError, match="64 bits"):
        ig.within(jnp.zeros(2**10, jnp.int32), Grid("l2", 2**60, 1.0, 1.0))


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


def test_few_small_numbers_are_summed_in_32_bits_and_many_in_64():
    rng = np.random.default_rng(6)
    for largest, rows in ((2**20, 2047), (2**20, 2048), (2**30, 1), (2**30, 2), (1, 1000)):
        chunk = rng.choice([-largest, largest], (rows, 3)).astype(np.int32)
        chunk[:, 0] = largest
        total = ig.sum_int64(jnp.asarray(chunk), largest)
        np.testing.assert_array_equal(ig.to_numpy(total), chunk.astype(np.int64).sum(0))


@pytest.mark.parametrize("largest", [3, 2**20, 2**31 - 1])
def test_rows_of_many_devices_add_up_exactly(largest):
    rng = np.random.default_rng(largest)
    index = np.sort(np.argsort(rng.random((3000, 8)), axis=1)[:, :5], axis=1).astype(np.int32)
    index[:, 4] = 8  # padding
    value = rng.integers(-largest, largest, index.shape, endpoint=True).astype(np.int32)
    found = ig.to_numpy(
        jax.jit(lambda *leaves: ig.scatter_int64(Rows(leaves[0], leaves[1], 8), (8,), largest))(index, value)
    )
    expected = np.zeros(9, np.int64)
    np.add.at(expected, index, value)
    np.testing.assert_array_equal(found, expected[:8])


# ---- People ----


def test_a_person_s_shares_add_up_to_one_person_whatever_they_have():
    rng = np.random.default_rng(7)
    whose = jnp.asarray(rng.integers(0, 5, 40), jnp.int32)
    counted = jnp.asarray(rng.random(40) < 0.7)
    shares = np.asarray(ig.shares_of(counted, whose))
    assert not shares[~np.asarray(counted)].any()
    for who in range(5):
        mine = shares[(np.asarray(whose) == who) & np.asarray(counted)]
        assert mine.sum() == ig.PERSON_STEPS
        assert mine.max() - mine.min() <= 1
    assert ig.shares_of(jnp.ones(5000, bool), jnp.zeros(5000, jnp.int32)).sum() == ig.PERSON_STEPS


def test_one_person_s_part_is_within_one_person_and_a_sum_survives_floats():
    x = {"a": jnp.full((3, 2), 50.0), "b": jnp.array([-7.0])}
    parts = [ig.person_on_grid(jax.random.key(i), x) for i in range(50)]
    for part in parts:
        assert sum(int(k) ** 2 for leaf in jax.tree.leaves(part) for k in np.ravel(leaf)) <= ig.PERSON_STEPS**2
    total = jax.tree.map(lambda *leaves: sum(leaves), *parts)
    sent = ig.from_people_grid(total, jnp.int32(50))
    assert sent["people"] == 50
    for name in total:
        np.testing.assert_array_equal(ig.to_people_grid(sent[name]), total[name])
    big = ig.from_people_grid({"a": jnp.array([2**30, -(2**30), 2**24 - 1, 12_345_677])}, jnp.int32(1))["a"]
    assert ig.to_people_grid(big).tolist() == [2**24 - 1, 1 - 2**24, 2**24 - 1, 12_345_677]


def test_rows_that_are_named_twice_count_as_zero():
    """Each of them would be within the bound, and their sum beyond it."""
    value = jnp.ones((3, 2))
    for index, sound in (
        ([0, 2, 5], True),
        ([1, 5, 5], True),
        ([2, 2, 5], False),
        ([3, 1, 5], False),
        ([-1, 4, 5], False),
    ):
        vector, rest = ig.values_of({"items": Rows(jnp.array(index, jnp.int32), value, 5)})
        assert bool(vector.any()) == sound
        assert dense_tree(ig.with_values(vector, rest))["items"].shape == (5, 2)
