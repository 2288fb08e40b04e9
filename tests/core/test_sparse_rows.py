"""Rows stand for the dense table, whatever the order, the duplicates and the padding."""

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.core.sparse_rows import coalesce, dense

ROWS = 7
entries = st.lists(st.tuples(st.integers(-1, ROWS), st.integers(-5, 5)), min_size=1, max_size=12)


@settings(max_examples=60)
@given(entries)
def test_coalesce_is_the_dense_sum(pairs):
    index, value = (jnp.array(column) for column in zip(*pairs))
    rows = coalesce(index, value, ROWS)
    table = np.zeros(ROWS, int)
    for i, v in pairs:
        if 0 <= i < ROWS:
            table[i] += v
    np.testing.assert_array_equal(dense(rows), table)
    real = np.asarray(rows.index)[np.asarray(rows.index) < ROWS]
    assert (np.diff(real) > 0).all(), "strictly increasing"
    assert (np.asarray(rows.index)[real.size :] == ROWS).all(), "padding at the end"
    assert not np.asarray(rows.value)[real.size :].any(), "padding is zero"


def test_coalesce_of_vectors_and_under_vmap():
    index = jnp.array([[2, 2, 0], [-1, 1, -1]])
    value = jnp.arange(12.0).reshape(2, 3, 2)
    rows = jax.vmap(lambda i, v: coalesce(i, v, 3))(index, value)
    np.testing.assert_array_equal(dense(jax.tree.map(lambda x: x[0], rows)), [[4, 5], [0, 0], [2, 4]])
    np.testing.assert_array_equal(dense(jax.tree.map(lambda x: x[1], rows)), [[0, 0], [8, 9], [0, 0]])
