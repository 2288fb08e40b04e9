"""Counts under one's own habits: the equation against NumPy."""

from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tacit.core.catalog import Catalog
from tacit.core.sparse_rows import dense
from tacit.device.history import plain_history
from tacit.device.methods.counts_home import CountsHome
from tacit.lab.data.describe import describe_log
from tacit.lab.data.synthetic import apps
from tacit.lab.data.synthetic.small import taste_groups
from tacit.privacy.mechanism import build_mechanism
from tacit.privacy.sampler import All

N = 7


def scores_of(items, everyone, last, keep=0.95, prior=3.0, within=10.0):
    """(n_ij + 10·p_j) / (n_i + 10), p = (f + 3·p̂) / (Σf + 3), f = own counts with decay .95."""
    f, n = np.zeros(N), np.zeros(N)
    for age, item in enumerate(reversed(items)):
        f[item] += keep**age
    for here, there in pairwise(items):
        n[there] += here == last
    shares = np.maximum(everyone, 0) / np.maximum(everyone, 0).sum()
    p = (f + prior * shares) / (f.sum() + prior)
    return (n + within * p) / (n.sum() + within)


def test_a_device_scores_by_its_own_counts_and_steps_and_by_everybody_s_counts():
    rng, method = np.random.default_rng(0), CountsHome(Catalog(N))
    everyone = rng.normal(2, 2, N).astype(np.float32)

    @jax.jit
    def scored(items, recent):
        own = method.prepare(plain_history(items))
        return method.score({"counts": jnp.asarray(everyone)}, {}, own, recent, jnp.arange(N))

    for length in (0, 1, 2, 9, 15):
        items = rng.integers(0, N, length).tolist()
        last = items[-1] if items else -1
        padded = np.pad(np.asarray(items, np.int32), (0, 16 - length), constant_values=-1)
        found = scored(padded, jnp.asarray([-1, last], jnp.int32))
        np.testing.assert_allclose(found, scores_of(items, everyone, last), rtol=1e-5)


@pytest.mark.slow
def test_a_message_has_each_item_once_and_a_bound_of_one_makes_it_one_long():
    method = CountsHome(Catalog(N))
    mechanism = build_mechanism({"mechanism": "gaussian", "clip": 1.0, "noise": 0.0}).settle(All().exposure(1, 9))
    for items in ([3], [3, 3, 3], [0, 1, 2, 3, 4, 5, 6, 0]):
        own = method.prepare(plain_history(jnp.asarray([*items, -1])))
        update = method.local(jax.random.key(0), {}, {}, own)[1]
        assert dense(update["counts"]).tolist() == [float(item in items) for item in range(N)]
        sent = mechanism.to_numbers(mechanism.encode(jax.random.key(1), update, {}), {})["counts"]
        np.testing.assert_allclose(sent, np.isin(np.arange(N), items) / len(set(items)) ** 0.5, atol=1e-4)


def test_the_description_of_a_log_names_the_plan_that_fits():
    assert describe_log(taste_groups(20)).plan == "steps"
    assert describe_log(apps(30, seed=1)).plan == "counts-home"
