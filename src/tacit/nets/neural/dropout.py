"""Dropout: some of what is passed on is left out in training, and the rest is louder for it."""

from typing import Any

import jax
import jax.numpy as jnp


def dropped(key: Any, x: jax.Array, rate: float) -> jax.Array:
    """Each number with probability `rate` as 0, else x/(1 − rate); without a key, x."""
    if key is None or rate == 0:
        return x
    return jnp.where(jax.random.bernoulli(key, 1 - rate, x.shape), x / (1 - rate), 0.0)
