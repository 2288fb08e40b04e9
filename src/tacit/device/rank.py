"""Ranking at home: the best candidates by the method's own score."""

from typing import Any

import jax
import jax.numpy as jnp

from tacit.device.method import Method

EMPTY = "no candidate is left, or scores are no numbers because training or adapting diverged"  # why a list may be


def numbers(scores: jax.Array) -> jax.Array:
    """The scores, -inf where one is no number: to `top_k`, nan is more than anything."""
    return jnp.where(jnp.isnan(scores), -jnp.inf, scores)


def top(
    key: jax.Array, method: Method, params: dict, local: Any, own: Any, recent: jax.Array, candidates: jax.Array, k: int
) -> tuple[jax.Array, jax.Array]:
    """The k best candidates and their scores, best first; equal scores in random order; padding is -1.

    What has a score that is no number is not listed.
    """
    shuffled = jax.random.permutation(key, candidates)
    scores = numbers(method.score(params, local, own, recent, shuffled))
    best, places = jax.lax.top_k(scores, k)
    return jnp.where(best > -jnp.inf, shuffled[places], -1), best
