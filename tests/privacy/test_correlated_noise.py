"""Correlated noise: sensitivity and error against dense matrices, and integers against exact arithmetic.

The figures of jax-privacy 2.0.0 are printed by, with `decays` and `scales` divided by 2¹⁵,

    from jax_privacy.matrix_factorization import buffered_toeplitz as bt, toeplitz
    blt = bt.BufferedToeplitz.build(decays, scales)
    toeplitz.minsep_sensitivity_squared(blt.toeplitz_coefs(n), b, k), bt.max_error(blt.inverse(), n)

and its best losses by `bt.optimize_loss(bt.LossFn.build_min_sep(n, error, b, k), num_buffers)[1]`.
"""

import math
from fractions import Fraction
from itertools import combinations, pairwise

import jax.numpy as jnp
import numpy as np
import pytest

from tacit.errors import PlanError
from tacit.privacy.mechanisms._parts.correlated_noise import (
    Correlation,
    Participation,
    best_correlation,
    check_buffers,
    correlate,
    cost,
    empty_buffers,
    final_noise,
    least_steps,
    rounding_error,
    sensitivity,
    squared_errors,
)

TWO = Correlation((32000, 12000), (3000, 9000))
THREE = Correlation((32700, 31000, 9000), (1200, 4000, 8000))


def matrix(correlation, rounds):
    """C, entry by entry."""
    c = np.eye(rounds)
    for row in range(rounds):
        for column in range(row):
            terms = zip(correlation.decays, correlation.scales)
            c[row, column] = sum(scale / 2**15 * (decay / 2**15) ** (row - column - 1) for decay, scale in terms)
    return c


# ---- Matrices ----


@pytest.mark.parametrize("correlation", [Correlation(), TWO, THREE])
def test_columns_are_those_of_the_matrix_and_of_its_inverse(correlation):
    c = matrix(correlation, 12)
    np.testing.assert_allclose(correlation.column(12), c[:, 0], atol=1e-14)
    np.testing.assert_allclose(correlation.inverse_column(12), np.linalg.inv(c)[:, 0], atol=1e-14)


@pytest.mark.parametrize("correlation", [Correlation(), TWO, THREE])
@pytest.mark.parametrize(("separation", "reports"), [(1, 1), (1, 3), (1, None), (3, None), (4, 2), (20, None)])
def test_sensitivity_is_the_largest_over_all_patterns_of_reports(correlation, separation, reports):
    c, rounds = matrix(correlation, 10), range(10)
    norms = [
        np.linalg.norm(c[:, list(chosen)].sum(1))
        for count in range(1, (reports or 10) + 1)
        for chosen in combinations(rounds, count)
        if all(later - earlier >= separation for earlier, later in pairwise(chosen))
    ]
    assert sensitivity(correlation, Participation(10, separation, reports)) == pytest.approx(max(norms), rel=1e-12)


def test_reports_of_any_directions_change_no_more_than_equal_ones():
    random = np.random.default_rng(0)
    c, most = matrix(THREE, 12), sensitivity(THREE, Participation(12, 3))
    for _ in range(200):
        x = np.zeros((12, 4))
        x[::3] = random.normal(size=(4, 4))
        x[::3] /= np.linalg.norm(x[::3], axis=1, keepdims=True)
        assert np.linalg.norm(c @ x) <= most


@pytest.mark.parametrize("correlation", [Correlation(), TWO, THREE])
def test_errors_are_those_of_the_prefix_sums(correlation):
    prefix_sums = np.tril(np.ones((15, 15))) @ np.linalg.inv(matrix(correlation, 15))
    np.testing.assert_allclose(squared_errors(correlation, 15), np.square(prefix_sums).sum(1), rtol=1e-12)


@pytest.mark.parametrize(
    ("correlation", "rounds", "separation", "reports", "squared", "final", "mean"),
    [
        (TWO, 10, 3, None, 6.255109842506402, 3.266639399922706, 2.3050061364889243),
        (TWO, 200, 20, 10, 20.584597515179734, 11.01097842918981, 7.374854186983943),
        (TWO, 1000, 100, 4, 5.572556596221421, 39.069906298093926, 21.521354209527665),
        (TWO, 500, 500, 1, 1.346345380618085, 21.533076407821206, 12.723680236207528),
        (THREE, 10, 3, None, 7.320076893827514, 2.695478007876924, 2.0405046807251172),
        (THREE, 200, 20, 10, 34.76692602410447, 5.563437434995011, 4.589467641526792),
        (THREE, 1000, 100, 4, 10.913313503680572, 7.51930083803698, 6.209375762914786),
        (THREE, 500, 500, 1, 1.7542127144674289, 6.405316586344134, 5.453301392512433),
    ],
)
def test_figures_of_jax_privacy(correlation, rounds, separation, reports, squared, final, mean):
    errors = squared_errors(correlation, rounds)
    assert sensitivity(correlation, Participation(rounds, separation, reports)) ** 2 == pytest.approx(squared, rel=1e-9)
    assert (errors[-1], errors.mean()) == pytest.approx((final, mean), rel=1e-9)


