"""Scoring of test cases by the device's own `score`, in chunks: each device adapts once, scores its cases, and is discarded.

A user who took no part in training gets a new home, which is discarded after scoring.
"""

import math
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tacit.device.batching import power_of_two
from tacit.device.method import Method
from tacit.device.ranking import shuffled_candidates, tie_key, top
from tacit.device.round import KEYS, Home, adapt
from tacit.lab.data import Population
from tacit.lab.evaluation.candidates import AllItems, Candidates
from tacit.lab.evaluation.splits import Split, latest
from tacit.lab.simulation.buckets import GRID, Bucket, empty_buckets, enter_stage
from tacit.lab.simulation.engine import backend, chunk_events
from tacit.metrics import rank_and_ties, summary

if TYPE_CHECKING:
    from tacit.lab.runs.run import Run

CHUNK_SCORES = {"cpu": 1 << 21, "gpu": 1 << 26}  # scores held at a time
CHUNK_HELD = {"cpu": 1 << 24, "gpu": 1 << 28}  # numbers of homes and histories held at a time
_AHEAD = 3  # chunks dispatched before the first of them is read
_TOGETHER = 64  # cases of one device scored together
_FEW = 64  # fewer devices than this adapt in powers of two: padding is cheaper than compiling many programs
_NEW_USERS = 3  # a stream of random keys beside those of a run


class TargetRanks(NamedTuple):
    """The rank of the target of every test case."""

    rank: np.ndarray  # int64[c], of the target among its candidates; 1 is best, a target that is no candidate is last
    by_chance: (
        np.ndarray
    )  # bool[c], whether half of the other candidates or more have the same score, so that chance decides the rank


def ranks(run: "Run", split: Split, candidates: Candidates | None = None, **options: Any) -> np.ndarray:
    """The ranks of `rank_targets`."""
    return rank_targets(run, split, candidates, **options).rank


def rank_targets(
    run: "Run", split: Split, candidates: Candidates | None = None, *, seed: int = 0, grid: Sequence[int] = GRID
) -> TargetRanks:
    """The rank of the target of every test case among its candidates.

    `grid` is the lengths of history that share a program, for users who took no part in training; speed only.
    """
    candidates = candidates or AllItems()
    key = jax.random.key(seed, impl=KEYS)
    found, pending = TargetRanks(np.zeros(len(split.test), np.int64), np.zeros(len(split.test), bool)), []
    for bucket, some in _groups(_homes(run, split, grid), split.test.device):
        blocks = _by_device(some, split.test.device[some])
        for adapted, inside in adapted_devices(run, bucket, split.test.device[blocks[:, 0]]):
            for part in padded_chunks(blocks[inside], adapted, candidates.width(run.population.catalog.n_items)):
                pending.append((part, _ranks_of(run, adapted, split, candidates, key, part)))
                _collect(found, pending, keep=_AHEAD)
    _collect(found, pending, keep=0)
    return found


def _collect(found: TargetRanks, pending: list[tuple[np.ndarray, TargetRanks]], keep: int) -> None:
    """Read the computed chunks but for the newest, so that the next is prepared while one runs."""
    while len(pending) > keep:
        part, made = pending.pop(0)
        found.rank[part], found.by_chance[part] = made


