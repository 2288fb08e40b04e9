"""Noise on the integer grid: what rounding costs, that noise is never less than was asked for, and where it ends."""

import math

import jax
import jax.numpy as jnp
import pytest

from tacit.core.integer_grid import from_grid
from tacit.errors import PlanError
from tacit.privacy.accounting import accountant
from tacit.privacy.accounting.events import Gaussian
from tacit.privacy.mechanism import build_mechanism
from tacit.privacy.mechanisms._parts.noise_grid import (
    GAP,
    MOST_NUMBERS,
    TAU,
    NoiseGrid,
    check_clip,
    check_headroom,
    draw_noise,
    epsilon_of,
    gaussian_grid,
    in_range,
    laplace_grid,
    unit_grid,
)
from tacit.privacy.sampler import build_sampler


def test_payloads_out_of_range_are_seen():
    grid = gaussian_grid(1.0, 4)
    most = grid.largest + grid.reach
    assert [bool(in_range(jnp.array([0, k]), grid)) for k in (most, -most, most + 1, -(2**31))] == [
        True,
        True,
        False,
        False,
    ]


# ---- Grids ----


@pytest.mark.parametrize("noise", [0.01, 0.5, 1.0, 3.7, 30.0])
@pytest.mark.parametrize(("numbers", "people"), [(1, 1), (4000, 1), (4000, 1000), (1_000_000, 1_000_000)])
def test_rounding_costs_less_than_a_hundredth_and_noise_is_never_less(noise, numbers, people):
    grid = gaussian_grid(noise, numbers, people)
    assert grid.noise.variance >= grid.bound * noise**2 * (1 - 1e-15)
    assert grid.rounding_cost < 0.01
    assert grid.noise.deviation / math.sqrt(grid.bound) < noise * 1.01
    assert grid.bound >= 64 * numbers * (1 - 1e-9)
    assert grid.keep > 0.85
    check_headroom(grid, "local")
    check_headroom(grid, "central")


@pytest.mark.parametrize("scale", [0.01, 2.0, 1e4])
@pytest.mark.parametrize("people", [1, 100, 1_000_000])
def test_laplace_grids_cost_less_than_a_hundredth(scale, people):
    grid = laplace_grid(scale, "l1", 1, people)
    assert grid.rounding_cost < 0.01
    assert scale <= float(grid.noise.scale) / grid.bound < 1.005 * scale
    assert epsilon_of(grid) <= 2 / scale * (1 + 1e-12)
    assert epsilon_of(laplace_grid(scale, "elements", 10), 10) <= 20 / scale * (1 + 1e-12)


def test_nearly_no_noise_has_the_finest_grid():
    for noise in (1e-3, 1e-6, 1e-9):
        grid = gaussian_grid(noise, 3, 10**6)
        assert grid.largest <= 2**20
        assert grid.noise.deviation / math.sqrt(grid.bound) >= noise
    assert gaussian_grid(0.0, 3).noise is None


def test_noise_added_on_the_grid_has_the_deviation():
    grid = gaussian_grid(2.0, 1000)
    drawn = from_grid(draw_noise(jax.random.key(0), grid, (200_000,)), 3.0, grid)
    assert float(drawn.std()) == pytest.approx(6.0, rel=0.01)


# ---- Limits ----


def test_clips_beyond_the_limits_are_refused():
    for clip in (1e-12, 1.0, 1e12):
        check_clip("privacy.clip", clip)
    for clip in (1e-13, 1e13, 0.0, -1.0, math.nan, math.inf):
        with pytest.raises(PlanError, match=r"privacy.clip must be from 1e-12 to 1e.12, got .*; scale the update"):
            check_clip("privacy.clip", clip)


