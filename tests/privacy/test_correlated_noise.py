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

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from support.falsify import best_events, lower_bound
from tacit.core.run_folder import Folder
from tacit.errors import PlanError
from tacit.privacy.accounting.accountant import compose
from tacit.privacy.accounting.events import Gaussian
from tacit.privacy.mechanisms._parts.correlated_noise import (
    Correlation,
    Participation,
    best_correlation,
    check_buffers,
    correlate,
    empty_buffers,
    final_noise,
    least_steps,
    priced_sensitivity,
    rounding_error,
    sensitivity,
    squared_errors,
)
from tacit.privacy.mechanisms.gaussian import GaussianMechanism
from tacit.privacy.sampler import build_sampler
from tacit.server.checkpoint import load_checkpoint, save_checkpoint
from tacit.server.round import begin, close, zero_total
from tacit.server.rule import build_rule

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


@pytest.mark.slow
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


@pytest.mark.slow
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
        assert differ <= priced_sensitivity(correlation, pattern, rounds) * steps * (1 + 1e-12)
    assert priced_sensitivity(correlation, pattern) == pytest.approx(1.02 * sensitivity(correlation, pattern))


def test_independent_noise_pays_for_no_rounding():
    assert least_steps(Correlation(), Participation(10), 1000) == 0
    assert priced_sensitivity(Correlation(), Participation(9)) == pytest.approx(3.0)


def test_a_restart_with_empty_buffers_costs_no_privacy():
    for lost in (1, 7, 10, 19):
        c = matrix(THREE, 20)
        c[lost:, :lost] = 0.0
        norms = [np.linalg.norm(c[:, start::5].sum(1)) for start in range(5)]
        assert max(norms) <= sensitivity(THREE, Participation(20, 5))


def test_noise_that_would_overflow_a_buffer_is_refused():
    pattern = Participation(1000, 250)
    correlation = best_correlation(pattern)
    check_buffers(correlation, pattern, 4e6)
    with pytest.raises(PlanError, match=r"privacy\.noise must be at most .* got 1e\+08; give a smaller noise"):
        check_buffers(correlation, pattern, 1e8)


# ---- The mechanism ----

ONCE = {"sampler": "pass", "count": 10, "shuffle": "once"}
PARAMS = {"items": jnp.zeros((3, 2)), "bias": jnp.zeros(2)}


def settled(rounds, devices=200, **settings):
    exposure = build_sampler(ONCE).exposure(rounds, devices)
    return GaussianMechanism(**{"correlation": "blt", **settings}).settle(exposure), exposure


def test_the_claim_is_that_of_one_gaussian():
    mechanism, exposure = settled(60, noise=9.0, delta=1e-6)
    whole = next(claim for claim in mechanism.claim(exposure) if claim.per == "run")
    multiplier = 9.0 / priced_sensitivity(*mechanism.correlated)
    assert mechanism.correlated.pattern == Participation(60, 20, 3)
    assert whole.epsilon == pytest.approx(compose([(Gaussian(multiplier), 1)], 1e-6).epsilon, rel=1e-6)
    assert any(
        "refuses more reports than 3, and reports less than 20 rounds apart" in words for words in whole.conditions
    )


def test_a_promise_is_kept_with_less_noise_in_the_model():
    exposure = build_sampler(ONCE).exposure(60, 200)
    blt, plain = (GaussianMechanism(epsilon=2.0, correlation=way).settle(exposure) for way in ("blt", "none"))
    claims = [next(claim for claim in each.claim(exposure) if claim.per == "run") for each in (blt, plain)]
    assert [claim.epsilon for claim in claims] == pytest.approx([2.0, 2.0], rel=1e-3)
    final = [each.spread(100, 10).noise * each.noise_over(60) for each in (blt, plain)]
    assert final[0] < 0.5 * final[1]


def test_fewer_rounds_cost_less():
    mechanism, _ = settled(60, noise=9.0)
    spent = [
        next(
            claim.epsilon for claim in mechanism.claim(build_sampler(ONCE).exposure(rounds, 200)) if claim.per == "run"
        )
        for rounds in (1, 20, 40, 60)
    ]
    assert spent == sorted(spent)


def test_shares_of_one_promise_compose():
    exposure = build_sampler(ONCE).exposure(60, 200)
    whole, half = (GaussianMechanism(epsilon=2.0, share=s, correlation="blt").settle(exposure) for s in (None, 0.5))
    assert half.noise == pytest.approx(whole.noise * math.sqrt(2), rel=1e-6)


