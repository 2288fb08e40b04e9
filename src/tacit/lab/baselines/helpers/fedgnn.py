"""FedGNN: a helper matches users, devices send bounded and noised gradients, the server takes a step of Adam.

Devices share a key that the helper does not have; under it, an item has the same sealed name on every device. So the
helper cannot read a name, but it sees how many items two of its users have in common, and how many users have each sealed
name. Popular items are known by that alone.
"""

import hashlib
import hmac
import math
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from tacit.device.round import KEYS
from tacit.lab.baselines.baseline import Baseline, liked_in_log
from tacit.lab.data import Population
from tacit.lab.data.selection import owners, take
from tacit.lab.simulation.buckets import prepare_devices
from tacit.nets.neural.graph import ATTENTION_LAYERS
from tacit.privacy.claim import Claim

SEES = "a helper sees which people share how many sealed items, and how many have each"
NAMES = (
    "a message names the rows of the items a person has, among made-up ones: what it does not name, they do not have"
)


def fedgnn_claims(method: Any) -> tuple[Claim, Claim]:
    """As printed, 2δ/λ; and what holds for a message of FedGNN."""
    printed = 2 * method.clip / method.noise if method.noise else math.inf
    one = "of one number of one message, if nothing else were sent"
    return (
        Claim("local", "user", "replace_one", printed, 0.0, "message", "paper", "nobody", (one,)),
        Claim("local", "user", "replace_one", math.inf, 0.0, "run", "corrected", "server", (NAMES, SEES)),
    )


class HelpedFedGnn(Baseline):
    """The shared parameters of FedGNN, found by devices, server and a matching helper."""

    methods = ("fedgnn",)

    @staticmethod
    def fit(method: Any, population: Population) -> dict:
        """The shared parameters after `turns` of the helper with `rounds_each` rounds after each."""
        key = jax.random.key(0, impl=KEYS)
        likes = take(population, liked_in_log(population, method.above))
        everyone = np.arange(len(population))
        own = prepare_devices(method, population, everyone, int(population.lengths.max(initial=1)))
        params, people = method.init(jax.random.fold_in(key, 0)), jnp.zeros((len(population), method.dim))
        trained = {name: params[name] for name in ("items", *ATTENTION_LAYERS)}
        moments = optax.adam(method.pace).init(trained)
        for turn in range(method.turns):
            vectors = np.asarray(_vectors(method, {**params, **trained}, people, own))
            params["others"] = jnp.asarray(matched(owners(likes), likes.items, vectors, population.catalog.n_items))
            state = (trained, moments, people)
            trained, moments, people = _rounds(method, jax.random.fold_in(key, 1 + turn), params["others"], state, own)
        return {**params, **trained}


@jax.jit
def _vectors(method: Any, params: dict, people: jax.Array, own: Any) -> jax.Array:
    """What each device sends to the helper: the mean of its items' vectors and its own."""

    def one(e: jax.Array, own: dict) -> jax.Array:
        real = (own["items"] >= 0)[:, None]
        return e + jnp.where(real, params["items"][jnp.maximum(own["items"], 0)], 0.0).sum(0) / jnp.maximum(
            real.sum(), 1
        )

    return jax.vmap(one)(people, own)


@partial(jax.jit, donate_argnums=3)
def _rounds(method: Any, key: jax.Array, others: jax.Array, state: tuple, own: Any) -> tuple:
    """Rounds of randomly drawn cohorts, as one program."""
    count = min(method.cohort, state[2].shape[0])
    adam = optax.adam(method.pace)

    def one_round(state: tuple, key: jax.Array) -> tuple[tuple, None]:
        trained, moments, people = state
        draw, work, noise = jax.random.split(key, 3)
        who = jax.random.choice(draw, people.shape[0], (count,), replace=False)
        mine = jax.tree.map(lambda leaf: leaf[who], own)
        gradient = jax.vmap(method.gradients, (0, None, 0, 0))
        sent = gradient(jax.random.split(work, count), {**trained, "others": others}, people[who], mine)
        people = people.at[who].add(-method.rate * sent.person)
        moves, moments = adam.update(_estimate(method, noise, sent, others.shape[0]), moments)
        return (optax.apply_updates(trained, moves), moments, people), None

    return jax.lax.scan(one_round, state, jax.random.split(key, method.rounds_each))[0]


def noised(method: Any, key: jax.Array, gradient: jax.Array) -> jax.Array:
    """clip(g, ±δ) + Laplace(λ), number by number."""
    return jnp.clip(gradient, -method.clip, method.clip) + method.noise * jax.random.laplace(key, gradient.shape)


def _estimate(method: Any, key: jax.Array, sent: Any, n_items: int) -> dict:
    """The server's mean over the cohort; rows that no message names are 0."""
    count = sent.person.shape[0]
    keys = dict(zip(("items", *ATTENTION_LAYERS), jax.random.split(key, 1 + len(ATTENTION_LAYERS))))
    rows = noised(method, keys["items"], sent.rows)
    table = jnp.zeros((n_items, method.dim)).at[sent.items].add(rows, mode="drop") / count
    return {
        "items": table,
        **{name: noised(method, keys[name], sent.layers[name]).mean(0) for name in ATTENTION_LAYERS},
    }


# ---- the helper ----


class SealedItems(NamedTuple):
    """What one device sends to the helper."""

    names: list[bytes]  # sealed, each once
    vector: np.ndarray  # float32[d]


def seal(key: bytes, items: np.ndarray) -> list[bytes]:
    """The sealed names of some items, in their order.

    >>> seal(b"key", np.array([3]))[0] == seal(b"key", np.array([3]))[0] != seal(b"other", np.array([3]))[0]
    True
    """
    return [hmac.new(key, int(item).to_bytes(8, "big"), hashlib.sha256).digest() for item in items]


def match(users: list[SealedItems]) -> dict[bytes, tuple[np.ndarray, int]]:
    """For each sealed name, the sum of the vectors of the users who have it, and how many they are."""
    found: dict[bytes, tuple[np.ndarray, int]] = {}
    for user in users:
        for name in user.names:
            total, count = found.get(name, (np.zeros_like(user.vector), 0))
            found[name] = (total + user.vector, count + 1)
    return found


def matched(people: np.ndarray, items: np.ndarray, vectors: np.ndarray, n_items: int) -> np.ndarray:
    """The result of `match` for all users at once, item by item: mean vectors [n_items, d], 0 for items without users.

    Args:
        people: int[events], the user of each event.
        items: int[events].
        vectors: float32[people, d].
    """
    pairs = np.unique(people.astype(np.int64) * n_items + items)
    who, what = np.divmod(pairs, n_items)
    total = np.zeros((n_items, vectors.shape[1]), np.float32)
    np.add.at(total, what, vectors[who])
    return total / np.maximum(np.bincount(what, minlength=n_items), 1)[:, None]
