"""A run with canaries among its devices, and what is seen of them: a score for each, round after round."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tacit.core.messages import Schema
from tacit.core.plan import Plan
from tacit.core.sparse_rows import dense_tree
from tacit.device.batching import enter_batch, new_homes, update_shape
from tacit.device.round import KEYS, Home
from tacit.errors import PlanError
from tacit.lab.audits.canaries import Canary, canary_devices, canary_room, design_canaries, estimate_each, flat_estimate
from tacit.lab.data import Population
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
from tacit.privacy.accounting.events import Drawn
from tacit.privacy.claim import Claim
from tacit.privacy.mechanism import Mechanism
from tacit.privacy.price import price
from tacit.server import round as server
from tacit.server.round import noise_key

_CHUNK = 8  # people stepped at a time
_SECRETS = 1 << 30  # the numbers of canaries' homes start here, apart from those of people

Swap = Callable[[Mechanism], Mechanism]


class Seen(NamedTuple):
    """What the rounds of one stage show of the canaries, and what the auditor knows beside it."""

    stage: int
    scores: np.ndarray  # float[rounds, canaries]: high where a canary's bit looks like 1
    drawn: np.ndarray  # bool[rounds, devices]: which canary devices were in the cohort
    answered: np.ndarray  # bool[rounds]: whether any of them sent a report


class CanaryRun:
    """One run of a plan with canaries among its people.

    With `asked`, every canary is in the cohort of every round of the stages that draw theirs at random: what a server can
    do that does not draw as the plan says.
    """

    def __init__(self, plan: Plan, people: Population, canaries: int, seed: int, swap: Swap, asked: bool = False):
        self.longest = max(1, int(people.lengths.max()))
        speed = Performance(grid=(self.longest,))  # one bucket: compiling takes the time here, not padding
        self.federation, self.swap = Federation(plan, people, seed=seed, performance=speed), swap
        stages = self.federation.price.stages
        # Volunteers are not who the claim is about, and no canary is one.
        self.sending = [n for n, stage in enumerate(stages) if stage.mechanism is not None and not stage.others]
        if (reason := nothing_to_audit(self.federation.price.whole)) is not None:
            raise PlanError(reason)
        self.canaries = min(self._room(number, canaries) for number in self.sending)
        first = stages[self.sending[0]].mechanism
        self.extra = canary_devices(first, self.canaries, people.catalog)
        self.price, self.asked = price(plan, len(people) + self.extra), asked
        self.coins = np.random.default_rng([seed, 0xCA]).random(self.canaries) < 0.5
        root = jax.random.key(seed, impl=KEYS)
        self.homes = new_homes(device_secrets(root, _SECRETS + np.arange(self.extra)))

    def _room(self, number: int, canaries: int) -> int:
        """How many canaries a stage can distinguish: in a sum, those with a number of their own."""
        mechanism = self.federation.price.stages[number].mechanism
        assert mechanism is not None
        _, update = update_shape(self.federation.methods[number], self.federation.params, self.longest)
        leaves = jax.tree.leaves(jax.eval_shape(dense_tree, update))
        return canary_room(mechanism, [leaf.shape for leaf in leaves], canaries)

    def play(self) -> list[Seen]:
        """What every stage shows in which canaries take part."""
        seen = []
        for number in range(len(self.federation.plan.stages)):
            rounds = self.federation.begin(number)
            if rounds is None:
                continue
            if number in self.sending:
                seen.append(self._stage(rounds))
            else:
                for turn in range(rounds.stage.rounds):
                    self.federation.play(rounds, turn, turn + 1)
            rounds.end()
        return seen

    def _stage(self, rounds: Rounds) -> Seen:
        priced = self.price.stages[rounds.job.stage]
        assert priced.mechanism is not None
        assert priced.exposure is not None
        by_chance = isinstance(priced.event, Drawn)
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
        # An attacker who does not see the draws finds the middle by itself.
        centred = (absent or by_chance) and (self.asked or not by_chance)
        scores, drawn, answered = [], [], []
        for number in range(rounds.stage.rounds):
            others, chosen = self._draw(rounds, number)
            chosen |= self.asked and by_chance
            made = _turn(
                *(job, replace(job, method=method), self.federation.noise, number, self.federation.state),
                *([bucket.own for bucket in self.federation.buckets], others, self.homes, owns),
                np.where(chosen & there, np.arange(self.extra), -1).astype(np.int32),
                others_known=self.asked or not by_chance,
            )
            self.federation.set_state(made[0])
            self.homes, score, sent = made[1], np.asarray(made[2], float), bool(made[3])
            scores.append(score - score.mean() if centred else score)
            drawn.append(chosen)
            answered.append(sent)
        return Seen(job.stage, np.array(scores), np.array(drawn), np.array(answered))

    def _draw(self, rounds: Rounds, number: int) -> tuple[list[CohortSlots], np.ndarray]:
        """The cohort as the plan draws it: of the people, bucket by bucket, and which canaries are in it."""
        buckets, people = self.federation.buckets, len(self.federation.population)
        ids = rounds.sampler.draw(self.federation.cohort_seed, rounds.job.stage, number, people + self.extra)
        bucket, place = device_places(buckets, people)
        who = ids[ids < people]
        others = [
            cohort_slots(place[who[bucket[who] == b]], _CHUNK, -(-one.ids.size // _CHUNK))
            for b, one in enumerate(buckets)
        ]
        return others, np.isin(np.arange(self.extra), ids - people)


def nothing_to_audit(claim: Claim) -> str | None:
    """Why there is nothing to audit, in a sentence; None where there is."""
    if math.isinf(claim.epsilon):
        return f"There is no claim to audit: {claim}; give the plan a mechanism and a promise."
    if claim.epsilon == 0:
        return f"There is nothing to audit: {claim}."
    return None


@jax.jit
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
    others_known: Any,
) -> tuple[State, Home, jax.Array, jax.Array]:
    """One round with canaries: the state after it, the canaries' homes, their scores, and whether any of them sent."""
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
        others = flat_estimate({name: numbers[name][None] for name in sums})
        received = flat_estimate(sums) - jnp.where(others_known, others, 0.0)
        received = received * job.mechanism.precision(broadcast.public_state)  # what an attacker would weigh rounds by
    else:
        received = jnp.where(reports.sent[:, None], estimate_each(job.mechanism, _schema(job), reports), 0.0)
    return State(params, memory, moved), their_homes, _canary(theirs).scores(received), reports.sent.any()


def _schema(job: Job) -> Schema:
    assert job.update is not None
    return job.update


def _canary(job: Job) -> Canary:
    assert isinstance(job.method, Canary)
    return job.method
