"""Metrics: how well a ranked list answers, from the rank of what the person did next.

Ties never fall to index order: `rank` breaks them by a seeded draw, so a scorer that always says the same
scores like Random.
"""

import jax
import jax.numpy as jnp
import numpy as np


def rank(key: jax.Array, scores: jax.Array, target: jax.Array) -> jax.Array:
    """1 + how many candidates beat the target; among equals, each order is equally likely.

    Args:
        key: breaks ties.
        scores: float[c]; -inf is no candidate.
        target: position of the target in `scores`.
    """
    mine = scores[target]
    better = jnp.sum(scores > mine)
    equal = jnp.sum((scores == mine) & (scores > -jnp.inf)) - 1
    # The target's place among `equal` others is uniform on 0..equal.
    luck = jnp.floor(jax.random.uniform(key) * (jnp.maximum(equal, 0) + 1)).astype(jnp.int32)
    return 1 + better + luck


def hit_rate(ranks: np.ndarray, n: int) -> np.ndarray:
    """HR@n: 1 where the target is among the first n."""
    return (np.asarray(ranks) <= n).astype(float)


def reciprocal_rank(ranks: np.ndarray, n: int) -> np.ndarray:
    """MRR@n: 1/rank where the target is among the first n, else 0."""
    return hit_rate(ranks, n) / np.asarray(ranks)


def discounted_gain(ranks: np.ndarray, n: int) -> np.ndarray:
    """NDCG@n of a single target: 1/log2(rank + 1) where it is among the first n, else 0."""
    return hit_rate(ranks, n) / np.log2(np.asarray(ranks) + 1)


_KINDS = {"HR": hit_rate, "MRR": reciprocal_rank, "NDCG": discounted_gain}


def summary(ranks: np.ndarray, names: tuple[str, ...] = ("HR@10", "NDCG@10", "MRR@10")) -> dict[str, float]:
    """The mean of each named metric over cases.

    >>> summary(np.array([1, 3, 20]), ("HR@10",))
    {'HR@10': 0.6666666666666666}
    """
    parsed = [(name, *name.split("@")) for name in names]
    return {name: float(np.mean(_KINDS[kind](ranks, int(n)))) for name, kind, n in parsed}
