"""The noise floor is said wherever plans are compared: in words, in numbers, and in the picture; by any mechanism."""

import json
import math

import numpy as np
import pytest

import tacit
from tacit.cli.compare import _print
from tacit.lab.analysis.noise_floor import noise_floor_of, true_pair_counts
from tacit.lab.analysis.report_data import report_data
from tacit.lab.data import from_events
from tacit.lab.data.synthetic.small import taste_groups
from tacit.lab.experiments.compare import compare
from tacit.report.tradeoff import tradeoff_chart

pytestmark = pytest.mark.filterwarnings("ignore::tacit.lab.analysis.feasibility.FeasibilityWarning")
LOG = taste_groups(users=70, items=40, events=12)


def floor(epsilon, people):
    """√(M·q(1 − q))/(p − q) for symmetric flips."""
    p = 1 / (1 + math.exp(-epsilon))
    return math.sqrt(people * p * (1 - p)) / (2 * p - 1)


@pytest.fixture(scope="module")
def found():
    return compare(["dplcf", "mfu"], LOG, sweep={"privacy.epsilon": [1, 4]}, quiet=True)


def test_a_comparison_has_the_floor_of_those_that_have_one(found):
    assert {name: one["people"] for name, one in found.floors.items()} == pytest.approx(
        {"dplcf privacy.epsilon=1": floor(1, 70), "dplcf privacy.epsilon=4": floor(4, 70)}, rel=1e-6
    )
    plans = {one["name"]: one["floor"] for one in found.to_dict()["plans"]}
    assert plans["mfu"] is None
    assert plans["dplcf privacy.epsilon=1"]["people"] == pytest.approx(8.028, abs=1e-3)


def test_which_pairs_are_only_noise(found):
    train = found.trials["mfu"][0].run.population
    both = true_pair_counts(train)[np.triu_indices(40, 1)]
    both = both[both > 0]
    one = found.floors["dplcf privacy.epsilon=1"]
    assert one["below"] == pytest.approx((both < one["people"]).mean())
    assert one["says"].startswith("noise floor 8 of 70 people: a count below that is only noise, as ")
    assert found.floors["dplcf privacy.epsilon=4"]["below"] < one["below"]


def test_the_table_says_it(found, capsys):
    _print(found)
    said = capsys.readouterr().out
    assert "dplcf privacy.epsilon=1: noise floor 8 of 70 people: a count below that is only noise" in said
    assert "mfu: noise floor" not in said


def test_the_picture_marks_it(found):
    dossiers = [report_data(found.pooled(name), name) for name in found.names]
    (view,) = dossiers[0]["specimen"]["views"]  # what one device said of forty items, some of it true
    assert (view["kind"], view["leaf"], view["of"]) == ("claims", "items", 40)
    assert 0 < view["true"] <= view["said"]
    drawn = json.dumps(tradeoff_chart(dossiers, "NDCG@10"), ensure_ascii=False)
    assert "noise floor in users: 8 at ε 1 … 1 at ε 4" in drawn
    old = [{key: value for key, value in one.items() if key != "floor"} for one in dossiers]
    assert "noise floor" not in json.dumps(tradeoff_chart(old, "NDCG@10"), ensure_ascii=False)


def test_any_mechanism_may_have_one():
    plan = tacit.plan("popularity").with_setting("privacy", {"mechanism": "randomized_response", "epsilon": 1.0})
    one = noise_floor_of(tacit.simulate(plan, LOG, quiet=True))
    assert one["people"] == pytest.approx(floor(1, 70), rel=1e-6)
    assert one["below"] is None
    assert noise_floor_of(tacit.simulate("popularity", LOG, quiet=True)) is None


def test_pairs_that_would_take_long_are_not_counted(monkeypatch):
    monkeypatch.setattr("tacit.lab.analysis.noise_floor._COUNTED", 70 * 40 * 40 - 1)
    one = noise_floor_of(tacit.simulate("dplcf", LOG, quiet=True))
    assert one["below"] is None
    assert one["says"].endswith("a count below that is only noise")


def test_true_pairs():
    people = from_events(np.array([0, 0, 1, 1, 1]), np.array([0, 1, 0, 1, 2]))
    assert true_pair_counts(people).tolist() == [[2, 2, 1], [2, 2, 1], [1, 1, 1]]
