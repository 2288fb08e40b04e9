"""BPR on pooled data: item factors from pairs of an item in a history and one that is not. Other baselines use its training loop.

Two ways: mini-batches with Adam, as is usual now; and stochastic ascent one triple at a time, as published.
"""

from collections.abc import Callable, Iterable, Iterator
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
from tacit.nets.factor.bpr import Penalties, bpr_gradients


class PairBatch(NamedTuple):
    """Users, an item of each, and sampled negatives."""

    people: jax.Array  # int32[b]
    had: jax.Array  # int32[b]
    rivals: jax.Array  # int32[b, negatives]
    real: jax.Array  # float32[b]: 0 where the row is padding
    counts: jax.Array  # float32[b, negatives]: 0 there, and where a negative is in the history after all


class StepSize(NamedTuple):
    """Learning rate and L2 penalty; arrays where several fits run side by side."""

    rate: Any
    penalty: Any


class _Pairs(NamedTuple):
    """All pairs of a user and an item in the history."""

    people: jax.Array  # int32[pairs]
    items: jax.Array  # int32[pairs]
    has: jax.Array  # uint8[people, N / 8], the same as bits


Loss = Callable[[dict, PairBatch, Any], jax.Array]
_adam = optax.scale_by_adam()


class PooledBpr(Baseline):
    """Item factors and biases of matrix factorisation, fitted with the pairwise loss of BPR."""

    methods = ("bpr_mf",)

    @staticmethod
    def fit(method: Any, population: Population) -> dict:
        """Q and b, fitted together with the factors of all users by Adam."""
        made = train_epochs(pairwise, first_factors(method, population), method, population)
        return {name: made[name] for name in ("items", "bias")}


def pairwise(params: dict, batch: PairBatch, penalty: Any) -> jax.Array:
    """−ln σ(score_ui − score_uj) and λ(|p_u|² + |q_i|² + |q_j|²), the mean over pairs."""
    p, q = params["people"][batch.people], params["items"][batch.had]
    r, b = params["items"][batch.rivals], params["bias"]
    ahead = ((q[:, None] - r) * p[:, None]).sum(-1) + b[batch.had][:, None] - b[batch.rivals]
    size = (p**2).sum(-1)[:, None] + (q**2).sum(-1)[:, None] + (r**2).sum(-1)
    lost = batch.counts * (penalty * size - jax.nn.log_sigmoid(ahead))
    return lost.sum() / jnp.maximum(batch.counts.sum(), 1.0)


def first_factors(method: Any, population: Population) -> dict:
    """The method's initial parameters, and small random factors for all users."""
    start, people = (jax.random.key(number, impl=KEYS) for number in (0, 1))
    return {**method.init(start), "people": 0.1 * jax.random.normal(people, (len(population), method.dim))}


def train_epochs(loss: Loss, params: dict, method: Any, population: Population) -> dict:
    """Parameters after `epochs` passes of Adam over all pairs, in mini-batches with fresh negatives."""
    pace = StepSize(method.rate, method.penalty)
    return next(train_checkpoints(loss, params, method, pace, population, (method.epochs,)))


def train_checkpoints(
    loss: Loss, params: dict, method: Any, pace: StepSize, population: Population, looks: Iterable[int]
) -> Iterator[dict]:
    """Parameters after each of some numbers of epochs of Adam, in ascending order.

    Where `pace` holds arrays, params have the same leading axis: one fit for each, all on the same batches.
    """
    own, n = _own(population), population.catalog.n_items
    sizes, several = (method.batch, method.negatives, n), np.ndim(pace.rate) > 0
    one = jax.vmap(_adam.init) if several else _adam.init
    state, done = (jax.tree.map(jnp.array, params), one(params)), 0  # a copy: each epoch consumes what it is given
    for look in looks:
        for epoch in range(done, look):
            key = jax.random.fold_in(jax.random.key(2, impl=KEYS), epoch)
            state = (_epochs if several else _epoch)(loss, sizes, key, own, pace, state)
        done = look
        yield jax.tree.map(jnp.array, state[0])


def _own(population: Population) -> _Pairs:
    """All pairs, each once."""
    n = population.catalog.n_items
    pairs = np.unique(owners(population) * n + population.items)
    people, items = (jnp.asarray(part, jnp.int32) for part in np.divmod(pairs, n))
    packed = np.zeros((len(population), n), bool)
    packed[np.asarray(people), np.asarray(items)] = True
    return _Pairs(people, items, jnp.asarray(np.packbits(packed, axis=1)))


@partial(jax.jit, static_argnums=(0, 1), donate_argnums=5)
def _epoch(loss: Loss, sizes: tuple[int, int, int], key: jax.Array, own: _Pairs, pace: StepSize, state: tuple) -> tuple:
    return _pass(loss, sizes, key, own, pace, state)


@partial(jax.jit, static_argnums=(0, 1), donate_argnums=5)
def _epochs(
    loss: Loss, sizes: tuple[int, int, int], key: jax.Array, own: _Pairs, pace: StepSize, state: tuple
) -> tuple:
    """As `_epoch` for several fits side by side; batches and negatives are drawn once for all."""
    return jax.vmap(partial(_pass, loss, sizes, key, own))(pace, state)


