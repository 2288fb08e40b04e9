"""Cohorts that the server draws: a device answers no more often than fair draws would ask, and the price without them is said."""

import math

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import binom

from support.toys import Hand, seeded_step, small_world
from tacit.lab.plans.loader import complete, load_plan
from tacit.lab.runs.run import simulate
from tacit.privacy.accounting.accountant import compose
from tacit.privacy.accounting.events import FixedGaussian, FixedPure, Gaussian, PoissonGaussian, Pure
from tacit.privacy.card import card, to_markdown
from tacit.privacy.mechanism import build_mechanism
from tacit.privacy.price import price
from tacit.privacy.sampler import Fixed, Poisson, Volunteers
from tacit.server.round import open_round

pytestmark = pytest.mark.filterwarnings("ignore::tacit.lab.analysis.feasibility.FeasibilityWarning")
NOISY = {"mechanism": "gaussian", "noise": 2.0}


def plan_with(privacy, cohort, rounds):
    plan = load_plan("fcf").with_setting("hyper.dim", 2).with_setting("privacy", privacy)
    return complete(plan.with_setting("rounds", rounds).with_setting("cohort", cohort))


ONE_OF_NINE = plan_with(NOISY, {"sampler": "fixed", "count": 1}, 30)


def test_a_device_that_is_asked_every_time_falls_silent():
    """The plan draws 1 of 9 in each of 30 rounds; the server asks the same device 30 times."""
    priced = price(ONE_OF_NINE, 9).stages[0]
    assert priced.mechanism is not None
    hand = Hand("fcf", small_world(9))
    own = hand.own(0)
    home, answers = hand.home(0, own), 0
    for number in range(30):
        home, report = seeded_step(hand.method, priced.mechanism, 0, open_round(number, hand.params), home, own)
        answers += int(report.sent)
        assert bool(report.sent) or not np.asarray(report.payload["items"]).any()
    assert answers == priced.messages < 30
    released = compose([(Gaussian(2.0), answers)], priced.claims[-1].delta, "replace_one").epsilon
    assert math.isclose(released, priced.claims[-1].epsilon, rel_tol=1e-6), "and the price says what they cost then"
    assert released > 3 * price(ONE_OF_NINE, 9).whole.epsilon


@pytest.mark.parametrize(
    ("rounds", "rate", "devices"), [(30, 1 / 9, 9), (1000, 30 / 4800, 4800), (10, 0.5, 4), (1, 0.5, 2)]
)
@pytest.mark.parametrize("delta", [1e-5, 1e-9])
def test_fair_draws_hardly_ever_meet_the_cap(rounds, rate, devices, delta):
    exposure = Poisson(rate=rate).exposure(rounds, devices)
    cap = exposure.answers(delta)
    chance = devices * binom.sf(cap, rounds, rate)
    assert chance <= 1e-6 * delta, "that any device is silenced by chance"
    assert cap == 1 or devices * binom.sf(cap - 1, rounds, rate) > 1e-6 * delta, "and no more is allowed than that"
    assert exposure.answers(0.0) == rounds


def test_what_a_fair_draw_may_silence_is_taken_off_delta():
    exposure = Fixed(count=1).exposure(30, 9)
    cap = exposure.answers(1e-5)
    event, rounds = exposure.at_most(cap).gaussian(2.0, 1e-5)
    assert isinstance(event, FixedGaussian)
    chance = event.silence * rounds
    assert math.isclose(chance, 9 * binom.sf(cap, 30, 1 / 9), rel_tol=1e-9)
    plain = FixedGaussian(2.0, 1, 9)
    for delta in (1e-5, 1e-6):
        epsilon = compose([(event, rounds)], delta).epsilon
        lost = chance * (1 + math.exp(epsilon))
        assert math.isclose(epsilon, compose([(plain, rounds)], delta - lost).epsilon, rel_tol=1e-9)
        assert epsilon > compose([(plain, rounds)], delta).epsilon


def test_a_large_epsilon_leaves_less_to_chance():
    exposure = Poisson(rate=1 / 9).exposure(30, 9)
    assert exposure.answers(1e-5, 1.0) == exposure.answers(1e-5) < exposure.answers(1e-5, 20.0) < 30
    loud = price(plan_with({"mechanism": "gaussian", "noise": 1.2}, {"sampler": "fixed", "count": 1}, 30), 9)
    assert 10 < loud.whole.epsilon < 25
    assert isinstance(loud.stages[0].event, FixedGaussian)


