"""Dossiers: what a report shows of a run, and above all what one device sent, is what happened."""

import json
import math
import warnings
from dataclasses import replace

import jax
import numpy as np
import pytest

import tacit
from tacit.core.catalog import Catalog
from tacit.core.plan import Plan
from tacit.lab.analysis import sample_message
from tacit.lab.analysis.feasibility import FeasibilityWarning, assess_feasibility, feasible_epsilons
from tacit.lab.analysis.report_data import POINTS, report_data
from tacit.lab.analysis.report_data import _thin as thin
from tacit.lab.data import Population, from_events
from tacit.lab.experiments.trial import Trial
from tacit.lab.plans.loader import load_plan
from tacit.privacy.mechanism import build_mechanism


def short_histories(devices: int, items: int) -> Population:
    """Histories of 3 to 8 events: one program serves them all, so that a run takes no time to compile."""
    rng = np.random.default_rng(5)
    user = np.repeat(np.arange(devices), rng.integers(3, 9, devices))
    return from_events(user, rng.integers(items, size=user.size), n_items=items)


WORLD = short_histories(devices=12, items=16)


def simulate(name: str, privacy: dict | None = None, world: Population = WORLD, **options):
    settings = {"privacy": privacy} if privacy else {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FeasibilityWarning)
        return tacit.simulate(name, world, settings={**settings, **options.pop("settings", {})}, quiet=True, **options)


def items_of(found: dict) -> set[str]:
    return {row["label"] for row in found["history"]}


# ---- what one device sent ----


def test_nothing_sent_is_said():
    found = sample_message.sample_message(simulate("mfu"))
    assert (found["kind"], found["bytes"]) == ("nothing", 0)
    assert found["distinct"] == len(found["history"])


def test_raw_data_is_said():
    found = sample_message.sample_message(simulate("itemknn"))
    assert (found["kind"], found["bytes"]) == ("raw", None)


def test_without_noise_the_message_names_the_history():
    found = sample_message.sample_message(simulate("popularity"))
    (view,) = found["views"]
    assert {row["label"] for row in view["rows"]} == items_of(found)
    assert view["said"] == view["true"] == view["own"] == found["distinct"]
    assert found["exact"]
    assert found["bytes"] == 18 + 4 + 4 * 16  # header, weight, one count for each item


