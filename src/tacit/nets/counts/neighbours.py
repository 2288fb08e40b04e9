"""Item neighbours: score what is close to what a person already has."""

import jax
import jax.numpy as jnp


def neighbour_scores(neighbours: jax.Array, similarity: jax.Array, items: jax.Array, weight: jax.Array) -> jax.Array:
    """score_j = Σ_i weight_i · similarity(i, j), over each owned item i's K nearest items.

    Args:
        neighbours: int32[N, K], padding N.
        similarity: float[N, K].
        items: int32[n], padding N.
        weight: float[n].

    Returns:
        float[N].
    """
    owned = items < neighbours.shape[0]
    near = jnp.where(owned[:, None], neighbours[jnp.minimum(items, neighbours.shape[0] - 1)], neighbours.shape[0])
    close = jnp.take(similarity, items, axis=0, mode="fill", fill_value=0) * weight[:, None]
    scores = jnp.zeros(neighbours.shape[0], similarity.dtype)
    return scores.at[near.reshape(-1)].add(close.reshape(-1), mode="drop")
