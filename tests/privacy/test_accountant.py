"""The accountant: golden values, the traps of the library underneath, and what must hold for any events."""

import itertools
import math
import subprocess
import sys
import warnings

import dp_accounting
import numpy as np
import pytest
from dp_accounting import pld as library_pld
from dp_accounting import rdp as library_rdp
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.stats import binom

from tacit.errors import PlanError
from tacit.privacy.accounting import accountant, pld, rdp
from tacit.privacy.accounting.accountant import (
    calibrate,
    check_delta,
    compose,
    default_delta,
    gaussian_delta,
    gaussian_epsilon,
    gaussian_noise,
    group_privacy,
    guess_bound,
    kov,
    parallel,
    per_message,
    pld_fixed,
    pld_poisson,
    pld_poisson_replace,
    pure_sum,
    rdp_fixed,
    rdp_poisson,
)
from tacit.privacy.accounting.events import (
    CorrelatedGaussian,
    FixedGaussian,
    FixedPure,
    Gaussian,
    PoissonGaussian,
    Pure,
    Unbounded,
    event_from_dict,
    event_to_dict,
)
from tacit_papers.prices import overcounted

REPLACE = dp_accounting.NeighboringRelation.REPLACE_ONE
MOVIELENS = (4800, 30)
few = settings(max_examples=6)

# ---- golden values ----


def test_repeated_responses_cost_what_kairouz_oh_and_viswanath_say():
    assert kov(1.0, 100, 1e-6) == pytest.approx(83.53070167848377, abs=1e-6)
    assert kov(0.1, 1000, 1e-6) == pytest.approx(19.344671447993406, abs=1e-6)
    assert kov(0.22, 500, 1e-6) == pytest.approx(34.31984527169618, abs=1e-6)
    assert pure_sum(4.5, 3) == 13.5


def test_one_response_with_delta_is_exact():
    epsilon, delta = 0.7, 0.01
    assert kov(epsilon, 1, delta) == pytest.approx(math.log(math.exp(epsilon) - delta * (1 + math.exp(epsilon))))
    assert kov(0.7, 3, 0.0) == pytest.approx(2.1)
    assert kov(0.01, 2, 0.5) == 0.0


def test_analytic_gaussian():
    assert gaussian_noise(1.0, 1e-6) == pytest.approx(4.224678889326822, abs=1e-6)
    assert gaussian_epsilon(1.0, 1e-6) == pytest.approx(4.886554117462159, abs=1e-6)
    assert gaussian_epsilon(1.0, 1e-5) == pytest.approx(4.377178095681137, abs=1e-6)
    assert gaussian_delta(1.0, 4.886554117462159) == pytest.approx(1e-6, rel=1e-6)
    assert gaussian_delta(0.0, 1.0) == 1.0


def test_fixed_cohorts():
    assert rdp_fixed(*MOVIELENS, 1.0, 1000, 1e-6) == pytest.approx(2.4459522645390663, abs=1e-5)
    lower, upper = pld_fixed(*MOVIELENS, 1.0, 1000, 1e-6)
    assert upper == pytest.approx(1.5244179796119495, abs=1e-3)
    assert lower == pytest.approx(1.2977995818579633, abs=1e-3)
    assert rdp_fixed(760, 15, 1.0, 1000, 1e-6) == pytest.approx(8.510888302337328, abs=1e-5)
    assert pld_fixed(760, 15, 1.0, 1000, 1e-6).upper == pytest.approx(5.234909681523906, abs=1e-3)
    assert rdp_fixed(*MOVIELENS, 0.5, 1000, 1e-6) == pytest.approx(16.68562529305855, abs=1e-5)
    assert rdp_fixed(*MOVIELENS, 2.0, 1000, 1e-6) == pytest.approx(0.9834849301378309, abs=1e-5)
    assert rdp_fixed(*MOVIELENS, 1.0, 1200, 1e-6) == pytest.approx(2.668242175062455, abs=1e-5)


def test_coins():
    rate = 30 / 4800
    assert rdp_poisson(rate, 1.0, 1000, 1e-6) == pytest.approx(1.681905973709924, abs=1e-5)
    assert pld_poisson(rate, 2.0, 1000, 1e-6) == pytest.approx(0.4357043243155809, abs=1e-3)
    assert pld_poisson_replace(rate, 2.0, 1000, 1e-6) == pytest.approx(0.8281767751840552, abs=1e-3)
    assert rdp_poisson(0.01, 1.0, 1000, 1e-5) == pytest.approx(2.101366525420273, abs=1e-5)
    assert pld_poisson(0.01, 1.0, 1000, 1e-5) == pytest.approx(1.8282436455855091, abs=1e-3)


