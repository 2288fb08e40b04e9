"""The intersection attack reads the wire alone: it names people's items where reports are fresh, and not otherwise."""

import math

import numpy as np
import pytest

from tacit.errors import PlanError
from tacit.lab.audits.intersection_attack import (
    ObservedReports,
    expected_false_items,
    items_in_all_reports,
    observe_reports,
    score_intersection,
)
from tacit.lab.data.synthetic.small import taste_groups
from tacit.lab.plans.loader import choose
from tacit.privacy.price import price

TIMES = 6
FRESH = {"privacy.epsilon": None, "privacy.epsilon_per_message": 1.0}


@pytest.fixture(scope="module")
def log():
    return taste_groups(users=80, items=200, events=15)


def test_what_is_expected_by_the_book():
    """1,682 items, 60 of them one's own, ε = 1: false ones after one, three, five and ten reports."""
    left = [expected_false_items(1682, 60, math.exp(-1), reports) for reports in (1, 3, 5, 10)]
    assert left == pytest.approx([596.70, 80.755, 10.92895, 0.073638], rel=1e-4)


def test_fresh_asymmetric_reports_give_a_person_away(log):
    found = score_intersection(observe_reports("dplcf-ap", log, TIMES, settings=FRESH), log)
    own = np.mean([np.unique(log.items[a:b]).size for a, b in zip(log.offsets, log.offsets[1:])])
    for one in found:
        assert one.missed == 0  # the truth is in every report
        right = expected_false_items(200, own, math.exp(-1), one.reports)
        assert one.false == pytest.approx(right, abs=5 * math.sqrt(right / 80) + 0.01)
    assert found[0].precision < 0.25
    assert found[-1].precision > 0.9


def test_a_draw_for_life_defeats_it(log):
    """Asked six times, everybody says the same six times: nothing is learned after the first."""
    heard = observe_reports("dplcf-ap", log, TIMES, settings={"privacy.memoised": True})
    assert (heard.packed == heard.packed[0]).all()
    found = score_intersection(heard, log)
    assert found[-1].false == found[0].false > 50


def test_symmetric_reports_lose_true_items_too(log):
    found = score_intersection(observe_reports("dplcf", log, 3, settings=FRESH), log)
    assert found[-1].missed > found[0].missed > 0


def test_the_ledger_says_so_beforehand():
    """Six fresh reports cost six times ε, one-sided; two-sided there was no promise to begin with."""
    cost = price(choose("dplcf-ap", FRESH).with_setting("rounds", TIMES), 80)
    one_sided = [
        claim for claim in cost.stages[0].claims if claim.relation == "one_sided_1_to_0" and claim.per == "run"
    ]
    assert [claim.epsilon for claim in one_sided] == pytest.approx([6.0], rel=1e-6)
    assert cost.whole.epsilon == math.inf


def test_the_attack_by_hand():
    heard = ObservedReports(np.packbits([[[1, 1, 0, 1]], [[1, 0, 0, 1]]], axis=-1), 4)
    assert items_in_all_reports(heard).tolist() == [[[True, True, False, True]], [[True, False, False, True]]]


def test_it_needs_a_plan_that_sends_items(log):
    with pytest.raises(PlanError, match=r"mechanism 'cooccurrence' and rule 'similarity', got popularity"):
        observe_reports("popularity", log, 2)
