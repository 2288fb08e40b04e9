"""The one-run audit: what canaries prove never exceeds a true claim, and wrong mechanisms are refuted."""

import json
import sys
from dataclasses import fields, replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from tacit.audit import evidence
from tacit.audit.evidence import auc, gaussian_bound, most_accurate, one_run_bound, tpr_at, weigh_guesses
from tacit.cli import app
from tacit.core.integer_grid import from_vector, round_to_grid, to_vector
from tacit.core.plan import Plan
from tacit.core.sparse_rows import dense_tree
from tacit.errors import PlanError
from tacit.lab.audits.claim_audit import audit
from tacit.lab.plans.loader import choose, load_plan, plan_names
from tacit.privacy.accounting.accountant import compose
from tacit.privacy.accounting.events import PoissonGaussian
from tacit.privacy.mechanisms._parts.summed import for_each_weight, size_of
from tacit.privacy.mechanisms.cooccurrence import RandomizedCooccurrence
from tacit.privacy.mechanisms.gaussian import GaussianMechanism
from tacit.privacy.mechanisms.within_organisation import WithinOrganisation
from tacit.privacy.price import price
from tacit.privacy.sampler import Fixed, Poisson

# ---- what guesses prove ----


def test_the_ceilings_of_the_one_run_bound():
    """All of r right: ln of q/(1 − q) with q^r = α."""
    for r, ceiling in ((100, 3.49), (1000, 5.81)):
        assert one_run_bound(np.ones(r), np.ones(r, bool), 0.0, 0.05) == pytest.approx(ceiling, abs=0.01)


@pytest.mark.parametrize(("noise", "truth"), [(2.0, 1.99), (1.0, 4.38), (0.5, 10.0)])
def test_normal_noise_is_never_refuted(noise, truth):
    """N(±1/2, z²): ε of presence at δ = 1e-5, as known in closed form."""
    rng = np.random.default_rng(0)
    for _ in range(5):
        coins = rng.random(1000) < 0.5
        found = weigh_guesses(coins - 0.5 + noise * rng.normal(size=1000), coins, 1e-5, 0.95, "add_remove")
        assert 0.3 * truth < found.curve < truth
        assert 0.1 * truth < found.proved < truth


def test_guesses_by_chance_prove_nothing():
    rng = np.random.default_rng(1)
    found = weigh_guesses(rng.normal(size=2000), rng.random(2000) < 0.5, 0.0, 0.95, "replace_one")
    assert (found.proved, found.curve) == (0.0, 0.0)
    assert abs(found.auc - 0.5) < 0.05


def test_no_right_guess_proves_nothing():
    assert gaussian_bound(0, 10, 1e-5, 0.05, "replace_one") == 0.0


@settings(deadline=None, max_examples=30)
@given(st.lists(st.tuples(st.integers(-5, 5), st.booleans()), min_size=2, max_size=40))
def test_auc_and_tpr_by_their_definitions(pairs):
    scores, truth = (np.array(part) for part in zip(*pairs))
    if truth.all() or not truth.any():
        return
    yes, no = scores[truth], scores[~truth]
    won = (yes[:, None] > no).mean() + (yes[:, None] == no).mean() / 2
    assert auc(scores.astype(float), truth) == pytest.approx(won)
    cuts = [cut for cut in [*scores, -99] if (no > cut).mean() <= 0.01]
    assert tpr_at(scores.astype(float), truth) == pytest.approx(max((yes > cut).mean() for cut in cuts))


@pytest.mark.parametrize(("epsilon", "bound"), [(2.0, 0.881), (5.0, 0.9933), (15.0, 0.9999997)])
def test_how_often_anybody_can_be_right(epsilon, bound):
    assert most_accurate(epsilon, 0.0) == pytest.approx(bound, abs=5e-4)
    assert most_accurate(0.0, 0.1) == pytest.approx(0.55)


# ---- plans ----


def small(plan: Plan) -> Plan:
    """The same plan in a few short rounds: its promise, its mechanism and its method stay."""
    stages = []
    for stage in plan.stages:
        quick = {"epochs": 1, "home": 0, "most": 8} if stage.method in ("privrec", "fedseqrec") else {}
        hyper = {**stage.hyper, **{name: value for name, value in quick.items() if name in stage.hyper}}
        stages.append(replace(stage, hyper=hyper, rounds=min(stage.rounds, 2)))
    return replace(plan, stages=tuple(stages))


