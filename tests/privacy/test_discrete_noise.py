"""Discrete noise: the worked draws, the tables against their laws in exact arithmetic, and no holes in what is reached."""

import math
from fractions import Fraction
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from support.noise_vectors import COINS, EXP_NEG, GAUSSIAN, LAPLACE
from support.tables import masses
from tacit.core import chacha
from tacit.errors import PlanError
from tacit.privacy.accounting.accountant import gap_delta
from tacit.privacy.accounting.events import Pure
from tacit.privacy.mechanisms._parts import discrete_noise
from tacit.privacy.mechanisms._parts.discrete_noise import (
    discrete_laplace,
    gaussian_from_words,
    laplace_from_words,
    rounded_gaussian,
    spare_pairs,
)
from tacit.privacy.mechanisms._parts.noise_grid import GAP, MOST_NUMBERS
from tacit.privacy.mechanisms._parts.noise_tables import (
    exp_neg,
    gaussian_factors,
    gaussian_table,
    gaussian_table_above,
    laplace_coin,
    laplace_table,
)

pytestmark = pytest.mark.bitwise

# ---- Worked draws ----


@pytest.mark.parametrize(("top", "bottom", "bits", "value"), EXP_NEG)
def test_exponentials_are_right_to_the_last_bit(top, bottom, bits, value):
    assert exp_neg(top, bottom, bits) == int(value, 16)


def test_exponentials_at_their_ends():
    assert (exp_neg(0, 1, 64), exp_neg(10**9, 1, 64), exp_neg(1, 10**30, 8)) == (256**8, 0, 255)


@pytest.mark.parametrize(("scale", "digits", "thresholds", "words", "spare", "draws"), COINS)
def test_coins_of_a_discrete_laplace(scale, digits, thresholds, words, spare, draws):
    """The tables' law, one coin at a time: a sign, and the digits of a geometric number."""
    coins = [laplace_coin(Fraction(*scale), digit, 96) for digit in (0, *range(digits))]
    assert [f"{coin:024x}" for coin in coins] == thresholds
    spare = iter(spare)

    def toss(coin, word):
        return word < coin >> 64 or (word == coin >> 64 and _join(next(spare)) < coin % 2**64)

    for row, draw in zip(words, draws):
        sign, *ones = [toss(coin, word) for coin, word in zip(coins, row)]
        size = sum(2**digit for digit, one in enumerate(ones) if one)
        assert (-1 - size if sign else size) == draw


@pytest.mark.parametrize(("scale", "widths", "digests", "first", "words", "spare", "draws"), LAPLACE)
def test_worked_draws_of_a_discrete_laplace(scale, widths, digests, first, words, spare, draws):
    table = laplace_table(Fraction(*scale))
    assert [part.width for part in table.tables] == widths
    assert [part.sha256 for part in table.tables] == digests
    assert [part.words[:, :3].tolist() for part in table.tables] == first
    assert laplace_from_words(np.array(words, np.uint32).T, spare, table).tolist() == draws


@pytest.mark.parametrize(("variance", "width", "digest", "first", "words", "spare", "draws"), GAUSSIAN)
def test_worked_draws_of_a_rounded_gaussian(variance, width, digest, first, words, spare, draws):
    table = gaussian_table(Fraction(*variance))
    assert (table.table.width, table.table.sha256) == (width, digest)
    assert table.table.words[:, :3].tolist() == first
    assert gaussian_from_words([words], spare, table).tolist() == draws


def _join(pair):
    return pair[0] << 32 | pair[1]


# ---- The tables against their laws ----


def distance(law, exact):
    return sum(abs(one - other) for one, other in zip(law, exact)) / 2 + (1 - sum(exact)) / 2


@pytest.mark.parametrize("scale", [Fraction(3, 10), Fraction(5, 2), Fraction(1), Fraction(7)])
def test_a_laplace_table_is_its_law(scale):
    table = laplace_table(scale)
    size = 2**table.digits
    powers = [exp_neg(k * scale.denominator, scale.numerator, 400) for k in range(size + 1)]
    share = Fraction(2**400 - powers[1], 2**400 + powers[1])
    share = Fraction(math.floor(share * 2**400), 2**400)
    law = masses(table.tables[0])
    assert len(table.tables) == 1
    exact = [Fraction(share.numerator * power, share.denominator << 400) for power in powers]
    apart = distance(law, exact[:-1] + exact[1:])  # X = k, and X = −1 − k
    assert apart <= table.tau < 1e-26
    assert table.tau <= 2 * size * 2.0**-96 + math.exp(-64)
    assert all(mass > 0 for mass in law[: min(size, int(40 * scale))])


