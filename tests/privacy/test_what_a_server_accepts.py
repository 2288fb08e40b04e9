"""What a server accepts: no payload and no total that no device can have made, each refused in a sentence."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from support.toys import first_settings
from tacit.core.integer_grid import from_numpy
from tacit.core.messages import Report
from tacit.core.sparse_rows import dense_tree
from tacit.privacy.mechanism import add_reports, build_mechanism, empty_total, mechanism_class, mechanism_names
from tacit.privacy.sampler import build_sampler

WORLD = build_sampler({"sampler": "all"}).exposure(1, 14)
LIKE = {"bias": jnp.zeros(2), "table": jnp.zeros((2, 1))}
CASES = [(name, number) for name in mechanism_names() for number in range(len(mechanism_class(name).suggested))]


def settled(**privacy):
    return build_mechanism(privacy).settle(WORLD)


def total_of(mechanism, reports=14):
    """The total of as many honest reports, as NumPy arrays."""
    updates = {"bias": jnp.full((reports, 2), 0.3), "table": jnp.full((reports, 2, 1), -0.1)}
    keys = jax.random.split(jax.random.key(0), reports)
    state = {name: jnp.float32(value) for name, value in mechanism.public_state.items()}
    payloads = jax.jit(jax.vmap(lambda key, update: mechanism.encode(key, update, state)))(keys, updates)
    sent = Report(payloads, jnp.ones((reports, 1)), jnp.ones(reports, bool))
    payload = jax.tree.map(lambda leaf: np.asarray(leaf[0]), dense_tree(payloads))
    return payload, jax.tree.map(np.asarray, add_reports(mechanism, empty_total(mechanism, LIKE, 1), sent)[0])


@pytest.mark.parametrize(("name", "number"), first_settings(CASES))
def test_what_honest_devices_send_is_accepted(name, number):
    mechanism = settled(mechanism=name, **mechanism_class(name).suggested[number])
    payload, total = total_of(mechanism)
    assert mechanism.check_payload(payload) == ""
    assert mechanism.check_total(total, 14) == ""


def gaussian(**more):
    return settled(mechanism="gaussian", noise=40.0, **more)


def test_a_report_beyond_the_bound_is_refused_to_the_last_step():
    """Colluders that send more than the bound, or a float's largest, move nothing."""
    mechanism = gaussian()
    grid = mechanism.grid(4)
    most = math.isqrt(grid.bound)
    for number, accepted in (
        (most, True),
        (most + 1, False),
        (-most - 1, False),
        (2**31 - 1, False),
        (-(2**31), False),
    ):
        payload = {"bias": np.array([number, 0], np.int32), "table": np.zeros((2, 1), np.int32)}
        assert (mechanism.check_payload(payload) == "") == accepted
    spread = {"bias": np.full(2, most // 2 + 1, np.int32), "table": np.full((2, 1), most // 2 + 1, np.int32)}
    assert "its squares must sum to at most" in mechanism.check_payload(spread)


def test_a_report_beyond_the_l1_bound_is_refused():
    mechanism = settled(mechanism="laplace", epsilon=1.0, place="central")
    bound = mechanism.grid(4).bound
    for number, accepted in ((bound - 1, True), (bound, False), (-bound, False)):
        payload = {"bias": np.array([number, -1], np.int32), "table": np.zeros((2, 1), np.int32)}
        assert (mechanism.check_payload(payload) == "") == accepted
    within = {"bias": np.array([bound - 1, -2], np.int32), "table": np.zeros((2, 1), np.int32)}
    assert f"must sum to at most {bound}" in mechanism.check_payload(within)


def test_a_message_with_noise_is_refused_beyond_the_reach_of_the_noise():
    for mechanism in (gaussian(place="local"), settled(mechanism="laplace", epsilon=1.0)):
        grid = mechanism.grid(4)
        most = grid.largest + grid.reach
        for number, accepted in ((most, True), (most + 1, False), (-(2**31), False)):
            payload = {"bias": np.array([0, number], np.int32), "table": np.zeros((2, 1), np.int32)}
            assert (mechanism.check_payload(payload) == "") == accepted


def test_a_count_of_who_was_within_is_one_of_two():
    mechanism = settled(mechanism="gaussian", noise=40.0, quantile=0.5)
    payload, total = total_of(mechanism)
    assert abs(payload["within the clip"]) == 8
    for lie in (0, 9, -800):
        assert "must be 8 or -8" in mechanism.check_payload({**payload, "within the clip": np.int32(lie)})
    sums, reports = total
    lying = {**sums, "within the clip": from_numpy(np.int64(14 * 8 + 1))}
    assert "must count at most 112" in mechanism.check_total((lying, reports), 14)


@pytest.mark.parametrize("lie", [2 * 10**9, -(2**40), 2**62])
def test_a_total_larger_than_its_reports_is_refused(lie):
    for mechanism in (gaussian(), gaussian(place="local"), settled(mechanism="laplace", epsilon=1.0, place="central")):
        _, (sums, reports) = total_of(mechanism)
        lying = {**sums, "bias": from_numpy(np.array([lie, 0], np.int64))}
        assert "must be at most" in mechanism.check_total((lying, reports), 14)


def test_a_total_of_updates_within_the_bound_is_no_longer_than_they_are_together():
    mechanism = gaussian()
    reports = total_of(mechanism)[1][1]
    most = 14 * math.isqrt(mechanism.grid(4).bound)
    lying = {"bias": from_numpy(np.full(2, most)), "table": from_numpy(np.zeros((2, 1)))}
    assert "must be at most" in mechanism.check_total((lying, reports), 14)
    assert "long" in mechanism.check_total((lying, reports), 14)


@pytest.mark.parametrize("count", [-1, 15])
def test_a_total_counts_no_more_reports_than_people(count):
    mechanism = gaussian()
    _, (sums, _) = total_of(mechanism)
    assert f"must count 0 to 14 reports, got {count}" in mechanism.check_total((sums, np.array([count], np.int32)), 14)


def test_one_honest_report_is_not_absorbed_by_fourteen_that_are_as_large_as_can_be():
    """Sums of floats of size 2³⁰ lose what is small; sums of integers lose nothing."""
    mechanism = gaussian()
    most = mechanism.grid(4).largest
    lies = jnp.full((14, 2), most, jnp.int32).at[7:].set(-most)
    payloads = {"bias": jnp.concatenate([lies, jnp.ones((1, 2), jnp.int32)]), "table": jnp.zeros((15, 2, 1), jnp.int32)}
    report = Report(payloads, jnp.ones((15, 1)), jnp.ones(15, bool))
    (sums, _), _ = add_reports(mechanism, empty_total(mechanism, LIKE, 1), report)
    assert (np.asarray(sums["bias"].high).tolist(), np.asarray(sums["bias"].low).tolist()) == ([0, 0], [1, 1])
