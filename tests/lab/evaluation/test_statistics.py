"""Intervals, paired tests and groups: against theory, against scipy, and in the corners."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from tacit.errors import DataError, PlanError
from tacit.lab.evaluation.statistics import (
    correct_p_values,
    interval,
    interval_by_group,
    interval_by_history,
    paired_test,
    paired_tests,
)

RNG = np.random.default_rng(7)
OURS = RNG.random(60)
THEIRS = OURS - 0.05 + 0.1 * RNG.standard_normal(60)
COIN = (RNG.random(500) < 0.3).astype(float)  # few different values: another way to resample


# ---- intervals ----


@pytest.mark.parametrize("values", [OURS, COIN, RNG.random(4000)], ids=["few users", "hits", "many values"])
def test_the_interval_is_as_wide_as_theory_says(values):
    found = interval(values)
    half = 1.96 * values.std() / np.sqrt(values.size)
    assert found.mean == pytest.approx(values.mean())
    # A bootstrap quantile of 2000 draws is off by about 4 % of the half width.
    assert found.low == pytest.approx(values.mean() - half, abs=0.2 * half)
    assert found.high == pytest.approx(values.mean() + half, abs=0.2 * half)
    assert found.users == values.size


def test_the_interval_covers_the_truth_as_often_as_it_says():
    rng = np.random.default_rng(0)
    inside = [
        found.low <= 0.5 <= found.high
        for found in (interval(rng.random(80), level=0.8, resamples=300, seed=s) for s in range(300))
    ]
    # Binomial(300, 0.8): sd 6.9; 4 sd.
    assert sum(inside) == pytest.approx(240, abs=28)


@pytest.mark.parametrize("values", [OURS, COIN, RNG.random(4000)])
def test_the_seed_decides(values):
    assert interval(values, seed=3) == interval(values, seed=3)
    assert interval(values, seed=3) != interval(values, seed=4)


def test_resampling_in_blocks_is_resampling(monkeypatch):
    whole = interval(OURS.repeat(2) + np.arange(120) * 1e-6)
    monkeypatch.setattr("tacit.lab.evaluation.statistics._BLOCK", 7 * 120)
    assert interval(OURS.repeat(2) + np.arange(120) * 1e-6) == whole


def test_a_wider_level_is_a_wider_interval():
    narrow, wide = interval(OURS, level=0.5), interval(OURS, level=0.99)
    assert wide.low < narrow.low < narrow.mean < narrow.high < wide.high


def test_an_interval_reads_well():
    found = interval(np.full(1, 0.25))
    assert str(found) == "0.2500 [0.2500, 0.2500] (95%, 1 user): one user allows no interval"
    assert str(interval(np.full(3, 0.1))).endswith("(95%, 3 users): every user has the same value")
    assert str(interval(COIN)).endswith("] (95%, 500 users)")


# ---- tests ----


def test_the_tests_are_scipys():
    found = paired_test(OURS, THEIRS)
    assert found.t == pytest.approx(stats.ttest_rel(OURS, THEIRS).pvalue, rel=1e-6)
    assert found.wilcoxon == pytest.approx(stats.wilcoxon(OURS, THEIRS).pvalue, rel=1e-6)
    assert found.difference.mean == pytest.approx((OURS - THEIRS).mean())
    assert found.difference.low > 0
    assert max(found.t, found.wilcoxon) < 0.01
    assert found.note == ""


def test_swapping_sides_swaps_the_sign_alone():
    one, other = paired_test(OURS, THEIRS), paired_test(THEIRS, OURS)
    assert (one.t, one.wilcoxon) == pytest.approx((other.t, other.wilcoxon))
    assert one.difference.mean == pytest.approx(-other.difference.mean)


def test_chance_alone_is_found_as_often_as_it_says():
    rng = np.random.default_rng(1)
    found = [paired_test(*rng.random((2, 30)), resamples=1) for _ in range(400)]
    for p in (np.array([one.t for one in found]), np.array([one.wilcoxon for one in found])):
        # Binomial(400, 0.1): sd 6; 4 sd.
        assert np.sum(p < 0.1) == pytest.approx(40, abs=24)


@pytest.mark.parametrize(
    ("ours", "theirs", "t", "wilcoxon", "note"),
    [
        ([0.2, 0.4, 0.9], [0.2, 0.4, 0.9], 1.0, 1.0, "no user's value differs"),
        ([0.3], [0.1], 1.0, 1.0, "one user allows no test"),
        (
            [0.3, 0.4, 0.7],
            [0.1, 0.2, 0.5],
            1.0,
            0.25,
            "every user differs by the same, which leaves the t-test no spread",
        ),
        ([1, 0, 1, 0, 1], [0, 0, 0, 0, 0], None, 0.25, "Wilcoxon's test cannot reach 0.05 with 3 users who differ"),
    ],
)
def test_corners_say_a_sentence_and_warn_of_nothing(ours, theirs, t, wilcoxon, note):
    found = paired_test(np.array(ours), np.array(theirs))
    assert found.t == pytest.approx(stats.ttest_rel(ours, theirs).pvalue if t is None else t)
    assert found.wilcoxon == pytest.approx(wilcoxon)
    assert found.note == note
    assert str(found).endswith(f": {note}")


def test_differences_that_rounding_makes_are_ties():
    ours, theirs = np.array([3, 2, 9, 8, 5, 6, 7, 1]), np.array([2, 1, 8, 9, 3, 4, 5, 2])
    tenths = paired_test(ours / 10, theirs / 10)
    assert np.unique(np.abs(ours / 10 - theirs / 10)).size > 2  # what should be 0.1 and 0.2
    assert tenths.wilcoxon == pytest.approx(stats.wilcoxon(ours, theirs).pvalue)
    assert tenths.wilcoxon != pytest.approx(stats.wilcoxon(ours / 10, theirs / 10).pvalue)


def test_a_comparison_reads_well():
    ours, theirs = np.array([0.0, 0.0, 1.0, 1.0]), np.zeros(4)
    text = str(paired_test(ours, theirs, "fcf − popularity", resamples=50))
    assert text.startswith("fcf − popularity: +0.5000 [+")
    assert "(95%, 4 users), p = 0.18 (t, uncorrected), paired t 0.18, Wilcoxon 0.5: Wilcoxon's" in text


# ---- several comparisons ----


def test_corrections_with_known_answers():
    p = np.array([0.01, 0.04, 0.03, 0.005])
    assert correct_p_values(p, "holm") == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert correct_p_values(p, "bonferroni") == pytest.approx([0.04, 0.16, 0.12, 0.02])
    assert correct_p_values(p, "none") == pytest.approx(p)
    assert correct_p_values(np.array([0.7, 0.9]), "holm").tolist() == [1.0, 1.0]


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_holm_lies_between_nothing_and_bonferroni_and_keeps_the_order(p):
    p = np.array(p)
    holm = correct_p_values(p, "holm")
    assert (p <= holm).all()
    assert (holm <= correct_p_values(p, "bonferroni")).all()
    assert (np.diff(holm[np.argsort(p)]) >= 0).all()


@pytest.mark.parametrize("test", ["t", "wilcoxon"])
@pytest.mark.parametrize("correction", ["holm", "bonferroni", "none"])
def test_compare_all_corrects_the_chosen_test(test, correction):
    others = {"close": OURS + 0.01 * RNG.standard_normal(60), "far": THEIRS, "same": OURS}
    found = paired_tests(OURS, others, test=test, correction=correction)
    assert [one.name for one in found] == ["close", "far", "same"]
    raw = np.array([getattr(paired_test(OURS, theirs), test) for theirs in others.values()])
    assert [one.p for one in found] == pytest.approx(correct_p_values(raw, correction))
    assert found[0].correction == f"{test}, {correction} of 3"
    assert found[2].p == 1
    assert paired_tests(OURS, {}) == []


# ---- groups ----


def test_groups_have_means_and_counts():
    groups = np.array([2, 1, 2, 1, 1])
    found = interval_by_group(np.array([1.0, 0.0, 0.5, 0.0, 0.6]), groups, {1: "few", 2: "many"})
    assert list(found) == ["few", "many"]
    assert [(one.mean, one.users) for one in found.values()] == [(pytest.approx(0.2), 3), (0.75, 2)]


def test_groups_by_history_are_about_equal_and_in_order():
    lengths = RNG.permutation(np.arange(100))
    found = interval_by_history(lengths / 100, lengths, parts=4)
    assert [one.users for one in found.values()] == [25, 25, 25, 25]
    assert list(found) == ["0 to 24 events", "25 to 49 events", "50 to 74 events", "75 to 99 events"]
    assert [one.mean for one in found.values()] == pytest.approx([0.12, 0.37, 0.62, 0.87])


def test_users_with_equal_histories_stay_together():
    lengths = np.array([1] * 80 + [5] * 15 + [9] * 5)
    found = interval_by_history(np.ones(100), lengths, parts=4)
    assert {name: one.users for name, one in found.items()} == {"1 event": 80, "5 to 9 events": 20}
    assert list(interval_by_history(np.ones(100), np.full(100, 3))) == ["3 events"]
    assert sum(one.users for one in interval_by_history(np.ones(100), lengths, parts=1).values()) == 100


# ---- mistakes ----


@pytest.mark.parametrize(
    ("call", "error", "sentence"),
    [
        (lambda: interval(np.array([])), DataError, r"one value for each user, got an array of shape \(0,\)."),
        (lambda: interval(np.ones((2, 2))), DataError, r"got an array of shape \(2, 2\)."),
        (lambda: interval(np.array([1.0, np.nan])), DataError, "finite number, user 1's is not."),
        (lambda: interval(OURS, level=95), PlanError, "level must lie between 0 and 1, got 95"),
        (lambda: interval(OURS, resamples=0), PlanError, "resamples must be at least 1, got 0"),
        (lambda: paired_test(OURS, THEIRS[1:]), DataError, "needs the same users twice, got 60 and 59 values."),
        (lambda: paired_tests(OURS, {}, test="wilcox"), PlanError, r"no test 'wilcox'; did you mean 'wilcoxon'\?"),
        (lambda: correct_p_values(OURS, "hom"), PlanError, r"correct has no correction 'hom'; did you mean 'holm'\?"),
        (
            lambda: interval_by_group(OURS, np.ones(3)),
            DataError,
            "Every user needs a group, got 60 values and 3 groups.",
        ),
        (
            lambda: interval_by_history(OURS, np.ones(3)),
            DataError,
            "Every user needs a length, got 60 values and 3 lengths.",
        ),
        (lambda: interval_by_history(OURS, np.ones(60), parts=0), PlanError, "parts must be at least 1, got 0"),
    ],
)
def test_mistakes_are_one_sentence(call, error, sentence):
    with pytest.raises(error, match=sentence):
        call()
