"""The engine: the steps of many devices as one program.

`fold` steps the cohort's devices of some buckets in chunks and folds their reports into a total; `close_round` is the
server's end of a round. `scan_rounds` plays many rounds in one program, for rounds so small that dispatching each would take
longer; `thread_pool` plays one round on all cores; `debug` steps one device at a time. All of them call `close_round`, and
`device.round.step`, written for one device.
"""

import math
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from tacit.core.messages import Broadcast, Report, Schema, schema_of
from tacit.core.sparse_rows import is_rows
from tacit.device.batching import power_of_two, seeded_noise_keys, step_batch
from tacit.device.method import Method
from tacit.device.round import Home
from tacit.lab.simulation.buckets import Bucket
from tacit.privacy.mechanism import Mechanism
from tacit.server import round as server
from tacit.server.rule import Rule

CHUNK = 1 << 16  # the most devices stepped at a time
CHUNK_EVENTS = {
    "cpu": 1 << 14,
    "gpu": 1 << 21,
}  # padded events at a time: what a core's cache holds, what keeps a GPU busy
CHUNK_BYTES = {"cpu": 64 << 20, "gpu": 4 << 30}  # and never so many that their updates outgrow this


class Job(eqx.Module):
    """Everything a round needs that does not change between rounds."""

    method: Method
    mechanism: Mechanism
    rule: Rule
    stage: int = eqx.field(static=True)
    trains: tuple[str, ...] = eqx.field(static=True)
    weights: int = eqx.field(static=True)  # how many weights a report carries
    update: Schema | None = eqx.field(static=True, default=None)  # what an update looks like; None: what is trained
    by_rows: bool = eqx.field(static=True, default=False)  # whether a round is closed by the rows that were sent


class State(NamedTuple):
    """Everything a round changes."""

    params: dict
    memory: server.Memory
    homes: list[Home]  # one stack for each bucket
    rows: Any = None  # int32[n, tables] for each bucket: rows that each device has written; None: not counted

    def broadcast(self, round: Any) -> Broadcast:
        """What every device of the round's cohort receives."""
        return server.open_round(round, self.params, self.memory.public_state)


class CohortSlots(NamedTuple):
    """Which places of a bucket take part in a round, chunk by chunk; -1 is padding."""

    slots: Any  # int32[chunks, c]; None: all devices of the bucket, in order
    chunks: Any  # int32[]: how many chunks are in use


class RoundTally(NamedTuple):
    """Counts of a round's reports."""

    reports: jax.Array  # int32[]
    rows: jax.Array  # int32[tables]: rows written of each table that is sent row by row
    public_state: dict[str, jax.Array]  # the public_state of the broadcast

    def each(self, rounds: int) -> list[Any]:
        """The tally of a block of rounds as one for each round, in plain numbers."""
        leaves, tree = jax.tree.flatten(self)
        columns = [np.atleast_1d(np.asarray(leaf))[:rounds].tolist() for leaf in leaves]
        return [tree.unflatten(row) for row in zip(*columns)]


def fold(
    job: Job, broadcast: Broadcast, homes: list[Home], owns: list, cohort: list[CohortSlots], rows: Any = None
) -> tuple[list, Any, tuple]:
    """Step the cohort's devices of some buckets and fold their reports.

    Returns the new homes, the total, and the rows written: in this round, and by each device so far.
    """
    total = server.zero_total(job.mechanism, broadcast.params, job.trains, job.weights, job.update)
    moved, written, each = [], jnp.zeros(wire_schema(job, broadcast.params).tables, jnp.int32), []
    for home, own, slots, counts in zip(homes, owns, cohort, [None] * len(homes) if rows is None else rows):
        home, total, written, counts = _fold_bucket(job, broadcast, (home, total, written, counts), own, slots)
        moved.append(home)
        each.append(counts)
    return moved, total, (written, None if rows is None else each)


def _fold_bucket(job: Job, broadcast: Broadcast, start: tuple, own: Any, cohort: CohortSlots) -> tuple:
    def step_chunk(carry: tuple, slots: Any) -> tuple:
        home, total, written, counts = carry
        if slots is None:
            home, reports = step_all(job, broadcast, home, own)
        else:
            home, reports = _step_slots(job, broadcast, home, own, slots)
        rows = rows_written(job, reports)
        total = server.add_reports(job.mechanism, total, reports)
        return home, total, written + rows.sum(0), _add_rows(counts, slots, rows)

    if cohort.slots is None:
        return step_chunk(start, None)
    slots = jnp.asarray(cohort.slots)
    return jax.lax.fori_loop(0, cohort.chunks, lambda i, carry: step_chunk(carry, slots[i]), start)