def test_what_a_renyi_bound_would_ask_for_in_noise():
    z = brentq(lambda z: rdp_fixed(*MOVIELENS, z, 1000, 1e-6) - 2, 1.0, 1.5, xtol=1e-5)
    assert z == pytest.approx(1.1774570168642347, abs=1e-4)


def test_small_parts():
    assert guess_bound(2.0, 1e-6) == pytest.approx(0.8807971971808045, abs=1e-9)
    assert guess_bound(0.0) == 0.5
    assert guess_bound(0.0, 1.0) == 1.0
    assert parallel([1.0, 3.0, 2.0]) == 3.0
    assert parallel([]) == 0.0
    assert group_privacy(2.0, 60) == 120.0
    assert group_privacy(1.0 / 0.5, 2) == 4.0  # an L1 clip of 1 under Laplace noise of scale 0.5, replaced: 2C/λ


# PrivRec at δ = 1e-6, z = 1, 1000 rounds. Columns: cohort, devices, every member counted, classic RDP, RDP, PLD lower and
# upper, RDP with coins at multiplier 1, PLD with coins at 2 under replace-one and under add-remove.
TABLE = [
    (5, 4800, 1.3602, 1.1931, 0.8993, 0.1939, 0.2268, 0.8712, 0.1220, 0.0641),
    (10, 4800, 2.7512, 1.4676, 1.1547, 0.4083, 0.4758, 1.0218, 0.2557, 0.1345),
    (15, 4800, 5.2030, 1.7481, 1.4130, 0.6276, 0.7319, 1.1729, 0.3942, 0.2076),
    (20, 4800, 8.3224, 2.0704, 1.7092, 0.8491, 0.9925, 1.3317, 0.5362, 0.2824),
    (25, 4800, 12.1697, 2.4674, 2.0750, 1.0726, 1.2568, 1.5008, 0.6810, 0.3585),
    (30, 4800, 16.6082, 2.8384, 2.4460, 1.2978, 1.5244, 1.6819, 0.8282, 0.4357),
    (2, 760, 1.8389, 1.6102, 1.2751, 0.5234, 0.6099, 1.1208, 0.3281, 0.1727),
    (5, 760, 6.5408, 2.9802, 2.5878, 1.3693, 1.6096, 1.7419, 0.8751, 0.4603),
    (8, 760, 14.3170, 4.7604, 4.2451, 2.2426, 2.6545, 2.5533, 1.4530, 0.7617),
    (10, 760, 21.4626, 6.0263, 5.4312, 2.8399, 3.3727, 3.1655, 1.8518, 0.9682),
    (12, 760, 30.0690, 7.2817, 6.6562, 3.4487, 4.1066, 3.8081, 2.2601, 1.1784),
    (15, 760, 45.5485, 9.2607, 8.5109, 4.3822, 5.2349, 4.8052, 2.8894, 1.4999),
]


@pytest.mark.slow
@pytest.mark.parametrize("row", TABLE, ids=lambda row: f"{row[0]}-{row[1]}")
def test_every_reading_of_privrec(row):
    cohort, devices, *expected = row
    q, run = cohort / devices, (1000, 1e-6)
    interval = pld_fixed(devices, cohort, 1.0, *run)
    exact = [
        overcounted(devices, cohort, 1e-6),
        rdp_fixed(devices, cohort, 1.0, *run, conversion="classic"),
        rdp_fixed(devices, cohort, 1.0, *run),
    ]
    grid = [interval.lower, interval.upper]
    coins = [pld_poisson_replace(q, 2.0, *run), pld_poisson(q, 2.0, *run)]
    assert exact == pytest.approx(expected[:3], abs=6e-5)
    assert grid == pytest.approx(expected[3:5], abs=1e-3)
    assert rdp_poisson(q, 1.0, *run) == pytest.approx(expected[5], abs=6e-5)
    assert coins == pytest.approx(expected[6:], abs=1e-3)


# ---- compose ----


