"""One target: its rank, and what a rank is worth."""

from collections.abc import Sequence
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np

from tacit.errors import DataError, PlanError, unknown
from tacit.metrics.averages import average
from tacit.metrics.names import f1, parse

TIES = ("random", "pessimistic", "optimistic")


def rank(
    key: jax.Array,
    scores: jax.Array,
    target: jax.Array,
    ties: Literal["random", "pessimistic", "optimistic"] = "random",
) -> jax.Array:
    """1 + how many candidates beat the target; among equals, each order is equally likely, or as `ties` says.

    A score that is not a number loses against every number. A target that is no candidate itself comes last of all.

    Args:
        key: breaks ties.
        scores: float[c]; -inf is no candidate.
        target: position of the target in `scores`.
        ties: `random`; `pessimistic`, every equal beats the target; `optimistic`, none does.
    """
    return placed(key, scores, target, ties)[0]


def placed(key: jax.Array, scores: jax.Array, target: jax.Array, ties: str = "random") -> tuple[jax.Array, jax.Array]:
    """As `rank`, and how many other candidates have the target's own score: where those are most, the rank is chance.

    >>> [int(one) for one in placed(jax.random.key(0), jnp.array([0.5, 0.9, 0.5, -jnp.inf]), 0, "optimistic")]
    [2, 1]
    """
    if ties not in TIES:
        raise PlanError(unknown("rank", ties, TIES, "tie policy"))
    # A comparison with nan is always false: a model that diverged would come first everywhere.
    scores = jnp.where(jnp.isnan(scores), jnp.finfo(scores.dtype).min, scores)
    mine = scores[target]
    better = jnp.sum(scores > mine)
    equal = jnp.maximum(jnp.sum((scores == mine) & (scores > -jnp.inf)) - 1, 0)
    # The target's place among `equal` others is uniform on 0..equal.
    luck = jnp.floor(jax.random.uniform(key) * (equal + 1)).astype(jnp.int32)
    behind = {"random": luck, "pessimistic": equal, "optimistic": 0}[ties]
    return jnp.where(mine > -jnp.inf, 1 + better + behind, scores.size), equal


def hit_rate(ranks: np.ndarray, n: float) -> np.ndarray:
    """HR@n: 1 where the target is among the first n."""
    return (np.asarray(ranks) <= n).astype(float)


def reciprocal_rank(ranks: np.ndarray, n: float = np.inf) -> np.ndarray:
    """MRR@n: 1/rank where the target is among the first n, else 0."""
    return hit_rate(ranks, n) / np.asarray(ranks)


def discounted_gain(ranks: np.ndarray, n: float) -> np.ndarray:
    """NDCG@n of a single target: 1/log2(rank + 1) where it is among the first n, else 0."""
    return hit_rate(ranks, n) / np.log2(np.asarray(ranks) + 1)


def area(ranks: np.ndarray, negatives: np.ndarray | int) -> np.ndarray:
    """AUC of a single target: the share of negatives it beats.

    Several targets at once: rank each among the negatives alone; the AUC is the mean.

    >>> area(np.array([4, 3]), negatives=3).mean().round(7)
    np.float64(0.1666667)
    """
    ranks, negatives = np.broadcast_arrays(ranks, negatives)
    if (negatives < 1).any():
        raise DataError("AUC needs at least 1 negative for every target, got 0; leave such cases out.")
    if (ranks > negatives + 1).any():
        most, got = max(zip(negatives.flat, ranks.flat), key=lambda pair: pair[1] - pair[0])
        raise DataError(f"A rank among {most} negatives is at most {most + 1}, got {got}.")
    return 1 - (ranks - 1) / negatives


def per_case(ranks: np.ndarray, name: str, *, negatives: np.ndarray | int | None = None) -> np.ndarray:
    """A named metric for each rank; AUC also needs how many negatives each target was ranked against.

    >>> per_case(np.array([1, 3, 20]), "MRR@10").round(3).tolist()
    [1.0, 0.333, 0.0]
    """
    metric, ranks = parse(name), np.asarray(ranks)
    if ranks.size and ranks.min() < 1:
        raise DataError(f"Ranks start at 1, got {ranks.min()}.")
    n = np.inf if metric.n is None else metric.n
    match metric.kind:
        case "HR" | "R":  # all of a single target is found, or nothing
            return hit_rate(ranks, n)
        case "P":
            return hit_rate(ranks, n) / n
        case "MRR":
            return reciprocal_rank(ranks, n)
        case "NDCG":
            return discounted_gain(ranks, n)
        case "AUC" if negatives is not None:
            return area(ranks, negatives)
        case "AUC":
            raise DataError("AUC needs the number of negatives beside the ranks, got none; pass `negatives`.")
    raise PlanError(f"{name} has no value for a single rank; a summary or top-n lists have one.")


def summary(
    ranks: np.ndarray,
    names: Sequence[str] = ("HR@10", "NDCG@10", "MRR@10"),
    *,
    negatives: np.ndarray | int | None = None,
    groups: Sequence[np.ndarray] = (),
) -> dict[str, float]:
    """The mean of each named metric over cases, or over groups of them as in `average`.

    >>> summary(np.array([1, 3, 20]), ("HR@10",))
    {'HR@10': 0.6666666666666666}
    """

    def mean(name: str) -> float:
        return average(per_case(ranks, name, negatives=negatives), groups).value

    return {name: f1(parse(name), mean) if parse(name).kind == "F1" else mean(name) for name in names}
