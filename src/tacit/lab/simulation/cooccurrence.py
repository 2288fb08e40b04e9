"""Co-occurrence: a table of similar items learned tile by tile, where the counts of all pairs need too much memory or time.

The same devices take the same step and send the same reports as in `simulate`; only the server's sum is organised
differently: reports are kept, packed, and pairs are counted tile by tile. Counts are whole numbers, so the table is the
same.
"""

import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tacit.core.messages import schema_of
from tacit.core.plan import Plan
from tacit.device.method import Method
from tacit.lab.analysis.feasibility import warn_if_infeasible
from tacit.lab.plans.loader import choose
from tacit.lab.runs.run import Run
from tacit.lab.simulation.engine import Job, wire_schema
from tacit.lab.simulation.federation import Federation, Performance
from tacit.lab.simulation.report_collection import (
    GRID,
    OnProgress,
    PackedReports,
    collect_reports,
    cooccurrence_job,
    enter_devices,
    map_in_threads,
    print_progress,
    step_packed,
)
from tacit.nets.counts.item_pairs import TILE, count_tile_pairs, packed_columns, tile_pairs, write_tiles
from tacit.privacy.mechanisms._parts.bits import ODDS_SCALE
from tacit.privacy.mechanisms._parts.pair_counts import Cooccurrence, cooccurrence_counts, debiased, debiased_pairs
from tacit.privacy.mechanisms.cooccurrence import MOST
from tacit.privacy.price import of_simulation, price
from tacit.server.rules.similarity import ItemCounts, Similarity

_TILES = 256  # tiles counted at a time
_MULTIPLIED = 1 << 30  # bytes multiplied at a time on a GPU
_RANKED = 1 << 20  # similarities ranked at a time


def learn(
    plan: Plan | str | Path,
    log: Any,
    *,
    settings: dict[str, Any] | None = None,
    seed: int = 0,
    tiled: bool | None = None,
    on_progress: OnProgress | None = None,
) -> Run:
    """Run a plan of one round whose rule is `similarity`: what `simulate` would learn, in less memory and time.

    Args:
        plan: a plan, the name of a built-in one, or a TOML file.
        log: the histories of all users, as `simulate` takes them.
        settings: changes to the plan.
        seed: the same seed gives the same reports as in `simulate`.
        tiled: never hold the counts of all pairs at once; by default this depends on the number of items. If they fit,
            a GPU does the whole round in one program.
        on_progress: called with the name of a step and the share of it that is done; by default it is printed.
    """
    from tacit.lab.data.datasets import as_population  # reads tables; the rest of this file needs none

    began, on_progress = time.perf_counter(), on_progress or print_progress
    federation = Federation(choose(plan, settings), as_population(log), seed=seed, performance=Performance(grid=GRID))
    job = cooccurrence_job(federation)
    warn_if_infeasible(federation.plan, federation.price, federation.methods)
    enter_devices(federation, job)
    width, k = federation.params["neighbours"].shape
    tiled = width > MOST if tiled is None else tiled
    if jax.default_backend() != "cpu" and not tiled:
        table = learn_in_one_program(federation, job)
    else:
        reports = collect_reports(federation, job, on_progress)
        table = similarity_table(reports, job.rule, job.mechanism, k, tiled=tiled, on_progress=on_progress)
    return run_from_table(federation, federation.plan, federation.methods[0], table, time.perf_counter() - began)


def learn_in_one_program(federation: Federation, job: Job) -> dict[str, jax.Array]:
    """The steps of all devices and the server's round as one program, for a GPU with enough memory."""
    devices = [(bucket.home, bucket.own) for bucket in federation.buckets]
    homes, table = _round(job, federation.params, devices)
    federation.buckets = [bucket._replace(home=home) for bucket, home in zip(federation.buckets, homes)]
    return table


@jax.jit
def _round(job: Job, params: dict, devices: list) -> tuple[list, dict[str, jax.Array]]:
    stepped = [step_packed(job, params, *one) for one in devices]
    payloads = jnp.concatenate([part for _, part in stepped])
    zero = job.mechanism.zero({"items": jnp.zeros(params["neighbours"].shape[0])}, 1)
    n = jnp.asarray(payloads.shape[0])
    total = job.mechanism.add(
        zero, {"items": payloads}, jnp.ones((payloads.shape[0], 1)), jnp.ones(payloads.shape[0], bool)
    )
    unused = jax.random.key(0)  # no noise is added at the server
    estimate = job.mechanism.estimate(unused, total, n, {})
    return [home for home, _ in stepped], job.rule.finish(params, estimate, n, ())[0]


