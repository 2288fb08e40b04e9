"""Which method takes which mechanism: what `tacit plan --mechanisms` prints is what happens, cell by cell."""

import json
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_every_method import LARGE
from typer.testing import CliRunner

import tacit
from support.toys import ITEMS, Hand, small_world
from tacit.cli import app
from tacit.core.messages import Report
from tacit.core.plan import Plan, Stage
from tacit.core.sparse_rows import dense_tree
from tacit.device.method import build, method_class, method_names
from tacit.errors import PlanError
from tacit.lab.data import from_events
from tacit.lab.plans.loader import DroppedWarning, choose, misfit, refusals, suggested
from tacit.lab.simulation.federation import Federation
from tacit.privacy.mechanism import add_reports, build_mechanism, empty_total, mechanism_class, mechanism_names
from tacit.privacy.price import price, settle
from tacit.server.round import begin, close
from tacit.server.rule import build_rule

PEOPLE = 24
REFUSALS = {name: refusals(name) for name in method_names()}
SENDING = [name for name in method_names() if suggested(name).stages[0].rounds]
CELLS = [(method, mechanism) for method in method_names() for mechanism in mechanism_names()]
every_cell = pytest.mark.parametrize(("method", "mechanism"), CELLS)
every_sending = pytest.mark.parametrize(
    "method", [pytest.param(name, marks=pytest.mark.slow) if name in LARGE else name for name in SENDING]
)


def plan_of(method, mechanism, number=0):
    privacy = {"mechanism": mechanism, **mechanism_class(mechanism).suggested[number]}
    return choose(suggested(method), {"privacy": privacy})


def fitting(method, mechanism):
    """The first suggested settings that fit."""
    for number in range(len(mechanism_class(mechanism).suggested)):
        try:
            return plan_of(method, mechanism, number)
        except PlanError:
            continue
    return None


# ---- every cell ----


@every_cell
def test_a_cell_is_what_choosing_the_mechanism_does(method, mechanism):
    reason, plan = REFUSALS[method][mechanism], fitting(method, mechanism)
    if method in SENDING:
        assert (plan is None) == bool(reason)
    if method in SENDING and reason:
        with pytest.raises(PlanError, match="does not fit") as problem:
            plan_of(method, mechanism)
        assert reason in str(problem.value)


@cache
def update_of(method):
    """The shapes of an update, of its weight and of the parameters."""
    hand = Hand(method, small_world())
    own = hand.own(0)
    local = hand.home(0, own).local["0"]
    update, weight = jax.eval_shape(lambda: hand.method.local(hand.root, hand.params, local, own)[1:])
    return update, weight, hand.params


@pytest.mark.parametrize(
    ("method", "mechanism"), [cell for cell in CELLS if cell[0] in SENDING and not REFUSALS[cell[0]][cell[1]]]
)
def test_a_mechanism_that_is_taken_makes_a_round(method, mechanism):
    """From the update to the parameters after the round, traced and not run; and it has a price."""
    plan = fitting(method, mechanism)
    stage = plan.stages[0]
    assert price(plan, PEOPLE).whole.epsilon >= 0
    made, rule = settle(stage, PEOPLE)[0], build_rule(stage.server)
    update, weight, params = update_of(method)

    def turn(update, weight, params):
        memory, key = begin(made, rule, stage.trains, params), jax.random.key(0)
        report = Report(made.encode(key, update, memory.dials), weight, jnp.asarray(True))
        total = empty_total(made, jax.tree.map(jnp.zeros_like, dense_tree(update)), weight.shape[0])
        total = add_reports(made, total, jax.tree.map(lambda leaf: leaf[None], report))
        return close(key, made, rule, stage.trains, params, total, memory)[0]

    after = jax.eval_shape(turn, update, weight, params)
    assert jax.tree.map(lambda leaf: leaf.shape, after) == jax.tree.map(lambda leaf: leaf.shape, params)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "mechanism"), [cell for cell in CELLS if cell[0] in SENDING and not REFUSALS[cell[0]][cell[1]]]
)
def test_a_mechanism_that_is_taken_runs(method, mechanism):
    items = np.random.default_rng(2).integers(ITEMS, size=(PEOPLE, 8))  # histories of one length: one program for all
    world = from_events(np.repeat(np.arange(PEOPLE), 8), items.ravel(), n_items=ITEMS)
    federation = Federation(fitting(method, mechanism), world)
    federation.play(federation.begin(0), 0, 1)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(federation.params))


