"""Buckets: devices with histories of similar length, padded alike and stacked, so that one program serves them all."""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tacit.device.method import Method
from tacit.device.round import Home, enter, new_home
from tacit.lab.data import Population

GRID = tuple(sorted({8 * math.ceil(1.25**step) for step in range(36)}))  # 8, 16, 24 … each at most a quarter longer
COMPILE_SECONDS, EVENT_SECONDS = 1.0, 6e-8  # about what one more program costs, and one padded event each round
BUCKET_SECONDS = 1e-4  # and one more bucket each round, however few are in it
_BATCH = 4096  # devices prepared at a time: bounds the memory of padded raw histories


class Bucket(NamedTuple):
    """Some devices, in ascending order of id, with what the method made of their histories and what they keep."""

    ids: np.ndarray  # int64[n]
    length: int
    own: Any  # [n, ...]
    home: Home  # [n, ...]


def group(lengths: np.ndarray, grid: Sequence[int] = GRID, worth: float = 0.0) -> list[tuple[int, np.ndarray]]:
    """(length, ids) of every bucket that somebody is in; histories beyond the grid get powers of two.

    A bucket moves into the next longer one where that adds no more padding than a program is `worth`.
    """
    longest = int(lengths.max(initial=1))
    edges = sorted(grid)
    while edges[-1] < longest:
        edges.append(edges[-1] * 2)
    place = np.searchsorted(edges, np.maximum(lengths, 1))
    counts = np.bincount(place, minlength=len(edges))
    target = np.arange(len(edges))
    for b, longer in pairwise(np.flatnonzero(counts)):
        if counts[b] * (edges[longer] - edges[b]) <= worth:
            target[target == b] = longer
            counts[longer] += counts[b]
    place = target[place]
    return [(edges[b], np.flatnonzero(place == b)) for b in np.unique(place)]


def worth(turns: float, read: float = 1.0) -> float:
    """How many padded events cost as much, over so many turns of every device, as one more program.

    Ten turns at least: a run is also prepared, adapted and asked. `read` is the part of an event's cost that is paid for
    padding.
    """
    turns = max(turns, 10.0 / read)
    return (COMPILE_SECONDS + turns * BUCKET_SECONDS) / (EVENT_SECONDS * read * turns)


def share_out(groups: list[tuple[int, np.ndarray]], hands: int) -> list[tuple[int, np.ndarray]]:
    """Cut large buckets into equal parts, so that every hand has work until the end."""
    total = sum(length * ids.size for length, ids in groups)
    parts = []
    for length, ids in groups:
        large = length * ids.size * 2 * hands > total and ids.size >= 64 * hands
        parts += [(length, part) for part in (np.array_split(ids, hands) if large else [ids])]
    return parts


def power(n: int) -> int:
    """The least power of two that is at least n (and 1)."""
    return 1 << max(0, n - 1).bit_length()


def secrets(root: jax.Array, ids: np.ndarray) -> jax.Array:
    """One secret for each device, from the run's root and the device's id alone: batching cannot matter."""
    return jax.vmap(lambda i: jax.random.key_data(jax.random.fold_in(root, i)))(jnp.asarray(ids, jnp.uint32))


def furnish(root: jax.Array, population: Population, grid: Sequence[int], hands: int, worth: float) -> list[Bucket]:
    """Empty homes for everybody, before the first stage."""
    buckets = []
    for length, ids in share_out(group(population.shared.lengths, grid, worth), hands):
        home = jax.vmap(new_home)(secrets(root, ids))
        buckets.append(Bucket(ids, length, None, home))
    return buckets


def move_in(
    method: Method, stage: int, population: Population, bucket: Bucket, allowance: np.ndarray | None = None
) -> Bucket:
    """Begin a stage in a bucket: prepare every history once, the method's private start, and what budgets allow."""
    own = prepare(method, population, bucket.ids, bucket.length)
    home = _enter(method, stage, bucket.home, own, None if allowance is None else jnp.asarray(allowance[bucket.ids]))
    return bucket._replace(own=own, home=home)


def homes_of(buckets: list[Bucket]) -> Home:
    """Everybody's homes in the order of their ids: the same whatever the buckets, so a run resumes on any machine."""
    order = np.argsort(np.concatenate([bucket.ids for bucket in buckets]))
    stacks = [bucket.home for bucket in buckets]
    return jax.tree.map(lambda *leaves: np.concatenate([np.asarray(leaf) for leaf in leaves])[order], *stacks)


def move_homes(buckets: list[Bucket], homes: Home) -> list[Bucket]:
    """Put homes, in the order of ids, back into their buckets."""
    return [b._replace(home=jax.tree.map(lambda leaf: jnp.asarray(leaf[b.ids]), homes)) for b in buckets]  # noqa: B023


def prepare(method: Method, population: Population, ids: np.ndarray, length: int) -> Any:
    """`method.prepare` of many devices, in batches of bounded size."""
    pieces = []
    for start in range(0, ids.size, _BATCH):
        batch = ids[start : start + _BATCH]
        padded = np.pad(batch, (0, -batch.size % min(_BATCH, power(ids.size))), mode="edge")
        made = _prepare(method, population.histories(padded, length))
        pieces.append(jax.tree.map(lambda leaf: np.asarray(leaf)[: batch.size], made))  # noqa: B023
    return jax.tree.map(lambda *leaves: jnp.asarray(np.concatenate(leaves)), *pieces)


@jax.jit
def _prepare(method: Method, histories: Any) -> Any:
    return jax.vmap(method.prepare)(histories)


def _enter_all(method: Method, stage: int, homes: Home, owns: Any, allowances: Any) -> Home:
    # An allowance that is None is no leaf, so vmap passes it on as it is.
    return jax.vmap(lambda home, own, allowance: enter(method, stage, home, own, allowance))(homes, owns, allowances)


_enter = jax.jit(_enter_all, static_argnums=1)
