"""Mult-VAE on pooled data: the network's weights from the item sets of all users."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from tacit.device.round import KEYS
from tacit.lab.baselines.baseline import Baseline
from tacit.lab.data import Population
from tacit.lab.evaluation.scoring import seen_mask
from tacit.nets.neural.autoencoder import decode_latent, encode_sum


class PooledVae(Baseline):
    """All weights of the autoencoder."""

    methods = ("vae",)

    @staticmethod
    def fit(method: Any, population: Population) -> dict:
        """All weights, by Adam, a batch of users at a time in random order."""
        people, n = np.flatnonzero(population.lengths > 0), population.catalog.n_items
        params = method.init(jax.random.key(0, impl=KEYS))
        adam = optax.adam(method.rate)
        state, rng = (params, adam.init(params)), np.random.default_rng(0)
        size = min(method.batch, people.size)
        steps, step = -(-people.size // size) * method.epochs, 0
        for _ in range(method.epochs):
            order = rng.permutation(people)
            order = np.concatenate([order, order[: -people.size % size]])  # the last batch is filled from the first
            for batch in order.reshape(-1, size):
                had = seen_mask(population, batch, np.arange(n))
                share = method.anneal * min(1.0, 5 * step / steps)
                key = jax.random.fold_in(jax.random.key(1, impl=KEYS), step)
                state, step = _step(adam, method.dropout, key, state, jnp.asarray(had), share), step + 1
        return state[0]


@partial(jax.jit, static_argnums=(0, 1), donate_argnums=3)
def _step(
    adam: optax.GradientTransformation, dropout: float, key: jax.Array, state: tuple, had: jax.Array, share: Any
) -> tuple:
    params, moments = state
    slope = jax.grad(loss)(params, key, had.astype(jnp.float32), dropout, share)
    moves, moments = adam.update(slope, moments, params)
    return optax.apply_updates(params, moves), moments


def loss(params: dict, key: jax.Array, had: jax.Array, dropout: float, share: Any) -> jax.Array:
    """−Σ_i x_i ln softmax_i(decode(z)) + share·KL(z ‖ N(0, I)), the mean over users; had is x, float[b, N]."""
    drop, middle = jax.random.split(key)
    kept = jax.random.bernoulli(drop, 1 - dropout, had.shape) / (1 - dropout)
    length = jnp.sqrt(jnp.maximum(had.sum(1, keepdims=True), 1.0))
    mean, log_variance = encode_sum(params, (had / length * kept) @ params["encoder"])
    z = mean + jnp.exp(0.5 * log_variance) * jax.random.normal(middle, mean.shape)
    odds = decode_latent(params, z) @ params["items"].T + params["items_bias"]
    likelihood = (had * jax.nn.log_softmax(odds)).sum(1)
    divergence = 0.5 * (jnp.exp(log_variance) + mean**2 - 1 - log_variance).sum(1)
    return (share * divergence - likelihood).mean()
