"""The debug executor: one device at a time, without jit. It raises where the engine would zero an update, and names the device."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tacit.core.messages import Broadcast
from tacit.core.sparse_rows import Rows, is_rows
from tacit.device.round import Home, seeded_noise_key, step, work
from tacit.errors import DeviceError, TacitError
from tacit.lab.data import Population
from tacit.lab.simulation.buckets import Bucket
from tacit.lab.simulation.engine import Job, RoundTally, State, close_round, device_places, rows_written, wire_schema
from tacit.server import round as server


def debug_round(
    job: Job, key: jax.Array, round: int, state: State, buckets: list[Bucket], ids: np.ndarray, population: Population
) -> tuple[State, RoundTally]:
    """One round, device by device: the same step, the same total and the same close as the engine's."""
    bucket_of, place_of = device_places(buckets, len(population))
    broadcast = state.broadcast(round)
    total = server.zero_total(job.mechanism, state.params, job.trains, job.weights, job.update)
    homes, each = list(state.homes), None if state.rows is None else list(state.rows)
    written = jnp.zeros(wire_schema(job, state.params).tables, jnp.int32)
    with jax.disable_jit():
        for device in ids:
            b, place = bucket_of[device], place_of[device]
            home, own = jax.tree.map(lambda leaf: leaf[place], (homes[b], buckets[b].own))  # noqa: B023
            where = f"device {population.name(device)!r}, round {round}, stage {job.stage + 1} ({type(job.method).__name__})"
            home, report = _one(job, broadcast, home, own, where)
            homes[b] = jax.tree.map(lambda old, new: old.at[place].set(new), homes[b], home)  # noqa: B023
            reports = jax.tree.map(lambda leaf: leaf[None], report)
            total, rows = server.add_reports(job.mechanism, total, reports), rows_written(job, reports)[0]
            written += rows
            if each is not None:
                each[b] = each[b].at[place].add(rows)
    params, memory, n = close_round(job, key, broadcast.round, state.params, state.memory, [total])
    return State(params, memory, homes, each), RoundTally(n, written[None], broadcast.public_state)


def _one(job: Job, broadcast: Broadcast, home: Home, own: Any, where: str) -> Any:
    try:
        _, update, weight = work(job.method, job.stage, broadcast, home, own)
        moved = server.trained(broadcast.params, job.trains)
        like = moved if job.rule.moves_what_is_sent or job.update is None else job.update.like()
        check_update(job, like, update, weight)
        noise = seeded_noise_key(home, job.stage, broadcast.round)
        return step(job.method, job.mechanism, job.stage, broadcast, home, own, noise)
    except Exception as problem:
        reason = str(problem) if isinstance(problem, TacitError) else f"{type(problem).__name__}: {problem}"
        raise DeviceError(f"{where}: {reason}") from problem


def check_update(job: Job, params: dict, update: dict, weight: Any) -> None:
    """Raise where an update is not what the engine takes for granted."""
    if set(update) != set(params):
        raise DeviceError(f"the update must have the leaves {sorted(params)}, got {sorted(update)}.")
    if np.shape(weight) != (job.weights,) or not np.isfinite(np.asarray(weight)).all():
        raise DeviceError(f"the weight must be {job.weights} finite number(s), got {weight!r}.")
    likes = jax.tree_util.tree_leaves_with_path(params)
    leaves = jax.tree.structure(params).flatten_up_to(update)
    for (path, like), leaf in zip(likes, leaves):
        _check_leaf(jax.tree_util.keystr(path), like, leaf)


def _check_leaf(name: str, like: Any, leaf: Any) -> None:
    value = leaf.value if is_rows(leaf) else leaf
    shape = like.shape[1:] if is_rows(leaf) else like.shape
    got = value.shape[1:] if is_rows(leaf) else value.shape
    if got != shape:
        raise DeviceError(f"update {name} must have shape {shape}, got {got}.")
    if not np.isfinite(np.asarray(value)).all():
        raise DeviceError(f"update {name} is not finite.")
    if isinstance(leaf, Rows):
        if leaf.rows != like.shape[0]:
            raise DeviceError(f"update {name} must stand for a table of {like.shape[0]} rows, got {leaf.rows}.")
        _check_rows(name, like.shape[0], np.asarray(leaf.index), np.asarray(value))


def _check_rows(name: str, rows: int, index: np.ndarray, value: np.ndarray) -> None:
    real = index[index != rows]
    if (index[: real.size] != real).any() or (np.diff(real) <= 0).any() or (real < 0).any() or (real > rows).any():
        raise DeviceError(f"update {name}: rows must increase strictly below {rows} and end in padding {rows}.")
    if value[real.size :].any():
        raise DeviceError(f"update {name}: padding rows must be zero.")
