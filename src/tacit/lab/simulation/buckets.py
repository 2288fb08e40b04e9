"""Buckets: devices with histories of similar length, padded to one length and stacked, so that one program steps them all."""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tacit.device.batching import enter_batch, in_id_order, new_homes, pad_ids, power_of_two, prepare_batch
from tacit.device.method import Method
from tacit.device.round import Home
from tacit.lab.data import Population

GRID = tuple(sorted({8 * math.ceil(1.25**step) for step in range(36)}))  # 8, 16, 24 … each at most a quarter longer
COMPILE_SECONDS, EVENT_SECONDS = 1.0, 6e-8  # about what one more program costs, and one padded event each round
BUCKET_SECONDS = 1e-4  # and one more bucket each round, however few devices are in it
_BATCH = 4096  # devices prepared at a time: bounds the memory of padded raw histories


class Bucket(NamedTuple):
    """Some devices, in ascending order of id, with their prepared histories and their homes."""

    ids: np.ndarray  # int64[n]
    length: int
    own: Any  # [n, ...]
    home: Home  # [n, ...]


def group_by_length(
    lengths: np.ndarray, grid: Sequence[int] = GRID, merge_below: float = 0.0
) -> list[tuple[int, np.ndarray]]:
    """(length, ids) of every bucket that is not empty; histories beyond the grid get powers of two.

    A bucket is merged into the next longer one where that adds at most `merge_below` padded events.
    """
    longest = int(lengths.max(initial=1))
    edges = sorted(grid)
    while edges[-1] < longest:
        edges.append(edges[-1] * 2)
    place = np.searchsorted(edges, np.maximum(lengths, 1))
    counts = np.bincount(place, minlength=len(edges))
    target = np.arange(len(edges))
    for b, longer in pairwise(np.flatnonzero(counts)):
        if counts[b] * (edges[longer] - edges[b]) <= merge_below:
            target[target == b] = longer
            counts[longer] += counts[b]
    place = target[place]
    return [(edges[b], np.flatnonzero(place == b)) for b in np.unique(place)]


def bucket_cost(rounds: float, read: float = 1.0) -> float:
    """How many padded events cost as much time as one more bucket, if each device takes part in so many rounds.

    At least ten rounds are assumed, since a run also prepares, adapts and evaluates. `read` is the part of an event's cost
    that is paid for padding.
    """
    rounds = max(rounds, 10.0 / read)
    return (COMPILE_SECONDS + rounds * BUCKET_SECONDS) / (EVENT_SECONDS * read * rounds)


def split_large(groups: list[tuple[int, np.ndarray]], workers: int) -> list[tuple[int, np.ndarray]]:
    """Large buckets cut into equal parts, so that every worker is busy until the end of a round."""
    total = sum(length * ids.size for length, ids in groups)
    parts = []
    for length, ids in groups:
        large = length * ids.size * 2 * workers > total and ids.size >= 64 * workers
        parts += [(length, part) for part in (np.array_split(ids, workers) if large else [ids])]
    return parts


def device_secrets(root: jax.Array, ids: np.ndarray) -> jax.Array:
    """One secret for each device, from the root key of the run and the device's id alone, whatever the buckets."""
    return jax.vmap(lambda i: jax.random.key_data(jax.random.fold_in(root, i)))(jnp.asarray(ids, jnp.uint32))


def empty_buckets(
    root: jax.Array, population: Population, grid: Sequence[int], workers: int, merge_below: float
) -> list[Bucket]:
    """All devices in buckets, with homes as they are before the first stage."""
    groups = group_by_length(population.shared.lengths, grid, merge_below)
    return [
        Bucket(ids, length, None, new_homes(device_secrets(root, ids))) for length, ids in split_large(groups, workers)
    ]


def enter_stage(
    method: Method, stage: int, population: Population, bucket: Bucket, allowance: np.ndarray | None = None
) -> Bucket:
    """The bucket at the start of a stage: histories prepared, private state initialised, and allowances by device set."""
    own = prepare_devices(method, population, bucket.ids, bucket.length)
    home = _enter(method, stage, bucket.home, own, None if allowance is None else jnp.asarray(allowance[bucket.ids]))
    return bucket._replace(own=own, home=home)


def homes_by_id(buckets: list[Bucket]) -> Home:
    """All homes in ascending order of device id: the same whatever the buckets, so a run resumes on any machine."""
    return in_id_order([bucket.home for bucket in buckets], [bucket.ids for bucket in buckets])


def with_homes(buckets: list[Bucket], homes: Home) -> list[Bucket]:
    """The buckets with these homes, which are in ascending order of device id."""
    return [b._replace(home=jax.tree.map(lambda leaf: jnp.asarray(leaf[b.ids]), homes)) for b in buckets]  # noqa: B023


def prepare_devices(method: Method, population: Population, ids: np.ndarray, length: int) -> Any:
    """`method.prepare` of the histories of many devices, in batches of bounded size."""
    pieces = []
    for start in range(0, ids.size, _BATCH):
        batch = ids[start : start + _BATCH]
        size = min(_BATCH, power_of_two(ids.size))
        made = _prepare(method, population.histories(pad_ids(batch, -(-batch.size // size) * size), length))
        pieces.append(jax.tree.map(lambda leaf: np.asarray(leaf)[: batch.size], made))  # noqa: B023
    return jax.tree.map(lambda *leaves: jnp.asarray(np.concatenate(leaves)), *pieces)


_prepare = jax.jit(prepare_batch)
_enter = jax.jit(enter_batch, static_argnums=1)
