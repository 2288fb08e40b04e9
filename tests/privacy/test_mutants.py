"""Planted mutants: mechanisms, samplers and devices that are wrong while they claim what the real ones claim. Each is
caught."""

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_every_mechanism import check_gate

import tacit.device.gate
import tacit.device.round
from support.falsify import Trial, audits, trial
from support.toys import seeded_step
from tacit.core.integer_grid import from_vector, to_vector
from tacit.core.settings import fill
from tacit.core.sparse_rows import Rows, dense_tree, zero_unless
from tacit.device.method import AtHome
from tacit.device.round import KEYS, enter, new_home
from tacit.lab.simulation.engine import Job, close_round
from tacit.privacy.accounting.events import Pure
from tacit.privacy.mechanism import Mechanism
from tacit.privacy.mechanisms._parts.clipped_sum import WITHIN
from tacit.privacy.mechanisms._parts.noise_grid import draw_noise, unit_grid
from tacit.privacy.mechanisms._parts.sampled_signs import coin_bias_of, pack_signs
from tacit.privacy.mechanisms._parts.summed import for_each_weight
from tacit.privacy.mechanisms.gaussian import GaussianMechanism
from tacit.privacy.mechanisms.harmony import Harmony
from tacit.privacy.mechanisms.kashin import Kashin
from tacit.privacy.mechanisms.laplace import Laplace
from tacit.privacy.mechanisms.qharmony import QHarmony
from tacit.privacy.mechanisms.randomized_response import RandomizedResponse
from tacit.privacy.sampler import All, Fixed, Poisson, Sampler
from tacit.server.round import Memory, open_round, zero_total
from tacit.server.rules.mean_step import MeanStep

EVERYBODY, COINS, ONE_OF_TWO = All(), Poisson(rate=0.5), Fixed(count=1)


# ---- mechanisms ----


class HalfTheScale(Laplace):
    def ratio(self, numbers):
        return super().ratio(numbers) / 2


class OneSideOfTheBound(Laplace):
    """B/ε: as if two updates in [−B, B] differed by B."""

    def ratio(self, numbers):
        return 1 / Fraction(self.share)


class NoClipInL1(Laplace):
    def encode(self, key, update, public_state):
        x = dense_tree(update)
        vector = to_vector(x)
        grid = self.grid(vector.size)
        q = jnp.clip(vector / grid.step, -(2.0**30), 2.0**30).astype(jnp.int32)
        return from_vector(q + draw_noise(key, grid, q.shape), x)


class NoDimension(Laplace):
    """Every number clipped, and noise as if there were one."""

    def ratio(self, numbers):
        return super().ratio(1)


class ScaledByItself(Laplace):
    """Clipped to its own size, and the noise with it."""

    def encode(self, key, update, public_state):
        x = dense_tree(update)
        size = sum(jnp.abs(leaf).sum() for leaf in jax.tree.leaves(x))
        noise = super().encode(key, jax.tree.map(jnp.zeros_like, x), public_state)
        steps = self.grid(4).bound
        return jax.tree.map(lambda leaf, n: ((steps * leaf + size * n) / 1e6).astype(jnp.int32), x, noise)


class NotSplit(Laplace):
    """ε of the run for each message."""

    def ratio(self, numbers):
        return 2 / Fraction(self.epsilon)


class CountedOnce(Laplace):
    """ε of a message for the run, however many there are."""

    def claims(self, exposure, event, relation, words):
        return super().claims(exposure.at_most(1), event, relation, words)


class QuietZero(Laplace):
    """Nothing to say, nothing to hide."""

    def encode(self, key, update, public_state):
        said = super().encode(key, update, public_state)
        empty = sum(jnp.abs(leaf).sum() for leaf in jax.tree.leaves(dense_tree(update))) == 0
        return jax.tree.map(lambda leaf: jnp.where(empty, 0, leaf), said)


class NoiseWhereItWent(Laplace):
    """Noise on the rows that were touched, and those alone are sent."""

    def encode(self, key, update, public_state):
        table = update["table"]
        values = super().encode(key, {**update, "table": table.value}, public_state)
        return {**values, "table": Rows(table.index, values["table"], table.rows)}

    def add(self, total, payloads, weights, sent):
        return super().add(total, jax.vmap(dense_tree)(payloads), weights, sent)


class OneKeyForAllLeaves(Laplace):
    def encode(self, key, update, public_state):
        q = Laplace.encode(replace(self, place="central", cohort=1.0), key, update, public_state)
        return jax.tree.map(lambda leaf: leaf + draw_noise(key, self.grid(4), leaf.shape), q)


class WithItsWeight(Laplace):
    shows_weight = True


