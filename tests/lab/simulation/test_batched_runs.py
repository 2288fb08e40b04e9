"""Batched runs: several runs in one program end where each would alone."""

import jax
import numpy as np
import pytest

from tacit.errors import DataError
from tacit.lab.data.synthetic import movies
from tacit.lab.plans.loader import choose
from tacit.lab.simulation.batched_runs import learn_apart, learn_together

pytestmark = pytest.mark.filterwarnings("ignore::tacit.lab.analysis.feasibility.FeasibilityWarning")

SMALL = {"hyper.dim": 4, "hyper.hidden": (4,), "hyper.epochs": 1, "hyper.most": 8, "rounds": 3, "cohort.count": 4}
TWO = {"1.hyper.dim": 4, "2.hyper.dim": 4, "2.hyper.hidden": (4,), "2.hyper.epochs": 1, "2.hyper.most": 8}
TWO |= {"1.hyper.window": 8, "2.hyper.window": 8, "1.hyper.steps": 2, "1.rounds": 2, "2.rounds": 2}
TWO |= {"1.cohort.count": 4, "2.cohort.count": 4}
FCF = {"hyper.dim": 2, "rounds": 3, "cohort": {"sampler": "fixed", "count": 4}}
GAUSSIAN, LAPLACE = {"mechanism": "gaussian", "epsilon": 8.0}, {"mechanism": "laplace", "epsilon": 8.0, "bound": 1.0}
PLANS = {
    "cohorts": ("fcf", FCF),
    "noise at the server": ("fcf", {**FCF, "privacy": GAUSSIAN}),
    "pooled": ("itemknn", {}),
    "nothing sent": ("mru", {}),
}
SLOW = {  # each takes its time to compile, in both ways
    "rounds of everybody": ("fcf", {**FCF, "cohort": {"sampler": "all"}}),
    "noise at home": ("fcf", {**FCF, "privacy": LAPLACE}),
    "coins": ("fcf", {**FCF, "cohort": {"sampler": "poisson", "rate": 0.3}}),
    "a rule with a state": ("fcf", {**FCF, "server": {"rule": "adam", "rate": 0.1}}),
    "counts, then tastes": ("dp-privrec", {}),
    "one at a time, by rows": ("fpl", {"hyper.dim": 2, "rounds": 5}),
    "privrec": ("privrec", SMALL),
    "two stages": ("privrec-two", TWO),
}


@pytest.fixture(scope="module")
def log():
    return movies(40, 60, seed=3)


def drawn(runs, people=16, seed=0):
    rng = np.random.default_rng(seed)
    return [np.sort(rng.permutation(40)[:people]) for _ in range(runs)]


def close(one, other):
    assert one.params.keys() == other.params.keys()
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), one.params, other.params)


@pytest.mark.parametrize("name", [*PLANS, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)])
def test_batched_runs_equal_runs_one_by_one(log, name):
    """Different users and seeds; the same parameters to rounding."""
    plan, groups, seeds = choose(*(PLANS | SLOW)[name]), drawn(3), [5, 1005, 7]
    close(learn_together(plan, log, groups, seeds), learn_apart(plan, log, groups, seeds))


@pytest.mark.slow
def test_the_number_of_runs_in_a_program_changes_nothing(log):
    plan, groups = choose(*PLANS["noise at the server"]), drawn(3)
    close(learn_together(plan, log, groups, range(3), at_once=2), learn_together(plan, log, groups, range(3)))


def test_runs_differ_by_users_and_by_seed(log):
    plan, (one, other) = choose(*PLANS["cohorts"]), drawn(2)
    items = np.asarray(learn_together(plan, log, [one, one, one, other], [0, 0, 1, 0]).params["items"])
    np.testing.assert_array_equal(items[0], items[1])
    assert not np.allclose(items[0], items[2])
    assert not np.allclose(items[0], items[3])


@pytest.mark.parametrize(
    ("groups", "seeds", "words"),
    [
        ([np.arange(3), np.arange(4)], [0, 1], r"got 2 groups of 3 and 4 people and 2 seeds; draw as many"),
        ([np.arange(3)], [0, 1], r"got 1 groups of 3 people and 2 seeds; draw as many"),
        ([], [], r"got 0 groups of no people and 0 seeds; draw as many"),
    ],
)
def test_groups_of_different_sizes_are_refused(log, groups, seeds, words):
    with pytest.raises(DataError, match=rf"groups of one size and a seed for each, {words}"):
        learn_together(choose("popularity"), log, groups, seeds)
