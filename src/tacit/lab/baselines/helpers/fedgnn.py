"""FedGNN's parties at work: the helper matches, devices send bounded and noised gradients, the server takes Adam's step."""

import math
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from tacit.device.round import KEYS
from tacit.lab.baselines.central.ncf import liked
from tacit.lab.baselines.helpers.helper import matched
from tacit.lab.data import Population
from tacit.lab.data.selection import owners, take
from tacit.lab.simulation.buckets import prepare
from tacit.nets.neural.graph import ATTENTION_LAYERS
from tacit.privacy.claim import Claim

SEES = "a helper sees which people share how many sealed items, and how many have each"
NAMES = (
    "a message names the rows of the items a person has, among made-up ones: what it does not name, they do not have"
)


def claims(method: Any) -> tuple[Claim, Claim]:
    """As printed, 2δ/λ; and what holds for a message of FedGNN."""
    printed = 2 * method.clip / method.noise if method.noise else math.inf
    one = "of one number of one message, if nothing else were sent"
    return (
        Claim("local", "user", "replace_one", printed, 0.0, "message", "paper", "nobody", (one,)),
        Claim("local", "user", "replace_one", math.inf, 0.0, "run", "corrected", "server", (NAMES, SEES)),
    )


def fit(method: Any, population: Population) -> dict:
    """The shared parameters after `turns` of the helper with `rounds_each` rounds after each."""
    key = jax.random.key(0, impl=KEYS)
    likes = take(population, liked(population, method.above))
    everybody = np.arange(len(population))
    own = prepare(method, population, everybody, int(population.lengths.max(initial=1)))
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
    """What each device hands the helper: the mean of its items' vectors and its own."""

    def one(e: jax.Array, own: dict) -> jax.Array:
        real = (own["items"] >= 0)[:, None]
        return e + jnp.where(real, params["items"][jnp.maximum(own["items"], 0)], 0.0).sum(0) / jnp.maximum(
            real.sum(), 1
        )

    return jax.vmap(one)(people, own)


@partial(jax.jit, donate_argnums=3)
def _rounds(method: Any, key: jax.Array, others: jax.Array, state: tuple, own: Any) -> tuple:
    """Rounds of cohorts drawn by chance, as one program."""
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


def message(method: Any, key: jax.Array, gradient: jax.Array) -> jax.Array:
    """clip(g, ±δ) + Laplace(λ), number by number."""
    return jnp.clip(gradient, -method.clip, method.clip) + method.noise * jax.random.laplace(key, gradient.shape)


def _estimate(method: Any, key: jax.Array, sent: Any, n_items: int) -> dict:
    """The server's mean over the cohort; rows that nobody named stay as they are."""
    count = sent.person.shape[0]
    keys = dict(zip(("items", *ATTENTION_LAYERS), jax.random.split(key, 1 + len(ATTENTION_LAYERS))))
    rows = message(method, keys["items"], sent.rows)
    table = jnp.zeros((n_items, method.dim)).at[sent.items].add(rows, mode="drop") / count
    return {
        "items": table,
        **{name: message(method, keys[name], sent.layers[name]).mean(0) for name in ATTENTION_LAYERS},
    }
