"""FedGNN: the helper's input and output, what a device computes and sends, and its guarantee."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from support.toys import small_world
from tacit.core.catalog import Catalog
from tacit.device.history import plain_history
from tacit.device.method import build
from tacit.device.round import KEYS
from tacit.errors import PlanError
from tacit.lab.baselines.helpers.fedgnn import SealedItems, fedgnn_claims, match, matched, noised, seal
from tacit.lab.plans.loader import choose
from tacit.lab.runs.run import simulate
from tacit.nets.neural.graph import ATTENTION_LAYERS, new_graph_attention, user_vector
from tacit.privacy.price import price

KEY = jax.random.key(2, impl=KEYS)


def made(**hyper):
    settings = {"dim": 3, "pseudo": 5, "negatives": 2, **hyper}
    return build(choose("fedgnn", {f"hyper.{name}": value for name, value in settings.items()}).stages[0], Catalog(20))


# ---- the helper ----


def test_the_helper_matches_encrypted_item_names():
    people, items = np.array([0, 0, 1, 1, 1, 2]), np.array([4, 7, 7, 7, 1, 7])
    vectors = np.arange(6, dtype=np.float32).reshape(3, 2)
    guests = [SealedItems(seal(b"shared", np.unique(items[people == who])), vectors[who]) for who in range(3)]
    found = match(guests)
    assert not any(int(item).to_bytes(8, "big") in name for name in found for item in items)
    table = matched(people, items, vectors, 9)
    for item in range(9):
        total, count = found.get(seal(b"shared", np.array([item]))[0], (np.zeros(2), 1))
        np.testing.assert_allclose(table[item], total / count)
    assert table[7].tolist() == [2.0, 3.0], "each person once, however often they met it"
    assert {len(guest.names) for guest in guests} == {1, 2}, "how many items each has is plain to see"
    assert found[seal(b"shared", np.array([7]))[0]][1] == 3, "and how many have each"


# ---- the device ----


def test_a_person_is_the_attention_over_their_items_by_hand():
    theta = {**new_graph_attention(KEY, 2), "graph_voice": jnp.array([0.3, -0.2, 0.5, 0.1])}
    e, items, others = (
        jnp.array([0.2, -0.1]),
        jnp.array([[1.0, 0], [0, 2], [5, 5]]),
        jnp.array([[0.5, 0], [0, 0], [9, 9]]),
    )
    real = jnp.array([True, True, False])
    W, W_n = np.asarray(theta["graph_layer"]), np.asarray(theta["graph_others"])
    x = (np.asarray(items) + np.asarray(others) @ W_n) @ W
    heard = x[:2] @ [0.3, -0.2] + (np.asarray(e) @ W) @ [0.5, 0.1]
    heard = np.where(heard > 0, heard, 0.01 * heard)
    a = np.exp(heard) / np.exp(heard).sum()
    np.testing.assert_allclose(user_vector(theta, e, items, others, real), np.asarray(e) + a @ x[:2], rtol=1e-5)
    np.testing.assert_allclose(user_vector(theta, e, items, others, jnp.zeros(3, bool)), e)


def test_predicted_items_are_not_in_the_graph():
    """A person of one item: it is in the graph or asked for, never both, so W never learns from its own answer."""
    method = made()
    params, own = method.init(KEY), method.prepare(plain_history(jnp.array([4])))
    each = jax.jit(jax.vmap(lambda key: method.gradients(key, params, jnp.ones(3), own)))
    sent = each(jax.random.split(KEY, 16))
    assert not np.asarray(sent.layers["graph_layer"]).any()
    assert 0 < np.asarray(sent.person).any(axis=1).sum() < 16, "sometimes it is asked for, sometimes it is in the graph"


def test_a_message_has_own_items_among_pseudo_items():
    method, items = made(), jnp.array([4, 9, 2, 7, -1], jnp.int32)
    params, own = method.init(KEY), method.prepare(plain_history(items))
    sent = jax.jit(lambda key: method.gradients(key, params, jnp.ones(3), own))(KEY)
    named = np.asarray(sent.items)[np.asarray(sent.items) < 20]
    assert {4, 9, 2, 7} <= set(named.tolist())
    assert sent.items.shape[0] == 5 * (1 + 2) + 5
    assert set(sent.layers) == set(ATTENTION_LAYERS)
    unused = np.asarray(sent.rows)[np.asarray(sent.items) == 20]
    assert not unused.any()
    pretended = np.asarray(sent.rows)[-5:]
    assert np.unique(pretended, axis=0).shape[0] == 5


@pytest.mark.slow
def test_an_items_gradient_does_not_depend_on_the_number_of_predicted_items():
    """∂/∂e_j of an asked item is (ŷ_j − 1) h_u, whatever else is asked: of a mean it would be far below the noise."""
    items = jnp.arange(8, dtype=jnp.int32)
    beside = np.asarray(jax.random.uniform(jax.random.split(KEY, 3)[0], (8,)) < 0.5)
    rows = []
    for drawn in (1, 6):
        method = made(negatives=drawn, most=8)
        params, own = method.init(KEY), method.prepare(plain_history(items))
        rows.append(np.asarray(method.gradients(KEY, params, jnp.ones(3), own).rows)[:8][~beside])
    vectors = np.asarray(params["items"])
    h = user_vector(params, jnp.ones(3), vectors[:8], np.zeros((8, 3)), jnp.asarray(beside))
    wanted = (jax.nn.sigmoid(vectors[:8] @ h) - 1)[:, None] * h
    assert 0 < beside.sum() < 8
    for found in rows:
        np.testing.assert_allclose(found, np.asarray(wanted)[~beside], rtol=1e-4)


def test_every_number_is_clipped_then_noised():
    quiet = made(noise=0.0, clip=0.1)
    assert noised(quiet, KEY, jnp.array([0.05, -3.0, 7.0])).tolist() == pytest.approx([0.05, -0.1, 0.1])
    loud = np.asarray(noised(made(noise=0.2, clip=0.1), KEY, jnp.full(20_000, 9.0)))
    assert loud.mean() == pytest.approx(0.1, abs=0.01)
    assert np.abs(loud - 0.1).mean() == pytest.approx(0.2, rel=0.05), "E|Laplace(λ)| = λ"


# ---- what it guarantees ----


def test_there_is_no_guarantee_despite_the_printed_one():
    printed, true = fedgnn_claims(made(clip=0.1, noise=0.2))
    assert (printed.epsilon, printed.fidelity, printed.per) == (pytest.approx(1.0), "paper", "message")
    assert true.epsilon == math.inf
    assert any("helper sees" in word for word in true.conditions)
    assert fedgnn_claims(made(noise=0.0))[0].epsilon == math.inf
    whole = price(choose("fedgnn"), 100).whole
    assert whole.epsilon == math.inf
    assert any("a helper beside the server sees" in word for word in whole.conditions)


def test_the_helped_sampler_needs_a_method_with_a_helper():
    with pytest.raises(
        PlanError, match=r"cohort.sampler 'helped' fits fedgnn, fedrec_plus in the lab, got method 'popularity'"
    ):
        simulate(choose("popularity", {"cohort": {"sampler": "helped"}}), small_world(), quiet=True)


@pytest.mark.slow
def test_the_helper_s_table_reaches_the_devices():
    settings = {"dim": 3, "turns": 2, "rounds_each": 2, "cohort": 4, "pseudo": 2}
    run = simulate(
        choose("fedgnn", {f"hyper.{name}": value for name, value in settings.items()}), small_world(), quiet=True
    )
    met = np.unique(run.population.items)
    assert np.asarray(run.params["others"])[met].any(axis=1).all()