def test_the_command_prints_every_cell():
    result = CliRunner().invoke(app, ["plan", "--mechanisms", "--json"], catch_exceptions=False)
    assert json.loads(result.stdout) == REFUSALS
    shown = CliRunner().invoke(app, ["plan", "--mechanisms"], catch_exceptions=False).stdout
    assert all(f"`{name}`" in shown for name in (*method_names(), *mechanism_names()))


# ---- a promise for one interaction ----


def positions_changed(method):
    """The most positions of an update that change, above 0 or not, when one event is left out."""
    items = np.random.default_rng(1).integers(ITEMS, size=6)
    histories = [items, *(np.delete(items, place) for place in range(items.size))]
    user = np.repeat(np.arange(len(histories)), [len(one) for one in histories])
    hand = Hand(method, from_events(user, np.concatenate(histories), n_items=ITEMS))

    @jax.jit
    def update_of(history):
        own = hand.method.prepare(history)
        local = hand.method.enter(hand.root, own)
        return dense_tree(hand.method.local(hand.root, hand.params, local, own)[1])

    def said(device):
        history = hand.population.histories(np.array([device]), 8)
        update = update_of(jax.tree.map(lambda leaf: jnp.asarray(leaf[0]), history))
        return np.concatenate([np.asarray(leaf).reshape(-1) > 0 for leaf in jax.tree.leaves(update)])

    whole = said(0)
    return max(int((said(device) != whole).sum()) for device in range(1, len(histories)))


@every_sending
def test_one_interaction_is_one_position_where_a_method_says_so_and_only_there(method):
    assert (positions_changed(method) <= 1) == method_class(method).item_by_item


def test_a_promise_for_one_interaction_needs_a_method_that_keeps_it():
    for settings in mechanism_class("randomized_response").suggested:
        made = build_mechanism({"mechanism": "randomized_response", **settings})
        for name in SENDING:
            stage = suggested(name).stages[0]
            taken = not misfit(build(stage, small_world().catalog), made, build_rule(stage.server))
            assert taken == (method_class(name).item_by_item and not build_rule(stage.server).reads_pairs)


def test_no_price_is_told_for_a_promise_that_is_not_kept():
    plan = tacit.plan("fcf").with_setting("privacy", {"mechanism": "randomized_response", "epsilon": 1.0})
    with pytest.raises(
        PlanError, match=r"'randomized_response' does not fit fcf: it promises for one interaction.*promises for a user"
    ):
        tacit.price(plan, devices=1000)


# ---- nothing to protect ----


@pytest.mark.parametrize("method", [name for name in method_names() if name not in SENDING])
def test_a_pooled_fit_takes_no_mechanism_and_what_sends_nothing_needs_none(method):
    stage = suggested(method).stages[0]
    if stage.trains:
        with pytest.raises(
            PlanError, match=r"'gaussian' is an empty promise: under cohort\.sampler = .* without a mechanism"
        ):
            plan_of(method, "gaussian")
    else:
        assert price(plan_of(method, "gaussian"), PEOPLE).whole.epsilon == 0


# ---- another mechanism for a plan that has one ----


def test_a_setting_that_another_mechanism_does_not_take_is_left_out_and_said():
    with pytest.warns(DroppedWarning, match=r"'gaussian' does not take wire = 'rows' of fpl, which is left out"):
        plan = choose("fpl", {"privacy.mechanism": "gaussian", "privacy.epsilon": 8.0})
    assert plan.stages[0].privacy["wire"] == "dense"
    assert price(plan, 1000).whole.epsilon == pytest.approx(8.0, rel=1e-4)


def test_a_default_of_the_mechanism_before_is_left_out_without_a_word():
    plan = Plan("p", (Stage("fcf", trains=("items",), rounds=1, privacy={"mechanism": "gaussian", "epsilon": 2.0}),))
    assert dict(choose(choose(plan), {"privacy.mechanism": "harmony"}).stages[0].privacy)["epsilon"] == 2.0


def test_a_promise_is_never_left_out():
    with pytest.raises(PlanError, match=r"privacy\.epsilon = 8\.0 is an empty promise"):
        choose("fpl-dp", {"privacy.mechanism": "none"})