def _promises(name: str) -> bool:
    return 0 < price(load_plan(name), 100).whole.epsilon < np.inf


PROMISING = [name for name in plan_names() if _promises(name)]


def test_plans_that_promise_are_found():
    assert {"fpl-dp", "dp-privrec", "dp-privrec-paper", "seqmf", "dplcf", "fedseqrec-dp"} <= set(PROMISING)


SHORT = ("dplcf", "lcf-sp")  # the others take their time to compile


@pytest.mark.parametrize(
    "name", [name if name in SHORT else pytest.param(name, marks=pytest.mark.slow) for name in PROMISING]
)
def test_a_plan_that_promises_stands(name):
    plan = small(load_plan(name))
    crowd = any("because" in stage.cohort for stage in plan.stages)  # volunteers are drawn from enough people
    found = audit(plan, users=150 if crowd else 40, canaries=200)
    assert found.passed, found
    few = any(stage.privacy.get("update_form") == "nonnegative" for stage in plan.stages)  # room for one canary an item
    assert found.evidence.canaries == (150 if few else 200)


@pytest.mark.parametrize(
    "mechanism",
    ["randomized_response", *(pytest.param(name, marks=pytest.mark.slow) for name in ("laplace", "harmony"))],
)
def test_messages_of_their_own_show_much_of_a_claim(mechanism):
    plan = choose("popularity", {"privacy.mechanism": mechanism, "privacy.epsilon": 2.0})
    found = audit(plan, users=10, canaries=1500)
    assert 0.25 * 2.0 < found.evidence.proved <= 2.0


def test_correlated_noise_stands():
    """Each canary reports twice, and what all rounds show of it together is weighed."""
    privacy = {"privacy.mechanism": "gaussian", "privacy.epsilon": 8.0, "privacy.correlation": "blt"}
    cohort = {"cohort.sampler": "pass", "cohort.count": 21, "cohort.shuffle": "once", "rounds": 20}
    found = audit(choose("popularity", {**privacy, **cohort}), users=10, canaries=200)
    assert any("less than 10 rounds apart" in words for words in found.claim.conditions)
    assert found.evidence.curve is not None
    assert found.passed, found


def test_runs_are_weighed_together():
    plan = choose("popularity", {"privacy.mechanism": "gaussian", "privacy.epsilon": 4.0})
    one, more = (audit(plan, users=10, canaries=100, seeds=range(n)) for n in (1, 4))
    assert (one.evidence.canaries, more.evidence.canaries) == (100, 400)
    assert more.evidence.curve > 0


SPLIT = {"privacy": {"mechanism": "gaussian", "split": "released", "noise": 1.0}, "rounds": 4}


@pytest.mark.slow
def test_rounds_that_share_a_bound_are_found_out_together():
    whole = choose("popularity", {"privacy": {"mechanism": "gaussian", "noise": 1.0}, "rounds": 1})
    one, shared = (audit(plan, users=10, canaries=1500).evidence.curve for plan in (whole, choose("popularity", SPLIT)))
    assert shared == pytest.approx(one, rel=0.25)


# ---- planted mutants: each claims what the real one claims ----


class NoiseForgotten(GaussianMechanism):
    def estimate(self, key, total, n, public_state):
        numbers = for_each_weight(self.to_numbers(total[0], public_state), total[1])
        return numbers, jnp.full(total[1].shape, self.cohort)


class ClipSkipped(GaussianMechanism):
    def encode(self, key, update, public_state):
        step = self.clip * self.grid(size_of(update)).step
        return jax.tree.map(
            lambda leaf: jnp.clip(leaf / step, -(2.0**30), 2.0**30).astype(jnp.int32), dense_tree(update)
        )


class EachLeafByItself(GaussianMechanism):
    """Every leaf is bounded by S, and the noise is that of all leaves bounded by S together."""

    def encode(self, key, update, public_state):
        grid, word = self.grid(size_of(update)), jax.random.bits(key, (), jnp.uint32)
        one = lambda leaf: round_to_grid(word, leaf.reshape(-1), self.clip, grid).reshape(leaf.shape)  # noqa: E731
        return jax.tree.map(one, dense_tree(update))


