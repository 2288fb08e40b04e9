"""The price of a plan: promises are kept or refused, stages compose, and a plan that cannot work is warned about."""

import math
import warnings
from dataclasses import replace

import numpy as np
import pytest

from support.toys import small_world
from tacit.core.catalog import Catalog
from tacit.core.plan import Plan, Stage
from tacit.errors import PlanError
from tacit.lab.analysis.feasibility import WEAK, FeasibilityWarning, assess_feasibility
from tacit.lab.plans.loader import choose, complete, load_plan
from tacit.lab.runs.run import simulate
from tacit.privacy.card import card, sentence, to_markdown
from tacit.privacy.price import SEEDED, price

SAMPLERS = (
    {"sampler": "all"},
    {"sampler": "pass", "count": 50},
    {"sampler": "fixed", "count": 50},
    {"sampler": "poisson", "rate": 0.1},
    {"sampler": "one"},
)


def plan_with(privacy, cohort=None, rounds=10, name="fcf"):
    plan = load_plan(name).with_setting("privacy", privacy).with_setting("rounds", rounds)
    return complete(plan.with_setting("cohort", cohort) if cohort else plan)


@pytest.mark.parametrize("cohort", SAMPLERS, ids=lambda cohort: cohort["sampler"])
@pytest.mark.parametrize(
    "privacy",
    [
        {"mechanism": "laplace", "epsilon": 3.0},
        {"mechanism": "laplace", "epsilon": 3.0, "delta": 1e-6},
        {"mechanism": "laplace", "epsilon": 3.0, "clip": "elements"},
        {"mechanism": "gaussian", "epsilon": 3.0},
        {"mechanism": "gaussian", "epsilon": 3.0, "place": "local"},
        {"mechanism": "gaussian", "epsilon": 3.0, "messages": 2},
    ],
    ids=str,
)
def test_set_epsilon_and_get_the_noise(privacy, cohort):
    """The whole run costs what was promised, and hardly less: nothing is wasted."""
    whole = price(plan_with(privacy, cohort), 500).whole
    assert whole.per == "run"
    assert 0.98 * 3.0 < whole.epsilon <= 3.0 * (1 + 1e-9)
    assert whole.trust == ("server" if privacy["mechanism"] == "gaussian" and "place" not in privacy else "nobody")


def test_epsilon_is_split_over_the_messages_a_device_may_send():
    every, passes, few = (
        price(plan_with({"mechanism": "laplace", "epsilon": 3.0, **more}, cohort), 500).stages[0]
        for more, cohort in (({}, {"sampler": "all"}), ({}, {"sampler": "pass", "count": 100}), ({"messages": 3}, None))
    )
    assert [stage.messages for stage in (every, passes, few)] == [10, 2, 3]
    assert [round(stage.mechanism.share, 9) for stage in (every, passes, few)] == [0.3, 1.5, 1.0]
    assert all(stage.mechanism.messages == stage.messages for stage in (every, passes, few)), "the gate must hold it"


def test_a_promise_that_is_not_kept_is_refused():
    with pytest.raises(PlanError, match=r"epsilon = 1 for the run is a promise that 10 message\(s\)"):
        price(plan_with({"mechanism": "laplace", "epsilon": 1.0, "epsilon_per_message": 0.5}), 500)
    with pytest.raises(PlanError, match=r"promise that noise = 0\.1 does not keep"):
        price(plan_with({"mechanism": "gaussian", "epsilon": 1.0, "noise": 0.1}), 500)
    with pytest.raises(PlanError, match="delta"):
        price(plan_with({"mechanism": "gaussian", "epsilon": 1.0, "delta": 0.01}), 500)
    with pytest.raises(PlanError, match="cannot keep"):
        plan_with({"mechanism": "laplace", "epsilon": 1.0, "clip": "none"})
    with pytest.raises(PlanError, match="devices must be at least 1"):
        price(plan_with({"mechanism": "none"}), 0)
    kept = price(plan_with({"mechanism": "gaussian", "epsilon": 5.0, "noise": 20.0}), 500).whole
    assert kept.epsilon < 5.0, "what is claimed is what the noise is worth, not what was promised"


