"""Budgets: what messages add up to, what still counts, and how many more fit."""

import math
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.errors import PlanError
from tacit.privacy.accounting.events import FixedGaussian, Gaussian, PoissonGaussian, Pure, Unbounded
from tacit.privacy.budget import DAY, Budget, BudgetTally, Entry, allowance, spent

FIXED = FixedGaussian(noise=1.0, cohort=10, devices=1000)


def entry(event=Pure(1.0), *, time=0.0, run="a", stage=0, round=0, unit="user", relation="replace_one", rounds=1):  # noqa: B008
    return Entry(time, "plan", run, stage, round, unit, relation, event, 1.0, 0.0, 100, rounds)


# ---- budgets and entries ----


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"epsilon": 0}, "Budget.epsilon must be above 0 (inf is allowed), got 0."),
        ({"epsilon": math.nan}, "Budget.epsilon must be above 0 (inf is allowed), got nan."),
        ({"epsilon": 1, "delta": 1.0}, "Budget.delta must be at least 0 and below 1, got 1.0."),
        ({"epsilon": 1, "delta": -0.1}, "Budget.delta must be at least 0 and below 1, got -0.1."),
        ({"epsilon": 1, "days": 0}, "Budget.days must be above 0 and finite, or None for life, got 0."),
        ({"epsilon": 1, "days": math.inf}, "Budget.days must be above 0 and finite, or None for life, got inf."),
        (
            {"epsilon": 1, "unit": "person"},
            "Budget.unit must be one of interaction, user, client(silo), got 'person'.",
        ),
    ],
)
def test_budgets_that_are_refused(values, sentence):
    with pytest.raises(PlanError) as error:
        Budget(**values)
    assert str(error.value) == sentence


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"stage": -1}, "Entry.stage must be a whole number, at least 0, got -1."),
        ({"round": 1.5}, "Entry.round must be a whole number, at least 0, got 1.5."),
        ({"bytes": True}, "Entry.bytes must be a whole number, at least 0, got True."),
        ({"rounds": 0}, "Entry.rounds must be a whole number, at least 1, got 0."),
        ({"rounds": 2}, f"Entry.rounds must be 1 for {Pure(1.0)!r}, an event of one message, got 2."),
        ({"unit": "person"}, "Entry.unit must be one of interaction, user, client(silo), got 'person'."),
        (
            {"relation": "swap"},
            "Entry.relation must be one of replace_one, add_remove, zero_out, one_sided_1_to_0, got 'swap'.",
        ),
        ({"event": 1.0}, "Entry.event must be an event such as Pure(1.0), got 1.0."),
        ({"time": math.nan}, "Entry.time must be a finite number of seconds, got nan."),
        ({"epsilon": -1.0}, "Entry.epsilon must be at least 0 (inf is allowed), got -1.0."),
        ({"delta": 2.0}, "Entry.delta must be between 0 and 1, got 2.0."),
    ],
)
def test_entries_that_are_refused(values, sentence):
    with pytest.raises(PlanError) as error:
        replace(entry(), **values)
    assert str(error.value) == sentence


# ---- composition ----

pure_entries = st.lists(
    st.builds(
        lambda epsilon, run, stage, round, time: entry(Pure(epsilon), run=run, stage=stage, round=round, time=time),
        st.sampled_from([0.1, 0.3, 1.0, 2.5]),
        st.sampled_from("abc"),
        st.integers(0, 2),
        st.integers(0, 20),
        st.floats(0, 10 * DAY),
    ),
    max_size=12,
)
whole_stages = st.lists(
    st.builds(
        lambda event, run, round: entry(event, run=run, round=round, rounds=50),
        st.sampled_from([PoissonGaussian(2.0, 0.01), FIXED]),
        st.sampled_from("ab"),
        st.integers(0, 49),
    ),
    max_size=4,
)


def test_nothing_sent_costs_nothing():
    assert spent([], Budget(1.0), 0.0) == 0.0


