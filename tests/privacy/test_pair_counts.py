"""Bits, counted one by one and two by two: exact sums, unbiased estimates, honest claims, whatever the odds."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax.extend.random import threefry_2x32
from scipy.stats import chisquare

from support.toys import seeded_step, small_world
from tacit.device.method import build
from tacit.device.round import enter, new_home
from tacit.errors import PlanError
from tacit.lab.plans.loader import choose, load_plan
from tacit.lab.simulation.cooccurrence import count_pairs
from tacit.lab.simulation.report_collection import PackedReports
from tacit.nets.counts import item_pairs as nets
from tacit.privacy.mechanism import build_mechanism
from tacit.privacy.mechanisms._parts.bits import (
    ODDS_SCALE,
    odds_of,
    randomised,
    randomised_sparsely,
    thresholds_of,
    uniform_words,
)
from tacit.privacy.mechanisms._parts.pair_counts import _times, cooccurrence_counts, debiased, debiased_pairs, noise_of
from tacit.privacy.price import price
from tacit.privacy.sampler import build_sampler
from tacit.server.round import open_round
from tacit.server.rules.similarity import variances

pytestmark = pytest.mark.bitwise

SAID = np.array([[1, 1, 1], [1, 0, 1], [1, 1, 0], [1, 1, 0], [0, 1, 1]], np.uint8)  # five people, three items
ONCE = build_sampler({"sampler": "all"}).exposure(1, 1000)


def settled(rounds=1, **settings):
    exposure = build_sampler({"sampler": "all"}).exposure(rounds, 1000)
    return build_mechanism({"mechanism": "cooccurrence", **settings}).settle(exposure)


def heard(mechanism, said):
    """The total and the estimate of people who said this, bool[M, N]."""
    zero = mechanism.zero({"items": jnp.zeros(said.shape[1])}, 1)
    packed = {"items": jnp.asarray(np.packbits(said, axis=1))}
    total = mechanism.add(zero, packed, jnp.ones((said.shape[0], 1)), jnp.ones(said.shape[0], bool))
    return total, mechanism.estimate(jax.random.key(0), total, jnp.asarray(said.shape[0]), {})


def both_of(mechanism, said):
    """n̂_i and n̂_ij."""
    (_, (sums, _)) = heard(mechanism, said)
    found = sums["pairs"]
    return np.asarray(found.counts()), np.asarray(found.rows(jnp.arange(said.shape[1])))


# ---- odds and claims ----


def test_odds_by_the_book():
    assert settled(epsilon=1.0).odds == (pytest.approx(0.7310585786, abs=1e-9), pytest.approx(0.2689414214, abs=1e-9))
    assert settled(epsilon=1.0, form="asymmetric").odds == (1.0, pytest.approx(0.3678794412, abs=1e-9))


def test_claims_are_computed_from_any_odds():
    claims = settled(p=0.9, q=0.2).claim(ONCE)
    assert claims[0].epsilon == pytest.approx(2.079441542, abs=1e-8)
    assert claims[0].relation == "add_remove"
    one_sided, two_sided = settled(p=1.0, q=math.exp(-1)).claim(ONCE)[::2]
    assert (one_sided.relation, two_sided.relation) == ("one_sided_1_to_0", "add_remove")
    assert one_sided.epsilon == pytest.approx(1, abs=1e-8)
    assert two_sided.epsilon == math.inf
    for claim in settled(p=1.0, q=0.0).claim(ONCE):
        assert claim.epsilon == math.inf
        assert "no noise: every answer is true" in claim.conditions


@pytest.mark.parametrize(("p", "q"), [(0.9, 0.7281718172), (0.5, 0.1839397206)])
def test_the_least_q_of_a_p_keeps_epsilon_on_both_sides(p, q):
    assert settled(p=p, q=q).claim(ONCE)[0].epsilon == pytest.approx(1, abs=1e-8)
    assert settled(p=p, q=q - 1e-6).claim(ONCE)[0].epsilon > 1 + 1e-6


def test_no_epsilon_makes_an_answer_certain():
    assert settled(epsilon=100.0).claim(ONCE)[0].epsilon == pytest.approx(32 * math.log(2), abs=1e-6)


@pytest.mark.parametrize("form", ["symmetric", "unary", "asymmetric"])
@given(epsilon=st.floats(1e-5, 20))
def test_rounding_is_to_the_private_side(form, epsilon):
    claims = settled(epsilon=epsilon, form=form).claim(ONCE)
    assert claims[0].epsilon <= epsilon * (1 + 1e-12)
    p, q = odds_of(form, epsilon)
    coarse = thresholds_of(p, q)
    assert coarse[0] / ODDS_SCALE <= p
    assert coarse[1] / ODDS_SCALE >= q


def test_a_person_is_protected_by_a_cap():
    mechanism = settled(epsilon=8.0, unit="user", cap=4)
    assert mechanism.per_position == 1.0
    message, run = mechanism.claim(ONCE)
    assert (message.unit, message.relation) == ("user", "replace_one")
    assert run.epsilon == pytest.approx(8, abs=1e-7)
    assert run.epsilon <= 8
    assert "at most 4 items of a person are reported, drawn at random on the device" in run.conditions
    assert settled(epsilon=8.0, unit="user", cap=4, form="unary").per_position == 2.0
    loose = settled(rounds=1, epsilon=8.0, unit="user", cap=40, delta=1e-6)
    assert loose.per_position > 8 / 80, "with δ the answers compose better"
    assert settled(rounds=2, epsilon=8.0, unit="user", cap=4).per_position == 0.5


WRONG = [
    ({}, "must give epsilon (for the run) or epsilon_per_message, got neither"),
    ({"p": 0.7}, "privacy.p and privacy.q must both be given, with q at least 1e-06 below p, got p = 0.7 and q = None"),
    ({"p": 0.2, "q": 0.3}, "with q at least 1e-06 below p, got p = 0.2 and q = 0.3"),
    ({"p": 1.2, "q": 0.3}, "privacy.p must be above 0 and at most 1, got 1.2"),
    ({"p": 0.9, "q": 0.2, "epsilon": 1.0}, "privacy takes p and q, or an epsilon, not both"),
    ({"epsilon": 1.0, "unit": "user"}, "belong together, got unit = 'user' and cap = None"),
    ({"epsilon": 1.0, "cap": 3}, "belong together, got unit = 'interaction' and cap = 3"),
    ({"epsilon": 1.0, "unit": "user", "cap": 3, "form": "asymmetric"}, "cannot be kept with p = 1"),
    ({"epsilon": 1.0, "unit": "user", "cap": 10**7}, "privacy leaves ε = 5e-08 for one position"),
]


@pytest.mark.parametrize(("settings", "words"), WRONG)
def test_wrong_settings_are_refused_in_a_sentence(settings, words):
    with pytest.raises(PlanError) as problem:
        settled(**settings)
    assert words in str(problem.value)


def test_a_draw_for_life_is_asked_for_once():
    with pytest.raises(PlanError, match=r"drawn once, so there must be one round, got 2 rounds"):
        settled(rounds=2, epsilon=1.0, memoised=True)
    condition = settled(epsilon=1.0, memoised=True).claim(ONCE)[0].conditions[-1]
    assert condition.startswith("answers are drawn once: the device repeats them")
    assert "a change becomes visible with probability 0.46" in condition


def test_too_many_positions_are_refused_with_a_way_out():
    with pytest.raises(
        PlanError, match=r"30,001 × 30,001 counts.*tacit\.lab\.simulation\.cooccurrence\.learn computes the same table"
    ):
        settled(epsilon=1.0).zero({"items": jax.ShapeDtypeStruct((30_001,), jnp.int32)}, 1)


# ---- what is said ----


def test_coins_are_threefry():
    key, counter = jax.random.key_data(jax.random.key(7)), jnp.arange(64, dtype=jnp.uint32)
    np.testing.assert_array_equal(uniform_words(jax.random.key(7), 64), threefry_2x32(key, counter))
    assert uniform_words(jax.random.key(7), 5).shape == (5,)


@pytest.mark.parametrize(("p", "q"), [(0.75, 0.25), (1.0, 0.4), (0.5, 0.02), (1.0, 0.0)])
def test_both_samplers_have_the_same_law(p, q):
    """Every message of four positions, drawn densely and sparsely, against its exact probability."""
    truth, thresholds, draws = np.array([0, 1, 0, 1], bool), thresholds_of(p, q), 40_000
    coin = uniform_words(jax.random.key(1), 4 * draws).reshape(draws, 4)
    dense = np.asarray(randomised(coin, jnp.asarray(truth), thresholds)) @ [8, 4, 2, 1]
    rng, ones = np.random.default_rng(1), np.flatnonzero(truth)
    sparse = np.array([(8 >> randomised_sparsely(rng, ones, 4, thresholds)).sum() for _ in range(draws)])
    said = np.array(list(itertools.product((0, 1), repeat=4)))
    law = np.where(said, np.where(truth, p, q), 1 - np.where(truth, p, q)).prod(1)
    for drawn in (dense, sparse):
        counts = np.bincount(drawn.astype(int), minlength=16)
        assert not counts[law == 0].any()
        assert (law > 0).sum() == 1 or chisquare(counts[law > 0], law[law > 0] * draws).pvalue > 1e-6


def test_a_message_has_one_form_whatever_there_is_to_say():
    mechanism = settled(epsilon=1.0)
    for items in (0, 1, 100):
        update = {"items": jnp.zeros(100).at[:items].set(1)}
        assert mechanism.encode(jax.random.key(0), update, {})["items"].shape == (13,)


def test_at_most_cap_items_are_told_of_and_each_as_likely():
    mechanism = settled(epsilon=240.0, unit="user", cap=3)  # no lies to speak of
    update = {"items": jnp.array([1, 0, 1, 1, 1, 0, 1, 1, 0, 0])}
    keys = jax.random.split(jax.random.key(3), 6000)
    packed = jax.vmap(lambda key: mechanism.encode(key, update, {})["items"])(keys)
    said = np.unpackbits(np.asarray(packed), axis=1, count=10)
    assert (said.sum(1) == 3).all()
    assert not said[:, [1, 5, 8, 9]].any()
    assert chisquare(said.sum(0)[[0, 2, 3, 4, 6, 7]]).pvalue > 1e-6
    few = {"items": jnp.array([0, 1, 0, 1])}
    assert np.unpackbits(mechanism.encode(keys[0], few, {})["items"], count=4).tolist() == [0, 1, 0, 1]


def test_a_draw_for_life_is_the_home_s_own():
    """Asked again, in another run, a home says the same; what changed in its history changes no other answer."""
    plan = load_plan("dplcf").with_setting("privacy.memoised", True).with_setting("privacy.unit", "user")
    plan = plan.with_setting("privacy.cap", 3)
    world, stage = small_world(items=40), plan.stages[0]
    method, mechanism = build(stage, world.catalog), price(plan, 9).stages[0].mechanism
    history = jax.tree.map(lambda leaf: jnp.asarray(leaf[0]), world.histories(np.array([0]), 64))

    def said(secret, items):
        own = method.prepare(history._replace(items=jnp.asarray(items, jnp.int32)))
        home = enter(method, 0, new_home(jnp.asarray(secret, jnp.uint32)), own)
        _, report = seeded_step(method, mechanism, 0, open_round(0, method.init(jax.random.key(0))), home, own)
        return np.unpackbits(report.payload["items"], count=40)

    first, again, other = said([1, 2], [3, 4, -1]), said([1, 2], [3, 4, -1]), said([1, 3], [3, 4, -1])
    assert (first == again).all()
    assert (first != other).any()
    assert set(np.flatnonzero(first != said([1, 2], [3, 4, 9]))) <= {9}


# ---- what is counted ----


@pytest.mark.parametrize(("rows", "width"), [(1, 1), (7, 5), (64, 33), (5000, 6)])
def test_pairs_are_counted_exactly(rows, width):
    said = np.random.default_rng(rows).random((rows, width)) < 0.9
    right = said.T.astype(int) @ said.astype(int)
    np.testing.assert_array_equal(cooccurrence_counts(jnp.asarray(said, jnp.uint8)), right)
    packed = jnp.asarray(np.packbits(said, axis=1))
    words = nets.packed_columns(packed, width)
    left, other = nets.tile_pairs(words.shape[0])
    table = np.zeros((words.shape[0] * nets.TILE,) * 2, np.int32)
    nets.write_tiles(table, left, other, np.asarray(nets.count_tile_pairs(words, left, other)))
    np.testing.assert_array_equal(table[:width, :width], right)
    assert not table[width:].any()


def test_bytes_are_multiplied_where_there_is_a_gpu(monkeypatch):
    """The same counts by the way of a GPU, computed here."""
    said = np.random.default_rng(5).random((70, 9)) < 0.5
    right = said.T.astype(int) @ said
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    np.testing.assert_array_equal(cooccurrence_counts(jnp.asarray(said, jnp.uint8)), right)
    monkeypatch.setattr("tacit.lab.simulation.cooccurrence._MULTIPLIED", 9 * 32)
    np.testing.assert_array_equal(count_pairs(PackedReports(np.packbits(said, axis=1), 9)), right)


def test_tiles_are_mirrored():
    said = np.random.default_rng(0).random((40, 300)) < 0.3
    words = nets.packed_columns(jnp.asarray(np.packbits(said, axis=1)), 300)
    left, right = nets.tile_pairs(3)
    table = np.zeros((384, 384), np.int32)
    nets.write_tiles(table, left, right, np.asarray(nets.count_tile_pairs(words, left, right)))
    np.testing.assert_array_equal(table[:300, :300], said.T.astype(int) @ said.astype(int))


@given(count=st.integers(0, 2**31 - 1), threshold=st.integers(0, 2**32 - 1))
def test_counts_times_odds_are_exact(count, threshold):
    whole, rest = _times(jnp.asarray(count, jnp.int32), threshold)
    assert int(whole) == count * threshold // ODDS_SCALE
    assert float(rest) == pytest.approx(count * threshold % ODDS_SCALE / ODDS_SCALE, abs=1e-7)


def test_large_counts_lose_nothing():
    """Two thousand million people: the difference of counts is exact where floats alone would be off by hundreds."""
    people, (p, q) = 2_000_000_000, settled(epsilon=1.0).odds
    one, other, both = 540_000_123, 538_000_001, 145_000_017
    right = (both - q * (one + other) + people * q * q) / (p - q) ** 2
    counts = (jnp.asarray([number], jnp.int32) for number in (one, other))
    made = debiased_pairs(jnp.asarray([[both]]), *counts, jnp.asarray(people), thresholds_of(p, q))
    assert float(made[0, 0]) == pytest.approx(right, rel=1e-6)


# ---- what is estimated ----


@pytest.mark.parametrize(
    ("form", "each", "pair"),
    [("symmetric", (5.745930, 5.745930, 3.581977), 5.666604), ("asymmetric", (3.418023, 3.418023, 1.836047), 1.836047)],
)
def test_five_people(form, each, pair):
    """Worked by hand: c = (4, 4, 3), G₀₁ = 3."""
    counts, both = both_of(settled(epsilon=1.0, form=form), SAID)
    np.testing.assert_allclose(counts, each, atol=1e-5)
    assert both[0, 1] == pytest.approx(pair, abs=1e-5)
    assert both[0, 1] == both[1, 0]


def test_lies_counted_as_truths():
    counts, both = both_of(settled(epsilon=1.0, debias=False), SAID)
    np.testing.assert_array_equal(counts, SAID.sum(0))
    np.testing.assert_array_equal(both, SAID.T.astype(int) @ SAID)
    assert settled(epsilon=1.0, debias=False).biased


@pytest.mark.parametrize("odds", [{"epsilon": 1.0}, {"epsilon": 1.0, "form": "asymmetric"}, {"p": 0.9, "q": 0.2}])
def test_no_bias_by_enumeration(odds):
    """Two people, two items, every history and everything they can say: the expected estimate is the truth."""
    mechanism = settled(**odds)
    p, q = mechanism.odds
    said = np.array(list(itertools.product((0, 1), repeat=4))).reshape(-1, 2, 2)
    estimates = jax.vmap(lambda one: _both(one, mechanism.thresholds))(jnp.asarray(said))
    for truth in said:
        chance = np.where(truth, p, q)
        law = np.where(said, chance, 1 - chance).prod((1, 2))
        np.testing.assert_allclose(law @ np.asarray(estimates[0], float), truth.sum(0), atol=2e-6)
        assert law @ np.asarray(estimates[1], float) == pytest.approx((truth[:, 0] & truth[:, 1]).sum(), abs=2e-6)


def _both(said, thresholds):
    counts, together = said.sum(0), said.T @ said
    people = jnp.asarray(2)
    pair = debiased_pairs(together[:1], counts[:1], counts, people, thresholds)
    return debiased(counts, people, thresholds), pair[0, 1]


# ---- how noisy it is ----

COUNTS = (700, 100, 120, 80)  # neither, the second, the first, both


@pytest.mark.parametrize(
    ("form", "intersection", "union", "joint", "jaccard"),
    [
        ("symmetric", 1197.495833, 2339.13109, -847.6398671, 0.02017676266),
        ("asymmetric", 365.1226966, 1051.855211, -237.0878211, 0.006292979193),
    ],
)
def test_variances_by_the_book(form, intersection, union, joint, jaccard):
    none, second, first, both = COUNTS
    made = variances(both, first + second, none, *noise_of(*odds_of(form, 1.0)))
    np.testing.assert_allclose(made, (intersection, union, joint), rtol=1e-9)
    size = first + second + both
    share = both / size
    assert (made[0] - 2 * share * made[2] + share**2 * made[1]) / size**2 == pytest.approx(jaccard, rel=1e-9)


@pytest.mark.parametrize("odds", [{"epsilon": 1.0}, {"epsilon": 1.0, "form": "asymmetric"}, {"p": 0.8, "q": 0.1}])
def test_variances_by_drawing(odds):
    """A thousand people who say it twenty thousand times."""
    p, q = settled(**odds).odds
    rng, draws, (none, second, first, both) = np.random.default_rng(0), 20_000, COUNTS
    # What is said of both items by people of each kind: m[00], m[01], m[10], m[11].
    kinds = [((1 - a) * (1 - b), (1 - a) * b, a * (1 - b), a * b) for a in (q, p) for b in (q, p)]
    said = sum(rng.multinomial(number, kind, size=draws) for number, kind in zip(COUNTS, kinds))
    c1, c2, g = said[:, 2] + said[:, 3], said[:, 1] + said[:, 3], said[:, 3]
    together = (g - q * (c1 + c2) + 1000 * q * q) / (p - q) ** 2
    union = (c1 + c2 - 2000 * q) / (p - q) - together
    right = variances(both, first + second, none, *noise_of(p, q))
    assert together.mean() == pytest.approx(both, abs=5 * math.sqrt(right[0] / draws))
    assert union.mean() == pytest.approx(first + second + both, abs=5 * math.sqrt(right[1] / draws))
    found = np.cov(together, union)
    np.testing.assert_allclose([found[0, 0], found[1, 1], found[0, 1]], right, rtol=0.05)


@pytest.mark.parametrize(("form", "noise"), [("symmetric", 28.318), ("asymmetric", 22.514)])
def test_the_noise_floor(form, noise):
    """Standard deviation of the count of an item that none of 871 people has."""
    assert settled(epsilon=1.0, form=form).floor(871) == pytest.approx(noise, abs=1e-3)


def test_only_estimated_counts_have_a_floor():
    assert settled(epsilon=1.0, debias=False).floor(871) is None
    assert settled(p=1.0, q=0.0).floor(871) is None
    assert build_mechanism({"mechanism": "randomized_response", "epsilon": 1.0}).settle(ONCE).floor(
        871
    ) == pytest.approx(28.318, abs=1e-3)
    assert build_mechanism({"mechanism": "none"}).floor(871) is None


def test_the_plan_says_its_price():
    assert price(load_plan("dplcf"), 1000).whole.epsilon == pytest.approx(1, abs=1e-8)
    assert price(load_plan("dplcf-ap"), 1000).whole.epsilon == math.inf
    assert price(load_plan("lcf-ub"), 1000).whole.epsilon == math.inf
    whole = price(choose("dplcf", {"privacy.unit": "user", "privacy.cap": 5}, epsilon=4.0), 1000).whole
    assert (whole.unit, whole.epsilon) == ("user", pytest.approx(4, abs=1e-7))


def test_response_and_pairs_say_the_same():
    """The same uniform_words, the same bytes: only what the server keeps differs."""
    one = build_mechanism({"mechanism": "randomized_response", "epsilon": 1.0}).settle(ONCE)
    update, key = {"items": jnp.array([1, 0, 1, 1, 0])}, jax.random.key(5)
    said = one.encode(key, update, {})
    np.testing.assert_array_equal(said["items"], settled(epsilon=1.0).encode(key, update, {})["items"])