@pytest.mark.parametrize("deviation", [0.3, 1, 4, 16])
def test_a_gaussian_table_is_its_law(deviation):
    mpmath = pytest.importorskip("mpmath")
    with mpmath.workprec(400):
        variance = Fraction(deviation) ** 2
        table = gaussian_table(variance).table
        root = mpmath.sqrt(mpmath.mpf(variance.numerator) * 2 / variance.denominator)
        edges = [mpmath.erfc((k - mpmath.mpf(1) / 2) / root) for k in range(1, 2**table.width + 1)]
        exact = [_fraction(mpmath, 1 - edges[0]), *(_fraction(mpmath, a - b) for a, b in pairwise(edges))]
    law = masses(table)
    assert distance(law, exact) <= table.tau < 2.0 ** (table.width - 96)
    assert all(mass > 0 for mass in law[: table.reach + 1])
    assert table.reach >= 10.9 * deviation - 1


def _fraction(mpmath, number):
    return Fraction(int(mpmath.nint(number * 2**390)), 2**390)


@pytest.mark.parametrize(("part", "factor"), [(2.0, 2), (3.0, 3), (3.0, 5)])
def test_composed_gaussians_are_as_near_as_stated(part, factor):
    """X₀ + K·X₁ is round(N(0, σ²(1 + K²)) + K·U), within the relative error that `tau` counts."""
    reach = int(9 * part)
    k = np.arange(-reach, reach + 1)
    one = stats.norm.cdf((k + 0.5) / part) - stats.norm.cdf((k - 0.5) / part)
    drawn = np.zeros(2 * (reach + 1) * (factor + 1) + 1)
    middle = drawn.size // 2
    for j, mass in zip(k, one):
        at = middle + factor * j
        drawn[at - reach : at + reach + 1] += mass * one
    fine = 64  # the density of N + K·U + U′ at integers, by a midpoint sum over both uniforms
    u = (np.arange(fine * factor) + 0.5) / (fine * factor) - 0.5
    shift = (factor * u[:, None] + u[None, ::factor] + 0.5 / fine - 0.5 / (fine * factor)).ravel()
    at = np.arange(-3 * factor, 3 * factor + 1)
    exact = stats.norm.pdf(at[:, None] + shift, scale=part * math.sqrt(1 + factor**2)).mean(1)
    stated = 4 * math.exp(-2 * math.pi**2 * part**2 / (1 + factor**2))
    assert abs(drawn[middle + at] / exact - 1).max() <= stated + 1e-4
    assert gaussian_table(Fraction(part) ** 2, (1, factor)).tau >= stated


# ---- Draws ----


@pytest.mark.parametrize("variance", [1, 256])
def test_a_million_gaussians_have_the_law(variance):
    drawn = np.asarray(rounded_gaussian(jax.random.key(3), gaussian_table(variance), (1_000_000,)))
    root = math.sqrt(variance)
    edge = int(4 * root)
    observed = np.bincount(np.clip(drawn, -edge, edge) + edge)
    cuts = stats.norm.cdf((np.arange(-edge, edge) + 0.5) / root)
    assert stats.chisquare(observed, np.diff([0, *cuts, 1]) * drawn.size).pvalue > 1e-4


@pytest.mark.parametrize("scale", [Fraction(5, 2), 40])
def test_a_million_laplaces_have_the_law(scale):
    drawn = np.asarray(discrete_laplace(jax.random.key(4), laplace_table(scale), (1_000_000,)))
    ratio, edge = math.exp(-1 / scale), int(5 * scale)
    observed = np.bincount(np.clip(drawn, -edge, edge) + edge)
    law = (1 - ratio) / (1 + ratio) * ratio ** abs(np.arange(-edge, edge + 1.0))
    law[[0, -1]] /= 1 - ratio  # and all beyond
    assert stats.chisquare(observed, law * drawn.size / law.sum()).pvalue > 1e-4


def test_composed_draws_have_the_deviation_and_are_independent():
    table = gaussian_table_above(3000.0)
    drawn = np.asarray(rounded_gaussian(jax.random.key(5), table, (2, 200_000)), np.float64)
    assert table.factors[0] == 1
    assert len(table.factors) == 2
    assert 3000 <= table.deviation < 3000.01
    assert drawn.std() == pytest.approx(3000, rel=0.01)
    assert abs(np.corrcoef(drawn)[0, 1]) < 0.01