def test_a_settled_plan_can_be_written_down_and_priced_again():
    plan = plan_with({"mechanism": "laplace", "epsilon": 3.0})
    mechanism = price(plan, 500).stages[0].mechanism
    written = plan.with_setting("privacy.epsilon_per_message", mechanism.share).with_setting("privacy.messages", 10)
    assert math.isclose(price(written, 500).whole.epsilon, price(plan, 500).whole.epsilon)


def test_stages_compose_in_one_accountant():
    one = plan_with({"mechanism": "gaussian", "noise": 20.0})
    two = Plan("two", one.stages * 2)
    single, double = price(one, 500).whole.epsilon, price(two, 500).whole.epsilon
    assert single < double < 2 * single, "more than one, less than their plain sum"
    assert math.isclose(
        double, price(plan_with({"mechanism": "gaussian", "noise": 20.0}, rounds=20), 500).whole.epsilon
    )


def test_one_stage_without_noise_voids_the_whole():
    noisy, plain = plan_with({"mechanism": "gaussian", "epsilon": 1.0}), plan_with({"mechanism": "none"})
    whole = price(Plan("both", (*plain.stages, *noisy.stages)), 500).whole
    assert whole.epsilon == math.inf


def test_stages_that_protect_different_units_have_no_single_number():
    bits = plan_with({"mechanism": "randomized_response", "epsilon": 1.0}, rounds=1, name="popularity")
    noisy = plan_with({"mechanism": "gaussian", "epsilon": 1.0})
    whole = price(Plan("both", (*bits.stages, *noisy.stages)), 500).whole
    assert whole.epsilon == math.inf
    assert "different units" in whole.conditions[0]


def test_one_sided_does_not_stand_for_the_whole():
    plan = plan_with(
        {"mechanism": "randomized_response", "epsilon": 1.0, "form": "asymmetric"}, rounds=1, name="popularity"
    )
    cost = price(plan, 500)
    assert cost.whole.epsilon == math.inf
    sided = [claim for claim in cost.claims[0] if claim.relation == "one_sided_1_to_0"]
    assert [round(claim.epsilon, 6) for claim in sided] == [1.0, 1.0]


def test_what_is_visible_in_spite_of_the_noise_is_stated():
    for privacy, seen in (
        ({"mechanism": "laplace", "epsilon": 1.0}, "which devices take part"),
        ({"mechanism": "gaussian", "epsilon": 1.0}, "the server sees each clipped report"),
        ({"mechanism": "none", "wire": "rows"}, "positions are visible"),
    ):
        assert any(seen in word for word in price(plan_with(privacy), 500).stages[0].visible)


def test_the_card_is_complete_in_json_and_markdown():
    cost = price(plan_with({"mechanism": "gaussian", "epsilon": 2.0}), 500)
    count = {"median": 1, "worst": 2}
    ledger = {"epsilon": {"median": 1.0, "worst": math.inf}, "messages": count, "bytes": count}
    entry = card(cost, {"ledger": ledger})
    page = to_markdown(entry)
    for word in ("replace-one", "unit", "user", "must be trusted", "server", "Not covered", "median device", "∞"):
        assert word in page
    assert entry["flavour"] == "approximate differential privacy"
    assert entry["composed_by"] == "analytic Gaussian"
    none = card(price(plan_with({"mechanism": "none"}), 500))
    assert none["flavour"] == "none"
    assert "no guarantee" in none["in_words"]
    assert "Nothing about the unit" in sentence(price(load_plan("mfu"), 5).whole)


