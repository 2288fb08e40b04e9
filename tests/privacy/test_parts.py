"""Samplers, rules, claims and metrics: small parts with known answers."""

from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from support.toys import close, same
from tacit.errors import PlanError
from tacit.metrics import discounted_gain, hit_rate, rank, reciprocal_rank, summary
from tacit.privacy.claim import Claim
from tacit.privacy.sampler import SAMPLERS, build_sampler
from tacit.server.rule import build_rule

# ---- samplers ----

COHORTS = [
    {"sampler": "all"},
    {"sampler": "pass", "count": 7},
    {"sampler": "fixed", "count": 7},
    {"sampler": "poisson", "rate": 0.3},
    {"sampler": "one"},
]


@pytest.mark.parametrize("cohort", COHORTS, ids=lambda c: c["sampler"])
def test_a_sampler_is_a_function_of_seed_stage_and_round(cohort):
    sampler = build_sampler(cohort)
    draw = [sampler.draw(1, 0, r, 20).tolist() for r in range(30)]
    assert draw == [sampler.draw(1, 0, r, 20).tolist() for r in range(30)]
    for ids in draw:
        assert ids == sorted(set(ids))
        assert all(0 <= i < 20 for i in ids)
    if cohort["sampler"] != "all":
        assert draw != [sampler.draw(2, 0, r, 20).tolist() for r in range(30)]
        assert draw != [sampler.draw(1, 1, r, 20).tolist() for r in range(30)]
    assert np.mean([len(ids) for ids in draw]) == pytest.approx(sampler.size(20), abs=1.5)


@pytest.mark.parametrize("cohort", COHORTS, ids=lambda c: c["sampler"])
def test_nobody_is_asked_more_often_than_the_exposure_says(cohort):
    sampler = build_sampler(cohort)
    asked = np.zeros(20, int)
    for r in range(50):
        asked[sampler.draw(0, 0, r, 20)] += 1
    assert asked.max() <= sampler.exposure(50, 20).messages


def test_pass_asks_everybody_once_before_anybody_twice():
    sampler = build_sampler({"sampler": "pass", "count": 7})
    for turn in range(4):
        ids = np.concatenate([sampler.draw(0, 0, 3 * turn + r, 20) for r in range(3)])
        assert sorted(ids) == list(range(20))


@pytest.mark.parametrize("shuffle", ["each_pass", "once"])
def test_reports_are_as_far_apart_as_the_exposure_says(shuffle):
    sampler = build_sampler({"sampler": "pass", "count": 7, "shuffle": shuffle})
    drawn = [sampler.draw(0, 0, r, 20) for r in range(60)]
    rounds = [[r for r, ids in enumerate(drawn) if device in ids] for device in range(20)]
    apart = min(later - earlier for mine in rounds for earlier, later in pairwise(mine))
    exposure = sampler.exposure(60, 20)
    assert exposure.separation <= apart
    assert exposure.separation == (3 if shuffle == "once" else 1)
    assert max(map(len, rounds)) == exposure.messages == 20


def test_fixed_and_poisson_draw_everybody_equally():
    for cohort, share in (({"sampler": "fixed", "count": 5}, 0.25), ({"sampler": "poisson", "rate": 0.25}, 0.25)):
        sampler = build_sampler(cohort)
        asked = np.zeros(20)
        for r in range(4000):
            asked[sampler.draw(3, 0, r, 20)] += 1
        # Each count is binomial(4000, 1/4): sd 27.4; 5 sd is out of reach of chance.
        np.testing.assert_allclose(asked, 4000 * share, atol=137)


def test_the_sampler_names_the_relation_it_is_analysed_under():
    assert build_sampler({"sampler": "poisson", "rate": 0.1}).exposure(5, 10).relation == "add_remove"
    assert build_sampler({"sampler": "fixed", "count": 2}).exposure(5, 10).relation == "replace_one"
    some = build_sampler({"sampler": "volunteers", "count": 2, "share": 0.5}).exposure(5, 100)
    assert (some.relation, some.devices + some.others) == ("replace_one", 100)
    assert set(SAMPLERS) == {"all", "pass", "fixed", "volunteers", "poisson", "one", "pooled", "helped"}


# ---- rules ----

PARAMS = {"a": jnp.array([1.0, 2.0]), "b": jnp.array(3.0)}
TOTAL = ({"a": jnp.array([[4.0, -2.0]]), "b": jnp.array([1.0])}, jnp.array([2.0]))  # two devices


def test_mean_step_is_reptile():
    rule = build_rule({"rule": "mean_step", "rate": 0.5})
    params, _ = rule.finish(PARAMS, TOTAL, jnp.array(2), rule.init(PARAMS))
    close(params, {"a": jnp.array([2.0, 1.5]), "b": jnp.array(3.25)})


def test_weighted_mean():
    rule = build_rule({"rule": "weighted_mean"})
    params, _ = rule.finish(PARAMS, TOTAL, jnp.array(2), ())
    close(params, {"a": jnp.array([2.0, -1.0]), "b": jnp.array(0.5)})


