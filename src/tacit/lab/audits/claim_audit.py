"""Claim audit: a plan is run with canaries among its people, and what is released, or sent, is compared with its claim.

Each canary's random bit decides between two neighbours of the claim: a pattern or its opposite (replace-one), present or
absent (add/remove), an item or no item (unit interaction). Guesses about the coins prove a lower bound on ε; a claim below it is
false.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tacit.audit.evidence import Evidence, most_accurate, weigh_guesses
from tacit.core.catalog import Field
from tacit.core.messages import Schema
from tacit.core.plan import Plan
from tacit.device.batching import enter_batch, new_homes
from tacit.device.method import person_fields
from tacit.device.round import KEYS, Home
from tacit.errors import PlanError
from tacit.lab.audits.canaries import Canary, canary_devices, design_canaries, estimate_each, flat_estimate, in_one_sum
from tacit.lab.data import Population
from tacit.lab.data.organisations import organisations
from tacit.lab.data.synthetic import movies
from tacit.lab.plans.loader import complete
from tacit.lab.simulation.buckets import device_secrets
from tacit.lab.simulation.engine import (
    CohortSlots,
    Job,
    State,
    close_round,
    cohort_slots,
    device_places,
    fold,
    step_cohort,
)
from tacit.lab.simulation.federation import Federation, Performance
from tacit.lab.simulation.stage_runner import Rounds
from tacit.privacy.accounting.events import CorrelatedGaussian, Gaussian
from tacit.privacy.claim import Claim
from tacit.privacy.mechanism import Mechanism, mechanism_class
from tacit.privacy.price import Price, price
from tacit.server import round as server
from tacit.server.round import noise_key

USERS, CANARIES, CONFIDENCE = 60, 1000, 0.99
_ITEMS = 300
_SILOS = 2
_CHUNK = 8  # people stepped at a time
_SECRETS = 1 << 30  # the numbers of canaries' homes start here, apart from those of people

Swap = Callable[[Mechanism], Mechanism]


class Audit(NamedTuple):
    """A claim and what canaries prove against it."""

    plan: str
    claim: Claim
    evidence: Evidence
    seeds: int
    confidence: float

    @property
    def passed(self) -> bool:
        """Whether the claim stands: what is proved is not more than it."""
        return self.evidence.epsilon <= self.claim.epsilon

    @property
    def verdict(self) -> str:
        """PASS or FAIL."""
        return "PASS" if self.passed else "FAIL"

    @property
    def most(self) -> float:
        """The highest accuracy of guessing that the claim allows."""
        return most_accurate(self.claim.epsilon, self.claim.delta)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "plan": self.plan,
            "verdict": self.verdict,
            "claim": self.claim.to_dict(),
            "evidence": self.evidence.to_dict(),
            "epsilon_at_least": self.evidence.epsilon,
            "accuracy_at_most": self.most,
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
        users: how many people that log has.
        canaries: the most canaries; where all are in one sum, at most as many as it has numbers.
        seeds: one run for each; the canaries of all runs are evaluated together.
        confidence: the probability that a true claim is not refuted.
        swap: replaces the plan's mechanism by another, under the same claim; for tests with faulty mechanisms.
    """
    plan = complete(plan)
    people = log if log is not None else _people(plan, users)
    if not seeds:
        raise PlanError("seeds must name at least one run, got none; (0,) is one.")
    played = [_AuditedRun(plan, people, canaries, seed, swap) for seed in seeds]
    scores, coins = np.concatenate([play.run() for play in played]), np.concatenate([play.coins for play in played])
    cost = played[0].price
    evidence = weigh_guesses(scores, coins, cost.whole.delta, confidence, _curve(cost))
    return Audit(plan.name, cost.whole, evidence, len(played), confidence)


def nothing_to_audit(claim: Claim) -> str | None:
    """Why there is nothing to audit, in a sentence; None where there is."""
    if math.isinf(claim.epsilon):
        return f"There is no claim to audit: {claim}; give the plan a mechanism and a promise."
    if claim.epsilon == 0:
        return f"There is nothing to audit: {claim}."
    return None


def _people(plan: Plan, users: int) -> Population:
    held = any(mechanism_class(stage.privacy["mechanism"]).sums_people for stage in plan.stages)
    world = movies(users, _ITEMS, silos=_SILOS if held else 0)
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


def _curve(cost: Price) -> str | None:
    """The relation of a claim that is about normal noise and nothing else."""
    events = [stage.event for stage in cost.covered if stage.event is not None]
    return cost.whole.relation if all(isinstance(event, Gaussian | CorrelatedGaussian) for event in events) else None