def test_nothing_costs_nothing():
    assert compose([], 1e-6) == accountant.Bound(0.0, 0.0, "nothing sent")
    silent = [(Pure(1.0), 0), (Pure(0.0), 5), (Gaussian(math.inf), 5), (PoissonGaussian(1.0, 0.0), 5)]
    assert compose(silent, 1e-6).epsilon == 0
    assert compose([(Unbounded("never sent"), 0)], 0.0).epsilon == 0


@pytest.mark.parametrize(
    "event",
    [
        Unbounded("weights"),
        Gaussian(0.0),
        FixedGaussian(0.0, 3, 9),
        PoissonGaussian(0.0, 0.1),
        Pure(math.inf),
        FixedPure(math.inf, 3, 9),
    ],
)
def test_what_has_no_bound_has_no_bound(event):
    bound = compose([(Pure(0.1), 3), (event, 1)], 1e-6)
    assert bound == accountant.Bound(math.inf, math.inf, "none")


def test_without_delta_pure_events_add_up_and_noise_that_needs_delta_costs_everything():
    assert compose([(Pure(1.0), 2), (Pure(0.5), 3)], 0.0) == accountant.Bound(3.5, 0.0, "pure sum")
    assert compose([(Gaussian(10.0), 1)], 0.0).epsilon == math.inf


def test_equal_pure_events_take_the_tight_formula():
    bound = compose([(Pure(1.0), 60), (Pure(1.0), 40)], 1e-6)
    assert (bound.epsilon, bound.by) == (pytest.approx(83.53070168), "KOV")
    assert compose([(Pure(1.0), 2)], 1e-9).epsilon <= 2.0


def test_parts_of_a_message_are_counted_one_by_one():
    assert compose([(Pure(1.1, parts=5), 100)], 1e-6).epsilon == pytest.approx(34.31984527, abs=1e-6)
    assert compose([(Pure(1.1, parts=5), 100)], 0.0).epsilon == pytest.approx(110)


@pytest.mark.parametrize(("cohort", "devices"), [(1, 3), (2, 5), (4, 4)])
def test_a_cohort_drawn_in_secret_hides_its_members_exactly_so_much(cohort, devices):
    """All cohorts counted: whether a member has something passes randomised response, and all but one have nothing."""
    epsilon = 1.3
    yes = {1: math.exp(epsilon) / (1 + math.exp(epsilon)), 0: 1 / (1 + math.exp(epsilon))}

    drawn = list(itertools.combinations(range(devices), cohort))

    def says_yes(bits):
        """Of the cohort's answer to "has any of you?", over all cohorts."""
        return np.mean([yes[max(bits[device] for device in one)] for one in drawn])

    told, silent = (says_yes([bit] + [0] * (devices - 1)) for bit in (1, 0))
    worst = max(abs(math.log(told / silent)), abs(math.log((1 - told) / (1 - silent))))
    assert compose([(FixedPure(epsilon, cohort, devices), 1)], 0.0).epsilon == pytest.approx(worst)
    several = compose([(FixedPure(epsilon, cohort, devices), 7)], 1e-6).epsilon
    assert several == pytest.approx(compose([(Pure(worst), 7)], 1e-6).epsilon)


def two_kinds(one, times, other, more, delta):
    """ε of two kinds of randomised response, by going through all numbers of lies."""
    k, m = np.meshgrid(np.arange(times + 1), np.arange(more + 1))
    loss = ((times - 2 * k) * one + (more - 2 * m) * other).ravel()
    mass = (binom.pmf(k, times, 1 / (1 + math.exp(one))) * binom.pmf(m, more, 1 / (1 + math.exp(other)))).ravel()
    return brentq(lambda e: mass @ -np.expm1(np.minimum(e - loss, 0.0)) - delta, 0.0, times * one + more * other)


def test_unequal_pure_events_are_composed_on_a_grid():
    bound = compose([(Pure(1.0), 50), (Pure(0.3), 90)], 1e-6)
    assert bound.by == "PLD"
    assert bound.epsilon == pytest.approx(two_kinds(1.0, 50, 0.3, 90, 1e-6), abs=1e-4)
    assert bound.epsilon < 50 + 27


@pytest.mark.parametrize(("relation", "distance"), [("replace_one", 2), ("add_remove", 1), ("zero_out", 1)])
def test_gaussians_become_one(relation, distance):
    bound = compose([(Gaussian(6.0), 4), (Gaussian(2.0), 3)], 1e-6, relation)
    z = 1 / math.sqrt(4 / 36 + 3 / 4) / distance
    assert bound.epsilon == pytest.approx(gaussian_epsilon(z, 1e-6))
    assert (bound.lower, bound.by) == (bound.epsilon, "analytic Gaussian")