class HalfTheDeviation(GaussianMechanism):
    @property
    def sum_multiplier(self):
        return super().sum_multiplier / 2


class NoClipInL2(GaussianMechanism):
    def encode(self, key, update, public_state):
        return GaussianMechanism.encode(replace(self, clip=1e9, noise=self.deviation / 1e9), key, update, public_state)


class ForgotTheSum(GaussianMechanism):
    """The server forgets the noise."""

    def estimate(self, key, total, n, public_state):
        numbers = for_each_weight(self.to_numbers(total[0], public_state), total[1])
        return numbers, jnp.full(total[1].shape, self.cohort)


class ForgotTheMessage(GaussianMechanism):
    """The device forgets the noise."""

    def encode(self, key, update, public_state):
        return GaussianMechanism.encode(replace(self, place="central", cohort=1.0), key, update, public_state)


class DividedByWhoCame(GaussianMechanism):
    def estimate(self, key, total, n, public_state):
        return super().estimate(key, total, n, public_state)[0], total[1].astype(jnp.float32)


class CountForFree(GaussianMechanism):
    """Sum and count, and only the sum is paid for."""

    @property
    def sum_multiplier(self):
        return self.multiplier


class NoiseOfTheFirstRound(GaussianMechanism):
    """The bound has moved, and the noise has not."""

    def estimate(self, key, total, n, public_state):
        moved, start = (GaussianMechanism.estimate(self, key, total, n, state) for state in (public_state, {}))
        plain = [self.to_numbers(total[0], state) for state in (public_state, {})]
        return {name: plain[0][name] + start[0][name] - plain[1][name] for name in start[0]}, moved[1]


class ForgotTheCount(GaussianMechanism):
    """Noise on the sum alone."""

    def _count_grid(self):
        return unit_grid(0.0, 16, 1)


class TwiceTheEpsilon(RandomizedResponse):
    def _randomise(self, key, leaf):
        return replace(RandomizedResponse(epsilon_per_message=2 * self.share), form=self.form)._randomise(key, leaf)


class OneCoin(RandomizedResponse):
    """Every position told the truth, or none."""

    def _randomise(self, key, leaf):
        p, q = (jnp.uint32(threshold - 1) for threshold in self.thresholds)
        coin = jax.random.bits(key, (1,), jnp.uint32)
        return jnp.packbits(coin <= jnp.where(leaf.reshape(-1) > 0, p, q))


class OneSideForTwo(RandomizedResponse):
    """The asymmetric form, claimed both ways."""

    def claim(self, exposure):
        return self.claims(exposure, Pure(self.epsilons()[2]), "add_remove", ())


class WholeForEachSign(Harmony):
    """ε for each of k signs."""

    @property
    def coin_bias(self):
        return coin_bias_of(self.share)


class PositionsThatWereTouched(Harmony):
    """The first number that is not zero, and its sign."""

    def encode(self, key, update, public_state):
        x = jnp.concatenate([leaf.reshape(-1) for leaf in jax.tree.leaves(dense_tree(update))])
        at = jnp.argmax(x != 0)[None]
        plus = jax.random.uniform(key, (1,)) < (1 + jnp.sign(x[at]) * self.coin_bias / 2.0**31) / 2
        return pack_signs(at, plus, x.size)


class NoClipOfOdds(Harmony):
    """Odds from numbers that were not bounded: a sign becomes certain."""

    def encode(self, key, update, public_state):
        return Harmony.encode(replace(self, epsilon_per_message=50.0), key, update, public_state)


class ScaleForFree(QHarmony):
    """The scale in the clear, and only the signs claimed."""

    def claim(self, exposure):
        return tuple(claim for claim in super().claim(exposure) if math.isfinite(claim.epsilon))


class TooCandid(Kashin):
    @property
    def truth_odds(self):
        return replace(Kashin(epsilon_per_message=3 * self.share), k=self.k).truth_odds


class CoinsForAFixedCohort(Fixed):
    """Draws a fixed number, and says that each had its own coin."""

    def exposure(self, rounds, devices):
        return Poisson(rate=self.count / devices).exposure(rounds, devices)


class Rarely(Poisson):
    """Says that it asks a quarter as often as it does."""

    def exposure(self, rounds, devices):
        return Poisson(rate=self.rate / 4).exposure(rounds, devices)


class Mutant(NamedTuple):
    kind: type[Mechanism]
    settings: dict[str, Any]
    sampler: Sampler = EVERYBODY
    per: tuple[str, ...] = ("message", "round")


