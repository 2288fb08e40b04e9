"""Item covariance: one noisy sum of outer products, and the principal directions of it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.toys import from_events
from tacit.core.catalog import Catalog
from tacit.device.history import plain_history
from tacit.device.methods.item_covariance import ItemCovariance
from tacit.errors import PlanError
from tacit.lab.data.synthetic import movies
from tacit.lab.plans.loader import choose
from tacit.lab.runs.run import simulate
from tacit.privacy.price import price
from tacit.server.rules.principal_directions import directions

KEY = jax.random.key(0)
pytestmark = pytest.mark.filterwarnings("ignore::tacit.lab.analysis.feasibility.FeasibilityWarning")


def two_camps(people: int = 40, items: int = 8):
    """Everybody has item 0 and all but one of their camp's items: even people the even items, odd people the odd ones."""
    camp = [np.arange(2 + side, items, 2) for side in (0, 1)]
    user, item = [], []
    for person in range(people):
        mine = np.delete(camp[person % 2], person // 2 % camp[0].size)
        user += [person] * (mine.size + 1)
        item += [0, *mine]
    return from_events(np.array(user), np.array(item), n_items=items)


def quiet(**hyper):
    settings = {f"2.hyper.{name}": value for name, value in hyper.items()}
    nothing = {f"{n}.privacy": {"mechanism": "gaussian", "clip": 10.0, "noise": 0.0} for n in (1, 2)}
    return choose("dp-privrec", {**nothing, **settings})


def test_users_of_even_items_get_the_missing_even_item():
    run = simulate(quiet(most=8, dim=1), two_camps(), quiet=True)
    for history, missing in (([0, 2, 4], 6), ([0, 3, 5], 7), ([0, 2, 6], 4)):
        assert run.recommend(history=history, k=1)["item_id"].to_list() == [missing]


def test_without_noise_the_directions_are_the_eigenvectors_across_what_is_shared():
    x = np.random.default_rng(0).random((50, 6)) < 0.5
    unit = x / np.maximum(np.sqrt(x.sum(1, keepdims=True)), 1)
    gram = (unit.T @ unit).astype(np.float32)
    found = np.asarray(directions(jnp.asarray(gram), 3))
    shared = gram.sum(1) / np.linalg.norm(gram.sum(1))
    across = np.eye(6) - np.outer(shared, shared)
    true = np.linalg.eigh(across @ gram @ across)[1][:, ::-1][:, :3]
    np.testing.assert_allclose(found @ found.T, true @ true.T, atol=1e-4)


def test_directions_below_the_noise_have_no_length():
    noise = np.random.default_rng(0).normal(size=(200, 200)).astype(np.float32)
    noise = (noise + noise.T) / np.sqrt(2)
    weak = np.asarray(directions(jnp.asarray(noise), 8))
    strong = noise + 60 * np.outer(*[np.ones(200) / np.sqrt(200)] * 2)
    strong += 50 * np.outer(*[np.sign(np.arange(200) - 99.5) / np.sqrt(200)] * 2)
    found = np.asarray(directions(jnp.asarray(strong, np.float32), 8))
    lengths = np.square(found).sum(0)
    assert np.square(weak).sum(0).max() < 0.35  # at the edge of the spectrum little is trusted
    # s² = 200, θ = 50: cos² = 1 − 200/2500
    assert lengths[0] == pytest.approx(0.92, abs=0.05)
    true = np.sign(np.arange(200) - 99.5) / np.sqrt(200)
    assert (found[:, 0] @ true) ** 2 / lengths[0] == pytest.approx(0.92, abs=0.05)


@pytest.mark.slow
@given(st.lists(st.integers(0, 11), max_size=12), st.integers(1, 12))
def test_a_message_has_norm_one_at_most_and_padding_is_inert(items, most):
    method = ItemCovariance(Catalog(12), most=max(2, most))
    params = {**method.init(KEY), "counts": jnp.arange(12, dtype=jnp.int32)}
    sent = [
        method.local(KEY, params, {}, method.prepare(plain_history([*items, *[-1] * pad])))[1]["together"]
        for pad in (1, 5)
    ]
    np.testing.assert_array_equal(*sent)
    assert float(jnp.linalg.norm(sent[0])) <= 1 + 1e-6
    told = set(items) & set(range(12 - max(2, most), 12))  # the frequent ones: counts ascend
    assert float(jnp.linalg.norm(sent[0])) == pytest.approx(1.0 if told else 0.0, abs=1e-5)


@pytest.mark.slow
def test_it_beats_counts_of_the_same_epsilon():
    log = movies(1500, 200, seed=3)
    found = {
        name: simulate(plan, log, epsilon=8.0, protocol="privrec", quiet=True).evaluation.metrics["Hits@10"]
        for name, plan in (
            ("covariance", choose("dp-privrec")),
            ("counts", choose("popularity", {"privacy": {"mechanism": "gaussian", "clip": 10.0, "epsilon": 8.0}})),
        )
    }
    assert found["covariance"] > 1.15 * found["counts"]


# ---- a promise that stages share ----


def test_shares_that_sum_to_one_cost_the_whole_epsilon():
    plan = choose("dp-privrec", {"1.privacy.share": 0.6, "2.privacy.share": 0.4})
    cost = price(plan, 1000)
    assert cost.whole.epsilon == pytest.approx(8.0, rel=1e-3)
    first, second = (stage.mechanism.noise for stage in cost.stages)
    assert first**2 * 0.6 == pytest.approx(second**2 * 0.4)


def test_shares_above_one_are_refused():
    with pytest.raises(PlanError, match="do not keep together: they cost"):
        price(choose("dp-privrec", {"1.privacy.share": 0.9}), 1000)


def test_a_share_without_epsilon_is_refused():
    with pytest.raises(PlanError, match="is a part of privacy\\.epsilon"):
        choose("fcf", {"privacy": {"mechanism": "gaussian", "noise": 1.0, "share": 0.5}})


def test_a_share_needs_rounds_of_all_devices():
    settings = {"cohort": {"sampler": "poisson", "rate": 0.1}}
    plan = choose("fcf", {"privacy": {"mechanism": "gaussian", "epsilon": 1.0, "share": 0.5}, **settings})
    with pytest.raises(PlanError, match="requires rounds of all devices"):
        price(plan, 1000)
