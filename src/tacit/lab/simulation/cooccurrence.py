"""Tiles: a table of similar items learned piece by piece, where the counts of all pairs would not fit, or take too long.

The same homes take the same step and the same reports come in as in `simulate`; only the server's sum is organised
otherwise: reports are kept, packed, and pairs are counted tile by tile. Counts are whole numbers, so the table is the
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
from tacit.lab.simulation.collect import GRID, Reports, Tell, collect, job_of, line, move_in_all, say, side_by_side
from tacit.lab.simulation.engine import Job, wire_schema
from tacit.lab.simulation.federation import Federation, Performance
from tacit.nets.counts.item_pairs import TILE, count_pairs, packed_columns, tile_pairs, write_tiles
from tacit.privacy.mechanisms._parts.bits import ODDS_SCALE
from tacit.privacy.mechanisms._parts.pair_counts import Cooccurrence, cooccurrence_counts, debiased, debiased_pairs
from tacit.privacy.mechanisms.cooccurrence import MOST
from tacit.privacy.price import price
from tacit.server.rules.similarity import Crowd, Similarity

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
    tell: Tell | None = None,
) -> Run:
    """Run a plan of one round whose rule is `similarity`: what `simulate` would learn, in less memory and time.

    Args:
        plan: a plan, the name of one on the shelf, or a TOML file.
        log: everybody's histories, as `simulate` takes them.
        settings: changes to the plan.
        seed: the same seed gives the same reports as in `simulate`.
        tiled: never hold the counts of all pairs at once; decided by the number of items if not said. What fits is
            one program on a GPU.
        tell: called with what is being done and which share of it is; prints it where somebody watches, if not given.
    """
    from tacit.lab.data.datasets import as_population  # reads tables; the rest of this file needs none

    began, tell = time.perf_counter(), tell or line
    federation = Federation(choose(plan, settings), as_population(log), seed=seed, performance=Performance(grid=GRID))
    job = job_of(federation)
    warn_if_infeasible(federation.plan, federation.price, federation.methods)
    move_in_all(federation, job)
    width, k = federation.params["neighbours"].shape
    tiled = width > MOST if tiled is None else tiled
    if jax.default_backend() != "cpu" and not tiled:
        table = at_once(federation, job)
    else:
        table = similar(collect(federation, job, tell), job.rule, job.mechanism, k, tiled=tiled, tell=tell)
    return run_of(federation, federation.plan, federation.methods[0], table, time.perf_counter() - began)


def at_once(federation: Federation, job: Job) -> dict[str, jax.Array]:
    """Everybody's step and the server's whole round as one program: the way of a GPU that holds it all."""
    mine = [(bucket.home, bucket.own) for bucket in federation.buckets]
    homes, table = _round(job, federation.params, mine)
    federation.buckets = [bucket._replace(home=home) for bucket, home in zip(federation.buckets, homes)]
    return table


@jax.jit
def _round(job: Job, params: dict, mine: list) -> tuple[list, dict[str, jax.Array]]:
    told = [say(job, params, *one) for one in mine]
    said = jnp.concatenate([part for _, part in told])
    zero = job.mechanism.zero({"items": jnp.zeros(params["neighbours"].shape[0])}, 1)
    heard = jnp.asarray(said.shape[0])
    total = job.mechanism.add(zero, {"items": said}, jnp.ones((said.shape[0], 1)), jnp.ones(said.shape[0], bool))
    estimate = job.mechanism.estimate(
        jax.random.key(0), total, heard, {}
    )  # the key is for noise added here: there is none
    return [home for home, _ in told], job.rule.finish(params, estimate, heard, ())[0]


def similar(
    reports: Reports,
    rule: Any,
    mechanism: Any,
    k: int,
    *,
    pairs: np.ndarray | None = None,
    tiled: bool | None = None,
    tell: Tell = lambda *_: None,
) -> dict[str, jax.Array]:
    """The leaves that the rule would learn from these reports; `pairs`, if they have been counted already."""
    believed = mechanism.thresholds if mechanism.debias else (ODDS_SCALE, 0)
    heard = jnp.asarray(reports.packed.shape[0], jnp.int32)
    counts = jnp.asarray(said_of_each(reports) if pairs is None else np.diagonal(pairs))
    noise = Cooccurrence(counts, heard, believed).noise
    crowd = Crowd(heard.astype(jnp.float32), debiased(counts, heard, believed), noise)

    def nearest(block: tuple[int, Any]) -> tuple[np.ndarray, jax.Array, jax.Array]:
        start, both = block
        found = _nearest(rule, k, believed, heard, counts, crowd, start, both)
        return np.arange(start, min(start + both.shape[0], reports.width)), *found

    if pairs is None and (reports.width > MOST if tiled is None else tiled):
        blocks = _in_rows(reports, tell)
    else:
        blocks = _in_one(said_of_pairs(reports, tell) if pairs is None else pairs)
    near, close = np.zeros((reports.width, k), np.int32), np.zeros((reports.width, k), np.float32)
    for at, *found in side_by_side(nearest, blocks):
        near[at], close[at] = (np.asarray(leaf)[: at.size] for leaf in found)
    return {"neighbours": jnp.asarray(near), "similarity": jnp.asarray(close)}


@partial(jax.jit, static_argnums=(1, 2))
def _nearest(
    rule: Similarity, k: int, believed: Any, heard: Any, counts: Any, crowd: Crowd, start: int, both: jax.Array
) -> tuple[jax.Array, jax.Array]:
    at = jnp.minimum(start + jnp.arange(both.shape[0]), counts.shape[0] - 1)
    both = debiased_pairs(both, counts[at], counts, heard, believed)
    return rule.nearest(both, at, crowd, k)


def said_of_each(reports: Reports) -> np.ndarray:
    """How many said 1 of each position, int32[N]."""
    total = np.zeros(reports.width, np.int32)
    for start in range(0, reports.packed.shape[0], 4096):
        bits = np.unpackbits(reports.packed[start : start + 4096], axis=1, count=reports.width)
        total += bits.sum(0, dtype=np.int32)
    return total


def said_of_pairs(reports: Reports, tell: Tell = lambda *_: None) -> np.ndarray:
    """How many said 1 of both of every two positions, int32[N, N]."""
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
        write_tiles(table, left[some], right[some], np.asarray(count_pairs(words, left[some], right[some])))
        tell("pairs", min(1.0, next(done) / left.size))

    side_by_side(count, range(0, left.size, _TILES))
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


def _in_rows(reports: Reports, tell: Tell) -> Iterator[tuple[int, Any]]:
    """A row of tiles at a time: nothing larger is ever held."""
    words = packed_columns(jnp.asarray(reports.packed), reports.width)
    tiles = np.arange(words.shape[0], dtype=np.int32)
    for tile in tiles:
        counts = count_pairs(words, np.full_like(tiles, tile), tiles)
        tell("pairs", (tile + 1) / tiles.size)
        yield int(tile) * TILE, counts.swapaxes(0, 1).reshape(TILE, -1)[:, : reports.width]


def run_of(federation: Federation, plan: Plan, method: Method, table: dict, seconds: float = 0.0) -> Run:
    """The run that ends with this table; the devices' part of it is the federation's."""
    devices, params = len(federation.population), {**federation.params, **table}
    schema = wire_schema(job_of(federation), federation.params)
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
        price=federation.price if plan == federation.plan else price(plan, devices),
    )
