"""The ledgers of a population, and the gate that enforces them: across stages, runs, folders and changing users."""

import math
import warnings
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest

from support.toys import Hand, seeded_step, small_world
from tacit.core.plan import Plan
from tacit.device.ledger.ledger import Ledger
from tacit.device.ledger.population_ledger import Ledgers
from tacit.device.round import enter
from tacit.errors import RunError
from tacit.lab.analysis.feasibility import FeasibilityWarning
from tacit.lab.data import from_events
from tacit.lab.plans.loader import complete, load_plan
from tacit.lab.runs.run import simulate
from tacit.privacy.budget import Budget
from tacit.privacy.price import ledger_entry_of, price
from tacit.server.round import open_round

pytestmark = pytest.mark.filterwarnings("ignore::tacit.lab.analysis.feasibility.FeasibilityWarning")
LAPLACE = {"mechanism": "laplace", "epsilon_per_message": 0.5}


def plan_of(privacy=None, rounds=4, cohort=None) -> Plan:
    plan = load_plan("fcf").with_setting("hyper.dim", 2).with_setting("rounds", rounds)
    plan = plan.with_setting("cohort", cohort or {"sampler": "all"})
    return complete(plan.with_setting("privacy", privacy or LAPLACE))


def reports(run):
    return [row["reports"] for row in run.rounds]


def test_a_device_that_spent_its_budget_sends_nothing_in_later_runs():
    world, budget = small_world(9), Budget(3.0)
    first = simulate(plan_of(), world, quiet=True, budget=budget)
    second = simulate(plan_of(), world, quiet=True, budget=budget, after=first)
    third = simulate(plan_of(), world, quiet=True, budget=budget, after=second)
    assert [reports(run) for run in (first, second, third)] == [[9] * 4, [9, 9, 0, 0], [0] * 4]
    assert [run.spent()["epsilon"]["worst"] for run in (first, second, third)] == [2.0, 3.0, 3.0]
    assert third.spent()["messages"] == {"median": 6.0, "worst": 6.0}


def test_a_window_renews_the_budget():
    world, budget = small_world(5), Budget(2.0, days=30)
    first = simulate(plan_of(), world, quiet=True, budget=budget)
    old = Ledgers(first.ledgers.users, tuple(_aged(page, 31) for page in first.ledgers.pages), first.ledgers.counts)
    first.ledgers = old
    again = simulate(plan_of(), world, quiet=True, budget=budget, after=first)
    assert reports(again) == [5] * 4
    assert again.spent()["epsilon"]["worst"] == 2.0, "what has renewed no longer counts"
    assert again.spent()["messages"]["worst"] == 8.0, "but it is still written down"


def _aged(page, days):
    return replace(page, time=page.time - days * 86_400)


def test_ledgers_continue_from_a_folder_and_follow_users(tmp_path: Path):
    events = np.repeat(np.arange(4), 3), np.tile(np.arange(3), 4)
    here, later = (replace(from_events(*events, n_items=3), users=list(names)) for names in ("abcd", "dxab"))
    budget = Budget(3.0)
    simulate(plan_of(), here, quiet=True, budget=budget, out=tmp_path / "one")
    run = simulate(plan_of(), later, quiet=True, budget=budget, after=tmp_path / "one")
    assert reports(run) == [4, 4, 1, 1], "x is new and has everything left; c is not here"
    assert run.ledgers.spent(budget, run.ledgers.pages[-1].time).tolist() == [3.0, 2.0, 3.0, 3.0]
    with pytest.raises(RunError, match="has no ledgers"):
        simulate(plan_of(), later, quiet=True, after=tmp_path / "nowhere")


@pytest.mark.bitwise
def test_a_resumed_run_spends_like_an_uninterrupted_one(tmp_path: Path):
    world, budget = small_world(5), Budget(1.0)
    whole = simulate(plan_of(), world, quiet=True, budget=budget, out=tmp_path / "whole")
    again = simulate(plan_of(), world, quiet=True, budget=budget, out=tmp_path / "whole", resume=True)
    assert again.ledgers.pages == whole.ledgers.pages
    np.testing.assert_array_equal(again.ledgers.sent, whole.ledgers.sent)
    with pytest.raises(RunError, match="its budget is"):
        simulate(plan_of(), world, quiet=True, budget=Budget(9.0), out=tmp_path / "whole", resume=True)