# ---- The best correlation ----


@pytest.mark.parametrize(
    ("rounds", "separation", "reports", "error", "losses"),
    [
        (100, 100, 1, "max", [7.1026, 6.4339, 6.4084]),
        (200, 20, 10, "max", [177.8626, 176.0749, 176.0749]),
        (200, 20, 10, "mean", [112.0355, 112.0355, 112.0355]),
        (1000, 100, 10, "max", [232.9151, 223.5915, 221.5411]),
        (1000, 100, 10, "mean", [154.9885, 148.6900, 148.6900]),
    ],
)
def test_the_best_losses_of_jax_privacy(rounds, separation, reports, error, losses):
    pattern = Participation(rounds, separation, reports)
    for buffers, best in enumerate(losses, 1):
        found = best_correlation(pattern, error, buffers)
        errors = squared_errors(found, rounds)
        ours = sensitivity(found, pattern) ** 2 * (errors[-1] if error == "max" else errors.mean())
        assert ours < best * 1.0001


def test_a_device_that_reports_in_every_round_gains_nothing():
    assert best_correlation(Participation(50)) == Correlation()


def test_one_report_each_comes_close_to_the_best_of_all_matrices():
    """The least possible error for one report each: Dvijotham and others, theorem 1.3 with Toeplitz coefficients."""
    pattern = Participation(100, 100)
    k = np.arange(1, 100)
    root = np.concatenate([[1.0], np.cumprod((2 * k - 1) / (2 * k))])
    assert final_noise(best_correlation(pattern), pattern) <= 1.01 * (root @ root)


@pytest.mark.parametrize("error", ["max", "mean"])
def test_correlation_is_never_worse_than_none(error):
    for rounds, separation, reports in ((1, 1, None), (2, 1, None), (7, 3, None), (40, 8, 2)):
        pattern = Participation(rounds, separation, reports)
        best = best_correlation(pattern, error)
        none = Correlation()
        totals = [squared_errors(each, rounds) for each in (best, none)]
        errors = [total[-1] if error == "max" else total.mean() for total in totals]
        losses = [e * sensitivity(c, pattern) ** 2 for e, c in zip(errors, (best, none))]
        assert losses[0] <= losses[1]


def test_more_separation_lowers_the_noise():
    patterns = [Participation(120, separation, 3) for separation in (1, 5, 40)]
    noise = [final_noise(best_correlation(pattern), pattern) for pattern in patterns]
    assert noise == sorted(noise, reverse=True)
    assert noise[-1] < 0.8 * noise[0]


@pytest.mark.parametrize("bad", [(0, 1, None), (5, 0, None), (5, 1, 0)])
def test_counts_must_be_positive(bad):
    with pytest.raises(ValueError, match="at least 1"):
        best_correlation(Participation(*bad))


@pytest.mark.parametrize(
    ("decays", "scales"), [((1,), ()), ((32769,), (1,)), ((-1,), (1,)), ((1,), (-1,)), ((1, 2), (20000, 20000))]
)
def test_columns_that_could_grow_are_refused(decays, scales):
    with pytest.raises(ValueError, match="Correlation needs"):
        Correlation(decays, scales)


# ---- Noise, round by round ----


def stream(correlation, fresh):
    """The noise of every round, by the integer recursion."""
    buffers, rows = empty_buffers(correlation, fresh.shape[1]), []
    for row in fresh:
        noise, buffers = correlate(correlation, buffers, jnp.asarray(row, jnp.int32))
        rows.append(np.asarray(noise, np.int64))
    return np.array(rows)


def exactly(correlation, fresh):
    """The same by the rules of the module's first page, in fractions."""
    unit, rows = 2**15, []
    buffers = [Fraction(0) for _ in correlation.decays]
    for z in map(int, fresh):
        products = [Fraction(math.floor(scale * s), unit) for scale, s in zip(correlation.scales, buffers)]
        noise = z - math.floor(sum(products) + Fraction(1, 2))
        buffers = [Fraction(math.floor(decay * s), unit) + noise for decay, s in zip(correlation.decays, buffers)]
        rows.append(noise)
    return rows


