"""Membership inference: models are trained with and without people, and the attacker sees the outputs of each.

Shadow models are trained together, and so are targets: one program for all of them.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tacit.audit.inference import (
    Encoding,
    MembershipScores,
    ModelAnswers,
    Shadow,
    forest_scores,
    loss_scores,
    score_membership,
)
from tacit.core.plan import Plan
from tacit.device.batching import power_of_two
from tacit.device.method import Method
from tacit.device.methods._bases.likes import liked_events
from tacit.errors import DataError, PlanError
from tacit.lab.data import Population
from tacit.lab.simulation.batched_runs import Models, learn_together

LISTED = 10  # items of a list
USED = 0.8  # of the shadow people
_BATCH = 256  # people evaluated at a time


class PeopleSplit(NamedTuple):
    """Two groups of people: the attacker's, and those in question."""

    log: Population
    shadow: np.ndarray
    private: np.ndarray


class MembershipResults(NamedTuple):
    """What both attacks reached, one entry for each target."""

    by_list: list[MembershipScores]
    by_loss: list[MembershipScores]


def split_people(log: Population, shadow: int, seed: int = 0) -> PeopleSplit:
    """So many people, drawn by the seed, are the attacker's."""
    if not 5 <= shadow <= len(log) - 4:
        raise DataError(
            f"shadow people must be at least 5 and leave 4 of {len(log)} in question, got {shadow}; choose fewer, or a larger log."
        )
    order = np.random.default_rng([seed, 0x5D]).permutation(len(log))
    return PeopleSplit(log, np.sort(order[:shadow]), np.sort(order[shadow:]))


def shadow_models(plan: Plan, people: PeopleSplit, models: int = 4) -> list[Shadow]:
    """The attacker's models: each on four of five of the shadow people, drawn anew."""
    used = [_some(people.shadow.size, USED, [number, 0x5E]) for number in range(models)]
    seeds = range(1000, 1000 + models)
    made = learn_together(plan, people.log, [people.shadow[one] for one in used], seeds)
    known, others = (model_answers(made, people.log, ids) for ids in (people.shadow, people.private))
    return [Shadow(one, said, other.losses) for one, said, other in zip(used, known, others)]


def infer_membership(
    plan: Plan, people: PeopleSplit, shadows: list[Shadow], seeds: Sequence[int] = range(10), encoding: Encoding = "ids"
) -> MembershipResults:
    """Half of the people in question train a target, for each seed another half; guess which."""
    if not seeds:
        raise PlanError("seeds must name at least one target, got none; range(10) is ten.")
    members = [_some(people.private.size, 0.5, [seed, 0x7A]) for seed in seeds]
    made = learn_together(plan, people.log, [people.private[one] for one in members], seeds)
    found = MembershipResults([], [])
    for seed, inside, said in zip(seeds, members, model_answers(made, people.log, people.private)):
        shadow = shadows[seed % len(shadows)]
        found.by_list.append(score_membership(forest_scores(shadow, said, encoding, seed), inside))
        found.by_loss.append(score_membership(loss_scores(shadows, said), inside))
    return found


def _some(people: int, share: float, seed: list[int]) -> np.ndarray:
    """A share of the people, as a mask; always as many."""
    mask = np.zeros(people, bool)
    mask[np.random.default_rng(seed).permutation(people)[: round(share * people)]] = True
    return mask


def model_answers(models: Models, log: Population, ids: np.ndarray) -> list[ModelAnswers]:
    """The outputs of released models for some people: lists for their features alone, and losses on their histories."""
    if not log.catalog.person_fields:
        raise DataError("Membership needs people with features, and this log has none; the world 'movies' has some.")
    length = power_of_two(int(log.lengths[ids].max(initial=1)))
    parts = []
    for start in range(0, ids.size, _BATCH):
        some = np.resize(ids[start : start + _BATCH], min(_BATCH, power_of_two(ids.size)))  # repeated to one size
        parts.append(jax.tree.map(np.asarray, _ask(models, log.histories(some, length))))
    lists, losses = (np.concatenate(part, axis=1)[:, : ids.size] for part in zip(*parts))
    features = np.asarray(log.histories(ids, 1).person)
    vectors = np.asarray(models.params.get("items", np.zeros((len(lists), log.catalog.n_items, 1))))
    return [ModelAnswers(features, *one) for one in zip(lists, losses, vectors)]


@jax.jit
def _ask(models: Models, histories: Any) -> tuple[jax.Array, jax.Array]:
    """Lists [models, people, 10] and losses [models, people]; model after model, for the sake of memory."""
    return jax.lax.map(lambda params: jax.vmap(partial(_ask_one, models.method, params))(histories), models.params)


def _ask_one(method: Method, params: dict, history: Any) -> tuple[jax.Array, jax.Array]:
    """The list that features alone get, and the cross-entropy of likes against everything else."""
    n = method.catalog.n_items
    stranger = history._replace(items=jnp.full_like(history.items, -1))
    own, key = method.prepare(stranger), jax.random.key(0)
    odds = method.score(params, method.enter(key, own), own, jnp.full(1, -1), jnp.arange(n))
    likes = jnp.zeros(n + 1).at[jnp.where(liked_events(history, 3.0), history.items, n)].set(1.0)[:-1]
    yes = (likes * jax.nn.softplus(-odds)).sum() / jnp.maximum(likes.sum(), 1)
    no = ((1 - likes) * jax.nn.softplus(odds)).sum() / jnp.maximum((1 - likes).sum(), 1)
    return jax.lax.top_k(odds, LISTED)[1], yes + no