def test_noise_over_one_contribution_is_half_of_it_over_a_replacement():
    fixed = compose([(FixedGaussian(2.0, 30, 4800), 1000)], 1e-6)
    assert (fixed.lower, fixed.epsilon) == pytest.approx(pld_fixed(*MOVIELENS, 1.0, 1000, 1e-6))
    coins = [(PoissonGaussian(2.0, 30 / 4800), 1000)]
    assert compose(coins, 1e-6, "add_remove").epsilon == pytest.approx(pld_poisson(30 / 4800, 2.0, 1000, 1e-6))
    assert compose(coins, 1e-6, "zero_out") == compose(coins, 1e-6, "add_remove")
    assert compose(coins, 1e-6).epsilon == pytest.approx(pld_poisson_replace(30 / 4800, 2.0, 1000, 1e-6))


def test_a_whole_cohort_or_a_certain_coin_is_no_sampling():
    plain = compose([(Gaussian(2.0), 7)], 1e-6)
    assert compose([(FixedGaussian(2.0, 9, 9), 7)], 1e-6) == plain
    assert compose([(PoissonGaussian(2.0, 1.0), 7)], 1e-6) == plain


def test_almost_no_sampling_is_almost_none():
    nearly = compose([(FixedGaussian(4.0, 999, 1000), 10)], 1e-6)
    assert nearly.epsilon == pytest.approx(compose([(Gaussian(4.0), 10)], 1e-6).epsilon, rel=2e-3)
    assert nearly.lower == pytest.approx(nearly.epsilon, rel=2e-3)


def test_stages_of_one_kind_are_one_long_stage():
    event = FixedGaussian(2.0, 30, 4800)
    both = compose([(event, 200), (event, 1000)], 1e-6)
    assert both == compose([(event, 1200)], 1e-6)
    assert both.epsilon < rdp_fixed(*MOVIELENS, 1.0, 1200, 1e-6)


def test_a_mixture_costs_less_than_its_parts_added_up():
    parts = [(Pure(0.5), 4), (Gaussian(8.0), 4), (FixedGaussian(2.0, 30, 4800), 300)]
    whole = compose(parts, 3e-6)
    alone = [compose([part], 1e-6).epsilon for part in parts]
    assert max(alone) < whole.epsilon < sum(alone)
    assert whole.by == "PLD"


@pytest.mark.parametrize("noise", [1e-6, 1e-3, 0.1])
def test_next_to_no_noise_is_still_bounded(noise):
    for event in (FixedGaussian(noise, 30, 4800), PoissonGaussian(noise, 0.01)):
        bound = compose([(event, 100)], 1e-6)
        assert 0 <= bound.lower <= bound.epsilon < math.inf
        assert bound.epsilon > 100


def test_a_delta_too_small_for_a_grid_falls_back():
    event = [(FixedGaussian(2.0, 30, 4800), 1000)]
    bound = compose(event, 1e-13)
    assert (bound.by, bound.lower) == ("RDP", 0.0)
    assert bound.epsilon == pytest.approx(rdp_fixed(*MOVIELENS, 1.0, 1000, 1e-13))
    assert compose([(Pure(0.1), 3), (Pure(0.2), 3)], 1e-13).epsilon == pytest.approx(0.9)


@pytest.mark.parametrize("relation", ["replace_one", "add_remove"])
def test_rounds_with_correlated_noise_are_one_gaussian(relation):
    event = CorrelatedGaussian(3.0, 40, 4, 10)
    one, all_rounds = (compose([each], 1e-6, relation) for each in ((Gaussian(3.0), 1), (event, 40)))
    assert all_rounds.epsilon == pytest.approx(one.epsilon, rel=1e-9)
    assert all_rounds.by == "analytic Gaussian"
    assert event_from_dict(event_to_dict(event)) == event


@pytest.mark.parametrize("sampled", [FixedGaussian(2.0, 7, 1400), PoissonGaussian(1.0, 0.005)])
def test_a_composition_of_many_rounds_is_quick_to_read_and_close_to_its_lower_end(sampled):
    relation = "replace_one" if isinstance(sampled, FixedGaussian) else "add_remove"
    bound = compose([(sampled, 500)], 1e-6, relation)
    assert bound.by == "PLD"
    assert bound.epsilon > bound.lower > 0.8 * bound.epsilon
    if relation == "add_remove":  # here the worst pair is known, so the interval closes
        assert bound.lower == pytest.approx(bound.epsilon, rel=1e-3)


