"""NCF in the lab: item vectors, mixture and network from pooled likings."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tacit.device.round import KEYS
from tacit.lab.baselines.central.bpr import Batch, descend
from tacit.lab.data import Population
from tacit.lab.data.selection import take


def liked(population: Population, above: float) -> np.ndarray:
    """Which events are liked: rated above a number, or all in a log without ratings."""
    if population.labels is None or not population.labels.size or population.labels.max() <= 1:
        return np.ones(population.items.size, bool)
    return population.labels > above


def fit(method: Any, population: Population) -> dict:
    """Everything but people, fitted together with everybody's vectors by Adam."""
    start, people = (jax.random.key(number, impl=KEYS) for number in (0, 1))
    vectors = 0.1 * jax.random.normal(people, (len(population), 2 * method.dim))

    def pointwise(params: dict, batch: Batch, penalty: float) -> jax.Array:
        """−ln σ(score_ui) − Σ_j ln σ(−score_uj) and λ(|p_u|² + |q_i|² + |q_j|²), the mean over items had."""
        p = params["people"][batch.people]
        q = params["items"][jnp.concatenate([batch.had[:, None], batch.rivals], axis=1)]
        odds = jax.vmap(lambda p, q: method.odds(params, p, q))(p, q)
        size = (q**2).sum(-1)
        yes = batch.real * (penalty * ((p**2).sum(-1) + size[:, 0]) + jax.nn.softplus(-odds[:, 0]))
        no = batch.counts * (penalty * size[:, 1:] + jax.nn.softplus(odds[:, 1:]))
        return (yes.sum() + no.sum()) / jnp.maximum(batch.real.sum(), 1.0)

    first = {**method.init(start), "people": vectors}
    made = descend(pointwise, first, method, take(population, liked(population, method.above)))
    return {name: made[name] for name in ("items", "mixture", "head")}
