"""Mechanisms that send a few numbers of a vector: settled, encoded, summed and estimated by hand."""

import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from scipy.stats import beta

from tacit.privacy.mechanism import build_mechanism
from tacit.privacy.sampler import build_sampler

ALL = (("harmony", {}), ("qharmony", {}), ("qharmony", {"server": "paper"}), ("kashin", {}))
PAPER = {"form": "paper", "epsilon_of_signs": 4.5}


def exposure(rounds=1, devices=1000):
    return build_sampler({"sampler": "all"}).exposure(rounds, devices)


def settled(name, rounds=1, devices=1000, **privacy):
    if not any("epsilon" in word for word in privacy):
        privacy["epsilon"] = 4.5
    return build_mechanism({"mechanism": name, **privacy}).settle(exposure(rounds, devices))


def vector(*numbers):
    return {"x": jnp.array(numbers, jnp.float32)}


@partial(jax.jit, static_argnames="n")
def _encode(mechanism, seed, x, public_state, n):
    keys = jax.random.split(jax.random.key(seed), n)
    axes = (0, None if x.ndim == 1 else 0)
    return jax.vmap(lambda key, x: mechanism.encode(key, {"x": x}, public_state), axes)(keys, x)


def encoded(mechanism, x, n, seed=0, public_state=None):
    """n messages: of one vector, or of one each."""
    return _encode(mechanism, seed, np.asarray(x, np.float32), public_state or {}, n)


def total(mechanism, payloads, numbers, sent=None, weights=1):
    sent = jnp.ones(jax.tree.leaves(payloads)[0].shape[0], bool) if sent is None else jnp.asarray(sent)
    zero = mechanism.zero({"x": jnp.zeros(numbers)}, weights)
    return mechanism.add(zero, payloads, jnp.ones((sent.size, weights)), sent)


@partial(jax.jit, static_argnames=("numbers", "weights"))
def _estimate(mechanism, payloads, numbers, public_state, sent, weights):
    made = total(mechanism, payloads, numbers, sent, weights)
    sums, weight = mechanism.estimate(jax.random.key(0), made, 0, public_state)
    return sums["x"][0] / jnp.maximum(weight[0], 1e-12), weight


def estimated(mechanism, payloads, numbers, public_state=None, sent=None, weights=1):
    """The mean, and how many it is of."""
    mean, weight = _estimate(mechanism, payloads, numbers, public_state or {}, sent, weights)
    return np.asarray(mean), weight


def one_by_one(mechanism, payloads, numbers):
    """What each message alone is worth, [n, D]."""

    def alone(payload):
        return _estimate(mechanism, jax.tree.map(lambda leaf: leaf[None], payload), numbers, {}, None, 1)[0]

    return np.asarray(jax.jit(jax.vmap(alone))(payloads), np.float64)


def worst(one, other):
    """The largest |ln P(y|one)/P(y|other)|."""
    return max(
        math.inf if min(one.get(y, 0), other.get(y, 0)) == 0 else abs(math.log(one[y] / other[y]))
        for y in {**one, **other}
    )


def shown(events_a, events_b, alpha=0.05):
    """A lower bound on ε from how often an event was seen under two inputs (Clopper and Pearson)."""
    (a, n), (b, m) = ((int(np.sum(e)), len(e)) for e in (events_a, events_b))
    low = beta.ppf(alpha / 2, a, n - a + 1) if a else 0.0
    high = beta.ppf(1 - alpha / 2, b + 1, m - b) if b < m else 1.0
    return math.log(low / high) if low else -math.inf