# ---- against the library, on its own grid ----


@pytest.mark.parametrize(("rate", "noise", "rounds"), [(0.01, 1.0, 100), (0.2, 3.0, 20), (0.9, 5.0, 10)])
def test_curves_are_the_library_s(rate, noise, rounds):
    event = dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(noise))
    for relation, ours in ((None, pld_poisson), (REPLACE, pld_poisson_replace)):
        theirs = library_pld.PLDAccountant(relation) if relation else library_pld.PLDAccountant()
        assert ours(rate, noise, rounds, 1e-5) == pytest.approx(
            theirs.compose(event, rounds).get_epsilon(1e-5), rel=1e-3
        )


def test_one_round_with_a_fixed_cohort_is_the_closed_form():
    q, z = 0.05, 1.3
    event = FixedGaussian(2 * z, 5, 100)
    for epsilon in (0.02, 0.3, 1.0):
        alpha = 1 + math.expm1(epsilon) / q  # q·H at α′
        delta = q * gaussian_delta(z, math.log(alpha))
        assert compose([(event, 1)], delta).epsilon == pytest.approx(epsilon, rel=1e-4)


def test_the_lower_end_is_reached_by_the_attack_it_names():
    # One of two devices is drawn; it says +1 or −1 where the other says −1. Threshold tests on 4 rounds' likelihood.
    z, rounds, delta, draws = 1.0, 4, 0.05, 400_000
    rng = np.random.default_rng(5)
    noise = rng.normal(0, z, (2, draws, rounds))
    present = noise[0] + (rng.random((draws, rounds)) < 0.5)

    def loss(x):
        return np.log(0.5 + 0.5 * np.exp((2 * x - 1) / (2 * z * z))).sum(axis=1)

    seen, unseen = loss(present), loss(noise[1])
    best = max(math.log(((seen > t).mean() - delta) / (unseen > t).mean()) for t in np.linspace(0, 2, 41))
    lower, upper = pld_fixed(2, 1, z, rounds, delta)
    assert best == pytest.approx(lower, abs=0.03)
    assert lower < upper


# ---- the traps ----


def test_trap_1_the_library_counts_repeated_responses_once_and_we_do_not():
    response = dp_accounting.RandomizedResponseDpEvent(2 / (1 + math.e), 2)
    theirs = library_pld.PLDAccountant(REPLACE).compose(response, 100).get_epsilon(1e-6)
    assert theirs == pytest.approx(1.0, abs=1e-3)
    one_by_one = library_pld.PLDAccountant(REPLACE)
    for _ in range(100):
        one_by_one.compose(response)
    assert compose([(Pure(1.0), 100)], 1e-6).epsilon == pytest.approx(one_by_one.get_epsilon(1e-6), abs=1e-3)
    on_a_grid = pld.composed_epsilon(((Pure(1.0), 100),), "replace_one", 1e-6)
    assert on_a_grid == pytest.approx(one_by_one.get_epsilon(1e-6), abs=1e-3)


def test_trap_2_a_multiplier_means_two_things():
    event = dp_accounting.GaussianDpEvent(1.0)
    rényi = library_rdp.RdpAccountant(neighboring_relation=REPLACE).compose(event).get_epsilon(1e-6)
    loss = library_pld.PLDAccountant(REPLACE).compose(event).get_epsilon(1e-6)
    assert (rényi, loss) == pytest.approx((5.2215, 10.9972), abs=1e-3)
    assert compose([(Gaussian(1.0), 1)], 1e-6).epsilon == pytest.approx(loss, abs=1e-3)


def test_trap_3_calibrating_with_the_library_divides_by_zero():
    def event(noise):
        return dp_accounting.SampledWithoutReplacementDpEvent(4800, 30, dp_accounting.GaussianDpEvent(noise))

    def fresh():
        return library_rdp.RdpAccountant([2.0, 4.0, 8.0], REPLACE)

    with pytest.raises(ZeroDivisionError):
        dp_accounting.calibrate_dp_mechanism(fresh, event, 2.0, 1e-6)
    noise = calibrate(lambda noise: [(FixedGaussian(noise, 30, 4800), 1000)], 2.0, 1e-6)
    assert noise < 2 * 1.1774570168642347  # less than a Rényi bound would ask for


