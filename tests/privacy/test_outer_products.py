"""Updates that are outer products x xᵀ: √2 bounds apart at most, also after rounding, because the factor is rounded."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from support.toys import Hand, small_world
from tacit.core.integer_grid import round_to_grid
from tacit.core.sparse_rows import dense_tree
from tacit.device.method import method_class, method_names
from tacit.errors import PlanError
from tacit.lab.plans.loader import choose, complete
from tacit.privacy.mechanism import build_mechanism
from tacit.privacy.mechanisms._parts.outer_products import steps_for
from tacit.privacy.sampler import All

FORM = {"mechanism": "gaussian", "update_form": "outer_products"}
K = 5
DECLARED = [name for name in method_names() if method_class(name).outer_products]


def settled(people: int = 100, **privacy):
    return build_mechanism({**FORM, **({"noise": 1.0} if "epsilon" not in privacy else {}), **privacy}).settle(
        All().exposure(1, people)
    )


def sent(mechanism, matrices):
    """What devices send of matrices [n, ...], int64."""
    keys = jax.random.split(jax.random.key(0), len(matrices))
    encode = jax.jit(jax.vmap(lambda key, matrix: mechanism.encode(key, {"m": matrix}, {})["m"]))
    return np.asarray(encode(keys, jnp.asarray(matrices, jnp.float32)), np.int64)


def outer(x):
    return x[..., :, None] * x[..., None, :]


RNG = np.random.default_rng(0)
VECTORS = RNG.normal(size=(300, K)) * 10.0 ** RNG.uniform(-3, 3, size=(300, 1))


@pytest.mark.parametrize(
    "matrices",
    [outer(VECTORS), -outer(VECTORS), RNG.normal(size=(300, K, K)), 1e6 * RNG.normal(size=(300, 3, K, K))],
    ids=["outer products", "negative ones", "any", "stacked"],
)
def test_whatever_is_computed_outer_products_of_integers_are_sent(matrices):
    mechanism = settled()
    payloads = sent(mechanism, matrices)
    flat = payloads.reshape(len(payloads), -1)
    assert all(mechanism.check_payload({"m": payload.astype(np.int32)}) == "" for payload in payloads)
    assert (flat @ flat.T).min() >= 0, "so any two are √2 bounds apart at most"
    assert (np.square(flat).sum(1) <= mechanism.grid(flat.shape[1]).bound).all()


def test_rounding_the_numbers_one_by_one_would_not_keep_it():
    grid, words = settled().grid(K * K), jax.random.bits(jax.random.key(0), (50,), jnp.uint32)
    x, y = np.eye(K)[0] + 0.01 * np.eye(K)[1], np.eye(K)[1] - 0.01 * np.eye(K)[0]
    each = jax.vmap(lambda word, matrix: round_to_grid(word, matrix, 1.0, grid), (0, None))
    one, other = (np.asarray(each(words, jnp.asarray(outer(v).ravel())), np.int64) for v in (x, y))
    assert x @ y == 0
    assert (one @ other.T).min() < 0


@pytest.mark.parametrize("place", ["central", "local"])
def test_the_noise_is_smaller_by_a_square_root_of_two(place):
    plain = build_mechanism({"mechanism": "gaussian", "epsilon": 1.0, "place": place}).settle(All().exposure(1, 100))
    assert math.isclose(settled(epsilon=1.0, place=place).noise * math.sqrt(2), plain.noise, rel_tol=1e-3)


def test_the_mean_of_many_roundings_is_the_matrix():
    mechanism, x = settled(), np.array([0.6, -0.3, 0.01, 0.0, 0.2])
    made = sent(mechanism, np.broadcast_to(outer(x), (4000, K, K))).mean(0)
    step = 1 / mechanism.grid(K * K).largest
    error, largest = made - outer(x) / step, math.sqrt(1 / step)
    off = error[~np.eye(K, dtype=bool)]
    assert np.abs(off).max() < 5 * largest / math.sqrt(4000), "unbiased beside the diagonal"
    assert np.abs(np.diagonal(error)).max() < 0.25 + 5 * largest / math.sqrt(4000)
    assert 0.97 < np.linalg.norm(sent(mechanism, outer(np.eye(K)[:1]))) * step <= 1.0, "little is lost at the bound"


@pytest.mark.parametrize(("noise", "people"), [(0.5, 100), (4.0, 6040), (20.0, 1_000_000)])
def test_rounding_costs_less_than_a_hundredth_of_the_noise(noise, people):
    """Of people whose x xᵀ are as long as the bound, in the number where rounding is worst."""
    steps = steps_for(noise, people)
    sigma = noise * steps
    variance = people * steps / 4  # of v_i v_j: (v_i² + v_j²)/4 at most, and v_i² + v_j² ≤ R
    assert math.sqrt(1 + variance / sigma**2) < 1.01
    assert people / 6 < 0.1 * sigma, "the diagonal is too large by a sixth of a step on average"


def test_a_server_refuses_what_is_no_outer_product():
    mechanism = settled()
    whole = np.outer([3, -2], [3, -2]).astype(np.int32)
    assert mechanism.check_payload({"m": whole}) == ""
    assert mechanism.check_payload({"m": np.zeros((2, 2), np.int32)}) == ""
    for wrong in (
        [[9, -6], [-6, 5]],
        [[9, -6], [6, 4]],
        [[4, 4], [2, 2]],
        [[0, 1], [1, 0]],
        [[-9, 6], [6, -4]],
        [[0, 0], [0, -1]],
    ):
        assert "outer product" in mechanism.check_payload({"m": np.array(wrong, np.int32)})


def test_an_update_that_cannot_be_one_is_refused():
    with pytest.raises(PlanError, match=r"'outer_products' needs square matrices .* got 'm' of shape \(3,\)"):
        settled().encode(jax.random.key(0), {"m": jnp.ones(3)}, {})


@pytest.mark.parametrize("name", ["fcf", "popularity"])
def test_a_method_that_does_not_declare_it_is_refused(name):
    with pytest.raises(PlanError, match="its updates are not outer products"):
        complete(choose(name, {"privacy": {**FORM, "epsilon": 1.0}}))


@pytest.mark.parametrize("name", DECLARED)
def test_a_method_that_declares_it_sends_what_is_lost_in_no_part(name):
    hand, mechanism = Hand(name, small_world(6)), settled(6)
    for device in range(6):
        own = hand.own(device)
        update = hand.method.local(hand.root, hand.params, hand.home(device, own).local["0"], own)[1]
        numbers = mechanism.to_numbers(mechanism.encode(jax.random.key(device), update, {}), {})
        for leaf, kept in zip(jax.tree.leaves(dense_tree(update)), jax.tree.leaves(numbers)):
            np.testing.assert_allclose(kept, leaf, atol=0.02)


def test_rounds_that_share_one_bound_do_not_take_it():
    with pytest.raises(PlanError, match=r"'outer_products' rounds for a bound .* got split = 'released'"):
        build_mechanism({**FORM, "noise": 1.0, "split": "released"})


def test_some_method_declares_it():
    assert "item_covariance" in DECLARED
    assert complete(choose("item-covariance", {"privacy": {**FORM, "epsilon": 4.0}}))
