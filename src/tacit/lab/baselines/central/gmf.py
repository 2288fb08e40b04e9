"""GMF in the lab: item factors and their mixture from pooled yes and no."""

from typing import Any

import jax
import jax.numpy as jnp

from tacit.lab.baselines.central.bpr import Batch, descend, first_factors
from tacit.lab.data import Population


def fit(method: Any, population: Population) -> dict:
    """Q and h of everybody's factors, fitted together by Adam."""
    made = descend(pointwise, first_factors(method, population), method, population)
    return {name: made[name] for name in ("items", "mixture")}


def pointwise(params: dict, batch: Batch, penalty: float) -> jax.Array:
    """−ln σ(score_ui) − Σ_j ln σ(−score_uj) and λ(|p_u|² + |q_i|² + |q_j|²), the mean over items had."""
    p, q, r = params["people"][batch.people], params["items"][batch.had], params["items"][batch.rivals]
    mixed = p * params["mixture"]
    yes = batch.real * (penalty * ((p**2).sum(-1) + (q**2).sum(-1)) - jax.nn.log_sigmoid((mixed * q).sum(-1)))
    no = batch.counts * (penalty * (r**2).sum(-1) - jax.nn.log_sigmoid(-(mixed[:, None] * r).sum(-1)))
    return (yes.sum() + no.sum()) / jnp.maximum(batch.real.sum(), 1.0)