def test_trap_4_coins_are_no_bound_for_a_cohort_of_fixed_size():
    coins = pld_poisson_replace(5 / 4800, 2.0, 1000, 1e-6)
    lower, _ = pld_fixed(4800, 5, 1.0, 1000, 1e-6)
    assert coins < lower
    assert compose([(FixedGaussian(2.0, 5, 4800), 1000)], 1e-6).epsilon >= lower


@pytest.fixture
def fresh_upstream():
    def forget():
        for cached in (rdp.upstream, rdp._fixed, accountant._compose, pld.composed, pld.composed_epsilon):
            cached.cache_clear()

    forget()
    yield
    forget()


def test_as_it_is_the_library_gives_no_warning(fresh_upstream):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert rdp.upstream_changes(rdp.upstream()) == []


def test_a_library_that_counts_responses_is_noticed_and_nothing_else_changes(fresh_upstream, monkeypatch):
    class Fixed(library_pld.PLDAccountant):
        def compose(self, event, count=1):
            for _ in range(count):
                super().compose(event)
            return self

    monkeypatch.setattr(dp_accounting.pld, "PLDAccountant", Fixed)
    with pytest.warns(RuntimeWarning, match="honours the count of RandomizedResponseDpEvent"):
        rdp.upstream()
    assert compose([(Pure(1.0), 100)], 1e-6).epsilon == pytest.approx(83.53070168)
    mixed = compose([(Pure(1.0), 50), (Pure(0.5), 9)], 1e-6).epsilon
    assert mixed == pytest.approx(two_kinds(1.0, 50, 0.5, 9, 1e-6), abs=1e-4)


def test_a_library_that_counts_noise_per_record_is_noticed_and_nothing_else_changes(fresh_upstream, monkeypatch):
    class Fixed(library_rdp.RdpAccountant):
        def compose(self, event, count=1):
            if isinstance(event, dp_accounting.SampledWithoutReplacementDpEvent):
                half = dp_accounting.GaussianDpEvent(event.event.noise_multiplier / 2)
                event = dp_accounting.SampledWithoutReplacementDpEvent(
                    event.source_dataset_size, event.sample_size, half
                )
            return super().compose(event, count)

    monkeypatch.setattr(library_rdp, "RdpAccountant", Fixed)
    with pytest.warns(RuntimeWarning, match="divides a noise multiplier by 2 under REPLACE_ONE"):
        rdp.upstream()
    assert rdp_fixed(*MOVIELENS, 1.0, 1000, 1e-6) == pytest.approx(2.4459522645390663, abs=1e-5)
    assert overcounted(4800, 30, 1e-6) == pytest.approx(16.60818840861105, abs=1e-6)
    assert compose([(FixedGaussian(2.0, 30, 4800), 1000)], 1e-13).by == "RDP"


def test_the_library_is_loaded_when_it_is_needed():
    code = "import sys, tacit.privacy.accounting.accountant, tacit.privacy.price; assert 'dp_accounting' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


# ---- the other way ----


@pytest.mark.slow
@pytest.mark.parametrize(
    ("event", "epsilon", "delta", "relation"),
    [
        (lambda noise: FixedGaussian(noise, 30, 4800), 2.0, 1e-6, "replace_one"),
        (lambda noise: PoissonGaussian(noise, 0.01), 0.5, 1e-5, "add_remove"),
        (Gaussian, 1.0, 1e-6, "replace_one"),
        (lambda noise: FixedGaussian(noise, 2, 20), 20.0, 1e-3, "replace_one"),
    ],
)
def test_calibrated_noise_is_enough_and_hardly_more(event, epsilon, delta, relation):
    noise = calibrate(lambda noise: [(event(noise), 1000)], epsilon, delta, relation)
    assert compose([(event(noise), 1000)], delta, relation).epsilon <= epsilon
    assert compose([(event(noise * (1 - 2e-4)), 1000)], delta, relation).epsilon > epsilon


def test_calibration_leaves_room_for_what_else_is_sent():
    def spend(noise):
        return [(Pure(0.5), 2), (Gaussian(noise), 10)]

    noise = calibrate(spend, 2.0, 1e-6)
    assert compose(spend(noise), 1e-6).epsilon <= 2.0
    assert noise > calibrate(lambda noise: [(Gaussian(noise), 10)], 2.0, 1e-6)


