"""Rank metrics: the rank of a single target among its candidates, and the metrics that follow from it."""

from collections.abc import Sequence
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np

from tacit.errors import DataError, PlanError, unknown
from tacit.metrics.averages import average
from tacit.metrics.definitions import parse

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
    return rank_and_ties(key, scores, target, ties)[0]


def rank_and_ties(
    key: jax.Array, scores: jax.Array, target: jax.Array, ties: str = "random"
) -> tuple[jax.Array, jax.Array]:
    """As `rank`, and how many other candidates have the target's own score: where those are most, the rank is chance.

    >>> [int(one) for one in rank_and_ties(jax.random.key(0), jnp.array([0.5, 0.9, 0.5, -jnp.inf]), 0, "optimistic")]
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


def per_case(ranks: np.ndarray, name: str, *, negatives: np.ndarray | int | None = None) -> np.ndarray:
    """A named metric for each rank; AUC also needs how many negatives each target was ranked against.

    >>> per_case(np.array([1, 3, 20]), "MRR@10").round(3).tolist()
    [1.0, 0.333, 0.0]
    """
    metric, ranks = parse(name), np.asarray(ranks)
    if ranks.size and ranks.min() < 1:
        raise DataError(f"Ranks start at 1, got {ranks.min()}.")
    of_ranks = metric.definition.of_ranks
    if of_ranks is None:
        raise PlanError(f"{name} has no value for a single rank; a summary or top-n lists have one.")
    return of_ranks(ranks, np.inf if metric.n is None else metric.n, negatives)


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

    def value(name: str) -> float:
        metric = parse(name)
        return mean(name) if metric.definition.of_means is None else metric.of_means(mean)

    return {name: value(name) for name in names}