def top_lists(
    run: "Run", split: Split, n: int = 10, *, among: np.ndarray | None = None, with_seen: bool = False, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """The devices of the test cases, and for each the n best items that are not in its history, by the device's own ranking.

    Ties are in random order; `among` restricts the items, `with_seen` includes those in the history; -1 is padding.
    """
    devices = np.unique(split.test.device)
    lists = np.full((devices.size, n), -1, np.int32)
    items = shuffled_candidates(np.arange(run.population.catalog.n_items, dtype=np.int32), seed)
    barred = np.zeros(items.size, bool) if among is None else ~np.isin(items, among)
    shown, without = split.test.recent.shape[1], None if with_seen else split.test_population
    for adapted, part in adapted_chunks(run, _homes(run, split), devices, items.size):
        who = devices[part]
        mask = seen_mask(without, who, np.argsort(items)) | barred
        batch = case_batch(run, adapted, who[:, None], who, latest(split.test_population, who, shown)[:, None])
        made = np.asarray(batch_top_lists(run.method, n, seed, batch, items, mask)[0])
        lists[part, : made.shape[1]] = made
    return devices, lists


def leave_last_out_metrics(run: "Run", split: Split, **options: Any) -> dict[str, float]:
    """HR@10, NDCG@10 and MRR@10 over all items."""
    return summary(ranks(run, split, **options))


def new_user_homes(run: "Run", people: Population, seed: int = 0, grid: Sequence[int] = GRID) -> list[Bucket]:
    """Homes for users who were not in the run; none of them is kept."""
    root = jax.random.fold_in(jax.random.key(seed, impl=KEYS), _NEW_USERS)
    buckets = empty_buckets(root, people, grid, 1, np.inf)
    return [enter_stage(run.method, run.stage, people, bucket) for bucket in buckets]


def _homes(run: "Run", split: Split, grid: Sequence[int] = GRID) -> list[Bucket]:
    """The homes of the test users."""
    return run.buckets if split.people is None else new_user_homes(run, split.people, grid=grid)


def _groups(buckets: list[Bucket], devices: np.ndarray) -> list[tuple[Bucket, np.ndarray]]:
    """The buckets of these devices, and which of `devices` are in each."""
    groups = [(bucket, np.flatnonzero(np.isin(devices, bucket.ids))) for bucket in buckets]
    return [(bucket, some) for bucket, some in groups if some.size]


def _by_device(cases: np.ndarray, device: np.ndarray) -> np.ndarray:
    """Cases in rows of one device each, int64[rows, together].

    A short row repeats its last case, which is scored twice with the same result.
    """
    order = np.argsort(device, kind="stable")
    cases, device = cases[order], device[order]
    counts = np.unique(device, return_counts=True)[1]
    together = min(_TOGETHER, power_of_two(int(np.median(counts))))
    place = np.arange(cases.size) - np.repeat(np.cumsum(counts) - counts, counts)
    row = np.cumsum(place % together == 0) - 1
    blocks = np.zeros((row[-1] + 1, together), np.int64)
    filled = np.bincount(row)
    start = np.cumsum(filled) - filled
    at = np.minimum(np.arange(together), filled[:, None] - 1) + start[:, None]
    blocks[:] = cases[at]
    return blocks


def adapted_chunks(
    run: "Run", buckets: list[Bucket], devices: np.ndarray, width: int
) -> Iterator[tuple[Bucket, np.ndarray]]:
    """Chunks of devices with one case each: their bucket, adapted, and which of `devices` they are."""
    for bucket, some in _groups(buckets, devices):
        for adapted, inside in adapted_devices(run, bucket, devices[some]):
            for part in padded_chunks(some[inside, None], adapted, width):
                yield adapted, part[:, 0]


def adapted_devices(run: "Run", bucket: Bucket, devices: np.ndarray) -> Iterator[tuple[Bucket, np.ndarray]]:
    """The devices of some rows, each adapted once: buckets of bounded size, and which rows belong to each."""
    who = np.unique(devices)
    one = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), (bucket.home, bucket.own))
    made = _one_adapted.eval_shape(run.method, run.stage, run.params, *one)
    longest = max([1, *(leaf.size for leaf in jax.tree.leaves(one[1]))])
    held = sum(leaf.size for leaf in jax.tree.leaves((made, one[1])))
    for part in _in_batches(np.searchsorted(bucket.ids, who), chunk_events() // longest, CHUNK_HELD[backend()] // held):
        home, own = _adapted(run.method, run.stage, run.params, bucket.home, bucket.own, part)
        ids = bucket.ids[np.unique(part)]
        yield Bucket(ids, bucket.length, own, home), np.flatnonzero(np.isin(devices, ids))


def _in_batches(place: np.ndarray, together: int, most: int) -> np.ndarray:
    """Positions in groups of batches, int64[groups, batches, devices], all of equal size, padded with the last position.

    At most `together` are in a batch, and about `most` in a group.
    """
    count = power_of_two(place.size) if place.size < _FEW else place.size
    together = _even(count, together)
    batches = -(-count // together)
    several = _even(batches, most // together)
    groups = -(-place.size // (several * together))
    return np.pad(place, (0, groups * several * together - place.size), "edge").reshape(groups, several, together)


def _even(count: int, most: int) -> int:
    """The size of the fewest even parts that are not larger than `most`."""
    return -(-count // -(-count // max(1, most)))


@partial(jax.jit, static_argnums=1)  # so that its shapes are found once
def _one_adapted(method: Method, stage: int, params: dict, home: Home, own: Any) -> Home:
    return adapt(method, stage, params, home, own)


@partial(jax.jit, static_argnums=1)
def _adapted(method: Method, stage: int, params: dict, homes: Home, owns: Any, batches: Any) -> tuple[Home, Any]:
    """Adaptation costs as much as a round, and runs in batches of the same size."""

    def adapt_batch(place: jax.Array) -> tuple[Home, Any]:
        home, own = jax.tree.map(lambda leaf: leaf[place], (homes, owns))
        return jax.vmap(partial(adapt, method, stage, params))(home, own), own

    return jax.tree.map(lambda leaf: leaf.reshape(batches.size, *leaf.shape[2:]), jax.lax.map(adapt_batch, batches))


def padded_chunks(blocks: np.ndarray, bucket: Bucket, width: int) -> list[np.ndarray]:
    """Rows of bounded size, each chunk padded to one length by repeating its last row: so that all share one program."""
    held = sum(math.prod(leaf.shape[1:]) for leaf in jax.tree.leaves((bucket.home, bucket.own)))
    most = min(CHUNK_SCORES[backend()] // (width * blocks.shape[1]), CHUNK_HELD[backend()] // held)
    size = min(max(1, most), power_of_two(blocks.shape[0]))
    parts = [blocks[start : start + size] for start in range(0, blocks.shape[0], size)]
    return [np.pad(part, ((0, size - part.shape[0]), (0, 0)), mode="edge") for part in parts]


def seen_mask(population: Population | None, devices: np.ndarray, place: np.ndarray) -> np.ndarray:
    """True where an item is no candidate because the device has it, bool[c, N]; item i is in column place[i]."""
    if population is None:
        return np.zeros((1, 1), bool)
    counts = population.lengths[devices]
    row = np.repeat(np.arange(devices.size), counts)
    event = np.repeat(population.offsets[devices] - np.cumsum(counts) + counts, counts) + np.arange(row.size)
    mask = np.zeros((devices.size, place.size), bool)
    mask[row, place[population.items[event]]] = True
    return mask


def _ranks_of(
    run: "Run", bucket: Bucket, split: Split, candidates: Candidates, key: jax.Array, part: np.ndarray
) -> TargetRanks:
    """Ranks of a chunk of cases [rows, together], every row one device's."""
    cases, device = split.test, split.test.device[part[:, 0]]
    offered = candidates.rows(part.reshape(-1))
    batch = case_batch(run, bucket, part, device, cases.recent[part])
    if offered is None:
        without = {"history": split.test_population, "log": split.log}.get(getattr(candidates, "without", ""))
        mask = seen_mask(without, device, np.arange(run.population.catalog.n_items))
        offered = np.ones(part.shape, bool) if without is None else ~split.seen[part]
        return _full_ranks(run.method, key, batch, mask, cases.target[part], offered)
    return _row_ranks(run.method, key, batch, _padded(offered).reshape(*part.shape, -1))


def _padded(offered: np.ndarray) -> np.ndarray:
    """Candidates padded to one of few widths, so that few programs are compiled."""
    width = -(-offered.shape[1] // 16) * 16
    return np.pad(offered, ((0, 0), (0, width - offered.shape[1])), constant_values=-1)


class CaseBatch(NamedTuple):
    """A chunk of cases [rows, together], every row one device's of a bucket that has adapted."""

    params: dict
    local: Any  # of the whole bucket
    owns: Any
    place: Any  # int64[rows], position of the device of each row in the bucket
    case: Any  # int64[rows, together]
    recent: Any  # int32[rows, together, r]
    secret: Any  # uint32[rows, 2]


def case_batch(run: "Run", bucket: Bucket, case: np.ndarray, device: np.ndarray, recent: np.ndarray) -> CaseBatch:
    """The test cases of some rows, with the state of their devices."""
    place = np.searchsorted(bucket.ids, device)
    secret = bucket.home.secret[place]
    return CaseBatch(run.params, bucket.home.local[str(run.stage)], bucket.own, place, case, recent, secret)


def _scores(method: Method, batch: CaseBatch, items: Any) -> jax.Array:
    """Scores of every case: `items` is int32[N] for all of them, or int32[rows, together, w] with a row for each."""
    params, locals, owns, place, _, recent, _ = batch
    of = 0 if items.ndim == 3 else None

    def one(local: Any, own: Any, recent: Any, items: Any) -> jax.Array:
        return jax.vmap(partial(method.score, params, local, own), (0, of))(recent, items)

    local, own = jax.tree.map(lambda leaf: leaf[place], (locals, owns))
    return jax.vmap(one, (0, 0, 0, of))(local, own, recent, items)


def _rank_all(key: jax.Array, case: Any, scores: jax.Array, target: Any, others: Any) -> TargetRanks:
    draw = jax.vmap(jax.vmap(partial(jax.random.fold_in, key)))(case)
    found, equal = jax.vmap(jax.vmap(rank_and_ties))(draw, scores, target)
    return TargetRanks(found, (others > 0) & (2 * equal >= others))  # pyright: ignore[reportArgumentType]


@jax.jit
def _full_ranks(method: Method, key: jax.Array, batch: CaseBatch, mask: Any, target: Any, offered: Any) -> TargetRanks:
    items = jnp.arange(method.catalog.n_items)
    scores = _scores(method, batch, items)
    scores = jnp.where(mask[:, None] & (items != target[..., None]), -jnp.inf, scores)
    others = items.size - mask.sum(axis=1, keepdims=True) - 1
    return _last_where_missed(_rank_all(key, batch.case, scores, target, others), offered)


@jax.jit
def _row_ranks(method: Method, key: jax.Array, batch: CaseBatch, offered: Any) -> TargetRanks:
    scores = _scores(method, batch, offered)
    others = (offered >= 0).sum(axis=-1) - 1
    found = _rank_all(key, batch.case, scores, jnp.zeros(batch.case.shape, jnp.int32), others)
    return _last_where_missed(found, offered[..., 0] >= 0)


def _last_where_missed(found: TargetRanks, offered: Any) -> TargetRanks:
    """A target that is no candidate gets the last possible rank."""
    return found._replace(rank=jnp.where(offered, found.rank, jnp.iinfo(jnp.int32).max))


@partial(jax.jit, static_argnums=1)
def batch_top_lists(method: Method, n: int, seed: Any, batch: CaseBatch, items: Any, mask: Any) -> tuple:
    """The best of the shuffled `items` and their scores, by the device's own `top`, for the first case of every row."""
    local, own = jax.tree.map(lambda leaf: leaf[batch.place], (batch.local, batch.owns))
    barred = jnp.broadcast_to(mask, (batch.place.shape[0], items.shape[0]))

    def one(secret: jax.Array, local: Any, own: Any, recent: jax.Array, barred: jax.Array) -> tuple:
        return top(tie_key(secret, seed), method, batch.params, local, own, recent, items, n, barred)

    return jax.vmap(one)(batch.secret, local, own, batch.recent[:, 0], barred)
