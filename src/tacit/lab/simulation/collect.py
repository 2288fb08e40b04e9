"""Hear: everybody takes the one step of a round, and what was said is kept, packed, in the order of ids."""

import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tacit.core.messages import schema_of
from tacit.device.round import Home, step
from tacit.errors import PlanError
from tacit.lab.simulation.buckets import Bucket, move_in
from tacit.lab.simulation.engine import Job
from tacit.lab.simulation.federation import Federation
from tacit.lab.simulation.thread_pool import hands
from tacit.privacy.mechanisms.cooccurrence import RandomizedCooccurrence
from tacit.server.round import open_round
from tacit.server.rule import build_rule
from tacit.server.rules.similarity import Similarity

GRID = (32, 128, 512, 2048)  # few programs: drawing the coins takes the time, not the padding
_STEPPED = 1 << 21  # positions stepped at a time
Tell = Callable[[str, float], None]  # what is being done, and which share of it is


class Reports(NamedTuple):
    """What everybody said, in the order of ids: eight positions a byte."""

    packed: np.ndarray  # uint8[M, ⌈N/8⌉]
    width: int  # N


def line(what: str, share: float) -> None:
    """One line that says what is being done, where somebody watches."""
    if sys.stderr.isatty():
        print(f"\r{what:<8} {100 * share:3.0f} %", end="\n" if share == 1 else "", file=sys.stderr, flush=True)


def job_of(federation: Federation, rounds: int = 1) -> Job:
    """What the devices do, if tiles can do the rest."""
    stage, mechanism = federation.plan.stages[0], federation.price.stages[0].mechanism
    rule = build_rule(stage.server)
    fits = isinstance(mechanism, RandomizedCooccurrence) and isinstance(rule, Similarity) and stage.rounds == rounds
    if not fits or len(federation.plan.stages) > 1 or stage.cohort["sampler"] != "all":
        raise PlanError(
            f"Tiles learn plans of one round of everybody with mechanism 'pairs' and rule 'similarity', got "
            f"{federation.plan.name}; use tacit.simulate."
        )
    assert mechanism is not None
    items = jax.ShapeDtypeStruct((federation.population.catalog.n_items,), jnp.int32)
    return Job(federation.methods[0], mechanism, rule, 0, stage.trains, 1, schema_of({"items": items}, 1))


def move_in_all(federation: Federation, job: Job) -> None:
    """Everybody enters the stage."""
    federation.buckets = [move_in(job.method, 0, federation.population, bucket) for bucket in federation.buckets]


def collect(federation: Federation, job: Job, tell: Tell = lambda *_: None, number: int = 0) -> Reports:
    """Everybody takes the step of the round of this number: what was said. The homes are kept as they are after it."""
    buckets, width = federation.buckets, federation.population.catalog.n_items
    packed = np.zeros((len(federation.population), -(-width // 8)), np.uint8)
    work = [(b, at) for b, bucket in enumerate(buckets) for at in _chunks(bucket, width)]
    done = iter(range(1, len(work) + 1))

    def part(one: tuple[int, slice]) -> tuple[int, Home]:
        bucket, at = buckets[one[0]], one[1]
        size = min(_chunk(width), bucket.ids.size)
        mine = jax.tree.map(lambda leaf: _padded(leaf[at], size), (bucket.home, bucket.own))
        home, told = say(job, federation.params, *mine, number)
        ids = bucket.ids[at]
        packed[ids] = np.asarray(told)[: ids.size]
        tell("devices", next(done) / len(work))
        return one[0], jax.tree.map(lambda leaf: np.asarray(leaf)[: ids.size], home)

    homes = side_by_side(part, work)
    for b, bucket in enumerate(buckets):
        mine = [home for at, home in homes if at == b]
        buckets[b] = bucket._replace(home=jax.tree.map(lambda *parts: jnp.asarray(np.concatenate(parts)), *mine))
    return Reports(packed, width)


def _chunk(width: int) -> int:
    return max(1, _STEPPED // width)


def _chunks(bucket: Bucket, width: int) -> Iterator[slice]:
    return (slice(start, start + _chunk(width)) for start in range(0, bucket.ids.size, _chunk(width)))


def _padded(leaf: jax.Array, size: int) -> jax.Array:
    return jnp.pad(leaf, ((0, size - leaf.shape[0]),) + ((0, 0),) * (leaf.ndim - 1))


@jax.jit
def say(job: Job, params: dict, homes: Home, owns: Any, number: Any = 0) -> tuple[Home, jax.Array]:
    """Some devices take the step: their homes after it, and what they said, packed."""
    one = partial(step, job.method, job.mechanism, job.stage, open_round(number, params))
    homes, reports = jax.vmap(one)(homes, owns)
    return homes, reports.payload["items"]


def side_by_side(work: Callable[[Any], Any], parts: Iterable[Any]) -> list:
    """Each part by whichever hand is free, in order; parts are made as they are needed, so that few are held."""
    if hands() == 1:
        return [work(part) for part in parts]
    made, ahead = [], deque()
    with ThreadPoolExecutor(hands(), "tacit") as pool:
        for part in parts:
            ahead.append(pool.submit(work, part))
            if len(ahead) > 2 * hands():
                made.append(ahead.popleft().result())
        return made + [one.result() for one in ahead]
