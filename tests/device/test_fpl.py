"""FPL: the paper's step to the last digit, sampling, what stays on the device, new users, and its plans."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from support.toys import Hand, small_world
from tacit.core.catalog import Catalog, Field
from tacit.core.sparse_rows import dense, dense_tree
from tacit.device.history import plain_history
from tacit.device.methods.fpl import FPL, OwnedAndShare
from tacit.errors import PlanError
from tacit.lab.data.selection import pick
from tacit.lab.data.synthetic.small import checkerboard, taste_groups
from tacit.lab.evaluation.scoring import new_user_homes
from tacit.lab.plans.loader import choose, load_plan, plan_names
from tacit.lab.runs.run import simulate
from tacit.nets.factor.bpr import Penalties, bpr_gradients, draw_bpr_pair, owned_items

# p, q_i, q_j, b_i, b_j, with λ of α = 0.05
TRIPLE = (jnp.array([0.3, -0.1]), jnp.array([0.2, 0.4]), jnp.array([-0.5, 0.1]), jnp.array(0.05), jnp.array(-0.02))
LAMBDA = Penalties(0.0025, 0.0025, 0.00025)
NEW = {"had": ([0.20654235, 0.39776088], 0.07189117), "rival": ([-0.50656110, 0.10218787], -0.04189117)}


def two_items(**settings) -> tuple[FPL, dict, dict, OwnedAndShare]:
    """Item 0 is had, item 1 is the only rival: every draw is the golden triple."""
    method = FPL(Catalog(2), dim=2, **settings)
    p, q_i, q_j, b_i, b_j = TRIPLE
    own = method.prepare(plain_history(jnp.array([0, 0, -1])))
    local = {**method.enter(jax.random.key(1), own), "person": p}
    return method, {"items": jnp.stack([q_i, q_j]), "bias": jnp.stack([b_i, b_j])}, local, own


# ---- the step ----


def test_the_golden_step():
    made = bpr_gradients(*TRIPLE, LAMBDA)
    assert float(made.g) == pytest.approx(0.4378235, abs=1e-7)
    np.testing.assert_allclose(made.person, [0.3057264, 0.1315970], atol=1e-7)
    np.testing.assert_allclose(made.had, [0.1308470, -0.04478235], atol=1e-7)
    np.testing.assert_allclose(made.rival, [-0.1312220, 0.04375735], atol=1e-7)
    assert float(made.bias_had) == pytest.approx(0.4378235, abs=1e-7) == -float(made.bias_rival)


@pytest.mark.parametrize("pi", [0.0, 1.0])
def test_a_round_on_the_golden_triple(pi):
    method, params, local, own = two_items(pi=pi)
    assert method.penalties == pytest.approx(LAMBDA)
    after, update, weight = method.local(jax.random.key(0), params, local, own)
    np.testing.assert_allclose(after["person"], [0.3152863, -0.09342015], atol=1e-7)
    assert int(after["learned"]) == 1
    assert weight.tolist() == [1.0]
    items, bias = (np.asarray(params[name] + 0.05 * dense(update[name])) for name in ("items", "bias"))
    had = NEW["had"] if pi else ([0.2, 0.4], 0.05)
    np.testing.assert_allclose(items, [had[0], NEW["rival"][0]], atol=1e-7)
    np.testing.assert_allclose(bias, [had[1], NEW["rival"][1]], atol=1e-7)


def test_triples_update_the_user_vector_and_not_the_items():
    method, params, local, own = two_items(pi=1.0, triples=3)
    after, update, _ = method.local(jax.random.key(0), params, local, own)
    p, total = TRIPLE[0], 0.0
    for _ in range(3):
        made = bpr_gradients(p, *TRIPLE[1:], LAMBDA)
        p, total = p + 0.05 * made.person, total + made.rival
    np.testing.assert_allclose(after["person"], p, rtol=1e-6)
    np.testing.assert_allclose(dense(update["items"])[1], total, rtol=1e-6)


def test_the_person_may_step_first():
    method, params, local, own = two_items(pi=1.0, order="person_first", penalty_bias=0.5)
    after, update, _ = method.local(jax.random.key(0), params, local, own)
    np.testing.assert_allclose(after["person"], [0.3152863, -0.09342015], atol=1e-7)
    expected = -0.43782350 * after["person"] - 0.00025 * TRIPLE[2]  # g of before, p of after
    np.testing.assert_allclose(dense(update["items"])[1], expected, atol=1e-7)


def test_penalties_may_be_given():
    method = FPL(Catalog(2), penalty_person=0.1, penalty_rival=0.0)
    assert method.penalties == pytest.approx(Penalties(0.1, 0.0025, 0.0, 0.0))


# ---- who is drawn ----


def test_pairs_are_uniform_over_owned_and_unowned_items():
    had = owned_items(jnp.array([1, 3, 4, 7, 9, 9], jnp.int32), jnp.int32(4), 9)
    keys = jax.random.split(jax.random.key(0), 40_000)
    i, j, coin = jax.vmap(lambda key: draw_bpr_pair(key, had, 9))(keys)
    counts = np.bincount(i, minlength=9), np.bincount(j, minlength=9)
    assert np.flatnonzero(counts[0]).tolist() == [1, 3, 4, 7]
    assert np.flatnonzero(counts[1]).tolist() == [0, 2, 5, 6, 8]
    # Six standard deviations of a count of 40,000 draws.
    assert abs(counts[0][[1, 3, 4, 7]] - 10_000).max() < 6 * 87
    assert abs(counts[1][[0, 2, 5, 6, 8]] - 8000).max() < 6 * 80
    assert abs(float(coin.mean()) - 0.5) < 0.01
    assert float(coin.max()) < 1


@pytest.mark.parametrize("had", [[], [0, 1, 2]])
def test_empty_and_full_histories_have_no_pair(had):
    method = FPL(Catalog(3), dim=2, pi=1.0)
    own = method.prepare(plain_history(jnp.array([*had, -1])))
    local = method.enter(jax.random.key(0), own)
    after, update, _ = method.local(jax.random.key(1), method.init(jax.random.key(2)), local, own)
    np.testing.assert_array_equal(after["person"], local["person"])
    assert int(after["learned"]) == 0
    assert not any(np.asarray(leaf).any() for leaf in jax.tree.leaves(dense_tree(update)))


# ---- what is let be seen ----


def seen_items(method: FPL, own: OwnedAndShare, rounds: int = 400) -> tuple[set[int], int]:
    """Items had that were shown at all in so many rounds, and how often."""
    params, local = method.init(jax.random.key(0)), method.enter(jax.random.key(1), own)
    keys = jax.random.split(jax.random.key(2), rounds)
    bias = jax.vmap(lambda key: dense(method.local(key, params, local, own)[1]["bias"]))(keys)
    shown = np.asarray(bias) > 0
    return set(np.flatnonzero(shown.any(0)).tolist()), int(shown.sum())


@pytest.mark.slow
def test_fresh_coins_disclose_everything_eventually_and_memoised_ones_do_not():
    history = plain_history(jnp.arange(20))
    each = FPL(Catalog(60), dim=3, pi=0.3)
    kept = FPL(Catalog(60), dim=3, pi=0.3, pi_memo=True)
    items, times = seen_items(each, each.prepare(history))
    assert items == set(range(20))
    assert 80 < times < 160
    items, _ = seen_items(kept, kept.prepare(history))
    assert 0 < len(items) < 14  # a share of 0.3 of 20, and the rest never


def test_a_user_may_have_their_own_share():
    catalog = Catalog(60, person_fields=(Field("age", "multi", 2), Field("openness", "numeric")))
    method = FPL(catalog, dim=3, pi=1.0, own_pi="openness")
    history = plain_history(jnp.arange(20))

    def own(openness: float) -> OwnedAndShare:
        return method.prepare(history._replace(person=jnp.array([0.0, 1.0, openness])))

    assert seen_items(method, own(0.0))[1] == 0
    assert seen_items(method, own(1.0))[1] == 400


def test_a_share_chosen_on_the_device_overrides_field_and_plan():
    catalog = Catalog(60, person_fields=(Field("openness", "numeric"),))
    history = plain_history(jnp.arange(20), catalog)._replace(person=jnp.array([0.25]))
    for own_pi, planned in ((None, 0.5), ("openness", 0.25)):
        method = FPL(catalog, dim=3, own_pi=own_pi)
        assert float(method.prepare(history).pi) == planned
        assert float(method.prepare(history._replace(share=jnp.array(jnp.nan))).pi) == planned
        assert float(method.prepare(history._replace(share=jnp.array(0.75))).pi) == 0.75


def test_an_unknown_user_field_is_refused():
    method = FPL(Catalog(9, person_fields=(Field("openness", "numeric"),)), own_pi="opennes")
    with pytest.raises(PlanError, match=r"hyper.own_pi has no field of a person 'opennes'; did you mean 'openness'"):
        method.prepare(plain_history(jnp.arange(3)))


def test_settings_are_checked():
    with pytest.raises(PlanError, match=r"pi must be at least 0 and at most 1, got 1.5"):
        choose("fpl", {"hyper.pi": 1.5})
    with pytest.raises(PlanError, match=r"order must be one of 'together', 'person_first', got 'later'"):
        choose("fpl", {"hyper.order": "later"})


# ---- new people ----


def test_participants_keep_their_vector_and_new_users_fit_one():
    world, answers = checkerboard(20)
    run = simulate(load_plan("fpl"), world, quiet=True)
    hand = run.buckets[0]
    local, own = jax.tree.map(lambda leaf: leaf[0], (hand.home.local["0"], hand.own))
    np.testing.assert_array_equal(
        run.method.adapt(jax.random.key(0), run.params, local, own)["person"], local["person"]
    )
    strangers = new_user_homes(run, pick(world, np.arange(4)))
    assert all(int(leaf) == 0 for bucket in strangers for leaf in bucket.home.local["0"]["learned"])
    history = [int(item) for item in world.items[world.offsets[4] : world.offsets[5]]]
    best = run.recommend(history=history, k=1)
    assert best["item_id"].to_list() == [int(answers[4])]


# ---- plans ----


def test_the_plans_are_built_in():
    assert {"fpl", "fpl-sequential", "fpl-dp", "top-pop", "bpr-mf", "vae", "fcf-authors"} <= set(plan_names())
    assert load_plan("top-pop").stages[0] == load_plan("popularity").stages[0]
    assert load_plan("fpl-sequential").stages[0].cohort["sampler"] == "one"


@pytest.mark.parametrize("name", ["fpl", "fpl-sequential"])
def test_plans_without_noise_have_no_guarantee_and_state_what_is_visible(name):
    run = simulate(choose(name, {"rounds": 20}), taste_groups(users=40, items=30, events=8), quiet=True)
    assert run.price.whole.epsilon == float("inf")
    assert any("positions are visible" in word for word in run.price.stages[0].visible)


def test_bytes_are_those_of_the_paper():
    """One or two rows a triple: positions, vectors and biases; and a header, which the paper leaves out."""
    world = taste_groups(users=50, items=40, events=8)
    for pi, rows in ((0.0, 1), (1.0, 2)):
        run = simulate(choose("fpl", {"rounds": 2, "hyper.pi": pi}), world, quiet=True)
        header = 18 + 4 + 2 * 4  # a weight, and how many rows each of two tables has
        assert run.bytes_up_per_device / 2 == header + rows * (4 + 80 + 4 + 4)


def test_devices_are_the_same_by_hand_and_in_the_engine():
    hand = Hand("fpl", small_world(), wire="rows")
    own = hand.own(3)
    local, update, _ = hand.method.local(hand.root, hand.params, hand.home(3, own).local["0"], own)
    assert update["items"].index.shape == (2,)
    assert bool(
        (update["items"].index[0] < update["items"].index[1]) | (update["items"].index[0] == hand.params["bias"].size)
    )
    assert local["person"].shape == (20,)