MUTANTS = [
    Mutant(HalfTheScale, {"epsilon": 2.0}),
    Mutant(OneSideOfTheBound, {"epsilon": 2.0}),
    Mutant(NoClipInL1, {"epsilon": 2.0}),
    Mutant(NoDimension, {"epsilon": 2.0, "clip": "elements"}),
    Mutant(ScaledByItself, {"epsilon": 2.0}),
    Mutant(NotSplit, {"epsilon": 2.0}),
    Mutant(CountedOnce, {"epsilon_per_message": 1.0}, per=("run",)),
    Mutant(QuietZero, {"epsilon": 2.0}),
    Mutant(NoiseWhereItWent, {"epsilon": 2.0}),
    Mutant(OneKeyForAllLeaves, {"epsilon": 2.0}),
    Mutant(WithItsWeight, {"epsilon": 2.0}),
    Mutant(HalfTheDeviation, {"noise": 1.0}, COINS),
    Mutant(HalfTheDeviation, {"noise": 2.0}, ONE_OF_TWO),
    Mutant(HalfTheDeviation, {"epsilon": 2.0, "place": "local"}),
    Mutant(NoClipInL2, {"epsilon": 2.0}),
    Mutant(NoClipInL2, {"epsilon": 2.0, "place": "local"}),
    Mutant(ForgotTheSum, {"epsilon": 2.0}),
    Mutant(ForgotTheMessage, {"epsilon": 2.0, "place": "local"}),
    Mutant(DividedByWhoCame, {"noise": 1.0}, COINS),
    *(
        Mutant(kind, {"noise": 1.5, "quantile": 0.5, "quantile_noise": s}, sampler)
        for kind, s in ((CountForFree, 0.25), (NoiseOfTheFirstRound, 1.0), (ForgotTheCount, 1.0))
        for sampler in (COINS, ONE_OF_TWO)
    ),
    Mutant(GaussianMechanism, {"noise": 1.0}, CoinsForAFixedCohort(count=1)),
    Mutant(GaussianMechanism, {"noise": 1.0}, Rarely(rate=0.5)),
    Mutant(TwiceTheEpsilon, {"epsilon": 1.0}),
    Mutant(OneCoin, {"epsilon": 1.0}),
    Mutant(OneSideForTwo, {"epsilon": 1.0, "form": "asymmetric"}),
    Mutant(WholeForEachSign, {"epsilon": 2.0, "k": 2}),
    Mutant(PositionsThatWereTouched, {"epsilon": 2.0, "k": 1}),
    Mutant(NoClipOfOdds, {"epsilon": 2.0, "k": 1}),
    Mutant(ScaleForFree, {"form": "paper", "epsilon_of_signs": 2.0, "k": 2}),
    Mutant(TooCandid, {"epsilon": 4.0, "k": 2}),
]


@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: f"{m.kind.__name__}-{type(m.sampler).__name__}")
def test_a_claim_of_a_mutant_is_refuted(mutant):
    tried: Trial = trial(lambda settings: fill(mutant.kind, settings, "privacy"), mutant.settings, mutant.sampler)
    found = audits(tried, mutant.per)
    assert any(audit.refuted for audit in found), found


# ---- the device: every message has noise of its own ----


class Still(AtHome):
    """Sends zeros, and remembers the key it was given."""

    catalog: Any = None

    def prepare(self, history):
        return history

    def enter(self, key, own):
        return jax.random.key_data(key)

    def local(self, key, params, local, own):
        return jax.random.key_data(key), {"x": jnp.zeros(3)}, jnp.ones(1)

    def score(self, params, local, own, recent, candidates):
        return jnp.zeros(candidates.shape)


def check_devices_noise():
    """Two rounds, two stages, two devices: messages of nothing, no number of which comes twice or is the method's."""
    mechanism, method, seen = Laplace(epsilon_per_message=1.0, messages=9), Still(), []
    for secret in (7, 8):
        home = new_home(jax.random.key_data(jax.random.key(secret, impl=KEYS)))
        for stage in (0, 1):
            home = enter(method, stage, home, None)
            for round in (0, 1):
                home, report = seeded_step(method, mechanism, stage, open_round(round, {"x": jnp.zeros(3)}), home, None)
                seen.append(np.asarray(report.payload["x"]))
                mine = jax.random.wrap_key_data(home.local[str(stage)], impl=KEYS)
                seen.append(np.asarray(mechanism.encode(mine, {"x": jnp.zeros(3)}, {})["x"]))
    assert np.unique(np.concatenate(seen)).size == 3 * len(seen)


