"""The laws of noise on small grids, summed exactly: what is claimed holds for every set of outputs, and nearly not for less."""

import math
from dataclasses import replace

import numpy as np
import pytest

from support.tables import law_of
from tacit.errors import PlanError
from tacit.privacy.accounting import accountant
from tacit.privacy.accounting.events import Gaussian
from tacit.privacy.mechanism import build_mechanism
from tacit.privacy.mechanisms._parts.noise_grid import GAP, gaussian_grid, unit_grid
from tacit.privacy.sampler import build_sampler

ONCE = build_sampler({"sampler": "all"}).exposure(1, 100)


def shifted_apart(law, by):
    """P(k) and P(k − by) for every integer either reaches."""
    return np.pad(law, (0, by)), np.pad(law, (by, 0))


def hockey_stick(one, other, epsilon):
    """The least δ with which `one` is within e^ε of `other`."""
    return float(np.maximum(one - math.exp(epsilon) * other, 0.0).sum())


@pytest.mark.parametrize("epsilon", [0.1, 0.7, 2.0, 8.0])
@pytest.mark.parametrize("place", ["local", "central"])
def test_laplace_keeps_its_epsilon_at_the_farthest_neighbours_and_comes_up_to_it(epsilon, place):
    mechanism = build_mechanism({"mechanism": "laplace", "epsilon": epsilon, "place": place}).settle(ONCE)
    claim = mechanism.claim(ONCE)[-1]
    grid = mechanism.grid(5)
    law = law_of(grid.noise)
    one, other = shifted_apart(law, 2 * grid.bound)
    for left, right in ((one, other), (other, one)):
        assert hockey_stick(left, right, claim.epsilon * (1 + 1e-12)) <= claim.delta
        assert hockey_stick(left, right, 0.99 * claim.epsilon) > 100 * claim.delta
    assert 0 < claim.delta < 1e-14


@pytest.mark.parametrize("noise", [0.8, 2.0, 6.0])
@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
def test_gaussian_keeps_its_epsilon_at_the_farthest_neighbours_and_comes_up_to_it(noise, relation):
    grid = gaussian_grid(noise, 1)
    law = law_of(grid.noise)
    one, other = shifted_apart(law, math.isqrt(grid.bound) * (1 if relation == "add_remove" else 2))
    for delta in (1e-3, 1e-6):
        epsilon = accountant.compose([(Gaussian(noise), 1)], delta, relation).epsilon
        assert hockey_stick(one, other, epsilon) <= delta + GAP * (1 + math.exp(epsilon))
        assert hockey_stick(one, other, 0.95 * epsilon) > delta


@pytest.mark.parametrize("deviation", [0.3, 1.0, 4.0])
def test_a_count_in_sixteenths_keeps_the_epsilon_of_its_noise(deviation):
    grid = unit_grid(deviation, 16, 1)
    one, other = shifted_apart(law_of(grid.noise), 16)
    epsilon = accountant.compose([(Gaussian(deviation), 1)], 1e-6, "add_remove").epsilon
    assert hockey_stick(one, other, epsilon) <= 1e-6 + GAP * (1 + math.exp(epsilon))
    assert hockey_stick(one, other, 0.97 * epsilon) > 1e-6


@pytest.mark.parametrize(
    "grid",
    [gaussian_grid(2.0, 9), gaussian_grid(9.0, 9), unit_grid(1.0, 16, 1)],
    ids=lambda grid: f"R={grid.largest}",
)
def test_every_integer_within_reach_is_possible_and_what_is_beyond_is_less_than_delta(grid):
    """So neighbours differ in what is possible only where less than the tables' part of δ is left."""
    law = law_of(grid.noise)
    assert (law > 0).all()
    one, other = shifted_apart(law, 2 * grid.largest)
    if grid.largest < grid.noise.deviation:  # with much less noise than the bound there is no claim
        assert one[other == 0].sum() < 1e-20


# ---- the smallest and the largest bounds ----

TINY = [
    ({"mechanism": "gaussian", "epsilon": 1.0, "clip": 1e-25}, r"privacy.clip must be from 1e-12 to 1e\+12, got 1e-25"),
    ({"mechanism": "gaussian", "epsilon": 1.0, "clip": 1e25}, r"privacy.clip must be from 1e-12 to 1e\+12, got 1e\+25"),
    (
        {"mechanism": "laplace", "epsilon": 1.0, "bound": 1e-37},
        r"privacy.bound must be from 1e-12 to 1e\+12, got 1e-37",
    ),
    ({"mechanism": "laplace", "scale": 1e-37}, r"privacy.scale must be from 1e-12 to 1e\+12, got 1e-37"),
    ({"mechanism": "gaussian", "noise": 1e-12}, r"privacy.noise must be 0 or from 1e-09 to 4e\+06 of the clip bound"),
    ({"mechanism": "gaussian", "noise": 1e9}, r"privacy.noise must be 0 or from 1e-09 to 4e\+06 of the clip bound"),
    ({"mechanism": "within_organisation", "noise": 1e9}, r"privacy.noise must be 0 or from 1e-09 to 977"),
]


@pytest.mark.parametrize(("privacy", "sentence"), TINY, ids=str)
def test_a_bound_or_a_noise_that_numbers_cannot_keep_is_refused_in_a_sentence(privacy, sentence):
    with pytest.raises(PlanError, match=sentence) as refused:
        build_mechanism(privacy).settle(ONCE)
    assert "\n" not in str(refused.value)
    mechanism = build_mechanism({**privacy, "delta": 1e-6} if privacy["mechanism"] == "gaussian" else privacy)
    with pytest.raises(PlanError, match=sentence):
        replace(mechanism).settle(ONCE)
