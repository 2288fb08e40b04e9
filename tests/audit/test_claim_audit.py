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
from tacit.core.plan import Plan
from tacit.core.sparse_rows import dense_tree
from tacit.errors import PlanError
from tacit.lab.audits.claim_audit import audit
from tacit.lab.plans.loader import choose, load_plan, plan_names
from tacit.privacy.mechanisms.cooccurrence import RandomizedCooccurrence
from tacit.privacy.mechanisms.gaussian import GaussianMechanism
from tacit.privacy.mechanisms.within_organisation import WithinOrganisation
from tacit.privacy.price import price

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


SHORT = ("fpl-dp", "dplcf", "dplcf-ap", "dplcf-paper", "lcf-sp", "lcf-ap")  # the others take their time to compile


@pytest.mark.parametrize(
    "name", [name if name in SHORT else pytest.param(name, marks=pytest.mark.slow) for name in PROMISING]
)
def test_a_plan_that_promises_stands(name):
    plan = small(load_plan(name))
    crowd = any("count" in stage.cohort for stage in plan.stages)  # a cohort is drawn from enough people
    found = audit(plan, users=150 if crowd else 40, canaries=200)
    assert found.passed, found
    assert found.evidence.canaries == 200


@pytest.mark.parametrize(
    "mechanism",
    ["randomized_response", *(pytest.param(name, marks=pytest.mark.slow) for name in ("laplace", "harmony"))],
)
def test_messages_of_their_own_show_much_of_a_claim(mechanism):
    plan = choose("popularity", {"privacy.mechanism": mechanism, "privacy.epsilon": 2.0})
    found = audit(plan, users=10, canaries=1500)
    assert 0.25 * 2.0 < found.evidence.proved <= 2.0


def test_coins_of_presence():
    """Poisson cohorts: a canary is there or not."""
    privacy = {"privacy.mechanism": "gaussian", "privacy.noise": 0.5, "cohort.sampler": "poisson", "cohort.rate": 0.9}
    found = audit(choose("popularity", privacy), users=10, canaries=300, seeds=range(2))
    assert found.claim.relation == "add_remove"
    assert found.evidence.curve is None  # chance draws the cohorts, so normal noise is not all that is claimed
    assert 1.0 < found.evidence.proved <= found.claim.epsilon


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


# ---- planted mutants: each claims what the real one claims ----


class NoiseForgotten(GaussianMechanism):
    def estimate(self, key, total, n, public_state):
        return total[0], jnp.full_like(total[1], self.cohort)


class ClipSkipped(GaussianMechanism):
    def encode(self, key, update, public_state):
        return jax.tree.map(lambda leaf: leaf.astype(jnp.float32), dense_tree(update))


class EachLeafByItself(GaussianMechanism):
    """Every leaf is bounded by S, and the noise is that of all leaves bounded by S together."""

    def encode(self, key, update, public_state):
        return {
            name: GaussianMechanism.encode(self, key, {name: leaf}, public_state)[name] for name, leaf in update.items()
        }


class NoiseAfterTheStep(GaussianMechanism):
    """A step of 2, then the noise; accounted for as if the noise had come first."""

    @property
    def deviation(self):
        return super().deviation / 2


class MembersForgot(WithinOrganisation):
    @property
    def deviation(self):
        return 0.0


class TooHonest(RandomizedCooccurrence):
    @property
    def per_position(self):
        return 1.5 * super().per_position


def planted(mutant):
    return lambda real: mutant(**{field.name: getattr(real, field.name) for field in fields(real)})


BY_RULE = choose("fpl-dp", {"rounds": 1, "hyper.triples": 1})
MUTANTS = [
    (NoiseForgotten, BY_RULE, 250),
    (ClipSkipped, BY_RULE, 250),
    (EachLeafByItself, BY_RULE, 250),
    (NoiseAfterTheStep, BY_RULE, 250),
    pytest.param(MembersForgot, small(load_plan("fedseqrec-dp")), 250, marks=pytest.mark.slow),
    (TooHonest, load_plan("dplcf"), 3000),
]


@pytest.mark.parametrize(("mutant", "plan", "canaries"), MUTANTS)
def test_a_planted_mutant_fails(mutant, plan, canaries):
    found = audit(plan, users=10, canaries=canaries, seeds=range(3), swap=planted(mutant))
    assert found.verdict == "FAIL", found


@pytest.mark.parametrize("plan", [BY_RULE, load_plan("dplcf")], ids=["fpl-dp", "dplcf"])
def test_the_same_without_the_mutant_passes(plan):
    found = audit(plan, users=10, canaries=250, seeds=range(3))
    assert found.verdict == "PASS", found


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


def test_the_command_fails_loudly(monkeypatch):
    monkeypatch.setattr(GaussianMechanism, "estimate", NoiseForgotten.estimate)
    made = CliRunner().invoke(app, [*CLI, "--set", "privacy.epsilon=3.9"])  # a program of its own
    assert made.exit_code == 1, made.output
    assert "FAIL: ε = 3.9 is refuted" in made.output


def test_a_plan_without_a_promise_ends_with_two():
    with pytest.raises(PlanError, match="no claim to audit"):
        CliRunner().invoke(app, ["audit", "fcf", "--users", "10"], catch_exceptions=False, standalone_mode=False)
