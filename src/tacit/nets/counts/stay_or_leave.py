"""Next-item probabilities: the user stays with an item or leaves it for another; smoothed counts, then a recency bonus."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from tacit.nets.counts.transitions import TransitionCounts, locate
from tacit.nets.factor.softmax_fit import masked_log_softmax, masked_softmax
from tacit.nets.sequence.windows import latest_events, recency


class Strengths(NamedTuple):
    """Strengths of the priors, in events, and the bonuses for recency."""

    arrivals: float  # κ₁, of the arrivals
    steps: float  # κ₂, of the transitions from one item
    stays: float  # κs, of staying
    stay: float  # c₀, the prior log-odds of staying
    temper: float  # τ, weight of the log probability beside the recency bonus
    bonus: tuple[float, float, float]  # for the item used before this one, the one before that, and older ones


def arrivals(table: jax.Array) -> jax.Array:
    """E_j = Σ_{i≠j} n_ij, from n_ij float[n, n]."""
    return table.sum(axis=0) - jnp.diagonal(table)


def arrival_distribution(arrived: jax.Array, prior: jax.Array, strength: float) -> jax.Array:
    """m = (E + κ₁ e)/(ΣE + κ₁), for a prior e that sums to 1."""
    return (arrived + strength * prior) / (arrived.sum() + strength)


def stay_probability(stayed: jax.Array, times: jax.Array, logit: jax.Array, strength: float) -> jax.Array:
    """π_ii = (n_ii + κs σ(logit))/(n_i + κs)."""
    return (stayed + strength * jax.nn.sigmoid(logit)) / (times + strength)


def leave_distribution(steps: jax.Array, logits: jax.Array, others: jax.Array, strength: float) -> jax.Array:
    """π_ij = (n_ij + κ₂ g_ij)/(n°_i + κ₂) for j ≠ i, with g = softmax of the logits over the others; 0 elsewhere.

    Everything is [n] for one item i; `others` marks the j that may follow.
    """
    steps = jnp.where(others, steps, 0.0)
    return (steps + strength * masked_softmax(logits, others)) / (steps.sum() + strength)


def step_cross_entropy(seen: jax.Array, to: jax.Array, stays: jax.Array) -> jax.Array:
    """−Σ seen log π / Σ seen: the mean cross-entropy of observed steps, float[n, n], under π_ii and π_ij = (1 − π_ii) to_ij."""
    own = jnp.eye(seen.shape[0], dtype=bool)
    chances = jnp.where(own, stays[:, None], (1 - stays)[:, None] * to)
    return -(seen * jnp.log(jnp.maximum(chances, 1e-30))).sum() / jnp.maximum(seen.sum(), 1.0)


class NextItemContext(NamedTuple):
    """The user's counts about the candidates for the next item, given the item just used."""

    here: jax.Array  # bool[c], the candidate that is that item
    offered: jax.Array  # bool[c], False on padding
    arrived: jax.Array  # float[c], E
    steps: jax.Array  # float[c], n_ij from that item
    stayed: jax.Array  # n_ii
    times: jax.Array  # n_i
    recency: jax.Array  # int[c], as `windows.recency` counts
    begun: jax.Array  # bool[], False before the first event of a session


def next_item_context(own: TransitionCounts, recent: jax.Array, candidates: jax.Array) -> NextItemContext:
    """The context of a user's counts after the latest events of a session."""
    table, last = own.table, latest_events(recent, 1)[0]
    place, here = locate(own.items, candidates), candidates == last
    at = locate(own.items, last)
    row = jnp.where(at >= 0, table[at], 0.0)
    return NextItemContext(
        here,
        candidates >= 0,
        jnp.where(place >= 0, arrivals(table)[place], 0.0),
        jnp.where(place >= 0, row[place], 0.0),
        jnp.where(at >= 0, row[at], 0.0),
        row.sum(),
        recency(recent, candidates),
        last >= 0,
    )


def next_item_log_odds(
    now: NextItemContext, counts: Strengths, prior: jax.Array, link: jax.Array, lean: jax.Array
) -> jax.Array:
    """The score of each candidate: log π_ii to stay; log(1 − π_ii) + log softmax(τ log π_ij + bonus) to go to j.

    Before the first event of a session it is log m.

    Args:
        now: the context of the user's own counts.
        counts: strengths of the priors.
        prior: float[c], e, the learned distribution of arrivals; sums to 1 over the candidates.
        link: float[c], added to log m for transitions from this item.
        lean: float[], added to the log-odds of staying with it.
    """
    m = arrival_distribution(now.arrived, prior, counts.arrivals)
    common, others = jnp.log(jnp.maximum(m, 1e-30)), now.offered & ~now.here
    to = leave_distribution(now.steps, common + link, others, counts.steps)
    first, second, older = counts.bonus
    bonus = jnp.select([now.recency == 1, now.recency == 2, now.recency > 2], [first, second, older], 0.0)
    onward = masked_log_softmax(counts.temper * jnp.log(jnp.maximum(to, 1e-30)) + bonus, others)
    stays = stay_probability(now.stayed, now.times, counts.stay + lean, counts.stays)
    moved = jnp.where(now.here, jnp.log(stays), jnp.log1p(-stays) + onward)
    return jnp.where(now.begun, moved, common)
