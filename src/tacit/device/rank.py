"""Ranking at home: the best candidates by the method's own score."""

from typing import Any

import jax
import jax.numpy as jnp

from tacit.device.method import Method


def top(
    key: jax.Array, method: Method, params: dict, local: Any, own: Any, recent: jax.Array, candidates: jax.Array, k: int
) -> tuple[jax.Array, jax.Array]:
    """The k best candidates and their scores, best first; equal scores in random order; padding is -1."""
    shuffled = jax.random.permutation(key, candidates)
    scores = method.score(params, local, own, recent, shuffled)
    best, places = jax.lax.top_k(scores, k)
    return jnp.where(best > -jnp.inf, shuffled[places], -1), best