def _add_rows(counts: Any, slots: Any, rows: jax.Array) -> Any:
    """How many rows each device of a bucket has written, with those of some reports added; slots None: of all devices."""
    if counts is None or not rows.shape[1]:
        return counts
    return counts + rows if slots is None else counts.at[_places(slots, counts.shape[0])].add(rows, mode="drop")


def _places(slots: jax.Array, devices: int) -> jax.Array:
    """Where to write what the devices in these slots made; padding is out of range, and dropped."""
    return jnp.where(slots >= 0, slots, devices)


def step_all(job: Job, broadcast: Broadcast, homes: Home, own: Any) -> tuple[Home, Report]:
    """Step stacked devices: their new homes and their reports."""
    noise = seeded_noise_keys(job.stage, broadcast.round, homes)
    return step_batch(job.method, job.mechanism, job.stage, broadcast, homes, own, noise)


def _step_slots(job: Job, broadcast: Broadcast, home: Home, own: Any, slots: jax.Array) -> tuple[Home, Report]:
    """Step the devices in some places of a bucket; their homes are written back, their reports stacked."""
    at = jnp.maximum(slots, 0)
    cohort_homes, cohort_own = jax.tree.map(lambda leaf: leaf[at], (home, own))
    moved, reports = step_all(job, broadcast, cohort_homes, cohort_own)
    reports = reports._replace(sent=reports.sent & (slots >= 0))
    place = _places(slots, home.zeroed.shape[0])
    return jax.tree.map(lambda old, new: old.at[place].set(new, mode="drop"), home, moved), reports


def step_cohort(
    job: Job, broadcast: Broadcast, homes: list[Home], owns: list, cohort: list[CohortSlots]
) -> tuple[list[Home], list[Report]]:
    """Step a small cohort: the new homes, and the reports themselves, bucket by bucket."""

    def step_bucket(home: Home, own: Any, slots: CohortSlots) -> tuple[Home, Report]:
        if slots.slots is None:
            return step_all(job, broadcast, home, own)
        return _step_slots(job, broadcast, home, own, jnp.asarray(slots.slots).reshape(-1))

    made = [step_bucket(*bucket) for bucket in zip(homes, owns, cohort)]
    return [home for home, _ in made], [reports for _, reports in made]


def rows_written(job: Job, reports: Report) -> jax.Array:
    """How many rows reports hold of each table that is sent row by row, int32[reports, tables]."""
    if job.mechanism.wire != "rows":
        return jnp.zeros((*reports.sent.shape, 0), jnp.int32)
    leaves = [leaf.value if is_rows(leaf) else leaf for leaf in jax.tree.leaves(reports.payload, is_leaf=is_rows)]
    counts = [_used(value).sum(axis=1, dtype=jnp.int32) for value in leaves if value.ndim > 1]
    tables = jnp.stack(counts, axis=1) if counts else jnp.zeros((reports.sent.shape[0], 0), jnp.int32)
    return jnp.where(reports.sent[:, None], tables, 0)


def _used(value: jax.Array) -> jax.Array:
    """Which rows [c, n] of some tables [c, n, ...] are not all zero."""
    inner = tuple(range(2, value.ndim))
    if not inner or not jnp.issubdtype(value.dtype, jnp.floating):
        return (value != 0).any(axis=inner) if inner else value != 0
    # "Or" of whole words is vectorised, "or" of booleans is not; shifted, −0 is 0.
    words = jax.lax.bitcast_convert_type(value, jnp.dtype(f"uint{8 * value.dtype.itemsize}")) << 1
    return jax.lax.reduce_or(words, axes=inner) != 0


def close_round(
    job: Job, key: jax.Array, round: jax.Array, params: dict, memory: server.Memory, totals: list
) -> tuple[dict, server.Memory, Any]:
    """The server's end of a round over the totals of some buckets; `key` is the root of the run's noise."""
    total = totals[0]
    for other in totals[1:]:
        total = server.merge_totals(job.mechanism, total, other)
    noise = server.noise_key(key, job.stage, round)
    return server.close(noise, job.mechanism, job.rule, job.trains, params, total, memory)


