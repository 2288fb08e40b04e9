"""Masked items: the paper's losses with corrected sign and denominator, and the views they are computed on."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tacit.core.catalog import Catalog
from tacit.core.sparse_rows import dense_tree
from tacit.device.history import plain_history
from tacit.device.method import build
from tacit.device.round import KEYS
from tacit.lab.plans.loader import choose
from tacit.nets.neural.losses import info_nce
from tacit.nets.sequence.masked_items import READER, ViewShape, contrastive_losses, masked_views, new_reader, view_parts

KEY = jax.random.key(3, impl=KEYS)
SEQUENCE = jnp.array([4, 9, 2, 7, 0, 5, 3], jnp.int32)
SHAPE = ViewShape(7, 6, 5)


def some_views(sequence=SEQUENCE, count=200, shape=None, n_items=30):
    numbers, real = masked_views(KEY, sequence, count, shape or ViewShape(sequence.shape[0], 6, 5), n_items)
    assert (np.asarray(real) == (np.asarray(numbers) >= 0)).all()
    return [view_parts(one, shape or ViewShape(sequence.shape[0], 6, 5)) for one in np.asarray(numbers)]


# ---- the losses ----


def test_the_golden_value_and_the_printed_one():
    context = jnp.array([0.5, -0.2, 0.9])
    candidates = jnp.array([[0.4, 0.1, 0.8], [0.1, 0.9, -0.3], [-0.6, 0.2, 0.5]])
    assert float(info_nce(context, candidates, jnp.ones(3, bool))) == pytest.approx(0.5460247544, rel=1e-6)
    scores = candidates @ context
    printed = jax.nn.logsumexp(scores[1:]) - scores[0]  # what is right is not in the denominator: below 0, without end
    assert float(printed) == pytest.approx(-0.3196866820, rel=1e-6)


def test_invalid_negatives_and_absent_positives_contribute_no_loss():
    context, candidates = jnp.array([1.0, 2.0]), jnp.array([[0.3, 0.1], [9.0, 9.0], [0.2, -0.4]])
    without = info_nce(context, candidates[jnp.array([0, 2])], jnp.ones(2, bool))
    assert float(info_nce(context, candidates, jnp.array([True, False, True]))) == pytest.approx(float(without))
    assert float(info_nce(context, candidates, jnp.array([False, True, True]))) == 0.0


def test_losses_are_those_of_each_view_one_by_one():
    """Σ and Ψ by hand: a loop over events, and the softmax as the paper writes it."""
    theta, table = new_reader(KEY, 4), jax.random.normal(KEY, (30, 4))
    numbers, real = masked_views(KEY, SEQUENCE, 5, SHAPE, 30)
    W, U = np.asarray(theta["reader_input"]), np.asarray(theta["reader_state"])
    sigmoid = lambda x: 1 / (1 + np.exp(-x))  # noqa: E731

    def encode(items):
        h = np.zeros(4)
        for x in np.asarray(table)[[item for item in items if item >= 0]]:
            a, b = x @ W[:-1] + W[-1], h @ U[:-1] + U[-1]
            z, r = sigmoid(a[:4] + b[:4]), sigmoid(a[4:8] + b[4:8])
            h = (1 - z) * h + z * np.tanh(a[8:] + r * b[8:])
        return h

    def lost(scores):
        return np.log(np.exp(scores).sum()) - scores[0]

    layer, found = np.asarray(theta["reader_item"]), []
    for flat in np.asarray(numbers):
        view = view_parts(flat, SHAPE)
        items = np.asarray(table)[view.items[view.items >= 0]] @ layer[:-1] + layer[-1]
        segments = np.stack([encode(one) for one in view.segments if one[0] >= 0])
        found.append((lost(items @ encode(view.masked)), lost(segments @ encode(view.cut))))
    ours = contrastive_losses(theta, SHAPE, table[numbers], real)
    np.testing.assert_allclose(ours, np.mean(found, axis=0), rtol=1e-5)
    assert min(map(min, found)) > 0


# ---- the views ----


def test_one_item_is_replaced_and_predicted():
    for view in some_views():
        changed = np.flatnonzero(view.masked != np.asarray(SEQUENCE))
        at = np.flatnonzero(np.asarray(SEQUENCE) == view.items[0])
        assert changed.size <= 1
        assert set(changed) <= set(at)
        assert not np.isin(view.items[1:][view.items[1:] >= 0], SEQUENCE).any()
    assert {int(view.items[0]) for view in some_views()} == set(SEQUENCE.tolist())


def test_a_segment_is_replaced_by_one_of_the_same_length():
    text = SEQUENCE.tolist()
    runs = {tuple(text[i : i + n]) for n in range(2, 6) for i in range(8 - n)}
    lengths = set()
    for view in some_views():
        right = [int(item) for item in view.segments[0] if item >= 0]
        lengths.add(len(right))
        start = text.index(right[0])
        rivals = [tuple(int(item) for item in one if item >= 0) for one in view.segments[1:]]
        assert tuple(right) in runs
        assert all(one in runs and len(one) == len(right) and list(one) != right for one in rivals)
        assert view.cut.tolist() == [*text[:start], *rivals[0], *text[start + len(right) :]]
    assert lengths == {2, 3, 4, 5}


@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_short_sequences_have_fewer_losses(count):
    sequence = jnp.where(jnp.arange(4) < count, jnp.array([4, 9, 2, 7]), -1)
    for view in some_views(sequence, 20):
        assert (view.items[0] >= 0) == (count >= 2)
        assert (view.segments[0, 0] >= 0) == (count >= 3)
        assert (view.cut[count:] == -1).all()


def test_padding_changes_no_view():
    for short, long in zip(some_views(), some_views(jnp.pad(SEQUENCE, (0, 5), constant_values=-1))):
        np.testing.assert_array_equal(np.append(short.masked, [-1] * 5), long.masked)
        np.testing.assert_array_equal(np.append(short.cut, [-1] * 5), long.cut)
        np.testing.assert_array_equal(short.items, long.items)
        np.testing.assert_array_equal(short.segments, long.segments)


# ---- the method ----


def made(**hyper):
    settings = {"dim": 4, "batch": 3, "steps": 1, "window": 7, **hyper}
    stage = choose("masks", {f"hyper.{name}": value for name, value in settings.items()}).stages[0]
    return build(stage, Catalog(30))


@pytest.mark.slow
@pytest.mark.parametrize(("of_items", "of_segments"), [(0.7, 0.2), (0.7, 0.0), (0.0, 0.2)])
def test_one_step_is_the_gradient_on_the_whole_table(of_items, of_segments):
    method = made(rate=0.1, item_rate=0.3, of_items=of_items, of_segments=of_segments)
    params, own = method.init(KEY), method.prepare(plain_history(SEQUENCE))
    numbers, real = masked_views(KEY, SEQUENCE, 3, ViewShape(7, 10, 5), 30)

    def loss(theta):
        item, segment = contrastive_losses(theta, ViewShape(7, 10, 5), theta["items"][numbers], real)
        return of_items * item + of_segments * segment

    slope = jax.jit(jax.grad(loss))(params)
    update = dense_tree(method.local(KEY, params, {}, own)[1])
    assert set(update) == {"items", *READER}
    for name, moved in update.items():
        rate = 0.3 if name == "items" else 0.1
        np.testing.assert_allclose(moved, -rate * slope[name], atol=1e-6, err_msg=name)


def test_only_the_newest_events_are_used():
    method = made(window=3)
    assert method.prepare(plain_history(SEQUENCE)).tolist() == [0, 5, 3]
    long = plain_history(jnp.pad(SEQUENCE, (0, 9), constant_values=-1))
    assert method.prepare(long).tolist() == [0, 5, 3]