@pytest.mark.parametrize(
    ("draw", "table"),
    [(rounded_gaussian, gaussian_table_above(1.0)), (rounded_gaussian, gaussian_table_above(300.0))]
    + [(discrete_laplace, laplace_table(scale)) for scale in (2, 500, 10_000)],
    ids=["gaussian 1", "gaussian 300", "laplace 2", "laplace 500", "laplace 10000"],
)
def test_vmap_and_jit_draw_what_one_by_one_draws(draw, table):
    keys = jax.random.split(jax.random.key(6), 5)
    one = [draw(key, table, (3, 7)) for key in keys]
    many = jax.jit(jax.vmap(lambda key: draw(key, table, (3, 7))))(keys)
    np.testing.assert_array_equal(np.stack(one), many)
    assert many.dtype == jnp.int32
    assert draw(keys[0], table, ()).shape == ()
    assert draw(keys[0], table, (0, 3)).shape == (0, 3)


def test_blocks_are_drawn_alike_alone_and_in_a_batch():
    """More draws than a block has, and more keys than go together; no block repeats another."""
    table, size = gaussian_table(65536), (1 << 15) + 5
    keys = jax.random.split(jax.random.key(9), 3)
    many = np.asarray(jax.jit(jax.vmap(lambda key: rounded_gaussian(key, table, (2 * size,))))(keys))
    np.testing.assert_array_equal(many[1], rounded_gaussian(keys[1], table, (2 * size,)))
    one, other = many[1][: 1 << 15], many[1][1 << 15 : 1 << 16]
    assert abs(np.corrcoef(one, other)[0, 1]) < 0.03
    assert np.unique(many[:, :8]).size > 12
    keys = jax.random.split(jax.random.key(10), 10)
    several = jax.vmap(lambda key: rounded_gaussian(key, table, (10_000,)))(keys)
    np.testing.assert_array_equal(several[7], rounded_gaussian(keys[7], table, (10_000,)))
    nested = jax.vmap(jax.vmap(lambda key: rounded_gaussian(key, table, (10_000,))))(keys.reshape(2, 5))
    np.testing.assert_array_equal(nested.reshape(10, -1), several)


@pytest.mark.parametrize("table", [gaussian_table_above(1000.0), gaussian_table(65536)], ids=["two", "one"])
def test_an_accelerator_draws_all_blocks_at_once_and_the_same(table, monkeypatch):
    keys = jax.random.split(jax.random.key(12), 2)

    def drawn():
        return np.asarray(jax.vmap(lambda key: rounded_gaussian(key, table, (70_000,)))(keys))

    in_blocks = drawn()
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    np.testing.assert_array_equal(drawn(), in_blocks)


@pytest.mark.slow
def test_the_ties_of_a_key_are_settled_as_given_words_are():
    """Among three million draws are ties; the cipher's words, given one by one, make the same draws."""
    table, key = gaussian_table(65536), jax.random.key(11)
    drawn = np.asarray(rounded_gaussian(key, table, (96 << 15,))).reshape(96, -1)
    ties = 0
    for block in range(96):
        words = discrete_noise._KeyWords(jax.random.key_data(key), jnp.uint32(block), 1, 1 << 15)
        row = np.asarray(words.rows[0])
        spare = np.stack([np.stack(words.pair(jnp.uint32(i))) for i in range(3)])
        np.testing.assert_array_equal(drawn[block], gaussian_from_words([row], spare, table))
        ties += int((row >> 13 == table.table.words[0][row & 4095] >> 12).sum())
        assert int(words.column(jnp.asarray(12345))[0]) == row[12345]
    assert ties > 0


def test_ties_are_settled_alike_in_a_batch_and_each_by_its_own_words():
    """Words of which every one is a tie: each takes the next pair."""
    table = gaussian_table(256)
    part = table.table
    entry = np.arange(20, dtype=np.uint32)
    words = (part.words[0][:20] >> part.width) << (part.width + 1) | entry
    low, high = np.zeros((20, 2), np.uint32), np.full((20, 2), 2**32 - 1, np.uint32)
    assert gaussian_from_words([words], low, table).tolist() == entry.tolist()
    assert gaussian_from_words([words], high, table).tolist() == (part.words[0][:20] & 255).tolist()
    mixed = np.where(entry[:, None] % 2, high, low)
    expected = np.where(entry % 2, part.words[0][:20] & 255, entry)
    batch = jax.vmap(lambda w, s: gaussian_from_words([w], s, table))(
        np.stack([words] * 3), np.stack([low, high, mixed])
    )
    np.testing.assert_array_equal(batch[2], expected)


def test_spare_words_are_enough():
    table = gaussian_table(65536)
    pairs = spare_pairs(table, 10**6)
    assert stats.poisson.sf(pairs, 10**6 * 2.0**-19) < 2.0**-90
    assert spare_pairs(table, 1) < 8
    with pytest.raises(ValueError, match="at least one pair"):
        gaussian_from_words([[1]], np.zeros((0, 2)), table)


# ---- Holes ----


def reached(query, drawn):
    return set(np.unique(np.asarray(query + drawn)).tolist())


