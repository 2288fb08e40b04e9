"""Wide integers: exact at the limits, the same bits in any order and any chunks."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit.core.wide import (
    LARGEST_SUMMED,
    MOST_SUMMED,
    wide_add,
    wide_from_int64,
    wide_of,
    wide_sum,
    wide_to_float,
    wide_to_int64,
    wide_zeros,
)

numbers = st.integers(-(2**46), 2**46)


@given(st.lists(numbers, min_size=1, max_size=5), st.integers(-(2**31), 2**31 - 1))
def test_sums_are_those_of_integers(values, small):
    wide = wide_from_int64(np.array(values))
    assert wide_to_int64(wide).tolist() == values
    assert wide_to_int64(wide_add(wide, wide_of(jnp.int32(small)))).tolist() == [value + small for value in values]
    assert (np.asarray(wide.low) >= 0).all()


@pytest.mark.parametrize("size", [LARGEST_SUMMED, -LARGEST_SUMMED, 1, -1, 65535, -65536])
def test_a_sum_is_exact_at_the_limits(size):
    many = jnp.full((MOST_SUMMED, 1), size, jnp.int32)
    total = jax.jit(wide_sum)(many, jnp.ones(MOST_SUMMED, bool))
    assert wide_to_int64(total).tolist() == [MOST_SUMMED * size]
    twice = wide_add(total, total)
    assert wide_to_int64(twice).tolist() == [2 * MOST_SUMMED * size]


def test_more_at_a_time_is_refused():
    with pytest.raises(ValueError, match="at most 65536 numbers at a time, got 65537"):
        wide_sum(jnp.zeros((MOST_SUMMED + 1, 1), jnp.int32), jnp.ones(MOST_SUMMED + 1, bool))
    with pytest.raises(ValueError, match="below 2\\^47"):
        wide_from_int64(np.array([2**47]))


def test_order_and_chunks_change_no_bit():
    rng = np.random.default_rng(0)
    values, counted = rng.integers(-(2**30) + 1, 2**30, (1000, 7)), rng.random(1000) < 0.7
    whole = wide_sum(jnp.asarray(values, jnp.int32), jnp.asarray(counted))
    order = rng.permutation(1000)
    total = wide_zeros((7,))
    for part in np.array_split(order, 13):
        total = wide_add(total, wide_sum(jnp.asarray(values[part], jnp.int32), jnp.asarray(counted[part])))
    assert all((np.asarray(a) == np.asarray(b)).all() for a, b in zip(whole, total))
    assert wide_to_int64(whole).tolist() == values[counted].sum(axis=0).tolist()
    np.testing.assert_allclose(wide_to_float(whole, 0.25), 0.25 * values[counted].sum(axis=0), rtol=1e-6)