def test_where_silence_costs_more_than_delta_there_is_no_amplification():
    event = FixedGaussian(0.05, 1, 9, silence=1e-9)
    assert compose([(event, 30)], 1e-6) == compose([(Gaussian(0.05), 30)], 1e-6)


@pytest.mark.parametrize(
    ("privacy", "cohort", "plain"),
    [
        (NOISY, {"sampler": "fixed", "count": 5}, Gaussian(2.0)),
        (NOISY, {"sampler": "poisson", "rate": 0.05}, Gaussian(2.0)),
        (NOISY, {"sampler": "volunteers", "count": 2, "share": 0.5}, Gaussian(2.0)),
        (
            {"mechanism": "laplace", "place": "central", "epsilon_per_message": 0.5, "delta": 1e-6},
            {"sampler": "one"},
            Pure(0.5),
        ),
    ],
    ids=str,
)
def test_the_price_without_sampling_stands_beside(privacy, cohort, plain):
    cost = price(plan_with(privacy, cohort, 100), 200)
    stage = cost.stages[0]
    drawn, beside = (claim for claim in stage.claims if claim.per == "run")
    assert isinstance(stage.event, FixedGaussian | PoissonGaussian | FixedPure)
    assert any("the server draws the cohorts" in word for word in drawn.conditions)
    assert not any("draws the cohorts at random" in word for word in beside.conditions)
    assert f"at most {stage.messages} times" in beside.conditions[0]
    assert stage.messages < 100
    expected = compose([(plain, stage.messages)], drawn.delta, drawn.relation).epsilon
    assert math.isclose(beside.epsilon, expected, rel_tol=1e-6)
    assert beside.epsilon > drawn.epsilon
    assert any(math.isclose(claim.epsilon, beside.epsilon) for claim in cost.beside)
    assert beside.conditions[0] in to_markdown(card(cost))


def test_without_sampling_there_is_nothing_to_say_twice():
    for cohort in ({"sampler": "all"}, {"sampler": "pass", "count": 20}):
        cost = price(plan_with(NOISY, cohort, 10), 200)
        assert [claim.per for claim in cost.claims[0]] == ["message", "round", "run"]
        assert not cost.beside


def test_fewer_messages_than_the_cap_have_no_amplification():
    few = price(plan_with({**NOISY, "messages": 3}, {"sampler": "fixed", "count": 1}, 30), 9).stages[0]
    assert isinstance(few.event, Gaussian)
    assert few.messages == 3
    many = price(plan_with({**NOISY, "messages": 29}, {"sampler": "fixed", "count": 1}, 30), 9).stages[0]
    assert isinstance(many.event, FixedGaussian)
    assert many.messages == price(ONE_OF_NINE, 9).stages[0].messages


def test_the_cap_of_volunteers_is_that_of_their_draw():
    agreed = Volunteers(count=2, share=0.5).exposure(50, 100)
    same = Fixed(count=2).exposure(50, agreed.devices)
    assert agreed.answers(1e-6) == same.answers(1e-6) < 50


def test_a_simulated_run_is_as_it_was():
    """The draws of a simulation are fair, so that no device meets its cap."""
    plan, world = plan_with(NOISY, {"sampler": "fixed", "count": 2}, 20), small_world(20)
    run = simulate(plan, world, quiet=True)
    assert [row["reports"] for row in run.rounds] == [2] * 20
    assert run.ledgers.sent.max() <= run.price.stages[0].messages < 20


def test_a_promise_is_kept_with_the_cap():
    cost = price(plan_with({"mechanism": "gaussian", "epsilon": 1.5}, {"sampler": "fixed", "count": 1}, 30), 9)
    assert 0.98 * 1.5 < cost.whole.epsilon <= 1.5 * (1 + 1e-9)


def test_a_settled_mechanism_claims_the_same_again():
    exposure = Fixed(count=1).exposure(30, 9)
    once = build_mechanism(NOISY).settle(exposure)
    assert once.claim(exposure) == once.settle(exposure).claim(exposure)
    assert jnp.isclose(once.messages, once.settle(exposure).messages)
