"""Evaluation: every question is scored by the device's own `score`, in chunks: adapt, score, discard.

A person who took no part in training gets a new home, adapts, answers, and is forgotten.
"""

from functools import partial
from typing import Any

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
from tacit.lab.split import RECENT, Split, latest
from tacit.metrics import rank, summary

CHUNK_SCORES = 1 << 21  # scores held at a time
_NEWCOMERS = 3  # what a key is for, beside those of a run


def ranks(run: Run, split: Split, candidates: Candidates | None = None, *, seed: int = 0) -> np.ndarray:
    """The rank of every question's target among its candidates; 1 is best, a target that is no candidate is last."""
    candidates = candidates or Everything()
    key = jax.random.key(seed, impl=KEYS)
    found = np.zeros(len(split.test), np.int64)
    for bucket, some in _groups(run, split, split.test.device):
        for part, padded in _chunks(some, run.population.catalog.n_items):
            found[part] = _ranks_of(run, bucket, split, candidates, key, padded)[: part.size]
    return found


def top_lists(
    run: Run, split: Split, n: int = 10, *, among: np.ndarray | None = None, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """The devices asked, and for each the n best items that are not in its history, by the device's own ranking.

    Equal scores stand in random order; `among` names the items that may be listed; a short list ends in -1.
    """
    devices = np.unique(split.test.device)
    key = jax.random.key(seed, impl=KEYS)
    lists = np.full((devices.size, n), -1, np.int32)
    items = np.random.default_rng(seed).permutation(run.population.catalog.n_items).astype(np.int32)
    barred = np.zeros(items.size, bool) if among is None else ~np.isin(items, among)
    for bucket, some in _groups(run, split, devices):
        for part, padded in _chunks(some, run.population.catalog.n_items):
            who = devices[padded]
            place, recent = np.searchsorted(bucket.ids, who), latest(split.asked, who, RECENT)
            mask = _mask(split.asked, who, np.argsort(items)) | barred
            told = (run.params, bucket.home, bucket.own, place, who, recent, items, mask)
            made = _lists(run.method, run.stage, n, key, *told)
            lists[part, : made.shape[1]] = np.asarray(made)[: part.size]
    return devices, lists


def leave_last_out_metrics(run: Run, split: Split, **options: Any) -> dict[str, float]:
    """HR@10, NDCG@10 and MRR@10 over all items."""
    return summary(ranks(run, split, **options))


def newcomers(run: Run, people: Population, seed: int = 0) -> list[Bucket]:
    """Homes for people the run has never met; nothing of them is kept."""
    root = jax.random.fold_in(jax.random.key(seed, impl=KEYS), _NEWCOMERS)
    buckets = furnish(root, people, GRID, 1, np.inf)
    return [move_in(run.method, run.stage, people, bucket) for bucket in buckets]


def _groups(run: Run, split: Split, devices: np.ndarray) -> list[tuple[Bucket, np.ndarray]]:
    """The buckets of the devices asked, and which of `devices` live in each."""
    buckets = run.buckets if split.people is None else newcomers(run, split.people)
    groups = [(bucket, np.flatnonzero(np.isin(devices, bucket.ids))) for bucket in buckets]
    return [(bucket, some) for bucket, some in groups if some.size]


def _chunks(some: np.ndarray, items: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Parts of bounded size, and each padded to one length, so that one program serves them all."""
    size = min(max(1, CHUNK_SCORES // items), power(some.size))
    parts = [some[start : start + size] for start in range(0, some.size, size)]
    return [(part, np.pad(part, (0, size - part.size), mode="edge")) for part in parts]


def _mask(population: Population | None, devices: np.ndarray, place: np.ndarray) -> np.ndarray:
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
) -> np.ndarray:
    cases, device = split.test, split.test.device[part]
    place, rows = np.searchsorted(bucket.ids, device), candidates.rows(part)
    told = (run.method, run.stage, key, run.params, bucket.home, bucket.own, place, part, cases.recent[part])
    if rows is None:
        without = {"history": split.asked, "log": split.log}.get(getattr(candidates, "without", ""))
        mask = _mask(without, device, np.arange(run.population.catalog.n_items))
        return np.asarray(_full_ranks(*told, mask, cases.target[part]))
    return np.where(rows[:, 0] >= 0, _row_ranks(*told, rows), np.iinfo(np.int32).max)


def _scores(
    method: Method, stage: int, params: dict, homes: Home, owns: Any, place: Any, recent: Any, items: Any
) -> jax.Array:
    """Adapt some devices of a bucket and score: items int32[N] for all of them, or int32[c, w] a row each."""
    some = jax.tree.map(lambda leaf: leaf[place], (homes, owns))
    # Adapting is a round's work and is chunked like one; scoring is one product for everybody.
    events = max(leaf[0].size for leaf in jax.tree.leaves(owns)) if jax.tree.leaves(owns) else 1
    at_a_time = min(place.shape[0], max(1, chunk_events() // events))
    local = jax.lax.map(lambda pair: adapt(method, stage, params, *pair).local[str(stage)], some, batch_size=at_a_time)

    def one(local: Any, own: Any, recent: Any, items: Any) -> jax.Array:
        return method.score(params, local, own, recent, items)

    return jax.vmap(one, (0, 0, 0, 0 if items.ndim == 2 else None))(local, some[1], recent, items)


@partial(jax.jit, static_argnums=1)
def _full_ranks(
    method: Method,
    stage: int,
    key: Any,
    params: dict,
    homes: Home,
    owns: Any,
    place: Any,
    case: Any,
    recent: Any,
    mask: Any,
    target: Any,
) -> jax.Array:
    items = jnp.arange(method.catalog.n_items)
    scores = _scores(method, stage, params, homes, owns, place, recent, items)
    masked = jnp.where(mask & (items != target[:, None]), -jnp.inf, scores)
    keys = jax.vmap(partial(jax.random.fold_in, key))(case)
    return jax.vmap(rank)(keys, masked, target)


@partial(jax.jit, static_argnums=1)
def _row_ranks(
    method: Method,
    stage: int,
    key: Any,
    params: dict,
    homes: Home,
    owns: Any,
    place: Any,
    case: Any,
    recent: Any,
    rows: Any,
) -> jax.Array:
    scores = _scores(method, stage, params, homes, owns, place, recent, rows)
    keys = jax.vmap(partial(jax.random.fold_in, key))(case)
    return jax.vmap(rank)(keys, scores, jnp.zeros(case.shape, jnp.int32))


@partial(jax.jit, static_argnums=(1, 2))
def _lists(
    method: Method,
    stage: int,
    n: int,
    key: Any,
    params: dict,
    homes: Home,
    owns: Any,
    place: Any,
    who: Any,
    recent: Any,
    items: Any,
    mask: Any,
) -> jax.Array:
    """The best of `items`; top_k keeps the first of equals, so everybody starts at a place of their own."""
    size = items.shape[0]
    scores = jnp.where(mask, -jnp.inf, _scores(method, stage, params, homes, owns, place, recent, items))
    start = jax.vmap(lambda one: jax.random.randint(jax.random.fold_in(key, one), (), 0, size))(who)

    def best(scores: jax.Array, start: jax.Array) -> jax.Array:
        turned = jax.lax.dynamic_slice(jnp.concatenate([scores, scores]), (start,), (size,))
        value, at = jax.lax.top_k(turned, min(n, size))
        return jnp.where(value > -jnp.inf, items[(at + start) % size], -1)

    return jax.vmap(best)(scores, start)
