"""Interaction inference: guessing whether people have items, from messages or from what the server releases."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tacit.audit.inference import InteractionScores, guess_interactions, row_features, with_popularity
from tacit.core.messages import Broadcast, Report, Schema, schema_of
from tacit.core.sparse_rows import dense_tree
from tacit.device.method import build
from tacit.device.round import Home, step
from tacit.errors import PlanError
from tacit.lab.audits.canaries import estimate_each, flat_estimate
from tacit.lab.evaluation.scoring import seen_mask
from tacit.lab.runs.run import Run
from tacit.lab.simulation.buckets import homes_of, prepare
from tacit.lab.simulation.engine import Job
from tacit.server.round import nothing, open_round
from tacit.server.rule import build_rule

MESSAGES = 10


def infer_interactions(
    run: Run, messages: int = MESSAGES, people: int = 200, seed: int = 0
) -> tuple[InteractionScores, InteractionScores]:
    """Guess whether people have items: from their messages, and from popularity alone.

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
        raise PlanError(
            f"Nothing is sent in {run.plan.name}, so there is nothing to infer from; choose a plan that learns."
        )
    stage, priced = run.plan.stages[number], run.price.stages[number]
    assert priced.mechanism is not None
    method = build(stage, run.population.catalog)
    own = prepare(method, run.population, ids, int(run.population.lengths[ids].max(initial=1)))
    homes = _fresh(run, number, ids)
    first = jax.tree.map(lambda leaf: leaf[0], (homes.local[str(number)], own))
    update = jax.eval_shape(lambda pair: dense_tree(method.local(jax.random.key(0), run.params, *pair)[1]), first)
    job = Job(method, priced.mechanism, build_rule(stage.server), number, stage.trains, 1, schema_of(update, 1))
    rounds = min(messages, priced.messages)
    total = 0.0
    for turn in range(rounds):
        homes, heard = _listen(
            job, open_round(stage.rounds + turn, run.params, run.dials(number)), homes, own, jax.random.key(seed)
        )
        total = total + np.asarray(heard, float)
    return _leaves(job, np.broadcast_to(total / rounds, (ids.size, np.shape(total)[-1])))


def _fresh(run: Run, number: int, ids: np.ndarray) -> Home:
    """The devices' homes as the run left them, with their message allowance restored."""
    everybody = homes_of(run.buckets)
    spent = {**everybody.spent, str(number): np.zeros_like(everybody.spent[str(number)])}
    return jax.tree.map(lambda leaf: jnp.asarray(leaf[ids]), everybody._replace(spent=spent, allowance={}))


@jax.jit
def _listen(job: Job, broadcast: Broadcast, homes: Home, own: Any, key: jax.Array) -> tuple[Home, jax.Array]:
    """One more round: the homes after it, and the estimates, float[M, D]; of a sum, float[1, D]."""
    homes, reports = jax.vmap(partial(step, job.method, job.mechanism, job.stage, broadcast))(homes, own)
    if not job.mechanism.always_releases:
        return homes, estimate_each(job.mechanism, _schema(job), reports)
    return homes, _released(job, broadcast, reports, jax.random.fold_in(key, broadcast.round))[None]


def _released(job: Job, broadcast: Broadcast, reports: Report, key: jax.Array) -> jax.Array:
    empty = nothing(job.mechanism, broadcast.params, job.trains, job.weights, job.update)[0]
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
