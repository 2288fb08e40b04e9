"""Switch: does a person stay with an item or leave it, and for which; own counts over a prior, and recency on top."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from tacit.nets.logit import log_shares, shares


class Counts(NamedTuple):
    """How strongly the priors count, in events, and how recency is rewarded."""

    arrivals: float  # κ₁, of where a person goes at all
    steps: float  # κ₂, of where a person goes from one item
    stays: float  # κs, of whether a person stays
    stay: float  # c₀, the log odds of staying before anything is known
    temper: float  # how much of the log probability counts beside recency
    bonus: tuple[float, float, float]  # for the item used before this one, the one before that, and older ones


def arrivals(table: jax.Array) -> jax.Array:
    """E_j = Σ_{i≠j} n_ij, from n_ij float[n, n]."""
    return table.sum(axis=0) - jnp.diagonal(table)


def marginal(arrived: jax.Array, prior: jax.Array, strength: float) -> jax.Array:
    """m = (E + κ₁ e)/(ΣE + κ₁), for a prior e that sums to 1."""
    return (arrived + strength * prior) / (arrived.sum() + strength)


def stay(stayed: jax.Array, times: jax.Array, logit: jax.Array, strength: float) -> jax.Array:
    """π_ii = (n_ii + κs σ(logit))/(n_i + κs)."""
    return (stayed + strength * jax.nn.sigmoid(logit)) / (times + strength)


def leave(steps: jax.Array, logits: jax.Array, others: jax.Array, strength: float) -> jax.Array:
    """(n_ij + κ₂ g_ij)/(n°_i + κ₂) for j ≠ i, with g = softmax of the logits over the others; 0 elsewhere.

    Everything is [n] for one item i; `others` says which j may follow.
    """
    steps = jnp.where(others, steps, 0.0)
    return (steps + strength * shares(logits, others)) / (steps.sum() + strength)


class Moment(NamedTuple):
    """What is known when a person has just used an item, about the candidates for the next."""

    here: jax.Array  # bool[c], the candidate that is that item
    offered: jax.Array  # bool[c], False on padding
    marginal: jax.Array  # float[c], m
    link: jax.Array  # float[c], what is added to log m after this very item
    steps: jax.Array  # float[c], n_ij from that item
    stayed: jax.Array  # n_ii
    times: jax.Array  # n_i
    logit: jax.Array  # of staying
    recency: jax.Array  # int[c], as `session.recency` counts
    begun: jax.Array  # bool[], False before the first event of a session


def log_odds(now: Moment, counts: Counts) -> jax.Array:
    """The score of each candidate: log π_ii to stay; log(1 − π_ii) + log softmax(τ log π_ij + bonus) to go to j.

    Before the first event of a session it is log m.
    """
    common = jnp.log(jnp.maximum(now.marginal, 1e-30))
    others = now.offered & ~now.here
    to = leave(now.steps, common + now.link, others, counts.steps)
    first, second, older = counts.bonus
    bonus = jnp.select([now.recency == 1, now.recency == 2, now.recency > 2], [first, second, older], 0.0)
    onward = log_shares(counts.temper * jnp.log(jnp.maximum(to, 1e-30)) + bonus, others)
    stays = stay(now.stayed, now.times, now.logit, counts.stays)
    moved = jnp.where(now.here, jnp.log(stays), jnp.log1p(-stays) + onward)
    return jnp.where(now.begun, moved, common)
