"""Buckets: devices with histories of similar length, padded alike and stacked, so that one program serves them all."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tacit.device.method import Method
from tacit.device.round import Home, enter, new_home
from tacit.lab.data import Population

GRID = tuple(length for power in range(3, 15) for length in (2**power, 3 * 2 ** (power - 1)))  # 8, 12, 16, 24 …
_WASTE = 0.02  # a bucket is merged into the next where that costs at most this share of all the padding
_BATCH = 4096  # devices prepared at a time: bounds the memory of padded raw histories


class Bucket(NamedTuple):
    """Some devices, in ascending order of id, with what the method made of their histories and what they keep."""

    ids: np.ndarray  # int64[n]
    length: int
    own: Any  # [n, ...]
    home: Home  # [n, ...]


def group(lengths: np.ndarray, grid: Sequence[int] = GRID) -> list[tuple[int, np.ndarray]]:
    """(length, ids) of every bucket that somebody is in; histories beyond the grid get powers of two."""
    longest = int(lengths.max(initial=1))
    edges = sorted(grid)
    while edges[-1] < longest:
        edges.append(edges[-1] * 2)
    place = np.searchsorted(edges, np.maximum(lengths, 1))
    place = _merge(place, np.asarray(edges))
    return [(edges[b], np.flatnonzero(place == b)) for b in np.unique(place)]


def _merge(place: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Fewer buckets, fewer programs to compile: a small one moves up where little padding is wasted."""
    counts = np.bincount(place, minlength=edges.size)
    room, target = _WASTE * (counts * edges).sum(), np.arange(edges.size)
    used = np.flatnonzero(counts)
    for b, up in pairwise(used):
        if counts[b] * (edges[up] - edges[b]) <= room:
            target[target == b] = up
            counts[up] += counts[b]
    return target[place]


def secrets(root: jax.Array, ids: np.ndarray) -> jax.Array:
    """One secret for each device, from the run's root and the device's id alone: batching cannot matter."""
    return jax.vmap(lambda i: jax.random.key_data(jax.random.fold_in(root, i)))(jnp.asarray(ids, jnp.uint32))


def furnish(root: jax.Array, population: Population, grid: Sequence[int] = GRID) -> list[Bucket]:
    """Empty homes for everybody, before the first stage."""
    buckets = []
    for length, ids in group(population.lengths, grid):
        home = jax.vmap(new_home)(secrets(root, ids))
        buckets.append(Bucket(ids, length, None, home))
    return buckets


def move_in(method: Method, stage: int, population: Population, bucket: Bucket) -> Bucket:
    """Begin a stage in a bucket: prepare every history once, and the method's private start."""
    own = prepare(method, population, bucket.ids, bucket.length)
    home = _enter(method, stage, bucket.home, own)
    return bucket._replace(own=own, home=home)


def prepare(method: Method, population: Population, ids: np.ndarray, length: int) -> Any:
    """`method.prepare` of many devices, in batches of bounded size."""
    pieces = []
    for start in range(0, ids.size, _BATCH):
        batch = ids[start : start + _BATCH]
        padded = np.pad(batch, (0, -batch.size % min(_BATCH, _power(ids.size))), mode="edge")
        made = _prepare(method, population.histories(padded, length))
        pieces.append(jax.tree.map(lambda leaf: np.asarray(leaf)[: batch.size], made))  # noqa: B023
    return jax.tree.map(lambda *leaves: jnp.asarray(np.concatenate(leaves)), *pieces)


def _power(n: int) -> int:
    return 1 << max(0, n - 1).bit_length()


@jax.jit
def _prepare(method: Method, histories: Any) -> Any:
    return jax.vmap(method.prepare)(histories)


def _enter_all(method: Method, stage: int, homes: Home, owns: Any) -> Home:
    return jax.vmap(lambda home, own: enter(method, stage, home, own))(homes, owns)


_enter = jax.jit(_enter_all, static_argnums=1)
