"""The engine: many devices' steps as one program.

`fold` runs the awake devices of some buckets in chunks and folds their reports into a total; `close` is the server's.
`scan_rounds` plays many rounds in one program, where a round is so small that asking for it would take longer; `lab/crew`
plays one round on all cores. Both call the same two functions, and both call `device.round.step`, written for one device.
"""

import math
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from tacit.core.messages import Broadcast, Report, Schema, schema_of
from tacit.core.sparse_rows import is_rows
from tacit.device.method import Method
from tacit.device.round import Home, step
from tacit.lab.simulation.buckets import Bucket, power
from tacit.privacy.mechanism import Mechanism
from tacit.server import round as server
from tacit.server.rule import Rule

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
    update: Schema | None = eqx.field(static=True, default=None)  # what an update looks like; None: what is trained
    by_rows: bool = eqx.field(static=True, default=False)  # whether few reports are closed by the rows they name


class State(NamedTuple):
    """Everything a round changes."""

    params: dict
    memory: server.Memory
    homes: list[Home]  # one stack for each bucket
    rows: Any = None  # int32[n, tables] for each bucket: rows that each device has written; None: nobody counts


class Awake(NamedTuple):
    """Which places of a bucket are awake, chunk by chunk; -1 is nobody."""

    slots: Any  # int32[chunks, c]; None: everybody, as they stand
    chunks: Any  # int32[]: how many chunks are in use


class Tally(NamedTuple):
    """What a round's reports came to."""

    reports: jax.Array  # int32[]
    rows: jax.Array  # int32[tables]: rows written of each table that the wire writes row by row
    dials: dict[str, jax.Array]  # those it was opened with

    def each(self, rounds: int) -> list[Any]:
        """The tally of a block as one for each round, in plain numbers."""
        leaves, tree = jax.tree.flatten(self)
        columns = [np.atleast_1d(np.asarray(leaf))[:rounds].tolist() for leaf in leaves]
        return [tree.unflatten(row) for row in zip(*columns)]


def fold(
    job: Job, broadcast: Broadcast, homes: list[Home], owns: list, awake: list[Awake], rows: Any = None
) -> tuple[list, Any, tuple]:
    """Step the awake devices of some buckets and fold their reports.

    Returns the new homes, the total, and the rows written: in this round, and by each device so far.
    """
    total = server.nothing(job.mechanism, broadcast.params, job.trains, job.weights, job.update)
    moved, written, each = [], jnp.zeros(wire_schema(job, broadcast.params).tables, jnp.int32), []
    for home, own, who, mine in zip(homes, owns, awake, [None] * len(homes) if rows is None else rows):
        home, total, written, mine = _fold_bucket(job, broadcast, (home, total, written, mine), own, who)
        moved.append(home)
        each.append(mine)
    return moved, total, (written, None if rows is None else each)


def _fold_bucket(job: Job, broadcast: Broadcast, start: tuple, own: Any, awake: Awake) -> tuple:
    def step(carry: tuple, slots: Any) -> tuple:
        home, total, written, mine = carry
        if slots is None:
            home, reports = _step_all(job, broadcast, home, own)
        else:
            home, reports = _step_some(job, broadcast, home, own, slots)
        rows = rows_written(job, reports)
        return home, server.add_reports(job.mechanism, total, reports), written + rows.sum(0), _noted(mine, slots, rows)

    if awake.slots is None:
        return step(start, None)
    return jax.lax.fori_loop(0, awake.chunks, lambda i, carry: step(carry, jnp.asarray(awake.slots)[i]), start)


def _noted(mine: Any, slots: Any, rows: jax.Array) -> Any:
    """What each device of a bucket has written, with the rows of some reports; of all of them where slots is None."""
    if mine is None or not rows.shape[1]:
        return mine
    return mine + rows if slots is None else mine.at[_places(slots, mine.shape[0])].add(rows, mode="drop")


def _places(slots: jax.Array, devices: int) -> jax.Array:
    """Where to put what the devices in these slots made; nobody's is out of range, and dropped."""
    return jnp.where(slots >= 0, slots, devices)


def _step_all(job: Job, broadcast: Broadcast, home: Home, own: Any) -> tuple[Home, Report]:
    """Step everybody of a bucket."""
    return jax.vmap(partial(step, job.method, job.mechanism, job.stage, broadcast))(home, own)


def _step_some(job: Job, broadcast: Broadcast, home: Home, own: Any, slots: jax.Array) -> tuple[Home, Report]:
    """Step the devices in some places of a bucket; their homes are put back, their reports stacked."""
    at = jnp.maximum(slots, 0)
    mine, theirs = jax.tree.map(lambda leaf: leaf[at], (home, own))
    moved, reports = _step_all(job, broadcast, mine, theirs)
    reports = reports._replace(sent=reports.sent & (slots >= 0))
    place = _places(slots, home.zeroed.shape[0])
    return jax.tree.map(lambda old, new: old.at[place].set(new, mode="drop"), home, moved), reports


def listen(
    job: Job, broadcast: Broadcast, homes: list[Home], owns: list, awake: list[Awake]
) -> tuple[list[Home], list[Report]]:
    """Step the few awake devices of some buckets: the new homes, and the reports themselves, bucket by bucket."""

    def some(home: Home, own: Any, who: Awake) -> tuple[Home, Report]:
        if who.slots is None:
            return _step_all(job, broadcast, home, own)
        return _step_some(job, broadcast, home, own, jnp.asarray(who.slots).reshape(-1))

    made = [some(*bucket) for bucket in zip(homes, owns, awake)]
    return [home for home, _ in made], [reports for _, reports in made]