@settings(max_examples=25)  # composing different ε at δ > 0 takes time
@given(pure_entries, st.sampled_from([0.0, 1e-6]))
def test_one_more_message_never_costs_less(entries, delta):
    budget = Budget(1.0, delta)
    totals = [spent(entries[:number], budget, 0.0) for number in range(len(entries) + 1)]
    assert all(before <= after * (1 + 1e-9) for before, after in pairwise(totals))


@given(pure_entries, whole_stages, st.randoms())
def test_the_order_is_irrelevant(entries, stages, chance):
    budget, mixed = Budget(1.0, 1e-6), [*entries, *stages]
    shuffled = chance.sample(mixed, len(mixed))
    assert BudgetTally(budget, shuffled).events == BudgetTally(budget, mixed).events  # all that ε is computed from


@given(pure_entries, whole_stages, st.data())
def test_what_is_taken_away_leaves_no_trace(entries, stages, data):
    mixed = [*entries, *stages]
    gone = data.draw(st.sets(st.sampled_from(range(len(mixed)))) if mixed else st.just(set()))
    tally = BudgetTally(Budget(1.0), mixed)
    for place in gone:
        tally.add(mixed[place], -1)
    assert tally.events == BudgetTally(Budget(1.0), [e for place, e in enumerate(mixed) if place not in gone]).events


def test_every_kind_of_event_composes():
    kinds = (Pure(0.25), Pure(1.0), Gaussian(4.0), PoissonGaussian(1.0, 0.01), FIXED)
    entries = [entry(kind, round=round) for round, kind in enumerate(kinds)]
    together = spent(entries, Budget(1.0, 1e-6), 0.0)
    assert max(spent([one], Budget(1.0, 1e-6), 0.0) for one in entries) < together < math.inf
    assert spent([*entries, entry(Unbounded("raw"))], Budget(1.0, 1e-6), 0.0) == math.inf


def test_pure_messages_add_up_at_delta_0_and_to_less_above():
    many = [entry(Pure(0.1), round=round) for round in range(100)]
    assert spent(many, Budget(1.0), 0.0) == pytest.approx(10.0)
    assert spent(many, Budget(1.0, 1e-6), 0.0) < 9.0


def test_gaussian_noise_has_no_bound_at_delta_0():
    assert spent([entry(Gaussian(4.0))], Budget(1.0), 0.0) == math.inf
    assert spent([entry(Gaussian(4.0))], Budget(1.0, 1e-6), 0.0) < 4.0


@pytest.mark.parametrize("event", [PoissonGaussian(1.0, 0.01), FIXED], ids=lambda event: event.kind)
def test_a_whole_stage_counts_once_whatever_was_drawn(event):
    budget = Budget(1.0, 1e-6)
    drawn_once = spent([entry(event, rounds=50)], budget, 0.0)
    drawn_often = spent([entry(event, round=round, rounds=50) for round in range(7)], budget, 0.0)
    two_runs = spent([entry(event, run=run, rounds=50) for run in "ab"], budget, 0.0)
    assert 0 < drawn_once == drawn_often < two_runs
    assert two_runs == spent([entry(event, rounds=100)], budget, 0.0)
    assert two_runs == spent([entry(event, stage=stage, rounds=50) for stage in (0, 1)], budget, 0.0)


def test_more_reports_than_planned_rounds_are_not_covered_by_the_plan():
    tally = BudgetTally(Budget(1.0), [entry(FIXED, round=round, rounds=5) for round in range(8)])
    assert tally.events == ((FIXED, 8),)


@pytest.mark.parametrize(
    ("of_entry", "of_budget", "covered"),
    [
        ("user", "user", True),
        ("interaction", "user", False),
        ("user", "interaction", True),
        ("client(silo)", "user", True),
        ("user", "client(silo)", False),
    ],
)
def test_a_guarantee_covers_its_own_unit_and_finer_ones(of_entry, of_budget, covered):
    total = spent([entry(unit=of_entry)], Budget(5.0, unit=of_budget), 0.0)
    assert total == (1.0 if covered else math.inf)