@pytest.mark.parametrize("name", ["laplace", "normal"])
def test_floating_point_noise_has_holes(name):
    """What is reached from 0 and what from 1 are two sets: most reports of a history item show which it was."""
    drawn = getattr(jax.random, name)(jax.random.key(7), (1 << 20,))
    near = jnp.where(jnp.abs(drawn) < 2.0**-8, drawn, 0.0)
    zero = set(np.unique(np.asarray(near)).tolist())
    one = np.unique(np.asarray(jnp.float32(1) + (drawn[(drawn > -1.01) & (drawn < -0.99)])))
    impossible = [value for value in zero if value not in {0.0} and (value * 2.0**24) % 1]
    assert len(impossible) > 0.9 * len(zero), "1 + x is a multiple of 2⁻²⁴ where it is near 0; x itself is not"
    assert all((value * 2.0**24) % 1 == 0 for value in one.tolist())


@pytest.mark.parametrize("draw", ["gaussian", "laplace"])
def test_integer_noise_has_none(draw):
    """Both neighbours reach every integer between the ends of the noise, and a difference shows at the ends alone."""
    if draw == "gaussian":
        table = gaussian_table(4)
        law = masses(table.table)
        support = {sign * k for k, mass in enumerate(law) if mass for sign in (-1, 1)}
    else:
        table = laplace_table(1)
        law, half = masses(table.tables[0]), 2**table.digits
        support = {k if k < half else half - 1 - k for k, mass in enumerate(law) if mass}
    low, high = min(support), max(support)
    assert support == set(range(low, high + 1))
    ends = {low, high + 1}
    assert support ^ {k + 1 for k in support} == ends
    likely = {
        "gaussian": lambda k: stats.norm.sf((abs(k) - 1.5) / 2),
        "laplace": lambda k: math.exp(-abs(k) + 1),
    }[draw]
    assert max(likely(k) for k in ends) < 1e-25


def test_both_neighbours_reach_the_same_integers():
    drawn = rounded_gaussian(jax.random.key(8), gaussian_table(1), (1 << 20,))
    assert reached(0, drawn[:1000]) & reached(1, drawn[1000:]) == reached(0, drawn[:1000])


# ---- Limits, and δ ----


def test_what_the_tables_leave_goes_into_delta():
    table = gaussian_table(65536)
    assert 1e-27 < table.tau < 3.6e-26
    assert MOST_NUMBERS * table.tau < GAP
    assert 1000 * GAP * (1 + math.exp(20)) < 1e-6
    one, other = gap_delta([(Pure(2.0, gap=1e-12), 10)]), gap_delta([(Pure(2.0), 10)])
    assert (one, other) == (pytest.approx(10 * (1 + math.exp(2)) * 1e-12), 0.0)


def test_what_no_table_has_is_refused():
    for variance in (0, 65537, -1):
        with pytest.raises(ValueError, match="variance"):
            gaussian_table(variance)
    for scale in (0, 2**24 + 1):
        with pytest.raises(ValueError, match="scale"):
            laplace_table(scale)
    with pytest.raises(PlanError, match=r"privacy.noise must be at most .* got 1e.07; give a smaller noise"):
        gaussian_table_above(1e7)
    with pytest.raises(ValueError, match="positive and finite"):
        gaussian_table_above(math.nan)
    with pytest.raises(TypeError, match="one key"):
        rounded_gaussian(jax.random.split(jax.random.key(0)), gaussian_table(1), (3,))


@pytest.mark.parametrize("deviation", [1e-6, 0.5, 255.9999, 256, 256.0001, 32768.9, 32800, 4e6])
def test_deviations_are_never_below_what_is_wanted(deviation):
    table = gaussian_table_above(deviation)
    assert Fraction(deviation) ** 2 <= table.variance <= Fraction(deviation) ** 2 * (1 + Fraction(1, 10**6))
    assert table.reach < 2**31
    assert table.tau < 1e-25
    assert gaussian_factors(table.variance)[-1] <= 128**2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("draw", "table"),
    [(rounded_gaussian, gaussian_table_above(300.0)), (discrete_laplace, laplace_table(40))],
    ids=["gaussian", "laplace"],
)
def test_a_key_of_256_bits_draws_the_same_law(draw, table):
    key, other = chacha.key_of(bytes(32)), chacha.key_of(bytes(32), b"other")
    drawn = np.asarray(jax.jit(lambda key: draw(key, table, (200_000,)))(key), float)
    simulated = np.asarray(draw(jax.random.key(0), table, (200_000,)), float)
    assert drawn.std() == pytest.approx(simulated.std(), rel=0.02)
    assert abs(drawn.mean()) < 0.02 * drawn.std()
    assert not np.array_equal(drawn[:100], np.asarray(draw(other, table, (100,))))
