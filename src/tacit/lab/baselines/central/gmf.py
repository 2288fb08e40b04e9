"""GMF on pooled data: item factors and mixture weights from positives and sampled negatives."""

from typing import Any

import jax
import jax.numpy as jnp

from tacit.lab.baselines.baseline import Baseline
from tacit.lab.baselines.central.bpr import PairBatch, first_factors, train_epochs
from tacit.lab.data import Population


class PooledGmf(Baseline):
    """Item factors and mixture weights of generalised matrix factorisation."""

    methods = ("gmf",)

    @staticmethod
    def fit(method: Any, population: Population) -> dict:
        """Q and h, fitted together with the factors of all users by Adam."""
        made = train_epochs(pointwise, first_factors(method, population), method, population)
        return {name: made[name] for name in ("items", "mixture")}


def pointwise(params: dict, batch: PairBatch, penalty: float) -> jax.Array:
    """−ln σ(score_ui) − Σ_j ln σ(−score_uj) and λ(|p_u|² + |q_i|² + |q_j|²), the mean over items had."""
    p, q, r = params["people"][batch.people], params["items"][batch.had], params["items"][batch.rivals]
    mixed = p * params["mixture"]
    yes = batch.real * (penalty * ((p**2).sum(-1) + (q**2).sum(-1)) - jax.nn.log_sigmoid((mixed * q).sum(-1)))
    no = batch.counts * (penalty * (r**2).sum(-1) - jax.nn.log_sigmoid(-(mixed[:, None] * r).sum(-1)))
    return (yes.sum() + no.sum()) / jnp.maximum(batch.real.sum(), 1.0)