def test_count_is_exact_beyond_float32():
    rule = build_rule({"rule": "count"})
    big = {"c": jnp.array([2**24], jnp.int32)}
    params, _ = rule.finish(big, ({"c": jnp.array([[1]], jnp.int32)}, jnp.array([1.0])), jnp.array(1), ())
    assert int(params["c"][0]) == 2**24 + 1


@pytest.mark.parametrize("name", ["sgd", "adam", "adagrad", "rmsprop", "yogi", "lamb"])
def test_an_optimiser_is_optax_with_the_tables_penalty(name):
    rule = build_rule({"rule": name, "rate": 0.1, "decay": 0.5, "scale": "sum"})
    state = rule.init(PARAMS)
    params, _ = rule.finish(PARAMS, TOTAL, jnp.array(2), state)
    reference = getattr(optax, name)(0.1)
    gradient = {"a": jnp.array([4.0 + 0.5, -2.0 + 1.0]), "b": jnp.array(1.0 + 1.5)}
    moves, _ = reference.update(gradient, reference.init(PARAMS), PARAMS)
    close(params, optax.apply_updates(PARAMS, moves))


def test_gradient_descent_with_momentum_by_hand():
    """m ← β·m + g, θ ← θ − α·m, with g = Σ + decay·θ: two rounds, every number worked out."""
    rule = build_rule({"rule": "sgd", "rate": 0.1, "momentum": 0.5, "decay": 0.5, "scale": "sum"})
    params, state = {"x": jnp.array([1.0, -2.0])}, rule.init({"x": jnp.zeros(2)})
    for total in ([4.0, 1.0], [2.0, 0.0]):
        params, state = rule.finish(params, ({"x": jnp.array([total])}, jnp.array([2.0])), jnp.array(2), state)
    # g₁ = (4.5, 0), θ₁ = (.55, −2);  g₂ = (2.275, −1), m₂ = (4.525, −1), θ₂ = (.0975, −1.9)
    np.testing.assert_allclose(params["x"], [0.0975, -1.9], rtol=1e-6)
    np.testing.assert_allclose(jax.tree.leaves(state)[0], [4.525, -1.0], rtol=1e-6)


def test_momentum_is_a_setting_of_gradient_descent_alone():
    for value in (0.0, 1.0):
        with pytest.raises(PlanError, match=rf"server.momentum must be above 0 and at most 0.999, got {value}"):
            build_rule({"rule": "sgd", "rate": 0.1, "momentum": value})
    with pytest.raises(PlanError, match=r"server has no setting 'momentum'"):
        build_rule({"rule": "adam", "rate": 0.1, "momentum": 0.9})
    assert build_rule({"rule": "sgd", "rate": 0.1}).moves_rows
    assert not build_rule({"rule": "sgd", "rate": 0.1, "momentum": 0.9}).moves_rows


# ---- claims ----


def claim(**changes):
    fields = {
        "model": "local",
        "unit": "user",
        "relation": "replace_one",
        "epsilon": 1.0,
        "delta": 0.0,
        "per": "run",
        "fidelity": "corrected",
        "trust": "nobody",
    }
    return Claim(**{**fields, **changes})


def test_a_claim_needs_all_its_words():
    with pytest.raises(TypeError):
        Claim("local", "user")
    for name in ("model", "unit", "relation", "per", "fidelity", "trust"):
        with pytest.raises(PlanError, match=f"Claim.{name} must be one of"):
            claim(**{name: "any"})
    for epsilon in (-1.0, float("nan")):
        with pytest.raises(PlanError, match="epsilon must be at least 0"):
            claim(epsilon=epsilon)
    with pytest.raises(PlanError, match="delta must be between"):
        claim(delta=1.5)


def test_infinity_is_printed_as_infinity():
    text = str(claim(epsilon=float("inf"), conditions=("because",)))
    assert text == "ε = ∞ per run, local, unit user, replace-one, trust: nobody (because)"


# ---- metrics ----


def test_rank_of_a_known_list():
    scores = jnp.array([0.1, 0.9, 0.4, 0.7, 0.3])
    assert int(rank(jax.random.key(0), scores, 2)) == 3
    assert hit_rate(np.array([3]), 3) == 1
    np.testing.assert_allclose(reciprocal_rank(np.array([3]), 3), 1 / 3)
    np.testing.assert_allclose(discounted_gain(np.array([3]), 3), 0.5)
    assert summary(np.array([1, 4, 12]), ("HR@10",)) == {"HR@10": pytest.approx(2 / 3)}


def test_a_constant_scorer_scores_like_random():
    keys = jax.random.split(jax.random.key(1), 20_000)
    found = np.asarray(jax.vmap(lambda key: rank(key, jnp.zeros(10), 7))(keys))
    # Each rank has probability 1/10: sd of a count is 42; 5 sd.
    np.testing.assert_allclose(np.bincount(found, minlength=11)[1:], 2000, atol=212)


def test_no_candidate_is_no_rival():
    scores = jnp.array([-jnp.inf, 1.0, -jnp.inf, 1.0])
    keys = jax.random.split(jax.random.key(2), 100)
    found = jax.vmap(lambda key: rank(key, scores, 1))(keys)
    assert set(np.asarray(found)) == {1, 2}
    same(found, jax.vmap(lambda key: rank(key, scores, 1))(keys))