@pytest.mark.parametrize("correlation", [Correlation(), TWO, THREE, best_correlation(Participation(200, 50))])
@pytest.mark.parametrize("size", [3, 2**22, 2**28])
def test_the_recursion_is_exact(correlation, size):
    fresh = np.random.default_rng(1).normal(0, size / 4, (200, 3)).round().astype(np.int64)
    noise = stream(correlation, fresh)
    for column in range(3):
        assert noise[:, column].tolist() == exactly(correlation, fresh[:, column])


def test_the_noise_is_the_inverse_times_the_fresh_noise():
    correlation = best_correlation(Participation(150, 30))
    fresh = np.random.default_rng(2).normal(0, 2**20, (150, 4)).round()
    wanted = np.linalg.solve(matrix(correlation, 150), fresh)
    assert np.abs(stream(correlation, fresh) - wanted).max() < 20  # of a million


def test_the_noise_of_the_final_sum_is_as_large_as_stated():
    correlation = best_correlation(Participation(60, 20))
    fresh = np.random.default_rng(3).normal(0, 2**16, (60, 20_000)).round()
    sums = stream(correlation, fresh).cumsum(0)
    measured = sums.std(1) / 2**16
    np.testing.assert_allclose(measured, np.sqrt(squared_errors(correlation, 60)), rtol=0.03)


# ---- What it costs ----


@pytest.mark.parametrize("correlation", [TWO, THREE, best_correlation(Participation(100, 25))])
def test_neighbours_differ_by_no_more_than_is_priced(correlation):
    """Given the same releases, the means m_t of two neighbours differ by C·Δx and less than `rounding_error` a number."""
    random, rounds, numbers = np.random.default_rng(4), 100, 500
    release = random.normal(0, 2**14, (rounds, numbers)).round().astype(np.int64)
    x = np.zeros((2, rounds, numbers), np.int64)
    x[1, ::25] = random.integers(-60, 60, (4, numbers))
    means = []
    for sums in x:
        buffers, rows = empty_buffers(correlation, numbers), []
        for sum_, released in zip(sums, release):
            probe, _ = correlate(correlation, buffers, jnp.zeros(numbers, jnp.int32))  # minus what is taken back
            mean = sum_ + np.asarray(probe, np.int64)
            noise, buffers = correlate(correlation, buffers, jnp.asarray(released - mean, jnp.int32))
            assert (sum_ + np.asarray(noise) == released).all()
            rows.append(mean)
        means.append(np.array(rows))
    apart = (means[1] - means[0]) - matrix(correlation, rounds) @ (x[1] - x[0])
    assert 0.9 < np.abs(apart).max() < rounding_error(correlation, rounds) < 1.02


def test_the_grid_that_is_asked_for_keeps_rounding_within_the_cost():
    pattern = Participation(400, 100)
    correlation = best_correlation(pattern)
    steps = least_steps(correlation, pattern, numbers=10_000)
    for rounds in (1, 100, 400):
        differ = steps * sensitivity(correlation, pattern._replace(rounds=rounds))
        differ += rounding_error(correlation, rounds) * math.sqrt(rounds * 10_000)
        assert differ <= cost(correlation, pattern, rounds) * steps * (1 + 1e-12)
    assert cost(correlation, pattern) == pytest.approx(1.02 * sensitivity(correlation, pattern))


def test_independent_noise_pays_for_no_rounding():
    assert least_steps(Correlation(), Participation(10), 1000) == 0
    assert cost(Correlation(), Participation(9)) == pytest.approx(3.0)


def test_a_restart_with_empty_buffers_costs_no_privacy():
    for lost in (1, 7, 10, 19):
        c = matrix(THREE, 20)
        c[lost:, :lost] = 0.0
        norms = [np.linalg.norm(c[:, start::5].sum(1)) for start in range(5)]
        assert max(norms) <= sensitivity(THREE, Participation(20, 5))


def test_noise_that_would_overflow_a_buffer_is_refused():
    correlation = best_correlation(Participation(1000, 250))
    check_buffers(correlation, 1000, 4e6)
    with pytest.raises(PlanError, match=r"privacy\.noise must be at most .* got 1e\+08; give a smaller noise"):
        check_buffers(correlation, 1000, 1e8)