class NoiseAfterTheStep(GaussianMechanism):
    """A step of 2, then the noise; accounted for as if the noise had come first."""

    @property
    def sum_multiplier(self):
        return super().sum_multiplier / 2


class FormForgotten(GaussianMechanism):
    """Counts on updates of a form, and lets any pass."""

    def encode(self, key, update, public_state):
        vector, word = to_vector(dense_tree(update)), jax.random.bits(key, (), jnp.uint32)
        return from_vector(round_to_grid(word, vector, self.clip, self.grid(vector.size)), dense_tree(update))


class MembersForgot(WithinOrganisation):
    @property
    def deviation(self):
        return 0.0


class TooHonest(RandomizedCooccurrence):
    @property
    def per_position(self):
        return 1.5 * super().per_position


class GrantsTheWholeEachTime(GaussianMechanism):
    """Every round gets all of the bound that the rounds should share."""

    def next_public_state(self, key, total, public_state):
        return {**public_state, "part": public_state["part"] * 0 + 1024}


def planted(mutant):
    return lambda real: mutant(**{field.name: getattr(real, field.name) for field in fields(real)})


NONNEGATIVE = {"privacy.mechanism": "gaussian", "privacy.epsilon": 4.0, "privacy.update_form": "nonnegative"}
OUTER = {**NONNEGATIVE, "privacy.update_form": "outer_products"}
BY_RULE = choose("fpl-dp", {"rounds": 1, "hyper.triples": 1})
MUTANTS = [
    (NoiseForgotten, BY_RULE, 250),
    (ClipSkipped, BY_RULE, 250),
    (EachLeafByItself, BY_RULE, 250),
    (NoiseAfterTheStep, BY_RULE, 250),
    pytest.param(FormForgotten, choose("popularity", NONNEGATIVE), 150, marks=pytest.mark.slow),
    pytest.param(MembersForgot, small(load_plan("fedseqrec-dp")), 250, marks=pytest.mark.slow),
    (TooHonest, load_plan("dplcf"), 3000),
    (GrantsTheWholeEachTime, choose("popularity", SPLIT), 1500),
]


@pytest.mark.slow
@pytest.mark.parametrize(("mutant", "plan", "canaries"), MUTANTS)
def test_a_planted_mutant_fails(mutant, plan, canaries):
    found = audit(plan, users=10, canaries=canaries, seeds=range(3), swap=planted(mutant))
    assert found.verdict == "FAIL", found


@pytest.mark.parametrize(
    "plan",
    [
        pytest.param(BY_RULE, id="fpl-dp"),
        pytest.param(load_plan("dplcf"), id="dplcf"),
        pytest.param(choose("popularity", NONNEGATIVE), id="nonnegative", marks=pytest.mark.slow),
    ],
)
def test_the_same_without_the_mutant_passes(plan):
    found = audit(plan, users=10, canaries=250, seeds=range(3))
    assert found.verdict == "PASS", found


@pytest.mark.slow
@pytest.mark.parametrize(("swap", "passes"), [(lambda real: real, True), (planted(FormForgotten), False)])
def test_outer_products_are_audited(swap, passes):
    """A matrix of 200 items has room for 100 canaries, so there are more runs."""
    found = audit(choose("item-covariance", OUTER), users=10, canaries=100, seeds=range(8), swap=swap)
    assert found.passed == passes
    assert 0.5 * found.claim.epsilon < found.evidence.epsilon


# ---- cohorts drawn at random ----

DRAWN = {"privacy.mechanism": "gaussian", "rounds": 20}
FIXED = choose("popularity", {**DRAWN, "privacy.noise": 4.0, "cohort.sampler": "fixed", "cohort.count": 10})
POISSON = choose("popularity", {**DRAWN, "privacy.noise": 2.0, "cohort.sampler": "poisson", "cohort.rate": 0.05})
BOTH = [FIXED, pytest.param(POISSON, marks=pytest.mark.slow)]


def audit_draws(plan, **options):
    return audit(plan, users=20, canaries=200, seeds=range(3), **options)


def twice_as_many(kind):
    def draw(self, seed, stage, round, devices):
        own = {"count": 2 * self.count} if kind is Fixed else {"rate": 2 * self.rate}
        return ORIGINAL[kind](replace(self, **own), seed, stage, round, devices)

    return draw


