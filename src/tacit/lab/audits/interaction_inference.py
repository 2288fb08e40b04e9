"""Overheard: what a reader of the wire, or of what the server releases, has of each person after some rounds of a run."""

import jax
import numpy as np

from tacit.audit.interactions import Guess, guess, read, with_popularity
from tacit.core.messages import Broadcast, Report, Schema
from tacit.errors import PlanError
from tacit.lab.audits.canaries import flat, hear
from tacit.lab.evaluation.scoring import seen_mask
from tacit.lab.runs.run import Run
from tacit.lab.simulation.engine import Job
from tacit.lab.simulation.replay import Replay
from tacit.server.round import empty_total

MESSAGES = 10


def interactions(run: Run, messages: int = MESSAGES, people: int = 200, seed: int = 0) -> tuple[Guess, Guess]:
    """Whether people have items, guessed from what is heard of them; and guessed from popularity alone.

    Half of the people told the attacker what they have. Each sends so many messages, or those the plan allows, if fewer,
    at the parameters the run ended with. Where noise is added at the server, what it releases is all there is to hear.
    """
    log = run.population
    ids = np.sort(np.random.default_rng([seed, 0x1A]).permutation(len(log))[:people])
    if ids.size < 4:
        raise PlanError(f"interactions needs at least 4 people, two who told and two who did not, got {ids.size}.")
    had = seen_mask(log, ids, np.arange(log.catalog.n_items))
    told = np.arange(ids.size) % 2 == 0
    counts = had[told].sum(0)
    evidence = read(overheard(run, ids, messages, seed), log.catalog.n_items)
    blind = np.zeros((*had.shape, 0))
    by_ear, by_chart = (guess(with_popularity(part, counts), had, told, seed) for part in (evidence, blind))
    return by_ear, by_chart


def overheard(run: Run, ids: np.ndarray, messages: int, seed: int = 0) -> dict[str, np.ndarray]:
    """The mean of what each message says by itself, leaf by leaf [M, ...]."""
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
        return hear(job.mechanism, _schema(job), reports)
    return _released(job, broadcast, reports, jax.random.fold_in(key, broadcast.round))[None]


def _released(job: Job, broadcast: Broadcast, reports: Report, key: jax.Array) -> jax.Array:
    empty = empty_total(job.mechanism, broadcast.params, job.trains, job.weights, job.update)[0]
    total = job.mechanism.add(empty, reports.payload, reports.weight, reports.sent)
    return flat(job.mechanism.estimate(key, total, reports.sent.sum(), broadcast.dials)[0])


def _schema(job: Job) -> Schema:
    assert job.update is not None
    return job.update


def _leaves(job: Job, heard: np.ndarray) -> dict[str, np.ndarray]:
    """What was heard, cut into the leaves of an update."""
    leaves = _schema(job).leaves
    ends = np.cumsum([int(np.prod(leaf.shape)) for leaf in leaves])[:-1]
    parts = np.split(heard, ends, axis=1)
    return {leaf.path: part.reshape(-1, *leaf.shape) for leaf, part in zip(leaves, parts)}