def test_the_device_has_a_history_of_middling_length():
    found = sample_message.sample_message(simulate("popularity"))
    assert found["events"] == np.sort(WORLD.lengths)[len(WORLD) // 2]


def test_steps_are_named_from_item_to_item():
    (view,) = sample_message.sample_message(simulate("sr"))["views"]
    assert view["said"] == view["true"] == view["own"]
    assert all(" → " in row["label"] for row in view["rows"])


@pytest.mark.parametrize(
    "privacy", [{"mechanism": "randomized_response", "epsilon": 1.0}, {"mechanism": "none"}], ids=str
)
def test_where_a_stage_has_one_round_it_is_the_very_message(monkeypatch, privacy):
    """The sample messages of all devices add up to what the server summed."""
    run = simulate("popularity", privacy)
    said = np.zeros(16, int)
    for device in range(len(WORLD)):
        monkeypatch.setattr(sample_message, "_median_device", lambda run, devices, device=device: device)
        (view,) = sample_message.sample_message(run)["views"]
        for row in view["rows"]:
            said[int(row["label"].split()[1])] += row["count"]
    p, q = run.price.stages[0].mechanism.odds if privacy["mechanism"] == "randomized_response" else (1.0, 0.0)
    np.testing.assert_array_equal(np.round((said - len(WORLD) * q) / (p - q)), run.params["counts"])


def test_a_response_has_true_and_made_up_claims():
    found = sample_message.sample_message(simulate("popularity", {"mechanism": "randomized_response", "epsilon": 1.0}))
    (view,) = found["views"]
    true = {row["label"] for row in view["rows"] if row["own"]}
    assert true <= items_of(found)
    assert (view["true"], view["said"], view["own"]) == (len(true), len(view["rows"]), found["distinct"])
    assert found["weight"] is None  # the person's own weight does not leave
    assert found["bytes"] == 18 + 4 + 2


@pytest.mark.slow
def test_a_gradient_gives_the_history_away_and_noise_at_home_hides_it():
    world = short_histories(devices=12, items=60)
    none, local = {"mechanism": "none"}, {"mechanism": "gaussian", "place": "local", "epsilon": 1.0}
    plain, noisy = (
        sample_message.sample_message(simulate("fcf", p, world, settings={"rounds": 1})) for p in (none, local)
    )
    (seen,), (hidden,) = plain["views"], noisy["views"]
    assert seen["separation"] > 0.9
    assert 0.25 < hidden["separation"] < 0.75
    assert seen["width"] == hidden["width"] == 16


def test_noise_at_the_server_shows_the_report_and_what_is_released():
    run = simulate("popularity", {"mechanism": "gaussian", "epsilon": 1.0, "clip": 0.5})
    found = sample_message.sample_message(run)
    (seen,), (released,) = found["views"], found["released"]["views"]
    assert seen["separation"] == 1.0
    assert math.dist([row["along"] for row in seen["rows"]], [0] * 16) == pytest.approx(
        0.5, rel=0.05
    )  # clipped, and on a grid
    assert found["released"]["reports"] == len(WORLD)
    assert released["zero"] == 0


def test_signs_stand_at_positions_of_the_update():
    (view,) = sample_message.sample_message(simulate("popularity", {"mechanism": "harmony", "epsilon": 9.0, "k": 3}))[
        "views"
    ]
    assert view["said"] == len({row["label"] for row in view["rows"]}) == 3
    assert view["of"] == 16
    assert all(row["sign"] in (-1, 1) and row["column"] == 1 for row in view["rows"])


def test_a_position_is_a_row_and_a_column_of_its_leaf():
    harmony = build_mechanism({"mechanism": "harmony", "epsilon_per_message": 60.0, "k": 6})
    update = {"bias": np.full(2, 1.0, np.float32), "items": np.array([[-1.0, 1.0]] * 2, np.float32)}
    payload = harmony.encode(jax.random.key(0), update, {})
    (view,) = sample_message.payload_views(harmony, payload, update, WORLD, np.array([1]))
    assert [(row["label"], row["column"], row["sign"]) for row in view["rows"]] == [
        *(("row 0", 1, 1), ("row 1", 1, 1)),
        *(("row 0", 1, -1), ("row 0", 2, 1), ("row 1", 1, -1), ("row 1", 2, 1)),
    ]


def test_a_scale_in_the_clear_is_shown():
    paper = build_mechanism({"mechanism": "qharmony", "form": "paper", "epsilon_of_signs": 4.0, "k": 2})
    update = {"items": np.array([0.5, -3.0], np.float32)}
    (view,) = sample_message.payload_views(
        paper, paper.encode(jax.random.key(0), update, {}), update, WORLD, np.array([1])
    )
    assert view["scale"] == 3


def test_a_message_without_a_reader_is_shown_as_bits():
    payload, update = {"seed": np.uint32(1), "word": np.array([0b10100000], np.uint8)}, {"items": np.zeros((16, 2))}
    kashin = build_mechanism({"mechanism": "kashin", "epsilon_per_message": 4.0, "k": 4})
    (view,) = sample_message.payload_views(kashin, payload, update, WORLD, np.array([1]))
    assert view == {"kind": "bits", "bits": "00000001" + "00000000" * 3 + "10100000"}


def test_an_earlier_stage_is_read_by_its_own_method():
    """The last stage sends nothing; what is shown is the first stage's message."""
    both = Plan("two", (*load_plan("popularity").stages, *load_plan("mfu").stages))
    found = sample_message.sample_message(tacit.simulate(both, WORLD, quiet=True))
    assert (found["stage"], found["method"]) == (1, "popularity")
    assert {row["label"] for row in found["views"][0]["rows"]} == items_of(found)


def test_rows_that_stand_for_no_item_have_numbers_for_names():
    leaf = sample_message._leaf("weights", (5, 2), WORLD, np.array([1, 2]))
    found = sample_message.row_sizes(leaf, np.arange(10.0).reshape(5, 2))
    assert found["separation"] is None
    assert found["rows"][0]["label"] == "row 4"
    assert "own" not in found["rows"][0]


def test_more_claims_than_fit_are_counted():
    world = replace(WORLD, catalog=Catalog(500))
    leaf = sample_message._leaf("counts", (500,), world, np.array([1, 2]))
    found = sample_message.named_rows(leaf, np.ones(500, int))
    assert (len(found["rows"]), found["said"]) == (sample_message.CLAIMS, 500)


def test_the_main_direction_finds_what_was_used():
    """Rows w·p: used items have w far from 0, whatever its sign."""
    key = jax.random.key(0)
    w = np.concatenate([np.full(5, -2.0), np.linspace(-0.3, 0.3, 50)])
    p = np.asarray(jax.random.normal(key, (8,)))
    along = sample_message.main_direction(np.outer(w, p))
    assert set(np.argsort(-along)[:5]) == set(range(5))


# ---- the whole dossier ----


def test_a_dossier_is_json_as_it_is():
    run = simulate("popularity", protocol="full", every=2, settings={"rounds": 4})
    made = report_data(Trial(run, run.evaluation, 1.5), setting={"data": "toys"})
    assert json.loads(json.dumps(made, allow_nan=False)) == made
    assert made["whole"]["epsilon"] == "inf"
    assert made["seconds"] == 1.5
    assert made["metrics"] == run.evaluation.metrics
    assert [row["done"] for row in made["rounds"] if "metrics" in row] == [2, 4]
    assert made["data"]["name"] == "toys"
    assert made["data"]["events"] == WORLD.items.size  # of the whole log, not of what was left to learn from
    assert sum(part["users"] for part in made["groups"]["NDCG@10"]) == made["protocol"]["units"]


def test_a_run_that_was_not_asked_has_a_dossier():
    made = report_data(simulate("popularity"))
    assert made["protocol"] is None
    assert (made["metrics"], made["groups"]) == ({}, {})


def test_a_specimen_can_be_left_out():
    made = report_data(simulate("popularity"), sample=False)
    assert made["specimen"] is None


@pytest.mark.parametrize(
    ("privacy", "name"),
    [
        (None, "popularity"),
        ({"mechanism": "randomized_response", "epsilon": 1.0}, "popularity randomized_response ε 1"),
        ({"mechanism": "gaussian", "place": "local", "epsilon": 2.0}, "popularity gaussian local ε 2"),
        (
            {"mechanism": "randomized_response", "form": "asymmetric", "epsilon": 1.0},
            "popularity randomized_response ε ∞",
        ),
    ],
)
def test_a_plan_is_called_by_its_noise(privacy, name):
    assert report_data(simulate("popularity", privacy), sample=False)["name"] == name


def test_few_rounds_are_kept_and_every_one_that_was_asked_about():
    rows = [{"done": i} for i in range(5000)]
    rows[1234]["metrics"] = {}
    kept = [row["done"] for row in thin(rows)]
    assert len(kept) <= POINTS + 2
    assert {0, 1234, 4999} <= set(kept)


# ---- from which ε on it can work ----


@pytest.mark.parametrize(
    ("plan", "privacy"),
    [
        ("fcf", {"mechanism": "gaussian", "epsilon": 1.0}),
        ("fcf", {"mechanism": "laplace", "epsilon": 1.0}),
        ("popularity", {"mechanism": "randomized_response", "epsilon": 1.0}),
    ],
)
def test_the_verdict_turns_where_it_is_said_to(plan, privacy):
    chosen = load_plan(plan).with_setting("privacy", privacy)
    numbers = assess_feasibility(chosen, Catalog(50), 1000)[0].numbers
    found = feasible_epsilons(chosen, 1000, (numbers,))
    assert found is not None
    for word, below in (("weak", "hopeless"), ("workable", "weak")):
        for share, verdict in ((0.98, below), (1.02, word)):
            there = chosen.with_setting("privacy.epsilon", found[word] * share)
            assert assess_feasibility(there, Catalog(50), 1000)[0].verdict == verdict


def test_a_plan_without_a_promise_has_no_reach():
    assert feasible_epsilons(load_plan("fcf"), 100, (800,)) is None
    unbounded = {"mechanism": "laplace", "clip": "none", "scale": 1.0}
    assert feasible_epsilons(load_plan("fcf").with_setting("privacy", unbounded), 100, (800,)) is None


def test_an_epsilon_out_of_sight_is_zero_or_infinite():
    plan = load_plan("popularity").with_setting("privacy", {"mechanism": "randomized_response", "epsilon": 1.0})
    many = feasible_epsilons(plan, 10**12, (200,))
    alone = feasible_epsilons(plan.with_setting("privacy", {"mechanism": "laplace", "epsilon": 1.0}), 1, (2**22,))
    assert many is not None
    assert many["workable"] == 0
    assert alone is not None
    assert alone["weak"] == math.inf