def test_units_are_not_added_up_as_if_they_were_one():
    budget = Budget(5.0)
    assert spent([entry(), entry(round=1, unit="interaction")], budget, 0.0) == math.inf
    assert allowance([], Pure(0.1), budget, 0.0, most=3, unit="interaction") == 0


def test_a_guarantee_in_one_direction_is_no_bound():
    assert spent([entry(relation="one_sided_1_to_0")], Budget(5.0), 0.0) == math.inf


# ---- the window ----


@given(pure_entries, st.floats(0.5, 20.0))
def test_a_window_renews_exactly(entries, days):
    budget = Budget(1.0, days=days)
    for one in entries:
        renewal = budget.renewal(one.time)
        for now in (math.nextafter(renewal, -math.inf), renewal):
            counted = [e for e in entries if e.time + days * DAY > now]
            assert spent(entries, budget, now) == spent(counted, Budget(1.0), now)
            assert (one in counted) == (now < renewal)


def test_a_budget_for_life_never_renews():
    assert spent([entry()], Budget(1.0), 1e12) == 1.0
    assert Budget(1.0).renewal(0.0) == math.inf


def test_a_whole_stage_counts_until_its_newest_report_renews():
    entries = [entry(FIXED, time=day * DAY, round=day, rounds=50) for day in (0, 5)]
    budget = Budget(1.0, 1e-6, days=10)
    assert spent(entries, budget, 0.0) == spent(entries, budget, 14 * DAY) > spent(entries, budget, 15 * DAY) == 0


# ---- allowances ----


@given(
    pure_entries,
    st.sampled_from([Pure(0.25), Pure(1.0), Gaussian(4.0)]),
    st.floats(0.1, 30.0),
    st.sampled_from([0.0, 1e-6]),
    st.integers(0, 40),
)
def test_an_allowance_fits_and_one_more_would_not(entries, event, epsilon, delta, most):
    entries = [replace(e, event=Pure(0.5)) for e in entries]  # of few kinds, so that composing is quick
    budget = Budget(epsilon, delta)
    number = allowance(entries, event, budget, 0.0, most)

    def covered(count):
        return budget.covers(BudgetTally(budget, entries).epsilon_with(entry(event), count))

    assert 0 <= number <= most
    assert number == 0 or covered(number)
    assert number == most or not covered(number + 1)


@pytest.mark.parametrize("epsilon", [0.1, 0.3, 0.7, 1.1])
def test_a_budget_of_exactly_n_messages_allows_n(epsilon):
    for n in (1, 3, 7, 10, 333, 1000):
        assert allowance([], Pure(epsilon), Budget(n * epsilon), 0.0, most=2000) == n
        assert allowance([], Pure(epsilon), Budget(sum([epsilon] * n)), 0.0, most=2000) == n
        already = [entry(Pure(epsilon), round=round) for round in range(n - 1)]
        assert allowance(already, Pure(epsilon), Budget(n * epsilon), 0.0, most=2000) == 1


def test_a_whole_stage_is_allowed_whole_or_not_at_all():
    once = spent([entry(FIXED, rounds=50)], Budget(1.0, 1e-6), 0.0)
    assert allowance([], FIXED, Budget(once, 1e-6), 0.0, most=50, rounds=50) == 50
    assert allowance([], FIXED, Budget(once * 0.999, 1e-6), 0.0, most=50, rounds=50) == 0


def test_a_stage_that_was_charged_already_goes_on():
    charged = [entry(FIXED, rounds=50)]
    budget = Budget(spent(charged, Budget(1.0, 1e-6), 0.0), 1e-6)
    assert allowance(charged, FIXED, budget, 0.0, most=49, rounds=50, run="a", stage=0) == 49
    assert allowance(charged, FIXED, budget, 0.0, most=49, rounds=50) == 0


def test_no_limit_is_no_limit():
    assert allowance([entry(Unbounded("raw"))], Unbounded("raw"), Budget(math.inf), 0.0, most=9) == 9
    assert allowance([], Unbounded("raw"), Budget(1e9, 0.1), 0.0, most=9) == 0
    assert allowance([], Pure(1.0), Budget(5.0), 0.0, most=0) == 0
