"""FedRec++: the server ends with the gradient of all pooled ratings; what each party sees; the guarantee."""

import itertools
import math
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.toys import small_world
from tacit.core.catalog import Catalog
from tacit.core.sparse_rows import Rows
from tacit.device.method import build
from tacit.device.round import KEYS
from tacit.errors import DataError, PlanError
from tacit.lab.baselines.helpers.fedrec_plus import aggregated, fedrec_plus_claims, sum_messages
from tacit.lab.data import Population
from tacit.lab.plans.loader import choose
from tacit.lab.runs.run import simulate
from tacit.privacy.price import price

KEY = jax.random.key(2, impl=KEYS)
ITEMS, DIM = 9, 3


def made(**hyper):
    settings = {"dim": DIM, "most": 6, "zeros": 0.0, "pretend": 1.5, "penalty": 0.5, **hyper}
    return build(
        choose("fedrec-plus", {f"hyper.{key}": value for key, value in settings.items()}).stages[0], Catalog(ITEMS)
    )


def rated(seed: int, people: int = 7) -> Population:
    """A few people with whole ratings; somebody has none."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(0, 6, people)
    items = np.concatenate([rng.choice(ITEMS, n, replace=False) for n in lengths]).astype(np.int32)
    labels = rng.integers(1, 6, items.size).astype(np.float32)
    return Population(Catalog(ITEMS), np.concatenate([[0], np.cumsum(lengths)]), items, None, labels)


def small_numbers(seed: int, *shape: int) -> np.ndarray:
    """Whole numbers: their products and sums are exact in float32."""
    return np.random.default_rng(seed).integers(-3, 4, shape).astype(np.float32)


def central(people: Population, Q: np.ndarray, P: np.ndarray, penalty: float) -> tuple[np.ndarray, np.ndarray]:
    """Σ over all ratings of (p·q − r) p + α q, rating by rating, and how many there are of each item."""
    rows, counts = np.zeros_like(Q), np.zeros(ITEMS)
    for u in range(len(people)):
        for at in range(people.offsets[u], people.offsets[u + 1]):
            i = people.items[at]
            rows[i] += (P[u] @ Q[i] - people.labels[at]) * P[u] + penalty * Q[i]
            counts[i] += 1
    return rows, counts


def sent(method, people: Population, Q, P, length: int = 8, key=KEY):
    """Every device's message, by the device's own code."""
    own = jax.vmap(method.prepare)(jax.tree.map(jnp.asarray, people.histories(np.arange(len(people)), length)))
    keys = jax.random.split(key, len(people))
    return jax.jit(jax.vmap(method.gradients, (0, None, 0, 0)))(keys, {"items": jnp.asarray(Q)}, jnp.asarray(P), own)


METHOD = made()


# ---- lossless ----


@pytest.mark.slow
@settings(max_examples=12, deadline=None)
@given(seed=st.integers(0, 10_000), helpers=st.lists(st.booleans(), min_size=7, max_size=7))
def test_denoised_gradients_equal_those_of_all_ratings(seed, helpers):
    """Not one digit is lost: the penalty is a half and everything else is whole, so that float32 rounds nothing."""
    people, Q, P = rated(seed), small_numbers(seed, ITEMS, DIM), small_numbers(seed + 1, 7, DIM)
    messages = sent(METHOD, people, Q, P)
    left = aggregated(messages, jnp.asarray(helpers), ITEMS)
    rows, counts = central(people, Q, P, 0.5)
    np.testing.assert_allclose(left.rows, rows, atol=1e-4)
    np.testing.assert_array_equal(left.counts, counts)
    exact = messages._replace(rows=jnp.round(messages.rows * 8) / 8)  # made-up ratings are means, and need not be whole
    np.testing.assert_array_equal(aggregated(exact, jnp.asarray(helpers), ITEMS).rows, rows)


@pytest.mark.bitwise
@pytest.mark.slow
def test_padding_order_and_batches_change_nothing():
    people, Q, P = rated(5), small_numbers(1, ITEMS, DIM), small_numbers(2, 7, DIM)
    rows, counts = central(people, Q, P, 0.5)
    helpers = jnp.arange(7) % 3 == 0
    for length, order in ((8, np.arange(7)), (31, np.array([6, 2, 0, 5, 1, 3, 4]))):
        messages = jax.tree.map(lambda leaf: leaf[order], sent(METHOD, people, Q, P, length))  # noqa: B023
        for cuts in ([7], [1, 6], [3, 3, 1], [1] * 7):
            edges = np.concatenate([[0], np.cumsum(cuts)])
            parts = [
                aggregated(jax.tree.map(lambda leaf: leaf[a:b], messages), helpers[order][a:b], ITEMS)  # noqa: B023
                for a, b in itertools.pairwise(edges)
            ]
            np.testing.assert_allclose(sum(part.rows for part in parts), rows, atol=1e-4)
            np.testing.assert_array_equal(sum(part.counts for part in parts), counts)


def test_without_denoisers_the_gradients_differ():
    """A server that forgets to subtract has another gradient: the test above can fail."""
    people, Q, P = rated(5), small_numbers(1, ITEMS, DIM), small_numbers(2, 7, DIM)
    messages = sent(METHOD, people, Q, P)
    said = sum_messages(messages, messages.items < ITEMS, ITEMS)
    assert np.abs(said.rows - central(people, Q, P, 0.5)[0]).max() > 0.5


def test_items_rated_zero_are_trained_on_and_not_removed():
    method, people = made(zeros=2.0, pretend=0.0), rated(5)
    Q, P = small_numbers(1, ITEMS, DIM), small_numbers(2, 7, DIM)
    messages = sent(method, people, Q, P)
    left = aggregated(messages, jnp.zeros(7, bool), ITEMS)
    assert float(left.counts.sum()) > people.items.size
    assert not messages.made_up.any()


# ---- what a message hides, and from whom ----


def test_made_up_items_are_unrated_and_indistinguishable():
    people, Q, P = rated(5), small_numbers(1, ITEMS, DIM), 1 + np.abs(small_numbers(2, 7, DIM))
    messages = sent(METHOD, people, Q, P)
    for u in range(len(people)):
        have = set(people.items[people.offsets[u] : people.offsets[u + 1]].tolist())
        pretended = set(np.asarray(messages.items[u])[np.asarray(messages.made_up[u])].tolist())
        told = set(np.asarray(messages.items[u]).tolist()) - {ITEMS}
        assert not have & pretended
        assert told == have | pretended, "the server sees both, and not which is which"
        assert bool(have) or not told, "who rated nothing makes nothing up: that shows"
    assert messages.made_up.any()


def test_there_is_no_guarantee_and_the_price_states_what_is_visible():
    (claim,) = fedrec_plus_claims(METHOD)
    assert claim.epsilon == math.inf
    whole = price(choose("fedrec-plus"), 100).whole
    assert whole.epsilon == math.inf
    assert any("a denoising client sees which items other clients invented" in word for word in whole.conditions)
    assert any("a denoising client and the server together see" in word for word in whole.conditions)


def test_a_plan_cannot_name_another_helper():
    """What is seen is said by the helper's name, so that the wrong name would be a wrong claim."""
    with pytest.raises(PlanError, match=r"cohort\.helper of fedrec_plus must be 'denoiser', got 'matcher'; each"):
        choose("fedrec-plus", {"cohort": {"sampler": "helped"}})
    with pytest.raises(PlanError, match=r"cohort\.helper of fedgnn must be 'matcher', got 'denoiser'"):
        choose("fedgnn", {"cohort.helper": "denoiser"})