class _AuditedRun:
    """One run of a plan with canaries among its people."""

    def __init__(self, plan: Plan, people: Population, canaries: int, seed: int, swap: Swap):
        longest = (max(1, int(people.lengths.max())),)  # one bucket: compiling takes the time here, not padding
        self.federation, self.swap = Federation(plan, people, seed=seed, performance=Performance(grid=longest)), swap
        stages = self.federation.price.stages
        # Volunteers are not who the claim is about, and no canary is one.
        self.sending = [n for n, stage in enumerate(stages) if stage.mechanism is not None and not stage.others]
        if (reason := nothing_to_audit(self.federation.price.whole)) is not None:
            raise PlanError(reason)
        self.canaries = min(self._room(number, canaries) for number in self.sending)
        first = stages[self.sending[0]].mechanism
        self.extra = canary_devices(first, self.canaries, people.catalog)
        self.price = price(plan, len(people) + self.extra)
        self.coins = np.random.default_rng([seed, 0xCA]).random(self.canaries) < 0.5
        root = jax.random.key(seed, impl=KEYS)
        self.homes = new_homes(device_secrets(root, _SECRETS + np.arange(self.extra)))

    def _room(self, number: int, canaries: int) -> int:
        """How many canaries a stage can distinguish: in a sum, those with a number of their own."""
        stage, mechanism = self.federation.plan.stages[number], self.federation.price.stages[number].mechanism
        if mechanism is None or not in_one_sum(mechanism):
            return canaries
        leaves = jax.tree.leaves(server.trained(self.federation.params, stage.trains))
        return min(canaries, max(leaf.size for leaf in leaves))

    def run(self) -> np.ndarray:
        """Every canary's score over all stages, each stage in units of its own spread."""
        total = np.zeros(self.canaries)
        for number in range(len(self.federation.plan.stages)):
            rounds = self.federation.begin(number)
            if rounds is None:
                continue
            if number in self.sending:
                scores = self._stage(rounds)
                total += scores / max(scores.std(), 1e-30)
            else:
                for turn in range(rounds.stage.rounds):
                    self.federation.play(rounds, turn, turn + 1)
            rounds.end()
        return total

    def _stage(self, rounds: Rounds) -> np.ndarray:
        priced = self.price.stages[rounds.job.stage]
        assert priced.mechanism is not None
        assert priced.exposure is not None
        job = replace(rounds.job, mechanism=self.swap(priced.mechanism), by_rows=False)
        noise = job.mechanism.noise_state(_schema(job).like())
        self.federation.memory = self.federation.memory._replace(noise=noise)
        method = design_canaries(
            job.mechanism, self.federation.methods[0].catalog, _schema(job), job.weights, self.canaries
        )
        # Where neighbours differ by one device's presence, a coin decides whether the canary is present.
        absent = job.mechanism.always_releases and priced.exposure.relation == "add_remove"
        owns = method.owns(np.ones_like(self.coins) if absent else self.coins)
        self.homes = enter_batch(method, job.stage, self.homes, owns)
        there = self.coins if absent else np.ones(self.extra, bool)
        scores = np.zeros(self.canaries)
        for number in range(rounds.stage.rounds):
            others, selected = self._draw(rounds, number, there)
            made = _turn(
                *(job, replace(job, method=method), self.federation.noise, number, self.federation.state),
                *([bucket.own for bucket in self.federation.buckets], others, self.homes, owns, selected),
                others_known=priced.exposure.drawn is None,
            )
            self.federation.set_state(made[0])
            self.homes, scores = made[1], scores + np.asarray(made[2], float)
        return scores - scores.mean() if absent else scores

    def _draw(self, rounds: Rounds, number: int, there: np.ndarray) -> tuple[list[CohortSlots], np.ndarray]:
        """The cohort: of the people, bucket by bucket, and of the canaries, with -1 for those not selected."""
        buckets, people = self.federation.buckets, len(self.federation.population)
        ids = rounds.sampler.draw(self.federation.cohort_seed, rounds.job.stage, number, people + self.extra)
        bucket, place = device_places(buckets, people)
        who = ids[ids < people]
        others = [
            cohort_slots(place[who[bucket[who] == b]], _CHUNK, -(-one.ids.size // _CHUNK))
            for b, one in enumerate(buckets)
        ]
        selected = np.isin(np.arange(self.extra), ids - people) & there
        return others, np.where(selected, np.arange(self.extra), -1).astype(np.int32)


@partial(jax.jit, static_argnames="others_known")
def _turn(
    job: Job,
    theirs: Job,
    key: jax.Array,
    round: Any,
    state: State,
    owns: list,
    cohort: list[CohortSlots],
    homes: Home,
    their_owns: Any,
    selected: jax.Array,
    others_known: bool,
) -> tuple[State, Home, jax.Array]:
    """One round with canaries: the state after it, the canaries' homes, and their scores."""
    broadcast = state.broadcast(round)
    moved, known, _ = fold(job, broadcast, state.homes, owns, cohort)
    (their_homes,), (reports,) = step_cohort(theirs, broadcast, [homes], [their_owns], [CohortSlots(selected[None], 1)])
    total = server.add_reports(job.mechanism, known, reports)
    params, memory, _ = close_round(job, key, broadcast.round, state.params, state.memory, [total])
    if job.mechanism.always_releases:
        (payloads, n), noise = total, noise_key(key, job.stage, broadcast.round)
        (sums, _), _ = job.mechanism.release(noise, payloads, n, broadcast.public_state, state.memory.noise)
        # An attacker may know all other people, but not which of them were selected where the cohort is drawn at random.
        numbers = job.mechanism.to_numbers(known[0][0], broadcast.public_state)
        others = flat_estimate({name: numbers[name][None] for name in sums}) if others_known else 0.0
        received = flat_estimate(sums) - others
    else:
        received = jnp.where(reports.sent[:, None], estimate_each(job.mechanism, _schema(job), reports), 0.0)
    return State(params, memory, moved), their_homes, _canary(theirs).scores(received)


def _schema(job: Job) -> Schema:
    assert job.update is not None
    return job.update


def _canary(job: Job) -> Canary:
    assert isinstance(job.method, Canary)
    return job.method
