"""Claim audit: a plan is run with canaries among its people, and what is released, or sent, is compared with its claim.

Each canary's random bit decides between two neighbours of the claim: a pattern or its opposite (replace-one), present or
absent (add/remove), an item or no item (unit interaction). Guesses about the coins prove a lower bound on ε; a claim below it is
false.

Where the server draws its cohorts at random, there are two claims and two attackers. One does not see who was drawn, and
is held against the amplified ε. The other has every canary asked in every round, as a server can that does not draw as the
plan says, and is held against the ε that stands beside it.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from tacit.audit.evidence import (
    DRAWN_SHARES,
    Evidence,
    drawn_bound,
    drawn_pure_bound,
    drawn_score,
    error_of_each,
    most_accurate,
    normal_effect,
    weigh_guesses,
)
from tacit.core.catalog import Field
from tacit.core.plan import Plan
from tacit.device.method import person_fields
from tacit.errors import PlanError
from tacit.lab.audits.canary_run import CanaryRun, Seen, Swap
from tacit.lab.data import Population
from tacit.lab.data.organisations import organisations
from tacit.lab.data.synthetic import movies
from tacit.lab.plans.loader import complete
from tacit.privacy.accounting.accountant import compose
from tacit.privacy.accounting.events import (
    CorrelatedGaussian,
    Drawn,
    Event,
    FixedPure,
    Gaussian,
    SplitGaussian,
    distance,
    undrawn,
)
from tacit.privacy.claim import Claim
from tacit.privacy.mechanism import mechanism_class
from tacit.privacy.price import Price, StagePrice
from tacit.privacy.sampler import sampler_of

USERS, CANARIES, CONFIDENCE = 60, 1000, 0.99
_ITEMS = 300
_SILOS = 2


class Tested(NamedTuple):
    """A claim and what canaries prove against it."""

    claim: Claim
    evidence: Evidence

    @property
    def passed(self) -> bool:
        """Whether the claim stands: what is proved is not more than it."""
        return self.evidence.epsilon <= self.claim.epsilon

    @property
    def most(self) -> float:
        """The highest accuracy of guessing that the claim allows."""
        return most_accurate(self.claim.epsilon, self.claim.delta)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "claim": self.claim.to_dict(),
            "evidence": self.evidence.to_dict(),
            "epsilon_at_least": self.evidence.epsilon,
            "accuracy_at_most": self.most,
        }


class Audit(NamedTuple):
    """What canaries prove against the claim of a plan, and against the one without amplification where cohorts are drawn."""

    plan: str
    tested: Tested
    seeds: int
    confidence: float
    asked: Tested | None = None  # however the cohorts are chosen; None where none is drawn at random

    @property
    def claim(self) -> Claim:
        """The plan's claim."""
        return self.tested.claim

    @property
    def evidence(self) -> Evidence:
        """What is proved against the plan's claim."""
        return self.tested.evidence

    @property
    def passed(self) -> bool:
        """Whether every claim stands."""
        return self.tested.passed and (self.asked is None or self.asked.passed)

    @property
    def verdict(self) -> str:
        """PASS or FAIL."""
        return "PASS" if self.passed else "FAIL"

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "plan": self.plan,
            "verdict": self.verdict,
            **self.tested.to_dict(),
            **({} if self.asked is None else {"asked": self.asked.to_dict()}),
            "seeds": self.seeds,
            "confidence": self.confidence,
        }


def audit(
    plan: Plan,
    log: Population | None = None,
    *,
    users: int = USERS,
    canaries: int = CANARIES,
    seeds: Sequence[int] = (0,),
    confidence: float = CONFIDENCE,
    swap: Swap = lambda mechanism: mechanism,
) -> Audit:
    """Run a plan with canaries and compare what can be inferred about them with its claim.

    Args:
        plan: the plan whose claim is audited.
        log: the people to whom canaries are added; by default a small synthetic log.
        users: how many people that log has; more where a cohort needs more.
        canaries: the most canaries; where all are in one sum, at most as many as it has numbers.
        seeds: one run for each, or two where cohorts are drawn at random; the canaries of all runs are evaluated together.
        confidence: the probability that no true claim is refuted.
        swap: replaces the plan's mechanism by another, under the same claim; for tests with faulty mechanisms.
    """
    plan = complete(plan)
    people = log if log is not None else _people(plan, users)
    if not seeds:
        raise PlanError("seeds must name at least one run, got none; (0,) is one.")
    runs = [CanaryRun(plan, people, canaries, seed, swap) for seed in seeds]
    coins, cost = np.concatenate([run.coins for run in runs]), runs[0].price
    seen = [run.play() for run in runs]
    if cost.undrawn is None:
        scores = np.concatenate([_total(stages) for stages in seen])
        evidence = weigh_guesses(scores, coins, cost.whole.delta, confidence, _curve(cost))
        return Audit(plan.name, Tested(cost.whole, evidence), len(runs), confidence)
    each = (1 + confidence) / 2  # of two claims
    asked = [CanaryRun(plan, people, canaries, seed, swap, asked=True).play() for seed in seeds]
    answers = _answers(cost, asked, coins)
    return Audit(
        plan.name,
        Tested(cost.whole, _of_draws(cost, seen, answers, coins, each)),
        len(runs),
        confidence,
        Tested(cost.undrawn, _of_answers(cost.undrawn, asked, answers, coins, each)),
    )