def _pass(loss: Loss, sizes: tuple[int, int, int], key: jax.Array, own: _Pairs, pace: StepSize, state: tuple) -> tuple:
    """One pass in random order; the last batch is filled with padding."""
    size, negatives, n = sizes
    people, items, has = own
    shuffle, draw = jax.random.split(key)
    batches = -(-people.shape[0] // size)
    order = jax.random.permutation(shuffle, people.shape[0])
    order = jnp.pad(order, (0, batches * size - people.shape[0]), constant_values=-1).reshape(batches, size)

    def step(state: tuple, turn: tuple) -> tuple:
        params, moments = state
        at, key = turn
        batch = _batch(key, people[at], items[at], at >= 0, has, negatives, n)
        slope = jax.grad(loss)(params, batch, pace.penalty)
        moves, moments = _adam.update(slope, moments, params)
        moves = jax.tree.map(lambda move: -pace.rate * move, moves)
        return (optax.apply_updates(params, moves), moments), None

    return jax.lax.scan(step, state, (order, jax.random.split(draw, batches)))[0]


def _batch(
    key: jax.Array, people: jax.Array, had: jax.Array, real: jax.Array, has: jax.Array, negatives: int, n: int
) -> PairBatch:
    rivals = jax.random.randint(key, (people.shape[0], negatives), 0, n)
    bit = (has[people[:, None], rivals // 8] >> (7 - rivals % 8).astype(jnp.uint8)) & 1
    return PairBatch(people, had, rivals, real.astype(jnp.float32), jnp.where(real[:, None], 1.0 - bit, 0.0))


# ---- one triple at a time ----


class Triples(NamedTuple):
    """The triples of some single steps."""

    people: np.ndarray  # int[t]
    had: np.ndarray  # int[t]
    rivals: np.ndarray  # int[t]
    shown: np.ndarray  # bool[t]: whether the item had moves too


def one_by_one(
    method: Any, population: Population, looks: Iterable[int], seed: int = 0, *, by: str = "record", pi: float = 1.0
) -> Iterator[dict]:
    """Factors of people and items after each of some numbers of epochs, in ascending order.

    BPR as published: an epoch is as many triples as there are records; the person and both items move at once, with the
    rate and the penalties of FPL's `method`. `by` draws a record uniformly, or a "person" and then one of their items; with
    "person", the item had moves with probability `pi`, which is sFPL with one triple a round.
    """
    own, people, n = _own(population), len(population), population.catalog.n_items
    rng = np.random.default_rng([seed, 11])
    # One table with the rows of all users and items, biases first: it is read once a step and written in place.
    table = jnp.asarray(method.spread * rng.normal(size=(people + n, method.dim + 1)), jnp.float32)
    pairs, done = np.asarray(own.people, np.int64) * n + np.asarray(own.items), 0
    for look in looks:
        for _ in range(done, look):
            some = _draw(rng, pairs, people, n, by, pi)
            rows = np.stack([some.people, people + some.had, people + some.rivals], axis=1).astype(np.int32)
            table = _ascend(method.rate, method.penalties, table, rows, some.shown)
        done = look
        made = np.asarray(table)
        yield {"people": made[:people, 1:], "items": made[people:, 1:], "bias": made[people:, 0]}


def _draw(rng: np.random.Generator, pairs: np.ndarray, people: int, n: int, by: str, pi: float) -> Triples:
    """The triples of an epoch; a user who has every item has no negative and is not drawn."""
    start = np.searchsorted(pairs, n * np.arange(people + 1))
    count = np.diff(start)
    able = np.flatnonzero((count > 0) & (count < n))
    if by == "person":
        who = rng.choice(able, pairs.size)
        at = start[who] + rng.integers(count[who])
    else:
        at = rng.choice(np.flatnonzero(np.isin(pairs // n, able)), pairs.size)
        who = pairs[at] // n
    rivals = rng.integers(n, size=who.size)
    while (bad := _among(pairs, who * n + rivals)).any():
        rivals[bad] = rng.integers(n, size=int(bad.sum()))
    return Triples(who, pairs[at] % n, rivals, rng.random(who.size) < pi)


def _among(pairs: np.ndarray, keys: np.ndarray) -> np.ndarray:
    return pairs[np.minimum(np.searchsorted(pairs, keys), pairs.size - 1)] == keys


@partial(jax.jit, static_argnums=1, donate_argnums=2)
def _ascend(rate: float, penalties: Penalties, table: jax.Array, rows: jax.Array, shown: jax.Array) -> jax.Array:
    """Every triple in turn: rows are of the person, the item had and the rival, int32[t, 3]."""

    def step(table: jax.Array, turn: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, None]:
        at, shows = turn
        p, i, j = table[at]
        made = bpr_gradients(p[1:], i[1:], j[1:], i[0], j[0], penalties)
        had = jnp.where(shows, jnp.append(made.bias_had, made.had), 0.0)
        moves = jnp.stack([jnp.append(0.0, made.person), had, jnp.append(made.bias_rival, made.rival)])
        return table.at[at].add(rate * moves, unique_indices=True, mode="promise_in_bounds"), None

    return jax.lax.scan(step, table, (rows, shown))[0]
