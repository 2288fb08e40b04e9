"""FedRec++: ordinary clients add made-up ratings to hide what they rated, denoising clients sum those, the server subtracts them."""

import math
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from tacit.device.round import KEYS
from tacit.errors import DataError
from tacit.lab.baselines.baseline import Baseline
from tacit.lab.data import Population
from tacit.lab.simulation.buckets import prepare_devices
from tacit.privacy.claim import Claim
from tacit.privacy.sampler import HELPERS


class MessageSum(NamedTuple):
    """A sum of messages: rows of the item table, and how many ratings are in each."""

    rows: jax.Array  # float32[n_items, d]
    counts: jax.Array  # float32[n_items]


def fedrec_plus_claims(method: Any) -> tuple[Claim]:
    """What holds for a message of FedRec++: no noise is added, and two parties together see everything."""
    del method
    return (Claim("local", "user", "replace_one", math.inf, 0.0, "run", "corrected", "server", HELPERS["denoiser"]),)


def sum_messages(sent: Any, which: jax.Array, n_items: int) -> MessageSum:
    """The sum over devices [b] of those of their rows [b, m] that `which` selects."""
    index = jnp.where(which, sent.items, n_items).ravel()
    rows = sent.rows.reshape(-1, sent.rows.shape[-1])
    table = jnp.zeros((n_items, rows.shape[1])).at[index].add(rows, mode="drop")
    return MessageSum(table, jnp.zeros(n_items).at[index].add(sent.counts.ravel(), mode="drop"))


def aggregated(sent: Any, denoiser: jax.Array, n_items: int) -> MessageSum:
    """What the server has in the end: the sum over ordinary and denoising clients [b], less the sum of made-up ratings.

    A denoising client makes nothing up; what the others make up is summed once by all denoising clients together, whether
    or not they are in the cohort.
    """
    pretended = sent.made_up & ~denoiser[:, None]
    received = sum_messages(sent, pretended | ~sent.made_up, n_items)
    gathered = sum_messages(sent, pretended, n_items)
    return jax.tree.map(jnp.subtract, received, gathered)


class HelpedFedRecPlus(Baseline):
    """The item table of FedRec++, found by ordinary and denoising clients and a server."""

    methods = ("fedrec_plus",)

    @staticmethod
    def fit(method: Any, population: Population) -> dict:
        """The item table after `turns` rounds."""
        _refuse_without_ratings(method, population)
        key, people = jax.random.key(0, impl=KEYS), len(population)
        own = prepare_devices(method, population, np.arange(people), int(population.lengths.max(initial=1)))
        params = method.init(jax.random.fold_in(key, 0))
        state = (params, optax.adam(method.pace).init(params), jnp.full((people, method.dim), method.dim**-0.5))
        denoiser = jax.random.permutation(jax.random.fold_in(key, 1), people) < max(1, round(method.denoisers * people))
        return _rounds(method, jax.random.fold_in(key, 2), state, own, denoiser)[0]


def _refuse_without_ratings(method: Any, population: Population) -> None:
    flat = population.labels is None or np.ptp(population.labels) == 0
    if flat and not method.zeros:
        raise DataError(
            "fedrec_plus with hyper.zeros = 0 fits ratings, and this log has none that differ; set hyper.zeros above 0."
        )


@partial(jax.jit, donate_argnums=2)
def _rounds(method: Any, key: jax.Array, state: tuple, own: Any, denoiser: jax.Array) -> tuple:
    """Rounds of randomly drawn cohorts, as one program."""
    count, adam = min(method.cohort, denoiser.size), optax.adam(method.pace)
    gradients = jax.vmap(method.gradients, (0, None, 0, 0))

    def one_round(state: tuple, key: jax.Array) -> tuple[tuple, None]:
        params, moments, people = state
        draw, work = jax.random.split(key)
        who = jax.random.choice(draw, people.shape[0], (count,), replace=False)
        mine = jax.tree.map(lambda leaf: leaf[who], own)
        keys = jax.random.split(work, (method.inner + 1, count))
        step = lambda p, key: (p - method.rate * gradients(key, params, p, mine).person, None)  # noqa: E731
        p = jax.lax.scan(step, people[who], keys[1:])[0]
        total = aggregated(gradients(keys[0], params, p, mine), denoiser[who], params["items"].shape[0])
        mean = total.rows / jnp.maximum(total.counts, 1.0)[:, None]
        moves, moments = adam.update({"items": mean}, moments)
        return (optax.apply_updates(params, moves), moments, people.at[who].set(p)), None

    return jax.lax.scan(one_round, state, jax.random.split(key, method.turns))[0]
