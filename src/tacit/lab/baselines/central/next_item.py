"""Next-item models on pooled data: the sequences of all users, prediction targets in random order, one training loop."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from tacit.device.round import KEYS
from tacit.lab.baselines.baseline import Baseline
from tacit.lab.data import Population
from tacit.lab.data.selection import owners
from tacit.nets.sequence.segments import field_column, run_positions


class Pool(NamedTuple):
    """The events of all users, sequence by sequence, as one array."""

    items: np.ndarray  # int32[events]
    place: np.ndarray  # int32[events], in its sequence, from 0
    left: np.ndarray  # int32[events], how many come after it there


def pool(population: Population) -> Pool:
    """The sequences of all users of all devices; event fields `person` and `sequence` tell them apart, as on a device."""
    owner, fields = owners(population), population.catalog.event_fields
    context = np.zeros((owner.size, 0)) if population.context is None else population.context
    person, sequence = (field_column(fields, context, name) for name in ("person", "sequence"))  # pyright: ignore[reportArgumentType]
    order = np.arange(owner.size) if person is None else np.lexsort((person, owner))
    names = [None if name is None else np.asarray(name)[order] for name in (owner, person, sequence)]
    real = np.ones(owner.size, bool)
    place = np.asarray(run_positions(real, *names))  # pyright: ignore[reportArgumentType]
    left = np.asarray(run_positions(real, *(None if name is None else name[::-1] for name in names)))[::-1]  # pyright: ignore[reportArgumentType]
    return Pool(population.items[order], place, left)


def draw_targets(rng: np.random.Generator, log: Pool, stride: int) -> np.ndarray:
    """The events that an epoch predicts, in random order.

    All but a sequence's first; with a stride, every so many counted from a random place, and the last.
    """
    asked = log.place >= 1
    if stride > 1:
        asked &= (log.left == 0) | (log.left % stride == rng.integers(stride))
    return rng.permutation(np.flatnonzero(asked))


class PooledNextItem(Baseline):
    """All parameters of a sequential recommender."""

    methods = ("bert4rec", "fedseqrec", "gru4rec", "sr_gnn")

    @staticmethod
    def fit(method: Any, population: Population) -> dict:
        """All parameters, by the method's own loss and descent, a batch of targets at a time."""
        log, rng = pool(population), np.random.default_rng(0)
        own = {"items": jnp.asarray(log.items), "place": jnp.asarray(log.place)}
        params = method.init(jax.random.key(0, impl=KEYS))
        state = (params, method.descent.init(params))
        room = _room(log, method)
        for epoch in range(method.epochs):
            at = draw_targets(rng, log, method.stride)[: room * method.batch]
            batches = np.full(room * method.batch, -1)
            batches[: at.size] = at
            key = jax.random.fold_in(jax.random.key(1, impl=KEYS), epoch)
            count = -(-at.size // method.batch)
            state = _epoch(method, key, state, own, jnp.asarray(batches.reshape(room, -1), jnp.int32), count)
        return state[0]


def _room(log: Pool, method: Any) -> int:
    """The most batches of an epoch: one program serves all of them, and makes none that is empty."""
    asked = log.place >= 1
    at = np.bincount(log.left[asked] % method.stride, minlength=1).max() + (log.left[asked] == 0).sum()
    most = max(1, -(-int(min(at, asked.sum())) // method.batch))
    return min(most, method.steps) if method.steps else most


@partial(jax.jit, donate_argnums=2)
def _epoch(method: Any, key: jax.Array, state: tuple, own: dict, at: jax.Array, count: Any) -> tuple:
    """One step for each of the first `count` batches."""

    def step(turn: jax.Array, state: tuple) -> tuple:
        params, moments = state
        slope = jax.grad(method.loss)(params, own, at[turn], jax.random.fold_in(key, turn))
        moves, moments = method.descent.update(slope, moments, params)
        return optax.apply_updates(params, moves), moments

    return jax.lax.fori_loop(0, count, step, state)
