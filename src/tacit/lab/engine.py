"""The engine: many devices' steps as one program.

`fold` runs the awake devices of one bucket in chunks and folds their reports into a total; `close` is the server's.
A round of many devices is one program a bucket; rounds of a few devices are scanned inside one program. Both call
the same two functions, and both call `device.round.step`, written for one device.
"""

import math
import os
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from tacit.device.method import Method
from tacit.device.round import Home, step
from tacit.lab.buckets import Bucket
from tacit.privacy.mechanism import Mechanism
from tacit.rows import is_rows
from tacit.server import round as server
from tacit.server.rule import Rule
from tacit.wire import Broadcast, Report, Schema, schema_of

CHUNK = 1 << 16  # the most devices stepped at a time
CHUNK_EVENTS = {"cpu": 1 << 14, "gpu": 1 << 21}  # padded events at a time: what a core's cache holds, what a GPU likes
CHUNK_BYTES = {"cpu": 64 << 20, "gpu": 4 << 30}  # and never so many that their updates outgrow this


class Job(eqx.Module):
    """Everything a round needs that does not change between rounds."""

    method: Method
    mechanism: Mechanism
    rule: Rule
    stage: int = eqx.field(static=True)
    trains: tuple[str, ...] = eqx.field(static=True)
    weights: int = eqx.field(static=True)  # how many weights a report carries


class State(NamedTuple):
    """Everything a round changes."""

    params: dict
    rule: Any
    homes: list[Home]  # one stack for each bucket


class Awake(NamedTuple):
    """Which places of a bucket are awake, chunk by chunk; -1 is nobody."""

    slots: Any  # int32[chunks, c]
    chunks: Any  # int32[]: how many chunks are in use


class Tally(NamedTuple):
    """What a round's reports came to."""

    reports: jax.Array  # int32[]
    rows: jax.Array  # int32[]: rows written, where the wire shows them


def fold(job: Job, broadcast: Broadcast, total: Any, home: Home, own: Any, awake: Awake) -> tuple[Home, Any, jax.Array]:
    """Step the awake devices of one bucket and fold their reports: the new homes, the total, the rows written."""
    devices = home.zeroed.shape[0]

    def chunk(i: jax.Array, carry: Any) -> Any:
        home, total, rows = carry
        slots = jnp.asarray(awake.slots)[i]
        at = jnp.maximum(slots, 0)
        mine, theirs = jax.tree.map(lambda leaf: leaf[at], (home, own))
        moved, reports = jax.vmap(partial(step, job.method, job.mechanism, job.stage, broadcast))(mine, theirs)
        reports = reports._replace(sent=reports.sent & (slots >= 0))
        total = server.collect(job.mechanism, total, reports)
        place = jnp.where(slots >= 0, slots, devices)  # out of range: dropped
        home = jax.tree.map(lambda old, new: old.at[place].set(new, mode="drop"), home, moved)
        return home, total, rows + _rows_written(job, reports)

    return jax.lax.fori_loop(0, awake.chunks, chunk, (home, total, jnp.zeros((), jnp.int32)))


def _rows_written(job: Job, reports: Report) -> jax.Array:
    """How many rows these reports show, where the plan lets positions be seen."""
    count = jnp.zeros((), jnp.int32)
    if job.mechanism.wire == "rows":
        for leaf in jax.tree.leaves(reports.payload, is_leaf=is_rows):
            value = leaf.value if is_rows(leaf) else leaf
            used = (value != 0).any(axis=tuple(range(2, value.ndim))) if value.ndim > 2 else value != 0
            count += jnp.where(reports.sent[:, None], used, False).sum(dtype=jnp.int32)
    return count


def close(job: Job, key: jax.Array, round: jax.Array, params: dict, rule: Any, totals: list) -> tuple[dict, Any, Any]:
    """The server's end of a round over the buckets' totals."""
    total = totals[0]
    for other in totals[1:]:
        total = server.merge(job.mechanism, total, other)
    noise = jax.random.fold_in(jax.random.fold_in(key, job.stage), round)
    return server.close(noise, job.mechanism, job.rule, job.trains, params, total, rule)


_fold = jax.jit(fold, donate_argnames=("home",))
_close = jax.jit(close)