def test_feasibility_advises_what_helps():
    catalog = Catalog(200)
    local, many, smaller = (
        assess_feasibility(
            plan_with({"mechanism": "laplace", "epsilon": 4.0}).with_setting("hyper.dim", dim), catalog, devices
        )[0]
        for devices, dim in ((1000, 16), (100_000, 16), (1000, 4))
    )
    assert local.verdict == "hopeless"
    assert any("messages" in way for way in local.advice)
    assert math.isclose(many.signal_to_noise / local.signal_to_noise, 10.0)
    assert math.isclose(smaller.signal_to_noise / local.signal_to_noise, 2.0)
    needed = assess_feasibility(
        plan_with({"mechanism": "laplace", "epsilon": 4.0}), catalog, int(local.devices_needed)
    )[0]
    assert math.isclose(needed.signal_to_noise, WEAK, rel_tol=1e-3)
    server = assess_feasibility(plan_with({"mechanism": "gaussian", "epsilon": 4.0}), catalog, 10_000)[0]
    assert server.verdict == "workable"
    assert not server.advice
    assert assess_feasibility(load_plan("fcf"), catalog, 10)[0].verdict == "no noise"
    assert assess_feasibility(load_plan("mfu"), catalog, 10)[0].verdict == "nothing sent"


def test_feasibility_counts_bytes_memory_and_arithmetic():
    small, large = (
        assess_feasibility(plan_with({"mechanism": "none"}).with_setting("hyper.dim", dim), Catalog(200), 10)[0]
        for dim in (8, 16)
    )
    assert large.bytes_up - 22 == 2 * (small.bytes_up - 22) == 4 * 200 * 16
    assert large.bytes_up_run == 10 * large.bytes_up
    assert large.memory > small.memory > 4 * 200 * 8
    assert large.operations > small.operations > 200 * 8


def test_a_run_that_is_likely_to_learn_nothing_is_warned_about():
    plan = plan_with({"mechanism": "laplace", "epsilon": 0.5}, rounds=1)
    with pytest.warns(FeasibilityWarning, match=r"looks hopeless.*more devices"):
        simulate(plan, small_world(), quiet=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        simulate(plan_with({"mechanism": "none"}, rounds=1), small_world(), quiet=True)


def test_private_runs_learn_when_the_noise_is_small_and_do_not_when_it_is_large():
    """The noise that is priced is the noise that is added: the parameters move away from the run without it."""
    world = small_world(30)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FeasibilityWarning)
        runs = {
            noise: np.asarray(
                simulate(
                    replace(
                        plan_with({"mechanism": "gaussian", "noise": noise, "clip": 100.0}, rounds=1),
                        name="p",
                    ).with_setting("server", {"rule": "mean_step"}),
                    world,
                    quiet=True,
                ).params["items"]
            )
            for noise in (0.0, 0.3, 3.0)
        }
    for noise in (0.3, 3.0):
        spread = np.std(runs[noise] - runs[0.0])
        assert math.isclose(spread, noise * 100.0 / 30, rel_tol=0.2)


def test_stage_is_named_in_a_refusal():
    with pytest.raises(PlanError, match="Plan stage 1: privacy"):
        price(Plan("p", (Stage("fcf", trains=("items",), rounds=1, privacy={"mechanism": "laplac", "epsilon": 1}),)), 5)


# ---- simulation ----


@pytest.mark.filterwarnings("ignore::tacit.lab.analysis.feasibility.FeasibilityWarning")
def test_a_simulated_run_says_that_its_seed_can_take_the_noise_away():
    noisy = choose("popularity", {"privacy.mechanism": "laplace", "privacy.epsilon": 1.0, "privacy.messages": 1})
    cost, run = price(noisy, 9), simulate(noisy, small_world(), quiet=True)
    assert (run.price.whole.epsilon, run.price.whole.conditions) == (1.0, (*cost.whole.conditions, SEEDED))
    assert all(claim.conditions[-1] == SEEDED for stage in run.claims for claim in stage)
    assert run.card["guarantee"]["conditions"][-1] == SEEDED
    assert SEEDED in str(run.price.whole)
    assert SEEDED not in to_markdown(card(cost))


@pytest.mark.parametrize("mechanism", ["none", None], ids=["without noise", "nothing sent"])
def test_a_simulated_run_without_noise_has_no_word_about_it(mechanism):
    plan = choose("mfu") if mechanism is None else choose("popularity", {"privacy": {"mechanism": mechanism}})
    assert SEEDED not in to_markdown(simulate(plan, small_world(), quiet=True).card)