def similarity_table(
    reports: PackedReports,
    rule: Any,
    mechanism: Any,
    k: int,
    *,
    pairs: np.ndarray | None = None,
    tiled: bool | None = None,
    on_progress: OnProgress = lambda *_: None,
) -> dict[str, jax.Array]:
    """The leaves that the rule would learn from these reports; `pairs` are their counts, if already known."""
    believed = mechanism.thresholds if mechanism.debias else (ODDS_SCALE, 0)
    n = jnp.asarray(reports.packed.shape[0], jnp.int32)
    counts = jnp.asarray(position_counts(reports) if pairs is None else np.diagonal(pairs))
    noise = Cooccurrence(counts, n, believed).noise
    totals = ItemCounts(n.astype(jnp.float32), debiased(counts, n, believed), noise)

    def nearest(block: tuple[int, Any]) -> tuple[np.ndarray, jax.Array, jax.Array]:
        start, both = block
        found = _nearest(rule, k, believed, n, counts, totals, start, both)
        return np.arange(start, min(start + both.shape[0], reports.width)), *found

    if pairs is None and (reports.width > MOST if tiled is None else tiled):
        blocks = _in_rows(reports, on_progress)
    else:
        blocks = _in_one(count_pairs(reports, on_progress) if pairs is None else pairs)
    near, close = np.zeros((reports.width, k), np.int32), np.zeros((reports.width, k), np.float32)
    for at, *found in map_in_threads(nearest, blocks):
        near[at], close[at] = (np.asarray(leaf)[: at.size] for leaf in found)
    return {"neighbours": jnp.asarray(near), "similarity": jnp.asarray(close)}


@partial(jax.jit, static_argnums=(1, 2))
def _nearest(
    rule: Similarity, k: int, believed: Any, n: Any, counts: Any, totals: ItemCounts, start: int, both: jax.Array
) -> tuple[jax.Array, jax.Array]:
    at = jnp.minimum(start + jnp.arange(both.shape[0]), counts.shape[0] - 1)
    both = debiased_pairs(both, counts[at], counts, n, believed)
    return rule.nearest(both, at, totals, k)


def position_counts(reports: PackedReports) -> np.ndarray:
    """How many reports have a 1 at each position, int32[N]."""
    total = np.zeros(reports.width, np.int32)
    for start in range(0, reports.packed.shape[0], 4096):
        bits = np.unpackbits(reports.packed[start : start + 4096], axis=1, count=reports.width)
        total += bits.sum(0, dtype=np.int32)
    return total


def count_pairs(reports: PackedReports, on_progress: OnProgress = lambda *_: None) -> np.ndarray:
    """How many reports have a 1 at both of every two positions, int32[N, N]."""
    if jax.default_backend() != "cpu":
        some = max(1, _MULTIPLIED // reports.width)
        starts = range(0, reports.packed.shape[0], some)
        parts = (_products(jnp.asarray(reports.packed[start : start + some]), reports.width) for start in starts)
        return np.asarray(sum(parts, jnp.zeros((), jnp.int32)))
    words = packed_columns(jnp.asarray(reports.packed), reports.width)
    left, right = tile_pairs(words.shape[0])
    table = np.zeros((words.shape[0] * TILE,) * 2, np.int32)
    done = iter(range(_TILES, left.size + _TILES, _TILES))

    def count(start: int) -> None:
        some = slice(start, start + _TILES)
        write_tiles(table, left[some], right[some], np.asarray(count_tile_pairs(words, left[some], right[some])))
        on_progress("pairs", min(1.0, next(done) / left.size))

    map_in_threads(count, range(0, left.size, _TILES))
    return table[: reports.width, : reports.width]


@partial(jax.jit, static_argnums=1)
def _products(packed: jax.Array, width: int) -> jax.Array:
    return cooccurrence_counts(jnp.unpackbits(packed, axis=1, count=width))


def _in_one(table: np.ndarray) -> Iterator[tuple[int, Any]]:
    """Blocks of rows of the one table of all pairs, all of one size: the last begins inside the one before."""
    width = table.shape[0]
    rows = max(1, min(width, _RANKED // width))
    for start in range(0, width, rows):
        start = min(start, width - rows)
        yield start, table[start : start + rows]


def _in_rows(reports: PackedReports, on_progress: OnProgress) -> Iterator[tuple[int, Any]]:
    """A row of tiles at a time: nothing larger is ever in memory."""
    words = packed_columns(jnp.asarray(reports.packed), reports.width)
    tiles = np.arange(words.shape[0], dtype=np.int32)
    for tile in tiles:
        counts = count_tile_pairs(words, np.full_like(tiles, tile), tiles)
        on_progress("pairs", (tile + 1) / tiles.size)
        yield int(tile) * TILE, counts.swapaxes(0, 1).reshape(TILE, -1)[:, : reports.width]


def run_from_table(federation: Federation, plan: Plan, method: Method, table: dict, seconds: float = 0.0) -> Run:
    """The run that ends with this table; its devices are the federation's."""
    devices, params = len(federation.population), {**federation.params, **table}
    schema = wire_schema(cooccurrence_job(federation), federation.params)
    federation.schemas[0] = schema
    row = {
        **{"done": 1, "stage": 1, "round": 0, "asked": devices, "reports": devices},
        "bytes_up": devices * schema.bytes(),
        "bytes_down": devices * schema_of(params, 0).bytes(),
        "seconds": seconds,
    }
    run = Run.of(federation, [row])
    return replace(
        run,
        plan=plan,
        method=method,
        params=params,
        price=federation.price if plan == federation.plan else of_simulation(price(plan, devices)),
    )