def _people(plan: Plan, users: int) -> Population:
    held = any(mechanism_class(stage.privacy["mechanism"]).sums_people for stage in plan.stages)
    fewest = max(sampler_of(stage).fewest for stage in plan.stages)
    world = movies(max(users, fewest), _ITEMS, silos=_SILOS if held else 0)
    return organisations(world) if held else _described(world, plan)


def _described(world: Population, plan: Plan) -> Population:
    """With the fields of a person that settings of the plan name; each value is the middle of its range."""
    known = [field.name for field in world.catalog.person_fields]
    middle = {
        field.name: (field.low + field.high) / 2
        for stage in plan.stages
        for field in person_fields(stage)
        if field.name not in known
    }
    fields = (*world.catalog.person_fields, *(Field(name, "numeric") for name in middle))
    added = np.tile(np.array([*middle.values()], np.float32), (len(world), 1))
    own = added if world.person is None else np.concatenate([world.person, added], axis=1)
    return replace(world, catalog=replace(world.catalog, person_fields=fields), person=own)


_NORMAL = (Gaussian, CorrelatedGaussian, SplitGaussian)


def _curve(cost: Price) -> str | None:
    """The relation of a claim that is about normal noise and nothing else."""
    events = [stage.event for stage in cost.covered if stage.event is not None]
    return cost.whole.relation if all(isinstance(event, _NORMAL) for event in events) else None


def _total(stages: list[Seen], cost: Price | None = None) -> np.ndarray:
    """Every canary's score over all stages, each in units of its own spread; with a price, without seeing who was drawn."""
    parts = []
    for one in stages:
        priced = None if cost is None else cost.stages[one.stage]
        scores = one.scores[one.answered] if priced is None else _unseen(one.scores, priced)
        parts.append(scores.sum(0) / max(float(scores.sum(0).std()), 1e-30))
    return np.sum(parts, axis=0)


# ---- where cohorts are drawn at random ----


class _Answers(NamedTuple):
    """Guesses about single answers in one stage; all answers of one canary together where their noise is not independent."""

    stage: int
    event: Event
    scores: np.ndarray  # float[answers, canaries]
    right: np.ndarray  # bool[answers, canaries]

    def effect(self, alpha: float) -> float:
        """How far apart the two values of a bit are in one answer, in standard deviations, if the noise is normal."""
        return normal_effect(int(self.right.sum()), self.right.size, alpha)


def _answers(cost: Price, asked: list[list[Seen]], coins: np.ndarray) -> list[_Answers]:
    found = []
    for runs in zip(*asked):
        event = cost.stages[runs[0].stage].event
        assert event is not None
        scores = np.concatenate([one.scores[one.answered] for one in runs], axis=1)
        scores = scores if isinstance(event, Drawn) else scores.sum(0, keepdims=True)
        found.append(_Answers(runs[0].stage, event, scores, (scores > 0) == coins))
    return found


def _of_draws(
    cost: Price, seen: list[list[Seen]], answers: list[_Answers], coins: np.ndarray, confidence: float
) -> Evidence:
    """What an attacker proves who does not see who was drawn.

    The second bound takes the effect of an answer from canaries that were asked in every round, and its rate from the draws.
    """
    delta, scores = cost.whole.delta, np.concatenate([_total(stages, cost) for stages in seen])
    found = weigh_guesses(scores, coins, delta, confidence, shares=DRAWN_SHARES)
    amplified = [one for one in answers if isinstance(one.event, Drawn)]
    alpha, bounds = error_of_each(confidence, DRAWN_SHARES) / (2 * len(amplified)), []
    for one in amplified:
        drawn = [stage.drawn for stages in seen for stage in stages if stage.stage == one.stage]
        drawn = np.concatenate(drawn, axis=1)
        if isinstance(one.event, FixedPure):
            bounds.append(drawn_pure_bound(np.abs(one.scores[0]), one.right[0], drawn, delta, alpha))
        else:
            bounds.append(drawn_bound(one.effect(alpha), drawn, delta, alpha))
    return found._replace(curve=max(bounds))


def _of_answers(
    claim: Claim, asked: list[list[Seen]], answers: list[_Answers], coins: np.ndarray, confidence: float
) -> Evidence:
    """What a server proves that asks every canary in every round."""
    found = weigh_guesses(np.concatenate([_total(stages) for stages in asked]), coins, claim.delta, confidence)
    if not all(isinstance(undrawn(one.event), _NORMAL) for one in answers):
        return found
    alpha, reach = error_of_each(confidence) / len(answers), 2.0 if claim.relation == "replace_one" else 1.0
    effects = [(one.effect(alpha), one.scores.shape[0]) for one in answers]
    events = [(Gaussian(reach / effect), count) for effect, count in effects if effect > 1e-3]
    return found._replace(curve=compose(events, claim.delta, claim.relation).epsilon)


def _unseen(scores: np.ndarray, priced: StagePrice) -> np.ndarray:
    """Scores float[rounds, canaries] as log-likelihood ratios, where the attacker does not see who was drawn."""
    event, exposure = priced.event, priced.exposure
    if exposure is None or not isinstance(event, Drawn):
        return scores
    noise = event.noise if not isinstance(event, FixedPure) else math.sqrt(8) / event.epsilon  # Laplace's, in bounds
    far = distance(event, exposure.relation)
    rate = exposure.cohort / exposure.devices
    return drawn_score(scores, far / noise, rate, presence=exposure.relation == "add_remove")
