"""Tensor projections, the GRU, attention and the sequence encoder: worked numbers, brute force, parameter counts."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tacit.core.catalog import Catalog, Field
from tacit.nets.neural.chunked import clipped_to_unit, sum_in_chunks
from tacit.nets.neural.losses import sampled_loss
from tacit.nets.neural.text import tokens_of, word_counts
from tacit.nets.sequence.attention import additive_attention, attention_weights, self_attention
from tacit.nets.sequence.encoder import (
    Sizes,
    differences,
    item_vectors,
    new_encoder,
    new_tensor,
    standardised_levels,
    tensor_projection,
    user_vectors,
    with_time,
)
from tacit.nets.sequence.gru import gru_cell, gru_last_state, gru_states, new_gru
from tacit.nets.sequence.segments import closeness, kl_divergence, run_numbers, run_positions, sequence_length_histogram
from tacit.nets.sequence.windows import newest_sequence, next_item_samples, right_aligned

SMALL = Sizes(width=6, dim=8, heads=2, hidden=4, short=3)


def brute_force(kernel, offset, steps):
    """Σ_{i₁ < … < i_k} Π_j (⟨ℓ_j, x_{i_j}⟩ + b_j), level by level."""
    m = np.einsum("ld,kdr->klr", steps, kernel) + offset[:, None]
    levels = []
    for k in range(1, len(kernel) + 1):
        chosen = itertools.combinations(range(len(steps)), k)
        levels.append(sum(math.prod(m[j][i] for j, i in enumerate(at)) for at in chosen))
    return np.array(levels)


# ---- tensors ----

X = jnp.array([[0.5, -1.0], [1.0, 0.25], [-0.75, 0.5], [0.2, 0.8]])
KERNEL = jnp.array([[[1.0, 0.3], [-0.5, 0.7]], [[0.2, -1.0], [0.9, 0.4]], [[-0.6, 0.5], [0.1, 1.1]]])
OFFSET = jnp.array([[0.1, -0.2], [0.0, 0.3], [0.05, 0.0]])


def tensor_of(kernel, offset):
    return jnp.concatenate([kernel, offset[:, None]], axis=1)


@pytest.mark.parametrize(
    ("offset", "right"),
    [
        (0 * OFFSET, [[0.675, 0.67], [1.6525, 0.42975], [0.173, 0.5019]]),
        (OFFSET, [[1.075, -0.13], [1.983, -0.37475], [0.268025, -0.062125]]),
    ],
)
def test_projections_against_worked_numbers(offset, right):
    np.testing.assert_allclose(tensor_projection(tensor_of(KERNEL, offset), X, jnp.ones(4, bool)), right, atol=1e-6)


def test_projection_of_a_worked_example():
    """Letter by letter, the coefficients are how often each subword occurs; with the empty one they sum to 16."""
    letters = "bcd"
    steps = jnp.eye(3)[jnp.array([0, 0, 1, 2])]
    found = {}
    for k in range(1, 5):
        for word in itertools.product(letters, repeat=k):
            kernel = jnp.stack([jnp.eye(3)[letters.index(letter)][:, None] for letter in word])
            count = float(tensor_projection(tensor_of(kernel, jnp.zeros((k, 1))), steps, jnp.ones(4, bool))[-1, 0])
            if count:
                found["".join(word)] = count
    assert found == {
        "b": 2, "c": 1, "d": 1, "bb": 1, "bc": 2, "bd": 2, "cd": 1, "bbc": 1, "bbd": 1, "bcd": 2, "bbcd": 1,
    }  # fmt: skip
    assert 1 + sum(found.values()) == 16


@pytest.mark.parametrize("order", [1, 2, 3, 5])
def test_projection_equals_brute_force(order):
    rng = np.random.default_rng(order)
    kernel, offset, steps = rng.normal(size=(order, 3, 4)), rng.normal(size=(order, 4)), rng.normal(size=(6, 3))
    made = tensor_projection(tensor_of(jnp.asarray(kernel), jnp.asarray(offset)), jnp.asarray(steps), jnp.ones(6, bool))
    np.testing.assert_allclose(made, brute_force(kernel, offset, steps), rtol=2e-5, atol=2e-5)


def test_projection_ignores_padding():
    padded = jnp.concatenate([jnp.full((3, 2), 9.0), X])
    real = jnp.arange(7) >= 3
    tensor = tensor_of(KERNEL, OFFSET)
    np.testing.assert_allclose(
        tensor_projection(tensor, padded, real), tensor_projection(tensor, X, jnp.ones(4, bool)), rtol=1e-6
    )
    late = differences(with_time(padded, real))
    np.testing.assert_allclose(late[3:], differences(with_time(X, jnp.ones(4, bool))), rtol=1e-6)
    assert not late[:3].any()


def test_time_then_difference():
    third = 2 / 3
    right = [[-1, 0.5, -1], [third, 0.5, 1.25], [third, -1.75, 0.25], [third, 0.95, 0.3]]
    np.testing.assert_allclose(differences(with_time(X, jnp.ones(4, bool))), right, atol=1e-6)
    assert with_time(X[:1], jnp.ones(1, bool))[0, 0] == -1  # a single step is at the beginning


def test_initial_variances_are_those_of_the_paper():
    tensor = new_tensor(jax.random.key(0), 3, 400, 200)
    variances = [2 / 600, (400 + 200) / (400**2 + 200), (400**2 + 200) / (400**3 + 200)]
    np.testing.assert_allclose(tensor[:, :-1].var(axis=(1, 2)), variances, rtol=0.02)
    assert not tensor[:, -1].any()


def test_levels_are_standardised():
    y = jax.random.normal(jax.random.key(1), (2, 50)) * 7 + 3
    made = standardised_levels(y, jnp.array([[1.0, 0.0], [2.0, 5.0]]), y.mean(1), y.var(1))
    np.testing.assert_allclose(made.mean(1), [0, 5], atol=1e-5)
    np.testing.assert_allclose(made.std(1), [1, 2], atol=1e-3)


# ---- the recurrent unit ----

GRU = {
    "Wz": [[2.04, -2.56], [0.42, -0.57]], "Wr": [[-0.45, -0.22], [-2.02, -0.23]], "Wh": [[-0.87, 3.32], [0.23, -0.35]],
    "Uz": [[-0.28, -0.67], [-1.06, -0.39]], "Ur": [[0.48, -0.24], [0.96, -0.2]], "Uh": [[0.02, 1.55], [0.55, -0.51]],
}  # fmt: skip


@pytest.mark.parametrize(
    ("form", "right"),
    [
        ("reset_before", [0.27183453452422457, -0.19381933870771217]),
        ("reset_after", [0.2716853247799227, -0.1973484345549789]),
    ],
)
def test_both_forms_of_the_gru(form, right):
    x, h = (jnp.concatenate([jnp.array(GRU[f"{w}{g}"]).T for g in "zrh"], axis=1) for w in "WU")
    state = jnp.concatenate([h, jnp.zeros((1, 6))])
    np.testing.assert_allclose(
        gru_cell(jnp.array([0.5, 1.0]) @ x, state, jnp.array([0.1, -0.2]), form), right, atol=1e-6
    )


def test_the_gru_skips_padding():
    layers = new_gru(jax.random.key(0), 3, 4)
    x = jax.random.normal(jax.random.key(1), (5, 3))
    there = jnp.array([0, 1, 0, 1, 1], bool)
    alone = gru_last_state(layers, x[jnp.array([1, 3, 4])], jnp.ones(3, bool))
    np.testing.assert_allclose(gru_last_state(layers, x, there), alone, rtol=1e-6)
    assert not gru_last_state(layers, x, jnp.zeros(5, bool)).any()


def one_by_one(layers, x, there, form):
    """The states of sequences [n, L, inputs], cell after cell."""
    h, found = jnp.zeros((x.shape[0], layers[1].shape[0] - 1)), []
    for at in range(x.shape[1]):
        gates = x[:, at] @ layers[0][:-1] + layers[0][-1]
        h = jnp.where(there[:, at, None], gru_cell(gates, layers[1], h, form), h)
        found.append(h)
    return jnp.stack(found, axis=1)


@pytest.mark.parametrize("unroll", [1, 4])
@pytest.mark.parametrize("form", ["reset_after", "reset_before"])
def test_the_gru_gradient_equals_that_of_its_cells(form, unroll, monkeypatch):
    monkeypatch.setattr("tacit.nets.sequence.gru._UNROLL", {jax.default_backend(): unroll})
    layers = jax.tree.map(lambda x: x + 0.1, new_gru(jax.random.key(0), 3, 4))  # offsets too
    x, weight = jax.random.normal(jax.random.key(1), (3, 6, 3)), jax.random.normal(jax.random.key(2), (3, 6, 4))
    there = jnp.array([[1, 1, 1, 1, 1, 1], [0, 1, 0, 1, 1, 0], [0, 0, 0, 0, 0, 0]], bool)

    def lost(walk, layers, x):
        return (weight * walk(layers, x, there, form) ** 2).sum()

    def alone(layers, x, there, form):
        return jax.vmap(lambda x, there: gru_states(layers, x, there, form))(x, there)

    def slopes(walk):
        return jax.value_and_grad(lost, (1, 2))(walk, layers, x)

    jax.tree.map(
        lambda a, b, right: np.testing.assert_allclose([a, b], [right, right], atol=1e-5),
        *map(slopes, (gru_states, alone, one_by_one)),
    )


# ---- attention ----


def test_additive_attention_against_worked_numbers():
    layer = jnp.array([[0.5, 0.3], [-0.2, 0.8], [0.1, -0.6], [0.05, -0.1]])
    vote, both = (layer, jnp.array([0.7, -0.9, 0.02])), jnp.array([[0.2, -0.4, 0.1], [-0.3, 0.5, 0.7]])
    np.testing.assert_allclose(attention_weights(vote, both, jnp.ones(2, bool)), [0.6049911, 0.3950089], atol=1e-6)
    right = [0.0024955, -0.044492, 0.3370054]
    np.testing.assert_allclose(additive_attention(vote, both, jnp.ones(2, bool)), right, atol=1e-6)
    np.testing.assert_allclose(additive_attention(vote, both, jnp.array([True, False])), both[0], atol=1e-6)
    assert not additive_attention(vote, both, jnp.zeros(2, bool)).any()


def test_heads_attend_independently():
    layers = jax.random.normal(jax.random.key(0), (3, 4, 4))
    x = jax.random.normal(jax.random.key(1), (5, 4))
    made = self_attention(layers, x, jnp.ones(5, bool), 2)
    for head in range(2):
        q, k, v = (np.asarray(x @ layer)[:, 2 * head : 2 * head + 2] for layer in layers)
        power = np.exp(q @ k.T / math.sqrt(2))
        right = power / power.sum(1, keepdims=True) @ v
        np.testing.assert_allclose(made[:, 2 * head : 2 * head + 2], right, rtol=2e-5, atol=1e-6)


# ---- the encoder ----


@pytest.mark.parametrize(
    ("sizes", "count"),
    [(Sizes(), 1_884_406), (Sizes(encoder="convolution", long="attention"), 2_524_003), (Sizes(32, 32, 4, 16), 12_646)],
)
def test_parameter_counts_are_those_published(sizes, count):
    leaves = jax.eval_shape(lambda: new_encoder(jax.random.key(0), sizes))
    assert sum(math.prod(leaf.shape) for leaf in leaves.values()) == count
    if sizes == Sizes():
        items = [name for name in leaves if name.startswith(("word", "item"))]
        assert sum(math.prod(leaves[name].shape) for name in items) == 680_801


@pytest.mark.slow
@pytest.mark.parametrize("change", [{}, {"long": "attention"}, {"long": "none"}, {"encoder": "convolution"}])
def test_padding_changes_neither_item_nor_user_vectors(change):
    sizes = SMALL._replace(**change)
    theta, key = new_encoder(jax.random.key(0), sizes), jax.random.key(1)
    words = jax.random.normal(key, (3, 4, 6))
    short = item_vectors(theta, sizes, words, jnp.ones((3, 4), bool))
    more = jnp.concatenate([words, jnp.full((3, 2, 6), 7.0)], axis=1)
    padded = item_vectors(theta, sizes, more, jnp.arange(6)[None].repeat(3, 0) < 4)
    np.testing.assert_allclose(padded, short, rtol=1e-5, atol=1e-6)
    taste, _ = user_vectors(theta, sizes, short[None], jnp.ones((1, 3), bool))
    left = jnp.concatenate([jnp.full((2, 8), 7.0), short])[None]
    other, _ = user_vectors(theta, sizes, left, (jnp.arange(5) >= 2)[None])
    np.testing.assert_allclose(other, taste, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_a_batch_equals_single_sequences():
    """By example nobody matters to anybody else; by batch everybody does, until statistics are known."""
    theta = new_encoder(jax.random.key(0), SMALL)
    items, real = jax.random.normal(jax.random.key(1), (4, 5, 8)), jnp.ones((4, 5), bool)
    for norm, same in (("example", True), ("batch", False)):
        sizes = SMALL._replace(norm=norm)
        together, seen = user_vectors(theta, sizes, items, real)
        alone, _ = user_vectors(theta, sizes, items[:1], real[:1])
        assert np.allclose(alone[0], together[0], atol=1e-5) == same
        known, _ = user_vectors(theta, sizes, items[:1], real[:1], seen)
        assert np.allclose(known[0], together[0], atol=1e-5)


def test_dropout_applies_in_training_alone():
    sizes = SMALL._replace(drop=0.5)
    theta, words = new_encoder(jax.random.key(0), sizes), jnp.ones((1, 4, 6))
    real = jnp.ones((1, 4), bool)
    made = [item_vectors(theta, sizes, words, real, key) for key in (None, None, jax.random.key(1), jax.random.key(2))]
    np.testing.assert_array_equal(made[0], made[1])
    assert not np.allclose(made[2], made[3])


def test_sampled_softmax_against_worked_numbers():
    scores = jnp.array([[1.2, 0.3, -0.5, 0.8, 0.0]])
    assert float(sampled_loss(scores, jnp.ones((1, 5), bool))[0]) == pytest.approx(0.9403069954959935, abs=1e-6)
    assert float(sampled_loss(scores, jnp.array([[1, 0, 0, 0, 0]], bool))[0]) == pytest.approx(0.0, abs=1e-6)


# ---- words, windows, histograms, people ----


def test_every_kind_of_field_is_words():
    fields = (
        Field("genre", "multi", 2, ("war", "love")),
        Field("title", "words", 2, ("old", "star")),
        Field("year", "numeric"),
        Field("studio", "categorical", 2),
    )
    columns = {"genre": [[1, 1], [0, 1]], "title": [[1, -1], [-1, -1]], "year": [1990, 2001], "studio": [1, -1]}
    catalog = Catalog(2, {name: jnp.asarray(column) for name, column in columns.items()}, fields)
    tokens, words = tokens_of(catalog, 30)
    said = [[words[t] for t in row if t >= 0] for row in tokens]
    assert said == [["war", "love", "star", "1990", "studio 1"], ["love", "2001"]]
    assert tokens_of(catalog, 2)[0].shape == (2, 2)
    counts = word_counts(jnp.asarray(tokens), jnp.array([1, 1, -1]), len(words))
    assert float(counts[words.index("love")]) == 1.0  # half of each of two items
    assert float(counts.sum()) == 2.0


@pytest.mark.slow
def test_windows_stay_inside_their_sequence():
    items, names = jnp.array([5, 6, 7, 8, 9, -1]), jnp.array([0, 0, 1, 1, 1, 0])
    place = run_positions(items >= 0, names)
    some = next_item_samples(jax.random.key(0), items, place, jnp.array([1, 2, 4, 5, 99]), 3, (4, 10))
    assert some.before[0].tolist() == [-1, -1, 5]
    assert some.before[2].tolist() == [-1, 7, 8]
    assert some.real.tolist() == [True, False, True, False, False]
    assert some.target[jnp.array([0, 2])].tolist() == [6, 9]
    rivals = np.asarray(some.rivals[2])
    assert not {7, 8, 9} & set(rivals)
    assert newest_sequence(items, place, 4).tolist() == [-1, 7, 8, 9]
    assert newest_sequence(jnp.full(3, -1), jnp.full(3, -1), 2).tolist() == [-1, -1]
    assert right_aligned(jnp.array([1, 2, 3]), 2).tolist() == [2, 3]


def test_lengths_are_counted_from_two_on():
    real = jnp.arange(9) < 8
    names = jnp.array([0, 0, 1, 2, 2, 2, 2, 2, 0])
    assert sequence_length_histogram(run_positions(real, names), 4).tolist() == [
        1,
        0,
        1,
    ]  # lengths 2 and 5; the single one is no sequence
    assert run_numbers(real, names, None).tolist() == [0, 0, 1, 2, 2, 2, 2, 2, -1]


C1, C2 = jnp.array([2.0, 1, 1, 0]), jnp.array([0.0, 3, 0, 3])  # of lengths 2, 3, 5, 7
HOLDOUT = jnp.array([1.0, 2, 2, 0])


def test_divergences_against_worked_numbers():
    assert [float(kl_divergence(c, C1 + C2)) for c in (C1, C2)] == pytest.approx([0.5697171416, 0.3669845875], abs=1e-6)
    assert [float(kl_divergence(c, HOLDOUT)) for c in (C1, C2)] == pytest.approx([0.2231435513, math.inf], abs=1e-6)
    smooth = [float(kl_divergence(c, HOLDOUT, 1.0)) for c in (C1, C2)]
    assert smooth == pytest.approx([0.0670998971, 0.3850541108], abs=1e-6)
    g = jnp.stack([closeness(c, HOLDOUT, jnp.zeros(()), 1.0) for c in (C1, C2)])
    np.testing.assert_allclose(g / g.sum(), [0.5788255976, 0.4211744024], atol=1e-6)
    assert float(closeness(C2, HOLDOUT, jnp.zeros(()))) == 0.0  # infinitely far, and finite all the same


def test_no_user_changes_a_sum_by_more_than_one():
    rng = np.random.default_rng(0)
    rows = jnp.asarray(rng.normal(size=(7, 3)) * np.logspace(-3, 12, 7)[:, None], jnp.float32).at[3, 1].set(jnp.nan)
    made = {
        group: sum_in_chunks(lambda i: clipped_to_unit({"x": rows[i]}, 0.5)["x"], jnp.asarray(6), group)
        for group in (1, 4, 16)
    }
    for total in made.values():
        np.testing.assert_allclose(total, made[1], rtol=1e-5, atol=1e-6)
    for i in range(7):
        length = float(jnp.linalg.norm(clipped_to_unit({"x": rows[i]}, 0.5)["x"]))
        assert length <= 1 + 1e-6
        assert length == pytest.approx(min(1.0, float(jnp.linalg.norm(rows[i])) / 0.5), rel=1e-4) or i == 3