def always_the_same(kind):
    return lambda self, seed, stage, round, devices: ORIGINAL[kind](self, seed, stage, 0, devices)


ORIGINAL = {kind: kind.draw for kind in (Fixed, Poisson)}


@pytest.mark.slow
@pytest.mark.parametrize("plan", BOTH)
def test_an_amplified_claim_stands_and_much_of_it_is_found(plan):
    found = audit_draws(plan)
    assert found.passed
    assert 0.4 * found.claim.epsilon < found.evidence.epsilon <= found.claim.epsilon
    assert found.asked is not None
    assert any("however the cohorts are chosen" in words for words in found.asked.claim.conditions)
    assert 0.6 * found.asked.claim.epsilon < found.asked.evidence.epsilon <= found.asked.claim.epsilon
    assert found.asked.evidence.proved > 1.0, "and without any assumption about the noise"


@pytest.mark.slow
@pytest.mark.parametrize("plan", BOTH)
@pytest.mark.parametrize("fault", [twice_as_many, always_the_same])
def test_draws_other_than_declared_are_refuted(plan, fault, monkeypatch):
    for kind in ORIGINAL:
        monkeypatch.setattr(kind, "draw", fault(kind))
    found = audit_draws(plan)
    assert not found.tested.passed
    assert found.asked is not None
    assert found.asked.passed, "what is claimed without the draws is still true"


@pytest.mark.slow
@pytest.mark.parametrize("plan", [FIXED, POISSON])
@pytest.mark.parametrize(
    ("fault", "amplified"),
    [(planted(NoiseForgotten), True), (lambda real: replace(real, messages=None), False)],
    ids=["noise forgotten", "answers without end"],
)
def test_other_faults_are_refuted_where_cohorts_are_drawn(plan, fault, amplified):
    found = audit_draws(plan, swap=fault)
    assert found.asked is not None
    assert not found.asked.passed
    assert found.tested.passed != amplified


@pytest.mark.slow
def test_pure_noise_over_cohorts_that_are_drawn():
    privacy = {"privacy.mechanism": "laplace", "privacy.place": "central", "privacy.epsilon": 1.0}
    found = audit_draws(choose("popularity", {**privacy, "cohort.sampler": "fixed", "cohort.count": 40, "rounds": 2}))
    assert found.passed
    assert 0.1 * found.claim.epsilon < found.evidence.epsilon
    assert found.asked is not None
    assert found.asked.evidence.curve is None, "no normal noise is claimed"


@pytest.mark.parametrize(("rate", "noise", "rounds"), [(0.05, 1.0, 30), (0.3, 4.0, 10), (0.9, 2.0, 3)])
def test_bounds_of_draws_are_never_above_the_price(rate, noise, rounds):
    rng, best = np.random.default_rng(0), compose([(PoissonGaussian(noise, rate), rounds)], 1e-5, "add_remove").epsilon
    for _ in range(2):
        found = evidence.drawn_bound(1 / noise, rng.random((rounds, 2000)) < rate, 1e-5, 0.01)
        assert 0.7 * best < found <= best
    again = np.broadcast_to(rng.random(2000) < rate, (rounds, 2000))
    assert evidence.drawn_bound(1 / noise, again, 1e-5, 0.01) > best


def test_bounds_of_draws_of_nobody_are_nothing():
    nobody = np.zeros((3, 100), bool)
    assert evidence.drawn_bound(5.0, nobody, 1e-5, 0.01) == 0.0
    assert evidence.drawn_bound(0.0, ~nobody, 1e-5, 0.01) == 0.0
    assert evidence.drawn_pure_bound(np.ones(100), np.ones(100, bool), nobody, 1e-5, 0.01) == 0.0


def test_the_pure_bound_of_draws_is_never_above_the_price():
    """Randomised response of ε = 2 behind a draw at .3: ln(1 + .3(e² − 1))."""
    rng = np.random.default_rng(0)
    right, drawn = rng.random(4000) < most_accurate(2.0, 0.0), rng.random((10, 4000)) < 0.3
    assert (
        0.85 * 1.07 < evidence.drawn_pure_bound(np.ones(4000), right, drawn, 0.0, 0.01) <= np.log1p(0.3 * np.expm1(2.0))
    )