@pytest.mark.slow
def test_a_sampled_cohort_costs_every_device_that_could_be_sampled():
    cohort = {"sampler": "fixed", "count": 2}
    plan = plan_of({"mechanism": "gaussian", "epsilon": 2.0}, rounds=3, cohort=cohort)
    budget = Budget(2.2, 1e-5)
    first = simulate(plan, small_world(40), quiet=True, budget=budget)
    spent = first.ledgers.spent(budget, first.ledgers.pages[0].time)
    assert np.ptp(spent) == 0
    assert 1.9 < spent[0] <= 2.0
    assert first.spent()["messages"]["median"] == 0
    second = simulate(plan, small_world(40), quiet=True, budget=budget, after=first)
    third = simulate(plan, small_world(40), quiet=True, budget=Budget(50.0, 1e-5), after=first)
    assert (sum(reports(second)), sum(reports(third))) == (0, 6), "all of the stage or none of it"
    assert second.spent()["epsilon"]["worst"] == first.spent()["epsilon"]["worst"], "silence costs nothing"


def test_without_noise_a_finite_budget_allows_nothing():
    run = simulate(plan_of({"mechanism": "none"}), small_world(4), quiet=True, budget=Budget(100.0))
    assert reports(run) == [0] * 4
    assert run.spent()["epsilon"]["worst"] == 0.0
    free = simulate(plan_of({"mechanism": "none"}), small_world(4), quiet=True)
    assert free.spent()["epsilon"] == {"median": math.inf, "worst": math.inf}


def test_a_second_stage_pays_for_the_first():
    plan = Plan("two", plan_of(rounds=2).stages * 2)
    run = simulate(plan, small_world(4), quiet=True, budget=Budget(1.5))
    assert reports(run) == [4, 4, 4, 0]


CENTRAL = {"mechanism": "gaussian", "epsilon": 2.0}


@pytest.mark.parametrize("privacy", [LAPLACE, CENTRAL], ids=["at home", "at the server"])
def test_a_later_run_draws_fresh_noise(privacy):
    """The same seed after an earlier run: the same noise twice would cancel."""
    world, plan = small_world(6), plan_of(privacy, rounds=1)
    first = simulate(plan, world, quiet=True, seed=1)
    again, after = simulate(plan, world, quiet=True, seed=1), simulate(plan, world, quiet=True, seed=1, after=first)
    np.testing.assert_array_equal(first.params["items"], again.params["items"])
    assert not np.allclose(first.params["items"], after.params["items"])


def test_a_later_run_draws_other_cohorts():
    plan = plan_of(CENTRAL, rounds=1, cohort={"sampler": "fixed", "count": 5})
    first = simulate(plan, small_world(40), quiet=True)
    second = simulate(plan, small_world(40), quiet=True, after=first)
    assert (second.ledgers.sent[:, 0] != second.ledgers.sent[:, 1]).any()


def test_a_device_with_its_own_ledger_stops_sending_where_the_simulator_does(tmp_path: Path):
    """The same step, with an allowance from the device's own file, over restarts."""
    world, budget, sent = small_world(3), Budget(1.4), []
    hand = Hand("fcf", world, **LAPLACE, messages=2)
    stage = price(complete(Plan("p", (hand.stage,))), len(world)).stages[0]
    page = ledger_entry_of(stage, "digest", "", 0, 0.0, 100)
    for run in ("monday", "tuesday", "wednesday"):
        with Ledger.open(tmp_path / "ledger", budget) as ledger:
            allowance = ledger.allowance(page.event, most=2)
            own = hand.own(0)
            home = enter(hand.method, 0, hand.home(0, own), own, allowance)
            for round in range(4):
                home, report = seeded_step(hand.method, stage.mechanism, 0, open_round(round, hand.params), home, own)
                if bool(report.sent):
                    words = {"unit": page.unit, "relation": page.relation, "event": page.event, "epsilon": page.epsilon}
                    ledger.reserve(plan="p", run=run, stage=0, round=round, **words, delta=0.0, bytes=100)
                sent.append(bool(report.sent))
                assert bool(report.sent) or not any(np.any(leaf) for leaf in jax.tree.leaves(report.payload))
    assert sent == [True, True, False, False] + [False] * 8, "0.5 + 0.5 fit into 1.4; a third does not"


def test_composition_is_computed_once_for_each_distinct_history_of_spending():
    users = range(200_000)
    page = ledger_entry_of(price(plan_of(), 1000).stages[0], "digest", "run", 0, 0.0, 100)
    ledgers = Ledgers(users).write(page, np.arange(200_000) % 4)
    epsilon = ledgers.spent(Budget(5.0), 0.0)
    np.testing.assert_allclose(epsilon, 0.5 * (np.arange(200_000) % 4))
    with warnings.catch_warnings():
        warnings.simplefilter("error", FeasibilityWarning)
        assert ledgers.allowances(page, 100, Budget(1.5)).max() == 3
