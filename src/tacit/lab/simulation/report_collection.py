"""Report collection: all devices take the step of a one-round plan, and their reports are kept, packed, in the order of ids."""

import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tacit.device.round import Home
from tacit.errors import PlanError
from tacit.lab.simulation.buckets import Bucket, enter_stage
from tacit.lab.simulation.engine import Job, step_all
from tacit.lab.simulation.federation import Federation
from tacit.lab.simulation.setup import build_job
from tacit.lab.simulation.thread_pool import worker_count
from tacit.privacy.mechanisms.cooccurrence import RandomizedCooccurrence
from tacit.server.round import open_round
from tacit.server.rule import build_rule
from tacit.server.rules.similarity import Similarity

GRID = (32, 128, 512, 2048)  # few programs: the time goes into random draws, not into padding
_STEPPED = 1 << 21  # positions stepped at a time
OnProgress = Callable[[str, float], None]  # called with the name of a step, and the share of it that is done


class PackedReports(NamedTuple):
    """The reports of all devices, in the order of ids, eight positions a byte."""

    packed: np.ndarray  # uint8[M, ⌈N/8⌉]
    width: int  # N


def print_progress(step: str, share: float) -> None:
    """Print one line of progress, if stderr is a terminal."""
    if sys.stderr.isatty():
        print(f"\r{step:<8} {100 * share:3.0f} %", end="\n" if share == 1 else "", file=sys.stderr, flush=True)


def cooccurrence_job(federation: Federation, rounds: int = 1) -> Job:
    """The job of a plan whose table of similar items can be learned from kept reports; other plans are refused."""
    stage, mechanism = federation.plan.stages[0], federation.price.stages[0].mechanism
    rule = build_rule(stage.server)
    fits = isinstance(mechanism, RandomizedCooccurrence) and isinstance(rule, Similarity) and stage.rounds == rounds
    if not fits or len(federation.plan.stages) > 1 or stage.cohort["sampler"] != "all":
        raise PlanError(
            f"Kept reports need a plan of one round of all devices with mechanism 'cooccurrence' and rule 'similarity', got "
            f"{federation.plan.name}; use tacit.simulate."
        )
    length = federation.buckets[-1].length
    return build_job(stage, 0, federation.methods[0], federation.price, federation.params, length)


def enter_devices(federation: Federation, job: Job) -> None:
    """All devices enter the stage."""
    federation.buckets = [enter_stage(job.method, 0, federation.population, bucket) for bucket in federation.buckets]


def collect_reports(
    federation: Federation, job: Job, on_progress: OnProgress = lambda *_: None, number: int = 0
) -> PackedReports:
    """The reports of all devices in the round of this number. The federation keeps the homes as they are after it."""
    buckets, width = federation.buckets, federation.population.catalog.n_items
    packed = np.zeros((len(federation.population), -(-width // 8)), np.uint8)
    work = [(b, at) for b, bucket in enumerate(buckets) for at in _chunks(bucket, width)]
    done = iter(range(1, len(work) + 1))

    def part(one: tuple[int, slice]) -> tuple[int, Home]:
        bucket, at = buckets[one[0]], one[1]
        size = min(_chunk(width), bucket.ids.size)
        chunk = jax.tree.map(lambda leaf: _padded(leaf[at], size), (bucket.home, bucket.own))
        home, payloads = step_packed(job, federation.params, *chunk, number)
        ids = bucket.ids[at]
        packed[ids] = np.asarray(payloads)[: ids.size]
        on_progress("devices", next(done) / len(work))
        return one[0], jax.tree.map(lambda leaf: np.asarray(leaf)[: ids.size], home)

    homes = map_in_threads(part, work)
    for b, bucket in enumerate(buckets):
        parts = [home for at, home in homes if at == b]
        buckets[b] = bucket._replace(home=jax.tree.map(lambda *leaves: jnp.asarray(np.concatenate(leaves)), *parts))
    return PackedReports(packed, width)


def _chunk(width: int) -> int:
    return max(1, _STEPPED // width)


def _chunks(bucket: Bucket, width: int) -> Iterator[slice]:
    return (slice(start, start + _chunk(width)) for start in range(0, bucket.ids.size, _chunk(width)))


def _padded(leaf: jax.Array, size: int) -> jax.Array:
    return jnp.pad(leaf, ((0, size - leaf.shape[0]),) + ((0, 0),) * (leaf.ndim - 1))


@jax.jit
def step_packed(job: Job, params: dict, homes: Home, owns: Any, number: Any = 0) -> tuple[Home, jax.Array]:
    """One round of stacked devices: their homes after it, and the payloads, packed."""
    homes, reports = step_all(job, open_round(number, params), homes, owns)
    return homes, reports.payload["items"]


def map_in_threads(work: Callable[[Any], Any], parts: Iterable[Any]) -> list:
    """`work` of each part, on all cores, in order; parts are made as they are needed, so that few are in memory."""
    if worker_count() == 1:
        return [work(part) for part in parts]
    made, ahead = [], deque()
    with ThreadPoolExecutor(worker_count(), "tacit") as pool:
        for part in parts:
            ahead.append(pool.submit(work, part))
            if len(ahead) > 2 * worker_count():
                made.append(ahead.popleft().result())
        return made + [one.result() for one in ahead]
