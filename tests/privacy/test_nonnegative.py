"""Updates without negative numbers: two of them differ by √2 bounds at most, so the same ε needs less noise."""

import math
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from support.falsify import audits, trial
from support.toys import Hand, small_world
from tacit.core.settings import fill
from tacit.core.sparse_rows import dense_tree
from tacit.device.method import method_class, method_names
from tacit.errors import PlanError
from tacit.lab.plans.loader import choose, complete
from tacit.privacy.accounting.accountant import compose, gaussian_noise
from tacit.privacy.accounting.events import FixedGaussian, Gaussian
from tacit.privacy.mechanism import build_mechanism
from tacit.privacy.mechanisms.gaussian import GaussianMechanism
from tacit.privacy.price import price
from tacit.privacy.sampler import All

PLAIN = {"mechanism": "gaussian"}
FORM = {"mechanism": "gaussian", "update_form": "nonnegative"}
DECLARED = [name for name in method_names() if method_class(name).nonnegative]


def noise_of(privacy) -> float:
    """The noise that a plan of one round of counts is given, in clip bounds."""
    mechanism = price(choose("popularity", {"privacy": privacy, "rounds": 1}), 100).stages[0].mechanism
    assert isinstance(mechanism, GaussianMechanism)
    assert mechanism.noise is not None
    return mechanism.noise


# ---- the price ----


@pytest.mark.parametrize("place", ["central", "local"])
def test_the_noise_is_smaller_by_a_square_root_of_two(place):
    plain, less = (noise_of({**privacy, "epsilon": 1.0, "delta": 1e-6, "place": place}) for privacy in (PLAIN, FORM))
    assert math.isclose(less * math.sqrt(2), plain, rel_tol=1e-3)
    assert math.isclose(less, math.sqrt(2) * gaussian_noise(1.0, 1e-6), rel_tol=1e-3)


def test_two_such_updates_are_no_further_apart_than_is_priced():
    rng = np.random.default_rng(0)
    pairs = np.abs(rng.normal(size=(2, 500, 6)))
    pairs /= np.maximum(1, np.linalg.norm(pairs, axis=-1, keepdims=True))
    far = np.linalg.norm(pairs[0] - pairs[1], axis=-1).max()
    assert far <= math.sqrt(2)
    assert np.linalg.norm(np.eye(6)[0] - np.eye(6)[1]) == Gaussian(1.0, apart=math.sqrt(2)).apart


@pytest.mark.parametrize("rounds", [1, 7])
def test_the_distance_counts_under_replace_one_alone(rounds):
    near, far = Gaussian(2.0, apart=math.sqrt(2)), Gaussian(2.0)
    plain = compose([(Gaussian(2.0 * math.sqrt(2)), rounds)], 1e-6).epsilon
    assert compose([(near, rounds)], 1e-6).epsilon == pytest.approx(plain, rel=1e-9)
    assert compose([(near, rounds)], 1e-6, "add_remove") == compose([(far, rounds)], 1e-6, "add_remove")
    drawn = [(FixedGaussian(2.0, 5, 50, apart=math.sqrt(2)), rounds)]
    wider = [(FixedGaussian(2.0 * math.sqrt(2), 5, 50), rounds)]
    assert compose(drawn, 1e-6).epsilon == pytest.approx(compose(wider, 1e-6).epsilon, rel=1e-9)
    assert compose(drawn, 1e-6).lower == pytest.approx(compose(wider, 1e-6).lower, rel=1e-9)


def test_a_distance_beyond_that_of_any_two_is_refused():
    for apart in (0.0, 1.0, 2.1, math.nan):
        with pytest.raises(PlanError, match="apart"):
            compose([(Gaussian(2.0, apart=apart), 1)], 1e-6)


# ---- the mechanism ----


def test_negative_numbers_count_as_zero():
    mechanism = build_mechanism({**FORM, "noise": 0.0, "clip": 10.0}).settle(All().exposure(1, 3))
    payload = mechanism.encode(jax.random.key(0), {"x": jnp.array([3.0, -4.0, 0.0, -1e-30])}, {})
    np.testing.assert_allclose(mechanism.to_numbers(payload, {})["x"], [3, 0, 0, 0], atol=1e-4)
    assert (np.asarray(payload["x"]) >= 0).all()


def test_a_server_refuses_a_negative_number():
    mechanism = build_mechanism({**FORM, "noise": 1.0}).settle(All().exposure(1, 3))
    assert mechanism.check_payload({"x": np.array([1, 0], np.int32)}) == ""
    assert "negative" in mechanism.check_payload({"x": np.array([1, -1], np.int32)})
    local = replace(mechanism, place="local")
    assert local.check_payload({"x": np.array([1, -1], np.int32)}) == "", "noise may be negative"


class NotClamped(GaussianMechanism):
    """Declares updates without negative numbers, and lets them pass."""

    def encode(self, key, update, public_state):
        return GaussianMechanism.encode(replace(self, update_form=None), key, update, public_state)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "refuted"), [(GaussianMechanism, False), (NotClamped, True)])
def test_a_mechanism_that_lets_negative_numbers_pass_is_refuted(kind, refuted):
    settings = {"epsilon": 2.0, "place": "local", "update_form": "nonnegative"}
    tried = trial(lambda values: fill(kind, values, "privacy"), settings, All())
    assert any(audit.refuted for audit in audits(tried)) == refuted


def test_a_bound_that_moves_has_no_such_price():
    with pytest.raises(PlanError, match=r"privacy\.update_form = 'nonnegative'.*quantile"):
        build_mechanism({**FORM, "noise": 1.0, "quantile": 0.5})


# ---- the method ----


@pytest.mark.parametrize("name", ["fcf", "fpl"])
def test_a_method_whose_updates_have_signs_is_refused(name):
    with pytest.raises(PlanError, match=r"does not fit .*: its updates may be negative"):
        complete(choose(name, {"privacy": {**FORM, "epsilon": 1.0}}))


@pytest.mark.parametrize("name", DECLARED)
def test_a_method_that_declares_it_sends_no_negative_number(name):
    hand = Hand(name, small_world(6))
    for device in range(6):
        own = hand.own(device)
        update = hand.method.local(hand.root, hand.params, hand.home(device, own).local["0"], own)[1]
        assert all((np.asarray(leaf) >= 0).all() for leaf in jax.tree.leaves(dense_tree(update)))


def test_some_methods_declare_it():
    assert {"popularity", "item_covariance"} <= set(DECLARED)
