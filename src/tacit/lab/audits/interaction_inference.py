"""Interaction inference: guessing whether people have items, from messages or from what the server releases."""

import jax
import numpy as np

from tacit.audit.inference import InteractionScores, guess_interactions, row_features, with_popularity
from tacit.core.messages import Broadcast, Report, Schema
from tacit.errors import PlanError
from tacit.lab.audits.canaries import estimate_each, flat_estimate
from tacit.lab.evaluation.scoring import seen_mask
from tacit.lab.runs.run import Run
from tacit.lab.simulation.engine import Job
from tacit.lab.simulation.replay import Replay
from tacit.server.round import zero_total

MESSAGES = 10


def infer_interactions(
    run: Run, messages: int = MESSAGES, people: int = 200, seed: int = 0
) -> tuple[InteractionScores, InteractionScores]:
    """How well an attacker guesses whether people have items: from their messages, and from popularity alone.

    The attacker knows the items of half of the people. Each device sends so many messages, or as many as the plan allows if
    fewer, with the final parameters of the run. Where noise is added at the server, the attacker sees only what it releases.
    """
    log = run.population
    ids = np.sort(np.random.default_rng([seed, 0x1A]).permutation(len(log))[:people])
    if ids.size < 4:
        raise PlanError(f"interactions needs at least 4 people, two known to the attacker and two not, got {ids.size}.")
    had = seen_mask(log, ids, np.arange(log.catalog.n_items))
    told = np.arange(ids.size) % 2 == 0
    counts = had[told].sum(0)
    evidence = row_features(observed_updates(run, ids, messages, seed), log.catalog.n_items)
    blind = np.zeros((*had.shape, 0))
    by_message, by_popularity = (
        guess_interactions(with_popularity(part, counts), had, told, seed) for part in (evidence, blind)
    )
    return by_message, by_popularity


def observed_updates(run: Run, ids: np.ndarray, messages: int, seed: int = 0) -> dict[str, np.ndarray]:
    """The mean estimate from single messages, leaf by leaf [M, ...]."""
    number = max((n for n, stage in enumerate(run.price.stages) if stage.mechanism is not None), default=None)
    if number is None:
        raise PlanError(f"Nothing is sent in {run.plan.name}, so there is nothing to hear; choose a plan that learns.")
    replay = Replay(run, number)
    homes, own = replay.devices(ids, budgets=False)
    rounds = min(messages, run.price.stages[number].messages)
    total = 0.0
    for turn in range(rounds):
        round = replay.stage.rounds + turn
        homes, reports = replay.send(round, homes, own)
        total = total + np.asarray(_readable(replay.job, replay.broadcast(round), reports, jax.random.key(seed)), float)
    return _leaves(replay.job, np.broadcast_to(total / rounds, (ids.size, np.shape(total)[-1])))


@jax.jit
def _readable(job: Job, broadcast: Broadcast, reports: Report, key: jax.Array) -> jax.Array:
    """What a reader has of some reports, float[M, D]; where only a noisy sum leaves the server, that, float[1, D]."""
    if not job.mechanism.always_releases:
        return estimate_each(job.mechanism, _schema(job), reports)
    return _released(job, broadcast, reports, jax.random.fold_in(key, broadcast.round))[None]


def _released(job: Job, broadcast: Broadcast, reports: Report, key: jax.Array) -> jax.Array:
    empty = zero_total(job.mechanism, broadcast.params, job.trains, job.weights, job.update)[0]
    total = job.mechanism.add(empty, reports.payload, reports.weight, reports.sent)
    return flat_estimate(job.mechanism.estimate(key, total, reports.sent.sum(), broadcast.dials)[0])


def _schema(job: Job) -> Schema:
    assert job.update is not None
    return job.update


def _leaves(job: Job, heard: np.ndarray) -> dict[str, np.ndarray]:
    """The estimates, split into the leaves of an update."""
    leaves = _schema(job).leaves
    ends = np.cumsum([int(np.prod(leaf.shape)) for leaf in leaves])[:-1]
    parts = np.split(heard, ends, axis=1)
    return {leaf.path: part.reshape(-1, *leaf.shape) for leaf, part in zip(leaves, parts)}