@pytest.mark.parametrize("setting", [{"place": "local"}, {"quantile": 0.5}])
def test_what_cannot_be_correlated_is_refused(setting):
    with pytest.raises(
        PlanError, match=r"privacy\.correlation = 'blt' is for noise at the server and a bound that stays"
    ):
        GaussianMechanism(noise=1.0, correlation="blt", **setting)


def test_a_model_too_large_for_the_grid_is_refused():
    mechanism, _ = settled(60, noise=9.0)
    assert math.sqrt(mechanism.grid(1000).bound) >= least_steps(*mechanism.correlated, 1000)
    with pytest.raises(
        PlanError, match=r"requires a grid of .* for 4,000,000 numbers, .*; train fewer numbers or rounds"
    ):
        settled(60, noise=900.0)[0].grid(4_000_000)


def played(mechanism, keys, signs):
    """What all rounds release, for one update, its opposite or nothing in each; and the memory after them."""
    rule, trains = build_rule({"rule": "mean_step", "scale": "sum"}), tuple(PARAMS)
    payload = mechanism.encode(jax.random.key(5), {name: leaf + 1.0 for name, leaf in PARAMS.items()}, {})

    def one(carry, now):
        params, memory = carry
        key, sign = now
        total, n = zero_total(mechanism, PARAMS, trains, 1)
        sent = jax.tree.map(lambda leaf: (sign * leaf)[None], payload)
        total = mechanism.add(total, sent, jnp.ones((1, 1)), jnp.ones(1, bool))
        after, memory, _ = close(key, mechanism, rule, trains, params, (total, n), memory)
        return (after, memory), jax.tree.map(jnp.subtract, after, params)

    start = PARAMS, begin(mechanism, rule, trains, PARAMS)
    (_, memory), moved = jax.lax.scan(one, start, (keys, jnp.asarray(signs, jnp.int32)))
    return jnp.concatenate([leaf.reshape(keys.shape[0], -1) for leaf in moved.values()], 1), memory


def releases(mechanism, signs, runs, seed):
    """float[runs, rounds, numbers]"""
    keys = jax.random.split(jax.random.key(seed), (runs, len(signs)))
    return np.asarray(jax.jit(jax.vmap(lambda key: played(mechanism, key, signs)[0]))(keys))


def test_rounds_release_correlated_noise():
    mechanism, exposure = settled(24, devices=80, noise=3.0, clip=2.0)
    sums = releases(mechanism, np.zeros(24, int), 4000, 0).cumsum(1)
    wanted = 3.0 * 2.0 * np.sqrt(squared_errors(mechanism.correlated.correlation, 24))
    np.testing.assert_allclose(sums.std((0, 2)), wanted, rtol=0.03)
    assert exposure.separation == 8


@pytest.mark.slow
def test_the_whole_run_is_put_to_the_test():
    """A device that sends one update whenever it may, against one that sends the opposite: all that the releases tell."""
    mechanism, exposure = settled(8, devices=40, noise=6.0, delta=0.01)
    claim = next(claim for claim in mechanism.claim(exposure) if claim.per == "run")
    may, n = (np.arange(8) % exposure.separation == 0).astype(int), 20_000
    ones, others = (
        releases(mechanism, sign * may, 2 * n, seed).sum(2, dtype=float) for seed, sign in ((1, 1), (2, -1))
    )
    (_, event), _ = best_events(ones[:n], others[:n], claim.delta)
    hits = [int(event(outputs[n:]).sum()) for outputs in (ones, others)]
    proved = lower_bound(hits[0], n, hits[1], n, claim.delta, 1e-6)
    assert 0.6 * claim.epsilon < proved < claim.epsilon
    correlation, pattern = mechanism.correlated
    once = Gaussian(6.0 / priced_sensitivity(correlation, pattern._replace(reports=1)))  # as if nobody reported twice
    assert proved > compose([(once, 1)], claim.delta).epsilon


def test_buffers_are_not_saved(tmp_path):
    mechanism, _ = settled(24, devices=80, noise=3.0)
    _, memory = played(mechanism, jax.random.split(jax.random.key(0), 5), np.zeros(5, int))
    assert np.abs(np.asarray(memory.noise.whole)).max() > 100
    folder = Folder(tmp_path / "run")
    folder.begin("", {}, [])
    save_checkpoint(folder, 5, PARAMS, memory)
    fresh = begin(mechanism, build_rule({"rule": "mean_step"}), tuple(PARAMS), PARAMS)
    loaded = load_checkpoint(folder, PARAMS, fresh)[1]
    assert not np.asarray(loaded.noise.whole).any()
    saved = [np.load(file) for file in (tmp_path / "run").rglob("*.npz")]
    sizes = {name: array[name].size for array in saved for name in array.files}
    assert sum(sizes.values()) == 8, sizes
