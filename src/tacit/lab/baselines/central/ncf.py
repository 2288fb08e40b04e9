"""NCF on pooled data: item vectors, mixture weights and network from liked items."""

from typing import Any

import jax
import jax.numpy as jnp

from tacit.device.round import KEYS
from tacit.lab.baselines.baseline import Baseline, liked_in_log
from tacit.lab.baselines.central.bpr import PairBatch, train_epochs
from tacit.lab.data import Population
from tacit.lab.data.selection import take


class PooledNcf(Baseline):
    """Item vectors, mixture weights and network of neural collaborative filtering."""

    methods = ("ncf",)

    @staticmethod
    def fit(method: Any, population: Population) -> dict:
        """All shared parameters, fitted together with the vectors of all users by Adam."""
        start, people = (jax.random.key(number, impl=KEYS) for number in (0, 1))
        vectors = 0.1 * jax.random.normal(people, (len(population), 2 * method.dim))

        def pointwise(params: dict, batch: PairBatch, penalty: float) -> jax.Array:
            """−ln σ(score_ui) − Σ_j ln σ(−score_uj) and λ(|p_u|² + |q_i|² + |q_j|²), the mean over items had."""
            p = params["people"][batch.people]
            q = params["items"][jnp.concatenate([batch.had[:, None], batch.rivals], axis=1)]
            odds = jax.vmap(lambda p, q: method.odds(params, p, q))(p, q)
            size = (q**2).sum(-1)
            yes = batch.real * (penalty * ((p**2).sum(-1) + size[:, 0]) + jax.nn.softplus(-odds[:, 0]))
            no = batch.counts * (penalty * size[:, 1:] + jax.nn.softplus(odds[:, 1:]))
            return (yes.sum() + no.sum()) / jnp.maximum(batch.real.sum(), 1.0)

        first = {**method.init(start), "people": vectors}
        made = train_epochs(pointwise, first, method, take(population, liked_in_log(population, method.above)))
        return {name: made[name] for name in ("items", "mixture", "head")}
