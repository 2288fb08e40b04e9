"""Evaluation: every question is scored by the device's own `score`, in chunks: adapt, score, discard.

A person who took no part in training gets a new home, adapts, answers, and is forgotten.
"""

import math
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tacit.device.method import Method
from tacit.device.round import KEYS, Home, adapt
from tacit.lab.buckets import GRID, Bucket, furnish, move_in, power
from tacit.lab.candidates import Candidates, Everything
from tacit.lab.data import Population
from tacit.lab.engine import chunk_events
from tacit.lab.run import Run
from tacit.lab.split import Split, latest
from tacit.metrics import rank, summary

CHUNK_SCORES = 1 << 21  # scores held at a time
CHUNK_HELD = 1 << 24  # numbers of homes and histories held at a time
_AHEAD = 3  # chunks laid out before the first of them is read
_TOGETHER = 64  # cases of one device answered together
_NEWCOMERS = 3  # what a key is for, beside those of a run


def ranks(
    run: Run, split: Split, candidates: Candidates | None = None, *, seed: int = 0, grid: Sequence[int] = GRID
) -> np.ndarray:
    """The rank of every question's target among its candidates; 1 is best, a target that is no candidate is last.

    `grid` says which lengths of history share a program, for people who took no part in training; speed only.
    """
    candidates = candidates or Everything()
    key = jax.random.key(seed, impl=KEYS)
    found, pending = np.zeros(len(split.test), np.int64), []
    for bucket, some in _groups(run, split, split.test.device, grid):
        blocks = _by_device(some, split.test.device[some])
        for part in chunks_of(blocks, bucket, candidates.width(run.population.catalog.n_items)):
            pending.append((part, _ranks_of(run, bucket, split, candidates, key, part)))
            _collect(found, pending, keep=_AHEAD)
    _collect(found, pending, keep=0)
    return found


def _collect(found: np.ndarray, pending: list, keep: int) -> None:
    """Read what has been computed, but for the newest: the next chunk is laid out while this one runs."""
    while len(pending) > keep:
        part, made = pending.pop(0)
        found[part] = made


