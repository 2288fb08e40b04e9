"""PrivRec on pooled data: the same network, fitted to the samples of all users."""

from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tacit.device.round import KEYS
from tacit.lab.baselines.baseline import Baseline, liked_in_log
from tacit.lab.baselines.central.bpr import Loss, PairBatch, train_epochs
from tacit.lab.data import Population
from tacit.lab.data.selection import owners
from tacit.nets.neural.losses import squared_error

BATCH = 1024  # events in a step


class PooledPrivRec(Baseline):
    """The parameters of PrivRec"s network."""

    methods = ("privrec",)

    @staticmethod
    def fit(method: Any, population: Population) -> dict:
        """θ by Adam over all events, and over `negatives` items drawn for each liked one; no user has a vector."""
        loss = _of_ratings(method, population) if method.needs_ratings else _of_liking(method, population)
        how = SimpleNamespace(
            rate=method.pace, epochs=method.passes, batch=BATCH, negatives=method.negatives, penalty=0.0
        )
        return train_epochs(loss, method.init(jax.random.key(0, impl=KEYS)), how, population)


def _of_liking(method: Any, population: Population) -> Loss:
    """The cross-entropy of events and of the negatives drawn for those that are liked."""
    likes, person = _likes(method, population), _fields(population)
    many = jax.vmap(method.odds, (None, 0, 0))

    def loss(params: dict, batch: PairBatch, penalty: float) -> jax.Array:
        del penalty
        y = (likes[batch.people, batch.had // 8] >> (7 - batch.had % 8).astype(jnp.uint8)) & 1
        odds = many(params, person[batch.people], jnp.concatenate([batch.had[:, None], batch.rivals], axis=1))
        met = batch.real * (jax.nn.softplus(odds[:, 0]) - y * odds[:, 0])
        drawn = batch.counts * y[:, None] * jax.nn.softplus(odds[:, 1:])
        return (met.sum() + drawn.sum()) / jnp.maximum(batch.real.sum(), 1.0)

    return loss


def _of_ratings(method: Any, population: Population) -> Loss:
    """The squared error of rated events."""
    table = np.zeros((len(population), population.catalog.n_items), np.float32)
    table[owners(population), population.items] = population.require_ratings("privrec")
    ratings, person, many = jnp.asarray(table), _fields(population), jax.vmap(method.odds, (None, 0, 0))

    def loss(params: dict, batch: PairBatch, penalty: float) -> jax.Array:
        del penalty
        predicted = many(params, person[batch.people], batch.had[:, None])[:, 0]
        return squared_error(predicted, ratings[batch.people, batch.had], batch.real)

    return loss


def _likes(method: Any, population: Population) -> jax.Array:
    """Which users like which items, as packed bits."""
    table = np.zeros((len(population), population.catalog.n_items), bool)
    which = liked_in_log(population, method.above)
    table[owners(population)[which], population.items[which]] = True
    return jnp.asarray(np.packbits(table, axis=1))


def _fields(population: Population) -> jax.Array:
    return jnp.zeros((len(population), 0)) if population.person is None else jnp.asarray(population.person)