@pytest.mark.parametrize("presence", [True, False])
@pytest.mark.parametrize("rate", [0.05, 0.5, 0.95])
def test_scores_without_the_draws_are_likelihood_ratios(rate, presence):
    """In whatever unit: the odds of a bit of 1 among equal scores are e to the score."""
    rng = np.random.default_rng(0)
    bits, drawn = rng.random((1, 400_000)) < 0.5, rng.random((1, 400_000)) < rate
    moved = 3.0 * drawn * (bits if presence else bits - 0.5)
    ratio = evidence.drawn_score(7 + 5 * (moved + rng.normal(size=moved.shape)), 3.0, rate, presence)
    inside = np.abs(ratio - 0.5) < 0.2
    assert np.log(bits[inside].mean() / (1 - bits[inside].mean())) == pytest.approx(ratio[inside].mean(), abs=0.06)


# ---- mistakes, and the command ----


def test_a_plan_without_a_promise_gets_a_sentence():
    with pytest.raises(PlanError, match=r"no claim to audit: ε = ∞ .*; give the plan a mechanism and a promise\."):
        audit(load_plan("fcf"), users=10)
    with pytest.raises(PlanError, match=r"nothing to audit: ε = 0 .*nothing leaves the device"):
        audit(load_plan("mfu"), users=10)


def test_mistakes_get_a_sentence(monkeypatch):
    plan = choose("popularity", {"privacy.mechanism": "gaussian", "privacy.epsilon": 4.0})
    with pytest.raises(PlanError, match=r"seeds must name at least one run, got none; \(0,\) is one\."):
        audit(plan, users=10, seeds=())
    with pytest.raises(PlanError, match=r"confidence must lie between 0\.5 and 1, got 2; 0\.99 is usual\."):
        weigh_guesses(np.zeros(2), np.array([True, False]), 0.0, 2.0)
    with pytest.raises(
        PlanError, match=r"canaries must be more, got 3, whose coins all fell alike; 100 is a beginning\."
    ):
        weigh_guesses(np.zeros(3), np.ones(3, bool), 0.0, 0.95)
    monkeypatch.setitem(sys.modules, "jax_privacy", None)
    with pytest.raises(PlanError, match=r"needs jax-privacy, which is not installed; pip install 'tacit\[audit\]'\."):
        evidence.load_auditing()


CLI = ["audit", "popularity", "--users", "10", "--canaries", "100", "--set", "privacy.mechanism=gaussian"]


def test_the_command_prints_a_verdict():
    made = CliRunner().invoke(app, [*CLI, "--set", "privacy.epsilon=4"])
    assert made.exit_code == 0, made.output
    assert "PASS: nothing here refutes ε = 4" in made.output
    assert "trust: server" in made.output
    said = json.loads(CliRunner().invoke(app, [*CLI, "--set", "privacy.epsilon=4", "--json"]).output)
    assert said["verdict"] == "PASS"
    assert said["epsilon_at_least"] <= said["claim"]["epsilon"]
    assert said["evidence"]["canaries"] == 100


def test_the_command_says_what_the_server_could_do_otherwise():
    drawn = ["privacy.noise=4", "cohort.sampler=fixed", "cohort.count=10", "rounds=20"]
    options = [word for one in drawn for word in ("--set", one)]
    made = CliRunner().invoke(app, ["audit", "popularity", "--users", "20", "--canaries", "200", *CLI[6:], *options])
    assert made.exit_code == 0, made.output
    assert "attacker who does not see who was drawn: " in made.output
    assert "if the noise is normal, and noise and draws are independent" in made.output
    assert "without amplification: ε = 8.803" in made.output
    assert "server that asks every canary in every round: " in made.output


def test_the_command_fails_loudly(monkeypatch):
    monkeypatch.setattr(GaussianMechanism, "estimate", NoiseForgotten.estimate)
    made = CliRunner().invoke(app, [*CLI, "--set", "privacy.epsilon=3.9"])  # a program of its own
    assert made.exit_code == 1, made.output
    assert "FAIL: ε = 3.9 is refuted" in made.output


def test_a_plan_without_a_promise_ends_with_two():
    with pytest.raises(PlanError, match="no claim to audit"):
        CliRunner().invoke(app, ["audit", "fcf", "--users", "10"], catch_exceptions=False, standalone_mode=False)