def test_a_log_without_ratings_needs_zeros():
    with pytest.raises(DataError, match=r"hyper\.zeros = 0 fits ratings, and this log has none that differ; set hyper"):
        simulate(choose("fedrec-plus", {"hyper.zeros": 0.0}), small_world(), quiet=True)


@pytest.mark.slow
def test_ratings_are_learned():
    """Two kinds of people and of items, rated 5 where they agree and 1 where not: as printed, without zeros."""
    rng = np.random.default_rng(0)
    user, item = np.divmod(np.arange(30 * 16), 16)
    labels = np.where(user % 2 == item % 2, 5.0, 1.0).astype(np.float32)
    keep = rng.random(user.size) < 0.8
    counts = np.bincount(user[keep], minlength=30)
    offsets = np.concatenate([[0], np.cumsum(counts)])
    log = Population(Catalog(16), offsets, item[keep].astype(np.int32), None, labels[keep])
    plan = choose("fedrec-plus", {"hyper.zeros": 0.0, "hyper.dim": 4, "hyper.turns": 200, "hyper.penalty": 0.001})
    run = simulate(plan, log, quiet=True)
    history = log.histories(np.arange(30), 16)
    own = jax.vmap(run.method.prepare)(jax.tree.map(jnp.asarray, history))

    def said(own):
        p = run.method.adapt(KEY, run.params, {}, own)["person"]
        return run.params["items"] @ p

    guessed = np.asarray(jax.jit(jax.vmap(said))(own)).ravel()
    assert np.sqrt(np.mean((guessed - labels)[~keep] ** 2)) < 0.5, "of what was left out; always 3 is 2 away"


def test_rows_of_a_history_are_its_newest():
    people = replace(rated(5), labels=None)
    own = made(most=2).prepare(jax.tree.map(lambda leaf: jnp.asarray(leaf[0]), people.histories(np.array([1]), 8)))
    newest = people.items[people.offsets[1] : people.offsets[2]][-2:]
    assert own["items"][: newest.size].tolist() == newest.tolist()
    assert isinstance(own["had"], Rows)