def test_overflow_is_refused_at_the_very_number():
    for place in ("local", "central"):
        check_headroom(NoiseGrid("l1", 2**31 - 1, 1.0, 1.0), place)
        with pytest.raises(PlanError, match=r"payloads below 2\^31 .* got 2,147,483,648"):
            check_headroom(NoiseGrid("l1", 2**31, 1.0, 1.0), place)
    grid = laplace_grid(2.0, "l1")
    reach = grid.reach
    check_headroom(NoiseGrid("l1", 2**31 - 1 - reach, 1.0, 1.0, grid.noise), "local")
    with pytest.raises(PlanError, match=r"payloads below 2\^31"):
        check_headroom(NoiseGrid("l1", 2**31 - reach, 1.0, 1.0, grid.noise), "local")
    with pytest.raises(PlanError, match=r"privacy.scale must be above 0"):
        laplace_grid(1e8, "elements")
    for noise in (1e-10, -1.0, math.nan, 4.1e6):
        with pytest.raises(PlanError, match=r"privacy.noise must be 0 or from 1e-09 to 4e\+06 of the clip bound, got"):
            gaussian_grid(noise, 3)
    with pytest.raises(PlanError, match=r"at most 4,194,304 numbers, got 4,194,305"):
        gaussian_grid(1.0, MOST_NUMBERS + 1)


@pytest.mark.parametrize("noise", [1e4, 3e5, 4e6])
def test_an_enormous_noise_has_a_coarser_grid(noise):
    grid = gaussian_grid(noise, 10_000)
    assert grid.noise.variance >= grid.bound * noise**2 * (1 - 1e-15)
    check_headroom(grid, "local")


# ---- What is left in δ ----


@pytest.mark.parametrize(
    "grid",
    [
        *(gaussian_grid(noise, 100) for noise in (1e-6, 0.3, 1.0, 50.0, 3e3, 2e5)),
        *(unit_grid(noise, steps, 1) for noise, steps in ((0.01, 16), (3.0, 16), (3.0, 4096), (900.0, 4096))),
        *(laplace_grid(scale, "l1") for scale in (0.01, 2.0, 1e4, 1e7)),
    ],
    ids=lambda grid: f"{grid.norm}-{grid.bound}",
)
def test_no_table_is_further_from_its_law_than_is_stated(grid):
    assert 0 < grid.noise.tau <= TAU


def test_a_claim_takes_the_gap_of_its_tables_off_delta():
    """As if δ were as much smaller; where there is no δ, the gap is it."""
    once = build_sampler({"sampler": "all"}).exposure(3, 100)
    found = build_mechanism({"mechanism": "gaussian", "noise": 1.0, "place": "local"}).settle(once).spent(once)
    assert found == ((Gaussian(1.0, GAP), 3),)
    laplace = build_mechanism({"mechanism": "laplace", "epsilon": 3.0}).settle(once)
    message, run = laplace.claim(once)
    assert message.delta == pytest.approx(GAP * (1 + math.e))
    assert run.delta == pytest.approx(3 * GAP * (1 + math.e))
    assert run.epsilon == pytest.approx(3.0)
    certain = build_mechanism({"mechanism": "laplace", "epsilon_per_message": 60.0}).settle(once)
    assert certain.claim(once)[0].epsilon == math.inf, "no table is precise enough for that"
    assert GAP == MOST_NUMBERS * TAU < 1e-18


def test_a_gap_is_taken_off_delta_for_each_message():
    """As much as the formula says, for any number of messages, and without growing with the ε of all of them."""
    for count in (1, 50):
        plain, gapped = ([(Gaussian(4.0, gap), count)] for gap in (0.0, 1e-12))
        lost = accountant.gap_delta(gapped)
        assert count * 1e-12 < lost < 1e-6
        exact = accountant.compose(plain, 1e-5 - lost).epsilon
        assert accountant.compose(gapped, 1e-5).epsilon == pytest.approx(exact, rel=1e-9)
        assert exact > accountant.compose(plain, 1e-5).epsilon
    assert accountant.gap_delta([(Gaussian(4.0, 1e-12), 50)]) == pytest.approx(
        50 * accountant.gap_delta([(Gaussian(4.0, 1e-12), 1)])
    )