def test_noise_that_is_not_needed_is_next_to_none():
    assert calibrate(lambda noise: [(Pure(0.5), 2)], 2.0, 1e-6) < 2e-4


@pytest.mark.parametrize(("spend", "delta"), [(lambda n: [(Pure(3.0), 2)], 0.0), (lambda n: [(Gaussian(n), 1)], 0.0)])
def test_a_budget_that_no_noise_keeps_is_refused(spend, delta):
    with pytest.raises(PlanError, match=r"epsilon = 2.0 with delta = 0.0 cannot be reached by any noise; allow"):
        calibrate(spend, 2.0, delta)


@pytest.mark.parametrize(("messages", "parts"), [(1, 1), (3, 1), (100, 1), (100, 5), (2000, 2)])
@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_shares_add_up_to_the_budget(messages, parts, delta):
    share = per_message(4.0, messages, delta, parts)
    total = compose([(Pure(share, parts), messages)], delta).epsilon
    assert total <= 4.0 * (1 + 1e-12)
    assert share >= 4.0 / messages * (1 - 1e-12)
    assert compose([(Pure(share * (1 + 1e-6), parts), messages)], delta).epsilon > 4.0


# ---- refusals ----


@pytest.mark.parametrize(
    ("events", "delta", "relation", "sentence"),
    [
        ([(Pure(1.0), 1)], 1.0, "replace_one", r"delta must be at least 0 and below 1, got 1.0; 0 means pure ε\."),
        ([(Pure(1.0), 1)], math.nan, "replace_one", "delta must be at least 0 and below 1, got nan"),
        ([(Pure(1.0), -1)], 0.0, "replace_one", r"the count of Pure\(.*\) must be a whole number, at least 0, got -1"),
        ([(Pure(1.0), 1.5)], 0.0, "replace_one", r"must be a whole number, at least 0, got 1.5"),
        ([(Pure(-1.0), 1)], 0.0, "replace_one", "an event needs an epsilon of at least 0"),
        ([(Pure(1.0), 1)], 0.0, "add_remove", "a message shows that its sender took part; use zero_out or"),
        ([(Pure(1.0), 1)], 0.0, "one_sided_1_to_0", "relation must be one of replace_one, add_remove, zero_out to be"),
        ([(FixedGaussian(1.0, 3, 9), 1)], 1e-6, "add_remove", "analysed under replace_one; use that, or draw"),
        ([(FixedPure(1.0, 3, 9), 1)], 1e-6, "add_remove", "analysed under replace_one; use that, or draw"),
        ([(FixedPure(1.0, 10, 9), 1)], 1e-6, "replace_one", "a cohort of at least 1 and at most its devices, got"),
        ([(FixedGaussian(1.0, 3, 9), 1)], 1e-6, "zero_out", "cannot be accounted for under zero_out"),
        ([(FixedGaussian(1.0, 10, 9), 1)], 1e-6, "replace_one", "a cohort of at least 1 and at most its devices, got"),
        ([(PoissonGaussian(1.0, 1.1), 1)], 1e-6, "add_remove", "a rate between 0 and 1, got PoissonGaussian"),
        ([(Gaussian(-1.0), 1)], 1e-6, "replace_one", "noise of at least 0, got Gaussian"),
        ([(Gaussian(math.nan), 1)], 1e-6, "replace_one", "noise of at least 0, got Gaussian"),
    ],
)
def test_what_cannot_be_accounted_for_is_refused(events, delta, relation, sentence):
    with pytest.raises(PlanError, match=sentence):
        compose(events, delta, relation)


def test_budgets_that_make_no_sense_are_refused():
    with pytest.raises(
        PlanError, match=r"epsilon must be above 0 and finite, at most 1e\+06, to find noise for it, got 0"
    ):
        per_message(0, 3, 0.0)
    with pytest.raises(
        PlanError, match=r"epsilon must be above 0 and finite, at most 1e\+06, to find noise for it, got inf"
    ):
        calibrate(lambda noise: [(Gaussian(noise), 1)], math.inf, 1e-6)
    with pytest.raises(PlanError, match="messages and parts must be at least 1, got 0 and 1"):
        per_message(1.0, 0, 0.0)