def one_round(
    job: Job, key: jax.Array, round: int, state: State, owns: list, awake: list[Awake], pool: Executor | None = None
) -> tuple[State, Tally]:
    """A round of many devices: one program a bucket, each from an empty total; a pool runs several at a time."""
    broadcast = server.open_round(round, state.params)
    empty = server.nothing(job.mechanism, state.params, job.trains, job.weights)

    def one(b: int) -> Any:
        made = _fold(job, broadcast, empty, state.homes[b], owns[b], awake[b])
        return jax.block_until_ready(made) if pool else made

    busy = [b for b, who in enumerate(awake) if who.chunks]
    busy.sort(key=lambda b: -int(awake[b].chunks) * awake[b].slots.shape[1])  # so that the last one running is small
    made = dict(zip(busy, (pool.map if pool else map)(one, busy)))
    homes = [made[b][0] if b in made else home for b, home in enumerate(state.homes)]
    totals = [made[b][1] for b in sorted(busy)] or [empty]
    rows = sum((made[b][2] for b in busy), start=jnp.zeros((), jnp.int32))
    params, rule, n = _close(job, key, broadcast.round, state.params, state.rule, totals)
    return State(params, rule, homes), Tally(n, rows)


def crew(job: Job, params: dict, bucket: Bucket, awake: Awake) -> ThreadPoolExecutor | None:
    """Threads to run buckets side by side: one for each core, or None where that gains nothing or is not safe.

    A program on the CPU keeps one core busy. Batched LAPACK calls from two threads were seen to hang, so a method
    that lowers to any runs alone.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if jax.default_backend() != "cpu" or cores < 2:
        return None
    broadcast = server.open_round(0, params)
    empty = server.nothing(job.mechanism, params, job.trains, job.weights)
    program = _fold.lower(job, broadcast, empty, bucket.home, bucket.own, awake).as_text()
    return None if "lapack" in program else ThreadPoolExecutor(cores, "tacit")


def _scan(job: Job, key: jax.Array, rounds: jax.Array, live: jax.Array, state: State, owns: list, awake: list) -> Any:
    def body(state: State, turn: Any) -> tuple[State, Tally]:
        round, alive, awake = turn
        broadcast = server.open_round(round, state.params)
        total = server.nothing(job.mechanism, state.params, job.trains, job.weights)
        homes, rows = [], jnp.zeros((), jnp.int32)
        for home, own, who in zip(state.homes, owns, awake):
            home, total, written = fold(job, broadcast, total, home, own, who)
            homes.append(home)
            rows += written
        params, rule, n = close(job, key, round, state.params, state.rule, [total])
        params, rule = jax.tree.map(lambda new, old: jnp.where(alive, new, old), (params, rule), state[:2])
        return State(params, rule, homes), Tally(n, rows)

    return jax.lax.scan(body, state, (rounds, live, awake))


scan_rounds = jax.jit(_scan, donate_argnames=("state",))


def seats(buckets: list[Bucket], devices: int) -> tuple[np.ndarray, np.ndarray]:
    """For every device, its bucket and its place there."""
    bucket, place = np.zeros(devices, np.int32), np.zeros(devices, np.int32)
    for b, one in enumerate(buckets):
        bucket[one.ids], place[one.ids] = b, np.arange(one.ids.size)
    return bucket, place


def wake(places: np.ndarray, chunk: int, least: int = 1) -> Awake:
    """Places to wake, cut into chunks; the number of chunks is padded to a power of two, so few shapes are compiled."""
    used = -(-places.size // chunk)
    padded = max(least, 1 << max(0, used - 1).bit_length())
    slots = np.full(padded * chunk, -1, np.int32)
    slots[: places.size] = places
    return Awake(slots.reshape(padded, chunk), np.int32(used))


def chunk_size(expected: float, length: int, update_bytes: int, most: int = CHUNK) -> int:
    """How many devices to step at a time: about as many as will be awake, within the limits."""
    kind = "cpu" if jax.default_backend() == "cpu" else "gpu"
    room = max(1, min(most, CHUNK_EVENTS[kind] // length, CHUNK_BYTES[kind] // max(1, update_bytes)))
    expected = max(1, math.ceil(expected))
    if expected <= room:
        return min(room, 1 << (expected - 1).bit_length())
    return -(-expected // -(-expected // room))  # even chunks


def shapes(job: Job, params: dict, bucket: Bucket) -> tuple[Any, Report]:
    """The shapes of one device's update and report, without running anything."""

    def one(home: Home, own: Any) -> tuple[Any, Report]:
        broadcast = server.open_round(0, params)
        update = job.method.local(jax.random.key(0), params, home.local[str(job.stage)], own)[1]
        return update, step(job.method, job.mechanism, job.stage, broadcast, home, own)[1]

    first = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), (bucket.home, bucket.own))
    return jax.eval_shape(one, *first)


def wire_schema(job: Job, params: dict) -> Schema:
    """The declared form of this stage's reports: what the mechanism makes of a dense update."""
    moved = server.trained(params, job.trains)
    payload = jax.eval_shape(lambda update: job.mechanism.encode(jax.random.key(0), update, {}), moved)
    return schema_of(payload, job.weights, job.mechanism.wire)
