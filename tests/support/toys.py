"""Small worlds whose right answers are known, and the pieces to run one device by hand."""

import os
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tacit.core.messages import schema_of
from tacit.core.plan import Stage
from tacit.core.sparse_rows import dense_tree
from tacit.device.method import build
from tacit.device.round import KEYS, adapt, enter, new_home, seeded_noise_key, step
from tacit.lab.data import Population, from_events
from tacit.lab.plans.loader import suggested
from tacit.lab.simulation.engine import Job
from tacit.privacy.mechanism import build_mechanism
from tacit.server.round import open_round
from tacit.server.rule import build_rule

ITEMS = 12


def small_world(devices: int = 9, seed: int = 3, items: int = ITEMS) -> Population:
    """Histories of 1 to 3 × items events, with repeats."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 3 * items, devices)
    user = np.repeat(np.arange(devices), lengths)
    return from_events(user, rng.integers(items, size=user.size), n_items=items)


def stage_of(name: str, **privacy) -> Stage:
    """A method's suggested stage, without noise but for privacy settings of our own."""
    stage = suggested(name).stages[0]
    privacy = {"mechanism": "none", **privacy}
    return Stage(stage.method, stage.hyper, stage.trains, privacy, stage.server, stage.cohort, stage.rounds)


class Hand:
    """One method on one population, device by device."""

    def __init__(self, name: str, population: Population, seed: int = 0, **privacy):
        self.stage = stage_of(name, **privacy)
        self.trains = self.stage.trains if self.stage.rounds else ()
        self.population = population
        self.own = cache(self._own)
        self.method = build(self.stage, population.catalog)
        self.root = jax.random.key(seed, impl=KEYS)
        self.params = jax.jit(lambda key: self.method.init(key))(self.root)
        # Compiled whole, as in the simulator and on a device: operation by operation, each would be a program of its own.
        self._prepare = jax.jit(lambda history: self.method.prepare(history))
        self._enter = jax.jit(lambda secret, own: enter(self.method, 0, new_home(secret), own))
        self.local = jax.jit(lambda *given: self.method.local(*given))
        self.adapt = jax.jit(lambda home, own: adapt(self.method, 0, self.params, home, own))
        self.score = jax.jit(lambda *given: self.method.score(self.params, *given))
        rule, mechanism = build_rule(self.stage.server), build_mechanism(self.stage.privacy)
        self.job = Job(self.method, mechanism, rule, 0, self.trains, 1, self._sent())
        self.broadcast = open_round(0, self.params)

    def _sent(self):
        """What an update looks like, dense."""
        own = self.own(0)
        local = self.home(0, own).local["0"]
        update = jax.eval_shape(lambda: dense_tree(self.method.local(self.root, self.params, local, own)[1]))
        return schema_of(update, 1)

    def _own(self, device: int, length: int = 64):
        history = self.population.histories(np.array([device]), length)
        return self._prepare(jax.tree.map(lambda leaf: jnp.asarray(leaf[0]), history))

    def home(self, device: int, own):
        secret = jax.random.key_data(jax.random.fold_in(self.root, device))
        return self._enter(secret, own)


_STEPS: dict[tuple[int, int, int], tuple] = {}  # what a step was compiled for, kept so that its address stays its own


def seeded_step(method, mechanism, stage: int, broadcast, home, own):
    """One device's round as the simulator plays it, compiled once for a method, a mechanism and a stage."""
    key = (id(method), id(mechanism), stage)
    if key not in _STEPS:
        run = lambda broadcast, home, own: step(  # noqa: E731
            method, mechanism, stage, broadcast, home, own, seeded_noise_key(home, stage, broadcast.round)
        )
        _STEPS[key] = (method, mechanism, jax.jit(run))
    return _STEPS[key][-1](broadcast, home, own)


def first_settings(cases: list[tuple[str, int]]) -> list:
    """Cases of a name and the number of its suggested setting: all but the first of each name in the second step."""
    return [case if case[1] == 0 else pytest.param(*case, marks=pytest.mark.slow) for case in cases]


def compiled_quickly() -> bool:
    """Whether programs are compiled quickly rather than as users get them."""
    return "optimization_level=0" in os.environ.get("XLA_FLAGS", "")


def close(one, other, tolerance: float = 1e-5) -> None:
    """Two trees are equal to rounding."""
    assert jax.tree.structure(one) == jax.tree.structure(other)
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other)):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=tolerance, atol=tolerance)


def same(one, other) -> None:
    """Two trees are equal, bit for bit."""
    assert jax.tree.structure(one) == jax.tree.structure(other)
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other)):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))