def check_servers_noise():
    """Two rounds and two stages: releases of nothing, no number of which comes twice."""
    mechanism, rule = GaussianMechanism(noise=1.0, cohort=1.0), MeanStep()
    seen = []
    for stage in (0, 1):
        job = Job(Still(), mechanism, rule, stage, ("x",), 1)
        for round in (0, 1):
            total = zero_total(mechanism, {"x": jnp.zeros(3)}, ("x",), 1)
            after, _, _ = close_round(
                job, jax.random.key(0), jnp.asarray(round), {"x": jnp.zeros(3)}, Memory((), {}), [total]
            )
            seen.append(np.asarray(after["x"]))
    assert np.unique(np.concatenate(seen)).size == 3 * len(seen)


def test_noise_is_fresh():
    check_devices_noise()
    check_servers_noise()


def _forgets(what):
    """The device's key, made without one of the things it should depend on."""
    real = tacit.device.round._key

    def key(home, stage, purpose, round=0):
        home = home._replace(secret=jnp.zeros_like(home.secret)) if what == "secret" else home
        return real(home, 0 if what == "stage" else stage, purpose, 0 if what == "round" else round)

    return key


@pytest.mark.slow
@pytest.mark.parametrize("what", ["round", "stage", "secret"])
def test_a_key_used_twice_is_noticed(what, monkeypatch):
    monkeypatch.setattr(tacit.device.round, "_key", _forgets(what))
    with pytest.raises(AssertionError):
        check_devices_noise()


def test_a_key_shared_with_the_method_is_noticed(monkeypatch):
    monkeypatch.setattr("tacit.device.round._NOISE", tacit.device.round._METHOD)
    with pytest.raises(AssertionError):
        check_devices_noise()


def test_the_same_noise_in_two_releases_is_noticed(monkeypatch):
    monkeypatch.setattr(jax.random, "fold_in", lambda key, number: key)
    with pytest.raises(AssertionError):
        check_servers_noise()


# ---- the gate ----


def test_what_is_not_finite_is_counted_at_home():
    class Broken(Still):
        def local(self, key, params, local, own):
            return local, {"x": jnp.array([0.0, math.nan, 1.0])}, jnp.ones(1)

    home = enter(Broken(), 0, new_home(jax.random.key_data(jax.random.key(0, impl=KEYS))), None)
    for round in (0, 1):
        broadcast = open_round(round, {"x": jnp.zeros(3)})
        home, report = seeded_step(Broken(), Laplace(epsilon_per_message=1.0, messages=2), 0, broadcast, home, None)
        assert np.isfinite(report.payload["x"]).all()
    assert (int(home.zeroed), int(home.spent["0"])) == (2, 2)


GATES = {
    "_fewer": lambda messages, allowance: jnp.asarray(1000),  # never falls silent
    "all_finite": lambda tree: jnp.asarray(True),  # lets anything through
    "zero_unless": lambda keep, tree: tree,  # a silent report carries a payload
}


def _spares_the_bit(keep, tree):
    """Who is silent, or whose update was replaced, still says whether it was within the clip."""
    zeroed = zero_unless(keep, tree)
    if isinstance(tree, tuple) and WITHIN in tree[0]:
        return {**zeroed[0], WITHIN: tree[0][WITHIN]}, zeroed[1]
    return zeroed


def test_a_bit_that_goes_past_the_gate_is_noticed(monkeypatch):
    mechanism = GaussianMechanism(noise=1.0 + 2.0**-20, quantile=0.5, cohort=1.0)  # a program of its own
    check_gate(mechanism)
    monkeypatch.setattr(tacit.device.gate, "zero_unless", _spares_the_bit)
    with pytest.raises(AssertionError):
        check_gate(replace(mechanism, clip=1.25))


@pytest.mark.parametrize("number", [0.0, -1.0, math.nan, math.inf])
def test_a_public_number_that_is_not_positive_and_finite_gets_no_answer(number):
    mechanism, spent = GaussianMechanism(noise=1.0, quantile=0.5, cohort=1.0), jnp.zeros((), jnp.int32)
    for clip, answers in ((2.0, True), (number, False)):
        told = {"clip": jnp.float32(clip)}
        report, after, _ = tacit.device.gate.send(
            jax.random.key(0), mechanism, {"x": jnp.ones(3)}, jnp.ones(1), told, spent
        )
        assert (bool(report.sent), int(after)) == (answers, answers)
        assert any(np.asarray(leaf).any() for leaf in jax.tree.leaves((report.payload, report.weight))) == answers


@pytest.mark.slow
@pytest.mark.parametrize("part", GATES)
def test_a_gate_that_does_not_close_is_noticed(part, monkeypatch):
    mechanism = Laplace(epsilon_per_message=1.0 + len(part), messages=2)  # a program of its own
    monkeypatch.setattr(tacit.device.gate, part, GATES[part])
    with pytest.raises(AssertionError):
        check_gate(mechanism)
