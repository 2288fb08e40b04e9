"""Quantile: a bound that follows a quantile of the updates' lengths, moved by a noisy count that is part of the price.

Beside its update x, at most C long, a device says whether it was within the round's bound C: b = +½ where it was, −½ where
it was not. The server adds noise to both sums and moves the bound by the share of those who were within:

    share = ½ + (Σ b + N(0, s²)) / M          M: the planned size of the cohort; who is silent counts as ½
    C ← C · exp(−rate · (share − quantile))

What it costs. With noise z_sum·C on each number of Σ x and s on Σ b, and each in units of its noise, a device adds the one
vector (x / (z_sum·C), b / s) to a joint sum whose noise is 1. It is never longer than 1/z, where

    1/z² = 1/z_sum² + 1/(2s)².

Neighbours that add or remove a device differ by that vector: by 1/z at most. Neighbours that replace a device by another
differ by the difference of two: by 2/z at most, and just that from (C·u, +½) to (−C·u, −½); there b alone may differ by 1, and
not by ½. So z is to the pair what the noise is to a sum alone, under both relations, and it is what the accountant is told.
C has gone from it: the noise grows with the bound, so that any bound, however it was found and whoever sends it, costs the same.

Paper: Andrew, Thakkar, McMahan and Ramaswamy, "Differentially private learning with adaptive clipping" (NeurIPS 2021). There,
neighbours differ by one device's presence, and s is a twentieth of the cohort.
"""

import math

import jax
import jax.numpy as jnp

from tacit.errors import PlanError

WITHIN = "within the clip"  # the count's place beside the leaves of an update; no leaf has a name of three words
RATE = 0.2  # of the geometric step, as in the paper
_FAR = 1e6  # the bound stays within so many times its start, both ways: what is always within must not shrink it to nothing


def count_noise(noise: float, cohort: float) -> float:
    """s, where a plan does not say it: a twentieth of the cohort, or as much more as keeps its cost to 1/100 of 1/z².

    A small cohort pays with a bound that moves less surely, and not with noise on what it learns.

    >>> count_noise(2.0, 1000), count_noise(2.0, 30)
    (50.0, 10.0)
    """
    return max(cohort / 20, 5 * noise) if noise else 0.0


def sum_noise(noise: float, count: float) -> float:
    """z_sum, in units of the bound: what is left for the sum when z prices both.

    >>> round(sum_noise(2.0, 10.0), 4)
    2.0101
    """
    if noise == 0:
        return 0.0
    left = noise**-2 - (2 * count) ** -2 if count else -math.inf
    if left <= 0:
        raise PlanError(
            f"privacy.quantile_noise = {count:g} is too little: a count with it would cost all that noise = {noise:.4g} "
            f"allows, or more; give more than {noise / 2:.4g}, or leave it out."
        )
    return left**-0.5


def bit(norm: jax.Array, clip: jax.Array | float) -> jax.Array:
    """b: whether an update of this length is within the bound, as +½ or −½."""
    return jnp.where(norm <= clip, 0.5, -0.5).astype(jnp.float32)


def moved(clip: jax.Array, share: jax.Array, quantile: float, rate: float, start: float) -> jax.Array:
    """The next bound: at most e^rate times the last, or as much smaller, however loud the noise."""
    # C ← C · exp(−rate · (share − quantile)); cut evenly on both sides, so that noise pulls it to neither
    step = jnp.exp(-rate * jnp.clip(share - quantile, -1.0, 1.0))
    return jnp.clip(clip * step, start / _FAR, start * _FAR).astype(jnp.float32)
