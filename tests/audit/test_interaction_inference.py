"""Interactions: who reads raw updates knows what people have; under noise it is what popularity says anyway."""

import numpy as np
import pytest

from tacit.audit.inference import balanced_pairs, guess_interactions, row_features, with_popularity
from tacit.errors import PlanError
from tacit.lab.audits.interaction_inference import infer_interactions, observed_updates
from tacit.lab.data.synthetic.small import taste_groups
from tacit.lab.plans.loader import choose
from tacit.lab.runs.run import simulate
from tacit.lab.simulation.federation import Performance

pytestmark = pytest.mark.filterwarnings(
    "ignore::tacit.lab.analysis.feasibility.FeasibilityWarning"
)  # few people, on purpose

LOG = taste_groups(60, 60, seed=1)
QUICK = {"rounds": 2}


def run_of(name, settings=None):
    return simulate(
        choose(name, settings or {}), LOG, quiet=True, performance=Performance(grid=(int(LOG.lengths.max()),))
    )


def test_pairs_are_as_many_had_as_not():
    had = np.random.default_rng(0).random((20, 30)) < 0.3
    person, item, truth = balanced_pairs(had, 0)
    assert (had[person, item] == truth).all()
    assert len(set(zip(person, item))) == person.size
    np.testing.assert_array_equal(np.bincount(person[truth], minlength=20), np.bincount(person[~truth], minlength=20))


def test_who_has_nearly_everything_has_fewer_others():
    person, _, truth = balanced_pairs(np.array([[True, True, True, False]]), 0)
    assert (truth.sum(), (~truth).sum(), person.tolist()) == (3, 1, [0, 0, 0, 0])


def test_evidence_that_tells_and_evidence_that_does_not():
    rng = np.random.default_rng(0)
    had, told = rng.random((40, 50)) < 0.3, np.arange(40) % 2 == 0
    noise = rng.normal(size=had.shape)
    plain, none = (guess_interactions(row_features({"x": x}, 50), had, told) for x in (had + 0.3 * noise, noise))
    assert plain.auc > 0.97
    assert abs(none.auc - 0.5) < 0.08
    assert plain.accuracy.size == 20


def test_leaves_without_a_row_for_each_item_say_nothing():
    evidence = with_popularity(row_features({"head": np.ones((3, 4))}, 50), np.arange(50))
    assert evidence.shape == (3, 50, 1)
    assert evidence[1, 7, 0] == 7


def test_raw_gradients_tell_what_people_have():
    by_message, by_popularity = infer_interactions(run_of("fcf", QUICK), messages=2)
    assert by_message.auc > by_popularity.auc + 0.1
    assert by_message.accuracy.mean() > 0.65


def test_randomised_answers_tell_as_much_as_they_promise():
    """Whoever hears one answer is right with e^ε/(1 + e^ε), before anything else is known."""
    loud, quiet = (infer_interactions(run_of("dplcf", {"privacy.epsilon": e}))[0].auc for e in (6.0, 0.01))
    assert loud > 0.95
    assert quiet < 0.8


def test_what_the_server_releases_is_the_same_for_everybody():
    run = run_of("popularity", {"privacy.mechanism": "gaussian", "privacy.epsilon": 4.0})
    (heard,) = observed_updates(run, np.arange(10), 1).values()
    assert heard.shape == (10, 60)
    assert (heard == heard[0]).all()


def test_no_more_is_heard_than_the_plan_allows():
    """One message of randomised answers: asked ten times, a device speaks once."""
    run = run_of("dplcf")
    (once,), (often,) = (observed_updates(run, np.arange(10), n).values() for n in (1, 10))
    np.testing.assert_array_equal(once, often)


def test_mistakes_get_a_sentence():
    with pytest.raises(
        PlanError,
        match=r"Nothing is sent in mfu, so there is nothing to infer from; choose a plan that sends something\.",
    ):
        observed_updates(run_of("mfu"), np.arange(3), 1)
    with pytest.raises(PlanError, match=r"needs at least 4 people, two known to the attacker and two not, got 3\."):
        infer_interactions(run_of("dplcf"), people=3)
