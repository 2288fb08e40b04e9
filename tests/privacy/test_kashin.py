"""kashin: golden values, a frame that keeps its level, and the odds of a word."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import chisquare

from support.toys import same
from support.vectors import encoded, one_by_one, settled
from tacit.errors import PlanError
from tacit.privacy.mechanisms.kashin import (
    best_word,
    coordinates,
    debias,
    error_of_message,
    frame_of,
    frame_size,
    hadamard,
    level,
    represent,
    truth,
)

pytestmark = pytest.mark.bitwise


def test_golden_words():
    assert truth(4.5, 4) == pytest.approx(0.8571661612325391, abs=1e-9)
    assert truth(0.5, 3) == pytest.approx(0.19063179620386372, abs=1e-9)
    assert debias(4.5, 4) == pytest.approx(1.1797406832397688, abs=1e-9)
    assert level() == pytest.approx(2.390457218668787, abs=1e-9)
    assert error_of_message(16, 4.5, 2) == pytest.approx(49.914949083227555, abs=1e-9)
    assert [best_word(e) for e in (0.5, 1.0, 4.5)] == [1, 1, 4]
    assert debias(1e4, 24) == 1.0
    with pytest.raises(PlanError, match=r"epsilon must be above 0 for an unbiased estimate, got 0\.0"):
        debias(0.0, 1)


def test_the_transform_is_its_own_inverse():
    x = np.random.default_rng(0).normal(size=(3, 2048)).astype(np.float32)
    np.testing.assert_allclose(hadamard(hadamard(jnp.asarray(x))), x, atol=1e-5)
    matrix = np.asarray(hadamard(jnp.eye(8))) * math.sqrt(8)
    np.testing.assert_allclose(matrix, [[(-1) ** (i & j).bit_count() for j in range(8)] for i in range(8)], atol=1e-6)


def loudest(frame, seed=0, tries=40):
    """The largest |a|·√N over 1-sparse and Gaussian unit vectors; checks Uᵀ·a = x on the way."""
    numbers = frame.columns.size
    rng = np.random.default_rng(seed)
    x = np.concatenate([np.eye(numbers)[rng.choice(numbers, 4)], rng.normal(size=(tries, numbers))])
    x = jnp.asarray(x / np.linalg.norm(x, axis=1, keepdims=True), jnp.float32)
    a = jax.jit(jax.vmap(lambda x: represent(frame, x)))(x)
    np.testing.assert_allclose(frame.collect(a), x, atol=1e-5)
    return float(jnp.abs(a).max() * math.sqrt(frame.size))


@pytest.mark.parametrize(("numbers", "size"), [(64, 128), (100, 256), (1000, 2048)])
def test_random_columns_keep_the_level_and_the_first_ones_do_not(numbers, size):
    assert frame_size(numbers) == size
    assert loudest(frame_of(numbers, 0)) <= level()
    assert loudest(frame_of(numbers, 0, "first")) > level()


@pytest.mark.parametrize(("k", "epsilon", "error"), [(1, 1.0, 427.3), (2, 4.5, 49.4), (3, 4.5, 36.0)])
def test_kashin_is_unbiased_and_as_noisy_as_said(k, epsilon, error):
    mechanism, n = settled("kashin", k=k, epsilon=epsilon), 40_000
    x = np.random.default_rng(0).normal(size=16)
    x /= np.linalg.norm(x)
    worth = one_by_one(mechanism, encoded(mechanism, x, n), 16)
    found = np.square(worth - x).sum(1).mean()
    assert found == pytest.approx(error, rel=0.05)
    assert found == pytest.approx(error_of_message(16, epsilon, k), rel=0.05)
    assert np.square(worth.mean(0) - x).sum() < 3 * found / n
    assert mechanism.spread(16, n).noise == pytest.approx(math.sqrt(found / 16 / n), rel=0.05)
    assert mechanism.measure_clip_mass({"x": jnp.asarray(x)}) == 0.0


def test_clip_mass_is_measured():
    mechanism = settled("kashin", bound=2.0)
    x = np.random.default_rng(0).normal(size=1000)
    assert mechanism.measure_clip_mass({"x": jnp.asarray(x)}) == 0.0
    first = frame_of(1000, 0, "first")
    mutant = type("Mutant", (type(mechanism),), {"frame": lambda self, numbers: first})(epsilon_per_message=4.5, k=4)
    assert mutant.measure_clip_mass({"x": jnp.asarray(x)}) > 1e-4


@pytest.mark.parametrize("k", [1, 3, 4])
def test_the_odds_of_a_word_differ_by_epsilon_and_no_more(k):
    mechanism = settled("kashin", k=k)
    gamma = mechanism.truth_odds / 2**32
    tell = jax.jit(jax.vmap(lambda key: mechanism._tell(key, jnp.ones(k, bool))))
    words = np.asarray(tell(jax.random.split(jax.random.key(0), 50_000))) @ 2 ** np.arange(k)
    odds = np.full(2**k, (1 - gamma) / 2**k)
    odds[-1] += gamma
    assert chisquare(np.bincount(words, minlength=2**k), 50_000 * odds).pvalue > 1e-3
    assert odds[-1] == pytest.approx(truth(4.5, k), abs=1e-8)
    assert 4.5 - 1e-6 < math.log(odds[-1] / odds[0]) <= 4.5 + 1e-12


def test_a_seed_means_the_same_coefficients_to_everybody():
    seeds = jnp.arange(20_000, dtype=jnp.uint32)
    drawn = jax.vmap(lambda seed: coordinates(seed, 2, 16))(seeds)
    same(drawn[7], coordinates(jnp.uint32(7), 2, 16))
    assert chisquare(np.bincount(np.asarray(drawn).reshape(-1), minlength=16)).pvalue > 1e-3