def test_delta_for_so_many_devices():
    assert [default_delta(n) for n in (1, 1000, 40_000, 10**6, 10**8)] == [1e-5, 1e-5, 1e-6, 1e-7, 1e-9]
    for devices in (1, 10, 1000, 40_000, 10**6):
        check_delta(default_delta(devices), devices)
    check_delta(0.0, 10**9)
    with pytest.raises(
        PlanError, match=r"privacy.delta must be below 1/devices\^1.1 = 0.0005 for 1000 devices .* 1e-05"
    ):
        check_delta(1 / 1000**1.1, 1000, "privacy.delta")
    with pytest.raises(PlanError, match=r"privacy.delta must be at least 0 and below 1, got -0.1"):
        check_delta(-0.1, 1000, "privacy.delta")


# ---- what must hold for any events ----

noises = st.floats(0.8, 8.0)
counts = st.integers(1, 300)
deltas = st.sampled_from([1e-8, 1e-6, 1e-4])


@pytest.mark.slow
@few
@given(noise=noises, count=counts, cohort=st.integers(1, 60), delta=deltas)
def test_more_noise_fewer_rounds_and_smaller_cohorts_never_cost_more(noise, count, cohort, delta):
    def cost(noise, count, cohort):
        return compose([(FixedGaussian(noise, cohort, 1000), count)], delta).epsilon

    here = cost(noise, count, cohort)
    slack = 1e-4 * here + 1e-9
    assert cost(1.1 * noise, count, cohort) <= here + slack
    assert cost(noise, count + 1 + count // 10, cohort) >= here - slack
    assert cost(noise, count, cohort + 1 + cohort // 10) >= here - slack


@pytest.mark.slow
@few
@given(noise=noises, count=counts, rate=st.floats(0.001, 0.3), delta=deltas)
def test_bounds_agree_on_their_order(noise, count, rate, delta):
    coins = [(PoissonGaussian(noise, rate), count)]
    present = compose(coins, delta, "add_remove")
    assert present.lower <= present.epsilon <= rdp_poisson(rate, noise, count, delta) * (1 + 1e-3)
    assert present.epsilon <= compose(coins, delta, "replace_one").epsilon * (1 + 1e-4)
    cohort = max(1, round(rate * 1000))
    fixed = compose([(FixedGaussian(noise, cohort, 1000), count)], delta)
    assert fixed.lower <= fixed.epsilon <= rdp_fixed(1000, cohort, noise / 2, count, delta) * (1 + 1e-3)
    assert fixed.epsilon <= compose([(Gaussian(noise), count)], delta).epsilon * (1 + 1e-4)


@few
@given(epsilon=st.floats(0.001, 3.0), count=st.integers(1, 2000), delta=deltas)
def test_giving_up_delta_never_costs_more_than_adding_up(epsilon, count, delta):
    total = kov(epsilon, count, delta)
    assert 0 <= total <= count * epsilon
    assert kov(epsilon, count + 1, delta) >= total
    assert kov(epsilon, count, delta * 10) <= total


events = st.one_of(
    st.builds(Pure, st.floats(0.01, 1.0)),
    st.builds(Gaussian, st.floats(3.0, 20.0)),
    st.builds(FixedGaussian, st.floats(1.5, 6.0), st.integers(1, 40), st.just(500)),
    st.builds(PoissonGaussian, st.floats(1.5, 6.0), st.floats(0.002, 0.2)),
)


@few
@given(spent=st.lists(st.tuples(events, st.integers(1, 30)), min_size=2, max_size=4), delta=deltas)
def test_together_costs_at_least_each_and_the_order_is_irrelevant(spent, delta):
    whole = compose(spent, delta)
    assert compose(spent[::-1], delta) == whole
    assert whole.lower <= whole.epsilon
    for part in spent:
        assert whole.epsilon >= compose([part], delta).epsilon * (1 - 1e-3) - 1e-9


@pytest.mark.parametrize("delta", [1e-6, 0.6, 0.9999])
@pytest.mark.parametrize(("q", "z", "rounds"), [(1.0, 2.0, 1), (0.1, 0.8, 20), (0.5, 0.05, 3)])
def test_epsilon_is_read_from_a_distribution_as_the_library_reads_it(q, z, rounds, delta):
    pmf = library_pld.privacy_loss_distribution.from_gaussian_mechanism(
        z, sampling_prob=q, value_discretization_interval=1e-3
    )._pmf_remove.self_compose(rounds)
    assert pld.read_epsilon(pmf, delta) == pytest.approx(pmf.get_epsilon_for_delta(delta), rel=1e-9, abs=1e-12)
