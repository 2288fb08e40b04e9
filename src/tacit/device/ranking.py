"""Ranking on a device: the best candidates by the method's score. The simulator and evaluation use the same function."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tacit.device.method import Method
from tacit.device.round import KEYS

RECENT = 64  # how many of a device's newest events a recommendation uses
EMPTY = "no candidate is left, or scores are no numbers because training or adapting diverged"  # why a list may be


def without_nan(scores: jax.Array) -> jax.Array:
    """The scores, with -inf for nan: `top_k` would rank nan first."""
    return jnp.where(jnp.isnan(scores), -jnp.inf, scores)


def shuffled_candidates(candidates: np.ndarray, seed: int = 0) -> np.ndarray:
    """Candidates in the random order in which `top` lists equal scores; the same on every device, so it is made once."""
    return np.asarray(jax.random.permutation(jax.random.key(seed, impl=KEYS), candidates))


def tie_key(secret: jax.Array, seed: int | jax.Array = 0) -> jax.Array:
    """The key by which a device breaks ties: its own, so that devices do not all list the same items."""
    key = jax.random.key(seed, impl=KEYS)
    return jax.random.fold_in(jax.random.fold_in(key, secret[0]), secret[1])


def top(
    key: jax.Array,
    method: Method,
    params: dict,
    local: Any,
    own: Any,
    recent: Any,
    candidates: Any,
    k: int,
    barred: Any = False,
) -> tuple[jax.Array, jax.Array]:
    """The k best candidates and their scores, best first; candidates that are barred, -1 or scored nan are not listed.

    Ties are in the order of the candidates, beginning at a place drawn with the key: `shuffled_candidates` and a
    `tie_key` make that order random. A short list ends in -1.
    """
    size = candidates.shape[0]
    scores = jnp.where(barred, -jnp.inf, without_nan(method.score(params, local, own, recent, candidates)))
    start = jax.random.randint(key, (), 0, size)
    # top_k keeps the first of equals. Rotating the scores is much faster than a shuffle for every device.
    turned = jax.lax.dynamic_slice(jnp.concatenate([scores, scores]), (start,), (size,))
    best, places = jax.lax.top_k(turned, min(k, size))
    return jnp.where(best > -jnp.inf, candidates[(places + start) % size], -1), best