def _round_by_rows(
    job: Job, key: jax.Array, round: jax.Array, state: State, owns: list, cohort: list[CohortSlots]
) -> tuple:
    del key
    homes, reports = step_cohort(job, state.broadcast(round), state.homes, owns, cohort)
    params, memory, n = server.close_rows(job.rule, job.trains, state.params, reports, state.memory)
    rows = [rows_written(job, one) for one in reports]
    slots = [None if one.slots is None else jnp.asarray(one.slots).reshape(-1) for one in cohort]
    each = None if state.rows is None else [_add_rows(*one) for one in zip(state.rows, slots, rows)]
    written = jnp.stack([one.sum(0) for one in rows]).sum(0)
    return State(params, memory, homes, each), RoundTally(n, written, state.memory.public_state)


def _round_by_table(
    job: Job, key: jax.Array, round: jax.Array, state: State, owns: list, cohort: list[CohortSlots]
) -> tuple:
    homes, total, (rows, each) = fold(job, state.broadcast(round), state.homes, owns, cohort, state.rows)
    params, memory, n = close_round(job, key, round, state.params, state.memory, [total])
    return State(params, memory, homes, each), RoundTally(n, rows, state.memory.public_state)


def play_rounds(
    job: Job, key: jax.Array, first: jax.Array, count: jax.Array, most: int, cohort: list, state: State, owns: list
) -> tuple[State, RoundTally]:
    """`count` rounds from `first` on, at most `most`, in one program; `cohort` has slots for each round, or one for all."""

    def one_round(i: jax.Array, carry: tuple[State, RoundTally]) -> tuple[State, RoundTally]:
        now = [one if one.chunks.ndim == 0 else jax.tree.map(lambda leaf: leaf[i], one) for one in cohort]
        state, tally = (_round_by_rows if job.by_rows else _round_by_table)(job, key, first + i, carry[0], owns, now)
        return state, jax.tree.map(lambda all, one: all.at[i].set(one), carry[1], tally)

    zeros = jnp.zeros(most, jnp.int32), jnp.zeros((most, wire_schema(job, state.params).tables), jnp.int32)
    public_state = {name: jnp.zeros(most, number.dtype) for name, number in state.memory.public_state.items()}
    return jax.lax.fori_loop(0, count, one_round, (state, RoundTally(*zeros, public_state)))


scan_rounds = jax.jit(play_rounds, static_argnames=("most",), donate_argnames=("state",))


def device_places(buckets: list[Bucket], devices: int) -> tuple[np.ndarray, np.ndarray]:
    """For every device, its bucket and its place there."""
    bucket, place = np.zeros(devices, np.int32), np.zeros(devices, np.int32)
    for b, one in enumerate(buckets):
        bucket[one.ids], place[one.ids] = b, np.arange(one.ids.size)
    return bucket, place


def cohort_slots(places: np.ndarray, chunk: int, room: int = 1) -> CohortSlots:
    """Places cut into chunks, with room for at least so many chunks; those that are not in use cost nothing."""
    used = -(-places.size // chunk)
    slots = np.full(max(room, used) * chunk, -1, np.int32)
    slots[: places.size] = places
    return CohortSlots(slots.reshape(-1, chunk), np.int32(used))


def backend() -> str:
    """What JAX computes on: "cpu" or "gpu", the keys of the limits above."""
    return "cpu" if jax.default_backend() == "cpu" else "gpu"


def chunk_events() -> int:
    """How many padded events to work on at a time on this machine."""
    return CHUNK_EVENTS[backend()]


def chunk_size(expected: float, events: int, update_bytes: int, most: int = CHUNK, exact: bool = False) -> int:
    """How many devices to step at a time: about as many as are expected, or exactly so many, within the limits.

    `events` is how many of a device are read or copied.
    """
    room = max(1, min(most, chunk_events() // max(1, events), CHUNK_BYTES[backend()] // max(1, update_bytes)))
    expected = max(1, math.ceil(expected))
    if expected <= room:
        return expected if exact else min(room, power_of_two(expected))
    return -(-expected // -(-expected // room))  # even chunks


def wire_schema(job: Job, params: dict) -> Schema:
    """The declared form of this stage's reports: what the mechanism makes of a dense update."""
    moved = server.trained(params, job.trains) if job.update is None else job.update.like()
    payload = jax.eval_shape(lambda update: job.mechanism.encode(jax.random.key(0), update, {}), moved)
    return schema_of(payload, job.weights, job.mechanism.wire)
