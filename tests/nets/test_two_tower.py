"""Fields, towers and local SGD: worked numbers, and the papers' own."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tacit.core.catalog import Catalog, Field
from tacit.nets.neural.layers import head_layers, head_log_odds, new_head, relu_layer
from tacit.nets.neural.local_sgd import Minibatch, StepSizes, maml_gradient, sgd, sgd_step, shuffled_batches
from tacit.nets.neural.losses import cross_entropy
from tacit.nets.neural.two_tower import embed, fields_of_kinds, item_columns, person_columns, table_rows

FIELDS = (
    Field("colour", "categorical", 2, ("red", "blue")),
    Field("genres", "multi", 3, ("a", "b", "c")),
    Field("year", "numeric"),
    Field("title", "words", 2, ("heat", "babel")),
)
TABLE = jnp.arange(9, dtype=jnp.float32)[:, None] ** 2  # 0 | 1 4 | 9 16 25 | 36 | 49 64


def test_every_kind_of_field_has_its_rows():
    assert table_rows(FIELDS) == 9
    assert fields_of_kinds(FIELDS, ("numeric", "multi")) == (FIELDS[1], FIELDS[2])
    columns = [
        jnp.array([[1.0], [-1.0]]),
        jnp.array([[1.0, 0.0, 1.0], [0.0, 0.0, 0.0]]),
        jnp.array([[0.5], [-1.0]]),
        jnp.array([[0.0, 1.0], [-1.0, -1.0]]),
    ]
    np.testing.assert_allclose(embed(FIELDS, columns, TABLE), [[4, 17, 18, 56.5], [0, 0, -36, 0]])
    np.testing.assert_allclose(embed((), (), TABLE + 3), [[3]])


def test_unknown_words_count_for_nothing():
    title = FIELDS[3:]
    found = embed(title, [jnp.array([[1.0, -1.0]])], jnp.array([[7.0], [2.0], [5.0]]))
    np.testing.assert_allclose(found, [[5]])


def test_columns_of_items_and_users():
    about = {
        "colour": jnp.array([0, -1]),
        "genres": jnp.ones((2, 3)),
        "year": jnp.array([1990.0, 2000.0]),
        "title": jnp.zeros((2, 2), jnp.int32),
    }
    colour, genres, year, title = item_columns(Catalog(2, about, FIELDS), FIELDS)
    assert [part.shape for part in (colour, genres, year, title)] == [(2, 1), (2, 3), (2, 1), (2, 2)]
    np.testing.assert_allclose(year, [[-1], [1]])
    person = jnp.array([1.0, 0, 1, 0, 30.0, 0, -1])
    some = person_columns(FIELDS, FIELDS[1:3], person)
    np.testing.assert_allclose(some[0], [[0, 1, 0]])
    np.testing.assert_allclose(some[1], [[np.log(31)]], rtol=1e-6)
    nothing = person_columns(FIELDS, FIELDS, jnp.zeros(0))
    np.testing.assert_allclose(embed(FIELDS, nothing, TABLE + 1), [[1, 1, 0, 1]])


def test_the_head_is_one_vector_of_layers():
    head = new_head(jax.random.key(0), (4, 3, 1))
    first, last = head_layers(head, (4, 3, 1))
    assert (first.shape, last.shape, head.size) == ((5, 3), (4, 1), 19)
    u, v = jnp.array([[1.0, -2.0]]), jnp.array([[0.5, 0.0], [3.0, -1.0]])
    both = np.concatenate([np.repeat(u, 2, 0), v], 1)
    by_hand = np.maximum(both @ first[:-1] + first[-1], 0) @ last[:-1] + last[-1]
    np.testing.assert_allclose(head_log_odds(head, (4, 3, 1), u, v), by_hand[:, 0], rtol=1e-5)
    np.testing.assert_allclose(relu_layer(first, both), np.maximum(both @ first[:-1] + first[-1], 0), rtol=1e-5)


def test_cross_entropy_is_the_mean_over_real_rows():
    p, y = np.array([0.7, 0.2, 0.55, 0.9]), jnp.array([1.0, 0.0, 1.0, 0.0])
    odds, real = jnp.asarray(np.log(p / (1 - p))), jnp.array([1.0, 1.0, 1.0, 0.0])
    np.testing.assert_allclose(cross_entropy(odds, y, real), 0.3925518320028542, rtol=1e-6)
    assert float(cross_entropy(odds, y, jnp.zeros(4))) == 0


# ---- descent ----


def square(theta, target):
    return 0.5 * ((theta["x"] - target) ** 2).sum()


def batches(target, count):
    return Minibatch(jnp.zeros((count, 1), jnp.int32), jnp.tile(jnp.asarray(target), (count, 1)))


@pytest.mark.parametrize(
    ("target", "moved"), [((1.0, 2.0), (0.271, 0.542)), ((-1.0, 0.5), (-0.271, 0.1355)), ((3.0, 1.0), (0.813, 0.271))]
)
def test_three_steps_towards_a_target(target, moved):
    made = sgd(square, {"x": jnp.zeros(2)}, batches(target, 3), StepSizes(0.1))
    np.testing.assert_allclose(made["x"], moved, rtol=1e-6)


def test_the_gradient_through_a_step_has_second_derivatives():
    support, query = (Minibatch(jnp.zeros(1, jnp.int32), jnp.array(t)) for t in ((1.0, 2.0), (1.2, 1.8)))
    found = maml_gradient(square, {"x": jnp.zeros(2)}, support, query, StepSizes(0.1))
    np.testing.assert_allclose(found["x"], [-0.99, -1.44], rtol=1e-6)  # first order alone: (-1.1, -1.6)


def test_sgd_on_rows_equals_sgd_on_the_table():
    table = jax.random.normal(jax.random.key(1), (6, 2))
    place = jnp.array([4, 1, 4])
    whole = jax.grad(lambda t: jnp.sin(t[place]).sum())(table)
    for pace, rate in ((StepSizes(0.3, frozenset({"x"})), 0.3), (StepSizes(0.3, frozenset({"x"}), 0.7), 0.7)):
        made = sgd_step(lambda t, _: jnp.sin(t["x"]).sum(), {"x": table}, Minibatch(place, None), pace)
        np.testing.assert_allclose(made["x"], table - rate * whole, rtol=1e-6)


@pytest.mark.bitwise
def test_batches_are_shuffled_and_padding_changes_nothing():
    key, real = jax.random.key(2), jnp.arange(10) < 7
    short = shuffled_batches(key, real, 4)
    assert short.shape == (3, 4)
    assert sorted(np.asarray(short).ravel()[:7].tolist()) == list(range(7))
    assert np.asarray(short).ravel()[10:].tolist() == [10, 10]
    longer = shuffled_batches(key, jnp.arange(40) < 7, 4)
    np.testing.assert_array_equal(np.asarray(short).ravel()[:7], np.asarray(longer).ravel()[:7])
    assert not np.array_equal(shuffled_batches(jax.random.key(3), real, 4), short)