def top_lists(
    run: Run, split: Split, n: int = 10, *, among: np.ndarray | None = None, again: bool = False, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """The devices asked, and for each the n best items that are not in its history, by the device's own ranking.

    Equal scores stand in random order; `among` names the items that may be listed, `again` lists also what a device has; a
    short list ends in -1.
    """
    devices = np.unique(split.test.device)
    key = jax.random.key(seed, impl=KEYS)
    lists = np.full((devices.size, n), -1, np.int32)
    items = np.random.default_rng(seed).permutation(run.population.catalog.n_items).astype(np.int32)
    barred = np.zeros(items.size, bool) if among is None else ~np.isin(items, among)
    shown, without = split.test.recent.shape[1], None if again else split.asked
    for bucket, some in _groups(run, split, devices):
        for part in chunks_of(some[:, None], bucket, items.size):
            part = part[:, 0]
            who = devices[part]
            place, recent = np.searchsorted(bucket.ids, who), latest(split.asked, who, shown)[:, None]
            mask = seen_mask(without, who, np.argsort(items)) | barred
            asked = Asked(run.params, bucket.home, bucket.own, place, who[:, None], recent)
            made = np.asarray(lists_of(run.method, run.stage, n, key, asked, items, mask)[0])
            lists[part, : made.shape[1]] = made
    return devices, lists


def leave_last_out_metrics(run: Run, split: Split, **options: Any) -> dict[str, float]:
    """HR@10, NDCG@10 and MRR@10 over all items."""
    return summary(ranks(run, split, **options))


def newcomers(run: Run, people: Population, seed: int = 0, grid: Sequence[int] = GRID) -> list[Bucket]:
    """Homes for people the run has never met; nothing of them is kept."""
    root = jax.random.fold_in(jax.random.key(seed, impl=KEYS), _NEWCOMERS)
    buckets = furnish(root, people, grid, 1, np.inf)
    return [move_in(run.method, run.stage, people, bucket) for bucket in buckets]


def _groups(run: Run, split: Split, devices: np.ndarray, grid: Sequence[int] = GRID) -> list[tuple[Bucket, np.ndarray]]:
    """The buckets of the devices asked, and which of `devices` live in each."""
    buckets = run.buckets if split.people is None else newcomers(run, split.people, grid=grid)
    groups = [(bucket, np.flatnonzero(np.isin(devices, bucket.ids))) for bucket in buckets]
    return [(bucket, some) for bucket, some in groups if some.size]


def _by_device(cases: np.ndarray, device: np.ndarray) -> np.ndarray:
    """Cases in rows of one device each, int64[rows, together]: a device adapts once for all cases of its row.

    A short row repeats its last case: it is answered twice, the same.
    """
    order = np.argsort(device, kind="stable")
    cases, device = cases[order], device[order]
    counts = np.unique(device, return_counts=True)[1]
    together = min(_TOGETHER, power(int(np.median(counts))))
    place = np.arange(cases.size) - np.repeat(np.cumsum(counts) - counts, counts)
    row = np.cumsum(place % together == 0) - 1
    blocks = np.zeros((row[-1] + 1, together), np.int64)
    filled = np.bincount(row)
    start = np.cumsum(filled) - filled
    at = np.minimum(np.arange(together), filled[:, None] - 1) + start[:, None]
    blocks[:] = cases[at]
    return blocks


def chunks_of(blocks: np.ndarray, bucket: Bucket, width: int) -> list[np.ndarray]:
    """Rows of bounded size, each chunk padded to one length by repeating its last row: one program serves them all."""
    held = sum(math.prod(leaf.shape[1:]) for leaf in jax.tree.leaves((bucket.home, bucket.own)))
    most = min(CHUNK_SCORES // (width * blocks.shape[1]), CHUNK_HELD // held)
    size = min(max(1, most), power(blocks.shape[0]))
    parts = [blocks[start : start + size] for start in range(0, blocks.shape[0], size)]
    return [np.pad(part, ((0, size - part.shape[0]), (0, 0)), mode="edge") for part in parts]


def seen_mask(population: Population | None, devices: np.ndarray, place: np.ndarray) -> np.ndarray:
    """True where an item is no candidate because the device has it, bool[c, N]; item i stands in column place[i]."""
    if population is None:
        return np.zeros((1, 1), bool)
    counts = population.lengths[devices]
    row = np.repeat(np.arange(devices.size), counts)
    event = np.repeat(population.offsets[devices] - np.cumsum(counts) + counts, counts) + np.arange(row.size)
    mask = np.zeros((devices.size, place.size), bool)
    mask[row, place[population.items[event]]] = True
    return mask


def _ranks_of(
    run: Run, bucket: Bucket, split: Split, candidates: Candidates, key: jax.Array, part: np.ndarray
) -> jax.Array:
    """Ranks of a chunk of cases [rows, together], every row one device's."""
    cases, device = split.test, split.test.device[part[:, 0]]
    place, offered = np.searchsorted(bucket.ids, device), candidates.rows(part.reshape(-1))
    asked = Asked(run.params, bucket.home, bucket.own, place, part, cases.recent[part])
    if offered is None:
        without = {"history": split.asked, "log": split.log}.get(getattr(candidates, "without", ""))
        mask = seen_mask(without, device, np.arange(run.population.catalog.n_items))
        return _full_ranks(run.method, run.stage, key, asked, mask, cases.target[part])
    return _row_ranks(run.method, run.stage, key, asked, _padded(offered).reshape(*part.shape, -1))


def _padded(offered: np.ndarray) -> np.ndarray:
    """Rows of candidates padded to a width of few different sizes, so that few programs are compiled."""
    width = -(-offered.shape[1] // 16) * 16
    return np.pad(offered, ((0, 0), (0, width - offered.shape[1])), constant_values=-1)


class Asked(NamedTuple):
    """A chunk of cases [rows, together], every row one device's of a bucket."""

    params: dict
    homes: Home  # of the whole bucket
    owns: Any
    place: Any  # int64[rows], where each row's device stands in the bucket
    case: Any  # int64[rows, together]
    recent: Any  # int32[rows, together, r]


def _scores(method: Method, stage: int, asked: Asked, items: Any) -> jax.Array:
    """Adapt each row's device, then score its cases.

    Items are int32[N] for every case, or int32[rows, together, w], a row for each.
    """
    params, homes, owns, place, _, recent = asked
    some = jax.tree.map(lambda leaf: leaf[place], (homes, owns))
    # Adapting is a round's work and is chunked like one; scoring is one product for everybody.
    held = max((leaf[0].size for leaf in jax.tree.leaves(owns)), default=1)
    at_a_time = min(place.shape[0], max(1, chunk_events() // held))
    local = jax.lax.map(lambda pair: adapt(method, stage, params, *pair).local[str(stage)], some, batch_size=at_a_time)
    of = 0 if items.ndim == 3 else None

    def one(local: Any, own: Any, recent: Any, items: Any) -> jax.Array:
        return jax.vmap(partial(method.score, params, local, own), (0, of))(recent, items)

    return jax.vmap(one, (0, 0, 0, of))(local, some[1], recent, items)


def _rank_all(key: jax.Array, case: Any, scores: jax.Array, target: Any) -> jax.Array:
    draw = jax.vmap(jax.vmap(partial(jax.random.fold_in, key)))(case)
    return jax.vmap(jax.vmap(rank))(draw, scores, target)


@partial(jax.jit, static_argnums=1)
def _full_ranks(method: Method, stage: int, key: jax.Array, asked: Asked, mask: Any, target: Any) -> jax.Array:
    items = jnp.arange(method.catalog.n_items)
    scores = _scores(method, stage, asked, items)
    scores = jnp.where(mask[:, None] & (items != target[..., None]), -jnp.inf, scores)
    return _rank_all(key, asked.case, scores, target)


@partial(jax.jit, static_argnums=1)
def _row_ranks(method: Method, stage: int, key: jax.Array, asked: Asked, offered: Any) -> jax.Array:
    scores = _scores(method, stage, asked, offered)
    found = _rank_all(key, asked.case, scores, jnp.zeros(asked.case.shape, jnp.int32))
    return jnp.where(offered[..., 0] >= 0, found, jnp.iinfo(jnp.int32).max)  # a target that is no candidate is last


@partial(jax.jit, static_argnums=(1, 2))
def lists_of(method: Method, stage: int, n: int, key: jax.Array, asked: Asked, items: Any, mask: Any) -> tuple:
    """The best of `items` and their scores; top_k keeps the first of equals, so everybody starts elsewhere."""
    size = items.shape[0]
    scores = jnp.where(mask, -jnp.inf, _scores(method, stage, asked, items)[:, 0])
    start = jax.vmap(lambda who: jax.random.randint(jax.random.fold_in(key, who), (), 0, size))(asked.case[:, 0])

    def best(scores: jax.Array, start: jax.Array) -> tuple[jax.Array, jax.Array]:
        turned = jax.lax.dynamic_slice(jnp.concatenate([scores, scores]), (start,), (size,))
        value, at = jax.lax.top_k(turned, min(n, size))
        return jnp.where(value > -jnp.inf, items[(at + start) % size], -1), value

    return jax.vmap(best)(scores, start)
