"""Rounds that share one bound: parts are chosen after releases, never sum to more than 1, and cost one Gaussian mechanism."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tacit.core.integer_grid import PARTS, round_to_grid
from tacit.core.plan import Plan, Stage
from tacit.device.gate import send
from tacit.errors import PlanError
from tacit.lab.plans.loader import choose, load_plan
from tacit.privacy.accounting.accountant import compose, gaussian_delta
from tacit.privacy.accounting.events import Gaussian, SplitGaussian, event_from_dict, event_to_dict
from tacit.privacy.budget import Budget, BudgetTally
from tacit.privacy.mechanism import build_mechanism
from tacit.privacy.mechanisms.gaussian import GaussianMechanism
from tacit.privacy.price import ledger_entry_of, price
from tacit.privacy.sampler import All

NUMBERS = 3
SPLIT = {"mechanism": "gaussian", "split": "released"}


def settled(rounds=4, devices=5, **privacy) -> GaussianMechanism:
    mechanism = build_mechanism({**SPLIT, "noise": 1.5, **privacy}).settle(All().exposure(rounds, devices))
    assert isinstance(mechanism, GaussianMechanism)
    return mechanism


def parts_of(asked, mechanism) -> list[int]:
    """What a rule gets that asks for these shares, round by round."""
    state = {name: jnp.float32(number) for name, number in mechanism.public_state.items()}
    state, got = mechanism.grant({"share": jnp.float32(asked[0])}, state), []
    for share in [*asked[1:], 0.0]:
        got.append(int(state["part"]))
        state = mechanism.grant(
            {"share": jnp.float32(share)}, mechanism.next_public_state(jax.random.key(0), None, state)
        )
    return got


# ---- parts ----


@pytest.mark.parametrize(
    ("asked", "given"),
    [
        ([0.25, 0.5, 0.25], [256, 512, 255]),
        ([1.0, 1.0, 1.0], [1021, 1, 1]),
        ([0.9, 0.9, 0.9], [922, 100, 1]),
        ([-1.0, math.nan, math.inf], [1, 1, 1021]),
        ([1 / 3, 1 / 3, 1 / 3, 1 / 3], [341, 341, 341, 1]),
    ],
)
def test_a_rule_gets_what_is_left_and_never_more(asked, given):
    assert parts_of(asked, settled()) == given
    assert sum(given) <= PARTS


def test_a_rule_that_asks_for_nothing_gets_equal_parts():
    mechanism, found = settled(rounds=3), []
    state = mechanism.grant({}, mechanism.public_state)
    for _ in range(3):
        found.append(int(state["part"]))
        state = mechanism.grant({}, mechanism.next_public_state(jax.random.key(0), None, state))
    assert found == [341, 341, 341]


@pytest.mark.parametrize("part", [1, 17, 341, 1023, 1024])
def test_a_device_keeps_to_its_part_exactly(part):
    mechanism, rng = settled(), np.random.default_rng(part)
    grid = mechanism.grid(NUMBERS)
    rounded = jax.jit(jax.vmap(lambda word, x, part: round_to_grid(word, x, 1.0, grid, part), (0, 0, None)))
    x = rng.normal(size=(4000, NUMBERS)) * 10.0 ** rng.integers(-6, 7, (4000, 1))
    words = rng.integers(0, 2**32, 4000, dtype=np.uint32)
    found = np.asarray(rounded(words, x.astype(np.float32), jnp.int32(part)), np.int64)
    longest = np.square(found).sum(1).max()
    assert longest <= grid.bound * part // PARTS
    assert (
        longest > (0.9 if part > 100 else 0.2) * grid.bound * part / PARTS
    )  # of few steps, roundings take their share


def test_a_server_that_sends_no_part_gets_no_message():
    mechanism = settled()
    update, weight = {"x": jnp.ones(NUMBERS)}, jnp.ones(1)
    for part, speaks in ((0.0, False), (12.0, True)):
        state = {"part": jnp.float32(part), "granted": jnp.float32(12.0)}
        report, *_ = send(jax.random.key(0), mechanism, update, weight, state, jnp.int32(0))
        assert bool(report.sent) == speaks
        assert bool(np.asarray(report.payload["x"]).any()) == speaks


@pytest.mark.parametrize("part", [64, 512])
def test_a_part_has_as_much_more_noise_and_no_bias(part):
    mechanism, x = settled(clip=2.0), jnp.array([1.0, -0.5, 0.25])
    state = {"part": jnp.float32(part), "granted": jnp.float32(part)}

    def once(key):
        one, two = jax.random.split(key)
        payload = jax.tree.map(lambda leaf: leaf[None], mechanism.encode(one, {"x": x}, state))
        total = mechanism.add(mechanism.zero({"x": x}, 1), payload, jnp.ones((1, 1)), jnp.ones(1, bool))
        return mechanism.estimate(two, total, jnp.int32(1), state)[0]["x"][0]

    made = np.asarray(jax.jit(jax.vmap(once))(jax.random.split(jax.random.key(1), 20_000)))
    noise = 1.5 * 2.0 * math.sqrt(PARTS / part)
    assert made.std(0) == pytest.approx([noise] * 3, rel=0.03)
    assert made.mean(0) == pytest.approx(np.asarray(x), abs=5 * noise / math.sqrt(20_000))


# ---- the price ----


@pytest.mark.parametrize("relation", ["replace_one", "add_remove"])
def test_all_rounds_together_are_one_gaussian_event(relation):
    apart = math.sqrt(2)
    for rounds in (1, 4, 9):
        together = compose([(SplitGaussian(2.0, rounds, apart=apart), rounds)], 1e-6, relation)
        assert together.epsilon == pytest.approx(compose([(Gaussian(2.0, apart=apart), 1)], 1e-6, relation).epsilon)
    event = SplitGaussian(2.0, 3, apart=apart)
    assert event_from_dict(event_to_dict(event)) == event


def test_a_stage_keeps_its_promise_and_a_ledger_counts_it_once():
    stage = Stage("popularity", {}, ("counts",), {**SPLIT, "epsilon": 2.0}, {"rule": "count"}, rounds=4)
    cost = price(Plan("p", (stage,)), 1000)
    assert cost.whole.epsilon == pytest.approx(2.0, rel=1e-3)
    entry = ledger_entry_of(cost.stages[0], "p", "r", 0, 0.0, 8)
    for messages in (1, 4):
        assert BudgetTally(Budget(9.0, 1e-5), [entry] * messages).epsilon == pytest.approx(cost.whole.epsilon, rel=0.05)


def test_the_built_in_plan_costs_what_it_promises():
    for epsilon in (0.5, 8.0):
        cost = price(choose("steps", epsilon=epsilon), 6040)
        assert cost.whole.epsilon == pytest.approx(epsilon, rel=1e-3)
        assert [stage.covers for stage in cost.stages] == [1, 4]


def test_parts_chosen_on_the_way_reveal_no_more_than_one_gaussian():
    """The privacy loss of two neighbours, where the next part depends on what was released: the worst such server."""
    z, runs, rng = 0.7, 400_000, np.random.default_rng(0)
    mechanism = settled(rounds=3)

    def delta_of(most: int, epsilon: float) -> float:
        """δ at ε that a server reaches which goes on where the loss looks good; `most` is what parts may sum to."""
        loss, given = np.zeros(runs), np.zeros(runs)
        for asked in (0.4, 0.6, 1.0):
            wanted = np.where(loss >= (-1.0 if asked < 1 else 0.5), asked, 0.0) * PARTS
            part = np.minimum(np.round(wanted), np.maximum(most - given, 0))
            given += part
            mu = np.sqrt(part / PARTS) / z
            loss += mu * (rng.normal(size=runs) + mu) - mu**2 / 2  # of what is released with the one, against the other
        return float(np.maximum(0, 1 - np.exp(epsilon - loss)).mean())

    assert parts_of([0.4, 0.6, 1.0], mechanism) == [410, 613, 1]
    for epsilon in (0.5, 1.5, 3.0):
        exact = gaussian_delta(z, epsilon)
        assert delta_of(PARTS, epsilon) <= exact + 5 * math.sqrt(exact / runs)
        assert delta_of(2 * PARTS, epsilon) > 1.05 * exact  # a filter that let more through would be seen


# ---- what does not fit ----


@pytest.mark.parametrize(
    ("other", "word"),
    [
        ({"place": "local"}, "place = 'local'"),
        ({"quantile": 0.5}, "quantile = 0.5"),
        ({"correlation": "blt"}, "correlation = 'blt'"),
        ({"after_step": 0.5}, "after_step = 0.5"),
    ],
)
def test_bounds_that_move_otherwise_are_refused(other, word):
    with pytest.raises(PlanError, match=r"privacy\.split = 'released' is for noise at the server.*got " + word):
        build_mechanism({**SPLIT, "noise": 1.5, **other})


@pytest.mark.parametrize("cohort", [{"sampler": "poisson", "rate": 0.5}, {"sampler": "pass", "count": 2}])
def test_rounds_of_some_devices_are_refused(cohort):
    plan = load_plan("steps").with_setting("2.cohort", cohort)
    with pytest.raises(PlanError, match="requires rounds of all devices"):
        price(plan, 1000)
