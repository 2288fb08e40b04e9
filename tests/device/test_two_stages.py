"""Two stages: the guarantee of each form of the first one, who is covered, and that the second continues from it."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tacit.core.plan import Plan
from tacit.core.sparse_rows import dense_tree
from tacit.device.method import build
from tacit.device.round import KEYS
from tacit.errors import PlanError
from tacit.lab.data import from_events
from tacit.lab.data.synthetic import movies
from tacit.lab.plans.loader import choose
from tacit.lab.runs.run import simulate
from tacit.nets.sequence.masked_items import contrastive_losses
from tacit.privacy.accounting.events import FixedGaussian
from tacit.privacy.accounting.rdp import renyi_epsilon
from tacit.privacy.card import card, to_markdown
from tacit.privacy.price import price
from tacit.privacy.sampler import build_sampler

pytestmark = pytest.mark.filterwarnings("ignore::tacit.lab.analysis.feasibility.FeasibilityWarning")
KEY = jax.random.key(5, impl=KEYS)
VOLUNTEERS = {"sampler": "volunteers", "count": 4, "share": 0.3}


def small(name, **first):
    """A plan of two stages that a test can run: narrow, short, few people."""
    settings = {"1.hyper.dim": 4, "2.hyper.dim": 4, "2.hyper.hidden": (4,), "2.hyper.epochs": 1, "2.hyper.most": 8}
    settings |= {"1.hyper.window": 8, "2.hyper.window": 8, "1.hyper.steps": 2, "1.rounds": 2, "2.rounds": 2}
    return choose(name, {**settings, "1.cohort.count": 4, "2.cohort.count": 4, **first})


# ---- claims ----


def test_an_open_first_stage_voids_the_plan_and_the_conditional_claim_stands_beside_it():
    cost, alone = price(choose("dp-privrec-two-paper"), 4832), price(choose("dp-privrec-paper"), 4832).whole
    assert cost.whole.epsilon == math.inf
    beside, chosen = cost.beside
    assert "however the cohorts are chosen" in " ".join(chosen.conditions)
    assert beside.epsilon == alone.epsilon < 1
    assert beside.conditions[0] == "only if what stage 1 learned were public, and it was not"
    page = to_markdown(card(cost))
    assert "| ε | ∞ |" in page
    assert "only if what stage 1 learned were public" in page


@pytest.mark.parametrize(("name", "words"), [("optin", "agreed to take part in"), ("public", "are public")])
def test_the_claim_covers_all_but_the_volunteers(name, words):
    cost, alone = price(choose(f"dp-privrec-two-{name}"), 4832), price(choose("dp-privrec-paper"), 4832).whole
    agreed = int(build_sampler(cost.plan.stages[0].cohort).reach(4832).sum())
    assert cost.whole.epsilon == alone.epsilon
    assert cost.whole.conditions[0].startswith("for all other users, each replaced by any user: ")
    assert words in cost.whole.conditions[0]
    assert str(agreed) in cost.whole.conditions[0]
    beside, chosen = cost.beside
    assert "however the cohorts are chosen" in " ".join(chosen.conditions)
    assert beside.epsilon == math.inf
    assert beside.conditions[0].startswith("for volunteers: ")


@pytest.mark.parametrize("devices", [100, *(pytest.param(n, marks=pytest.mark.slow) for n in (500, 4832))])
def test_two_private_stages_are_composed_by_one_accountant(devices):
    cost = price(choose("dp-privrec-two"), devices)
    stages = [next(claim.epsilon for claim in claims if claim.per == "run") for claims in cost.claims]
    assert max(stages) < cost.whole.epsilon <= 8.0
    assert cost.whole.epsilon < sum(stages)
    (chosen,) = cost.beside
    assert "however the cohorts are chosen" in " ".join(chosen.conditions)
    assert chosen.epsilon >= cost.whole.epsilon
    assert price(choose("dp-privrec-one"), devices).whole.epsilon <= 8.0


def test_a_private_first_stage_costs_little():
    """200 rounds before 1000, 30 of 4800, z = 1, δ = 1e-6, by Rényi divergences."""
    event = FixedGaussian(2.0, 30, 4800)
    alone, both = (renyi_epsilon(((event, rounds),), "replace_one", 1e-6) for rounds in (1000, 1200))
    assert (alone, both) == (pytest.approx(2.446, abs=1e-3), pytest.approx(2.668, abs=1e-3))


def test_plans_without_noise_have_no_conditional_claim():
    assert price(choose("privrec-two"), 100).beside == ()
    assert price(choose("dp-privrec"), 100).beside == ()


# ---- volunteers ----


def test_only_volunteers_take_part_and_new_users_change_no_cohort():
    sampler = build_sampler(VOLUNTEERS)
    agreed = set(np.flatnonzero(sampler.reach(60)).tolist())
    asked = {int(one) for turn in range(200) for one in sampler.draw(1, 0, turn, 60)}
    assert asked == agreed
    assert 5 < len(agreed) < 35
    assert sampler.reach(80)[:60].tolist() == sampler.reach(60).tolist()
    exposure = sampler.exposure(7, 60)
    assert (exposure.devices, exposure.others, exposure.messages) == (len(agreed), 60 - len(agreed), 7)
    assert build_sampler({"sampler": "fixed", "count": 4}).exposure(7, 60).others == 0


def test_too_few_volunteers_are_refused():
    sentence = r"cohort.count must be at most the \d+ devices that agreed, got 50; select fewer, or raise cohort.share"
    with pytest.raises(PlanError, match=sentence):
        price(choose("dp-privrec-two-optin", {"1.cohort.count": 50}), 60)


@pytest.mark.parametrize("privacy", [{"mechanism": "none"}, {"mechanism": "gaussian", "epsilon": 2.0}], ids=str)
def test_ledgers_charge_volunteers_alone_for_their_stage(privacy):
    """Popularity stands for both stages: a ledger knows messages, not methods."""
    people, items = np.divmod(np.arange(120), 2)
    world = from_events(people, items, n_items=2)
    first = choose("popularity", {"privacy": privacy, "cohort": VOLUNTEERS, "rounds": 3}).stages[0]
    second = choose("popularity", {"privacy": {"mechanism": "gaussian", "epsilon": 1.0}}).stages[0]
    run = simulate(Plan("both", (first, second)), world, quiet=True)
    agreed = build_sampler(VOLUNTEERS).reach(60)
    counts = run.ledgers.counts
    assert (counts[~agreed, 0] == -1).all()
    assert (counts[agreed, 0] >= 0).all()
    assert counts[agreed, 0].sum() == 12
    assert (counts[:, 1] == 1).all()
    assert run.price.whole.epsilon == pytest.approx(1.0, rel=1e-4)
    assert run.price.beside[0].epsilon > 1.5


# ---- the second stage goes on from the first ----


@pytest.mark.slow
def test_the_second_stage_starts_where_the_first_ended():
    world = movies(40, 60, seed=1)
    plan = small("privrec-two")
    ended = simulate(Plan("one", plan.stages[:1]), world, quiet=True).params
    untouched = choose(plan, {"2.rounds": 0})
    going_on = simulate(untouched, world, quiet=True).params
    np.testing.assert_array_equal(going_on["items"], ended["items"])
    moved = simulate(plan, world, quiet=True).params
    assert all(np.abs(np.asarray(moved[name] - ended[name])).max() > 0 for name in ended)


def test_mismatched_sizes_are_refused():
    sentence = r"Plan stage 2 goes on with 'items' of an earlier stage and must have it in the same shape, \(60, 4\), got \(60, 8\)"
    with pytest.raises(PlanError, match=sentence):
        simulate(choose(small("privrec-two"), {"2.hyper.dim": 8}), movies(40, 60, seed=1), quiet=True)


# ---- joint training ----


def made(**hyper):
    world = movies(30, 60, seed=1)
    settings = {"dim": 4, "hidden": (5,), "epochs": 1, "batch": 0, "masks": 0.5, "copies": 3, "window": 9, **hyper}
    stage = choose("privrec", {f"hyper.{name}": value for name, value in settings.items()}).stages[0]
    method = build(stage, world.catalog)
    histories = [world.histories(np.array([0]), length) for length in (32, 57)]
    return method, method.init(KEY), [jax.tree.map(lambda leaf: jnp.asarray(leaf[0]), one) for one in histories]


@jax.jit
def sent(method, key, params, own):
    """What a device would send, as tables."""
    return dense_tree(method.local(key, params, {}, own)[1])


def weights(liking, items, segments):
    return {"of_liking": liking, "of_items": items, "of_segments": segments, "masks": 0.0}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"masks": 0.5}, (1.0, 0.5, 0.5)),
        ({"masks": 0.5, "of_segments": 0.2}, (1.0, 0.5, 0.2)),
        (weights(0.25, 0.7, 0.2), (0.25, 0.7, 0.2)),
        (weights(1.0, 0.7, 0.0), (1.0, 0.7, 0.0)),
        (weights(1.0, 0.0, 0.3), (1.0, 0.0, 0.3)),
        (weights(0.0, 0.7, 0.3), (0.0, 0.7, 0.3)),
    ],
    ids=str,
)
def test_a_joint_step_is_the_gradient_of_three_weighted_losses(given, expected):
    """λ_DSSM L_DSSM + λ_IM L_IM + λ_SM L_SM: each weight scales its own term, and 0 removes exactly that."""
    method, params, (history, _) = made(rate=0.1, item_rate=0.1, **given)
    assert method.weights == expected
    alone = made(rate=0.1, item_rate=0.1, masks=0.0)[0]
    own = method.prepare(history)
    mine = eqx.filter_jit(method._samples)(jax.random.split(KEY)[0], own)
    numbers = np.asarray(mine.items)[np.asarray(mine.copies[0])]

    def masked(theta):
        x = theta["items"].at[jnp.asarray(numbers)].get(mode="clip")
        item, segment = contrastive_losses(theta, mine.shape, x[None], mine.shown[:1])
        return expected[1] * item + expected[2] * segment

    slope = jax.jit(jax.grad(masked))(params)
    joint, plain = (sent(one, KEY, params, own) for one in (method, alone))
    assert set(joint) == {*plain, "reader_input", "reader_state", "reader_item"}
    assert any(np.abs(np.asarray(slope[name])).max() > 1e-4 for name in ("reader_input", "reader_state"))
    for name, moved in joint.items():
        np.testing.assert_allclose(
            moved, expected[0] * plain.get(name, 0.0) - 0.1 * slope[name], atol=1e-6, err_msg=name
        )
    if not expected[1]:  # Ψ reads items alone
        assert not np.asarray(joint["reader_item"]).any()


def test_two_weights_of_nothing_are_no_joint_training():
    method, params, _ = made(of_items=0.0, of_segments=0.0)
    assert not method.joint
    assert set(params) == set(made(masks=0.0)[1])


def test_the_former_name_of_the_two_weights_still_works():
    old, new = (made(**one)[0] for one in ({"masks": 0.5}, {"masks": 0.0, "of_items": 0.5, "of_segments": 0.5}))
    assert old.weights == new.weights == (1.0, 0.5, 0.5)
    for name in (
        "privrec-two",
        "dp-privrec-two",
        "dp-privrec-two-paper",
        "dp-privrec-two-optin",
        "dp-privrec-two-public",
    ):
        stage = choose(name).stages[1]
        assert (stage.hyper["of_items"], stage.hyper["of_segments"]) == (1.0, 1.0)


@pytest.mark.slow
def test_padding_is_no_step_of_joint_training():
    method, params, histories = made(epochs=2, batch=8)
    short, long = (sent(method, KEY, params, method.prepare(one)) for one in histories)
    for name, moved in short.items():
        np.testing.assert_allclose(moved, long[name], atol=1e-6, err_msg=name)


@pytest.mark.slow
def test_joint_training_together_is_one_by_one():
    method, params, (history, _) = made(epochs=2, batch=8)
    own, keys = method.prepare(history), jax.random.split(KEY, 3)
    together = jax.jit(jax.vmap(lambda key: dense_tree(method.local(key, params, {}, own)[1])))(keys)
    alone = sent(method, keys[2], params, own)
    for name, moved in alone.items():
        np.testing.assert_allclose(moved, together[name][2], atol=1e-5, err_msg=name)


def test_masks_are_for_reptile():
    with pytest.raises(PlanError, match=r"hyper.masks = 0.5 of privrec needs meta = 'reptile', got 'maml'"):
        made(meta="maml")
    with pytest.raises(PlanError, match=r"hyper.of_segments = 0.5 of privrec needs meta = 'reptile', got 'maml'"):
        made(meta="maml", masks=0.0, of_segments=0.5)
