"""Every mechanism, found by its file: a commutative monoid that does not care about order, chunks or who was silent."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tacit.privacy.mechanism import build_mechanism, mechanism_class, mechanism_names
from tacit.privacy.sampler import build_sampler
from tacit.rows import Rows, dense_like
from toys import close, same

PARAMS = {"items": jnp.zeros((6, 3)), "steps": jnp.zeros(4, jnp.int32)}
every = pytest.mark.parametrize("name", mechanism_names())


def updates(n=8):
    rng = np.random.default_rng(0)
    index = np.stack([np.sort(rng.choice(6, 2, replace=False)) for _ in range(n)])
    index = jnp.asarray(np.concatenate([index, np.full((n, 1), 6)], 1), jnp.int32)
    value = jnp.asarray(rng.normal(size=(n, 3, 3)), jnp.float32) * (index < 6)[:, :, None]
    return {"items": Rows(index, value), "steps": jnp.asarray(rng.integers(0, 9, (n, 4)), jnp.int32)}


def folded(mechanism, payloads, weights, sent, cuts):
    total = mechanism.zero(PARAMS, weights.shape[1])
    for start, end in itertools.pairwise(cuts):
        part = jax.tree.map(lambda leaf: leaf[start:end], payloads)  # noqa: B023
        total = mechanism.add(total, part, weights[start:end], sent[start:end])
    return total


@every
@pytest.mark.parametrize("weights", [1, 2])
def test_monoid(name, weights):
    mechanism = build_mechanism({"mechanism": name})
    keys = jax.random.split(jax.random.key(0), 8)
    payloads = jax.vmap(lambda key, update: mechanism.encode(key, update, {}))(keys, updates())
    weight = jnp.asarray(np.random.default_rng(1).uniform(0.5, 2, (8, weights)), jnp.float32)
    sent = jnp.array([1, 1, 0, 1, 1, 0, 1, 1], bool)
    whole = folded(mechanism, payloads, weight, sent, [0, 8])
    close(whole, folded(mechanism, payloads, weight, sent, [0, 1, 3, 8]))
    turned = jax.tree.map(lambda leaf: leaf[::-1], (payloads, weight, sent))
    close(whole, folded(mechanism, *turned, [0, 8]))
    left, right = (folded(mechanism, payloads, weight, sent, cut) for cut in ([0, 3], [3, 8]))
    close(whole, mechanism.merge(left, right))
    close(whole, mechanism.merge(right, left))
    same(whole, mechanism.merge(whole, mechanism.zero(PARAMS, weights)))
    heard = jax.tree.map(lambda leaf: leaf[sent], (payloads, weight))
    close(whole, folded(mechanism, *heard, jnp.ones(6, bool), [0, 6]))


@every
def test_docstring_has_a_guarantee(name):
    assert "Guarantee:" in (mechanism_class(name).__doc__ or "")


@every
def test_a_claim_for_a_message_and_for_the_run(name):
    exposure = build_sampler({"sampler": "all"}).exposure(3, 10)
    assert {claim.per for claim in build_mechanism({"mechanism": name}).claim(exposure)} >= {"message", "run"}


def test_none_sums_what_was_sent():
    mechanism = build_mechanism({"mechanism": "none"})
    weight, sent = jnp.full((8, 1), 2.0), jnp.arange(8) != 3
    (sums, total_weight) = mechanism.estimate(jax.random.key(0), folded(mechanism, updates(), weight, sent, [0, 8]), 7)
    tables = jax.vmap(lambda update: dense_like(update, PARAMS))(updates())
    np.testing.assert_allclose(sums["items"][0], 2 * (tables["items"] * sent[:, None, None]).sum(0), rtol=1e-5)
    np.testing.assert_array_equal(sums["steps"][0], (tables["steps"] * sent[:, None]).sum(0))
    assert total_weight.tolist() == [14.0]


def test_none_says_that_positions_are_visible():
    exposure = build_sampler({"sampler": "all"}).exposure(1, 10)
    hidden, seen = (
        build_mechanism({"mechanism": "none", "wire": wire}).claim(exposure)[0] for wire in ("dense", "rows")
    )
    assert "positions are visible" not in str(hidden)
    assert "positions are visible" in str(seen)
    assert hidden.epsilon == float("inf")