def rows_written(job: Job, reports: Report) -> jax.Array:
    """How many rows of each table that the wire writes row by row some reports hold, int32[reports, tables]."""
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
    # "Or" of whole words keeps a processor's lanes busy, "or" of truths does not; shifted, −0 is 0.
    words = jax.lax.bitcast_convert_type(value, jnp.dtype(f"uint{8 * value.dtype.itemsize}")) << 1
    return jax.lax.reduce_or(words, axes=inner) != 0


def close(
    job: Job, key: jax.Array, round: jax.Array, params: dict, memory: server.Memory, totals: list
) -> tuple[dict, server.Memory, Any]:
    """The server's end of a round over the buckets' totals."""
    total = totals[0]
    for other in totals[1:]:
        total = server.merge_totals(job.mechanism, total, other)
    return server.close(noise_key(job, key, round), job.mechanism, job.rule, job.trains, params, total, memory)


def noise_key(job: Job, key: jax.Array, round: jax.Array) -> jax.Array:
    """The server's noise of one round of one stage: no two share a key."""
    return jax.random.fold_in(jax.random.fold_in(key, job.stage), round)


def _by_rows(job: Job, key: jax.Array, round: jax.Array, state: State, owns: list, awake: list[Awake]) -> tuple:
    del key
    homes, reports = listen(job, _opened(round, state), state.homes, owns, awake)
    params, memory, n = server.close_rows(job.rule, job.trains, state.params, reports, state.memory)
    rows = [rows_written(job, one) for one in reports]
    slots = [None if who.slots is None else jnp.asarray(who.slots).reshape(-1) for who in awake]
    each = None if state.rows is None else [_noted(*one) for one in zip(state.rows, slots, rows)]
    written = jnp.stack([one.sum(0) for one in rows]).sum(0)
    return State(params, memory, homes, each), Tally(n, written, state.memory.dials)


def _by_table(job: Job, key: jax.Array, round: jax.Array, state: State, owns: list, awake: list[Awake]) -> tuple:
    homes, total, (rows, each) = fold(job, _opened(round, state), state.homes, owns, awake, state.rows)
    params, memory, n = close(job, key, round, state.params, state.memory, [total])
    return State(params, memory, homes, each), Tally(n, rows, state.memory.dials)


def _opened(round: Any, state: State) -> Broadcast:
    return server.open_round(round, state.params, state.memory.dials)


def play_rounds(
    job: Job, key: jax.Array, first: jax.Array, count: jax.Array, most: int, awake: list, state: State, owns: list
) -> tuple[State, Tally]:
    """Some rounds from `first` on, at most so many, in one program; an Awake is one for each round, or one for all."""

    def turn(i: jax.Array, carry: tuple[State, Tally]) -> tuple[State, Tally]:
        now = [who if who.chunks.ndim == 0 else jax.tree.map(lambda leaf: leaf[i], who) for who in awake]
        state, tally = (_by_rows if job.by_rows else _by_table)(job, key, first + i, carry[0], owns, now)
        return state, jax.tree.map(lambda all, one: all.at[i].set(one), carry[1], tally)

    nothing = jnp.zeros(most, jnp.int32), jnp.zeros((most, wire_schema(job, state.params).tables), jnp.int32)
    dials = {name: jnp.zeros(most, dial.dtype) for name, dial in state.memory.dials.items()}
    return jax.lax.fori_loop(0, count, turn, (state, Tally(*nothing, dials)))


scan_rounds = jax.jit(play_rounds, static_argnames=("most",), donate_argnames=("state",))


def seats(buckets: list[Bucket], devices: int) -> tuple[np.ndarray, np.ndarray]:
    """For every device, its bucket and its place there."""
    bucket, place = np.zeros(devices, np.int32), np.zeros(devices, np.int32)
    for b, one in enumerate(buckets):
        bucket[one.ids], place[one.ids] = b, np.arange(one.ids.size)
    return bucket, place


def wake(places: np.ndarray, chunk: int, room: int = 1) -> Awake:
    """Places to wake, cut into chunks, with room for at least so many; chunks beyond those in use cost nothing."""
    used = -(-places.size // chunk)
    slots = np.full(max(room, used) * chunk, -1, np.int32)
    slots[: places.size] = places
    return Awake(slots.reshape(-1, chunk), np.int32(used))


def kind() -> str:
    """What JAX computes on, as the limits know it."""
    return "cpu" if jax.default_backend() == "cpu" else "gpu"


def chunk_events() -> int:
    """How many padded events to work on at a time on this machine."""
    return CHUNK_EVENTS[kind()]


def chunk_size(expected: float, events: int, update_bytes: int, most: int = CHUNK, exact: bool = False) -> int:
    """How many devices to step at a time: about as many as will be awake, or exactly so many, within the limits.

    `events` is how many of a device are read or copied.
    """
    room = max(1, min(most, chunk_events() // max(1, events), CHUNK_BYTES[kind()] // max(1, update_bytes)))
    expected = max(1, math.ceil(expected))
    if expected <= room:
        return expected if exact else min(room, power(expected))
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
    moved = server.trained(params, job.trains) if job.update is None else job.update.like()
    payload = jax.eval_shape(lambda update: job.mechanism.encode(jax.random.key(0), update, {}), moved)
    return schema_of(payload, job.weights, job.mechanism.wire)
