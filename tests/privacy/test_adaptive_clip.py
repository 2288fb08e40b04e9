"""A bound that follows a quantile: what it costs, where it goes, and that it is the same wherever a round is played."""

import json
import math
import struct
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.deployment import Deployment, post, short_world
from support.toys import close as equal
from support.toys import same
from tacit.core.integer_grid import widen, zeros_int64
from tacit.core.messages import Report
from tacit.core.run_folder import Folder
from tacit.errors import PlanError, RunError
from tacit.lab.analysis.report_data import report_data
from tacit.lab.audits.claim_audit import audit
from tacit.lab.data.synthetic.small import taste_groups
from tacit.lab.plans.loader import choose
from tacit.lab.runs.run import Run, simulate
from tacit.lab.simulation import stage_runner
from tacit.lab.simulation.engine import RoundTally
from tacit.lab.simulation.federation import Performance
from tacit.privacy.card import card, to_markdown
from tacit.privacy.mechanism import build_mechanism
from tacit.privacy.mechanisms._parts.clipped_sum import WITHIN, count_noise, next_bound, sum_noise
from tacit.privacy.price import price
from tacit.privacy.sampler import build_sampler
from tacit.server.round import add_reports, begin, close, zero_total
from tacit.server.rules.mean_step import MeanStep

pytestmark = pytest.mark.filterwarnings("ignore::tacit.lab.analysis.feasibility.FeasibilityWarning")
WORLD = taste_groups(users=90, items=60, events=10)
LENGTHS = np.sqrt([np.unique(WORLD.items[a:b]).size for a, b in zip(WORLD.offsets, WORLD.offsets[1:])])
COHORTS = {"all": {}, "fixed": {"count": 30}, "poisson": {"rate": 0.3}, "pass": {"count": 30}}


def settled(cohort="all", rounds=20, devices=100, **privacy):
    exposure = build_sampler({"sampler": cohort, **COHORTS[cohort]}).exposure(rounds, devices)
    return build_mechanism({"mechanism": "gaussian", **privacy}).settle(exposure), exposure


def counting(rounds=40, **settings):
    """Everybody says round after round what they have: √items long, each time."""
    privacy = {"mechanism": "gaussian", "noise": 1.0, "quantile": 0.5, **settings}
    return choose("popularity", {"rounds": rounds, "privacy": privacy})


def clips(run):
    return [row["public_state"]["clip"] for row in run.rounds]


# ---- what it costs ----


@given(noise=st.floats(0.05, 50), more=st.floats(1.001, 1e4))
def test_what_a_device_adds_is_never_longer_than_priced_and_may_be_as_long(noise, more):
    """In units of the noise: 1/z where a device comes or goes, 2/z where it is replaced, for any bound."""
    s = more * noise / 2
    z_sum = sum_noise(noise, s)
    assert z_sum > noise
    for clip in (0.01, 1.0, 7.0):
        there = np.array([[clip / (z_sum * clip), 0.5 / s], [-clip / (z_sum * clip), -0.5 / s], [0.0, 0.5 / s]])
        come = np.linalg.norm(there, axis=1)
        replaced = np.linalg.norm(there[:, None] - there[None], axis=2)
        assert come.max() == pytest.approx(1 / noise, rel=1e-6)
        assert replaced.max() == pytest.approx(2 / noise, rel=1e-6)
        assert np.abs(there[:, 1] - there[:, 1][:, None]).max() * s == pytest.approx(1.0)  # the count by itself


def test_the_split_by_the_book():
    """The paper's own: z = 1 and a cohort of 100, so s = 5, take 1.0050 on the sum."""
    assert sum_noise(1.0, 100 / 20) == pytest.approx(0.99**-0.5)
    one, _ = settled("poisson", rounds=1, devices=10_000, noise=1.0, quantile=0.5)
    assert (one.cohort, one.count_deviation) == (3000.0, 150.0)
    assert one.sum_multiplier == pytest.approx((1 - 300.0**-2) ** -0.5)


@given(noise=st.floats(0.01, 1e4), cohort=st.floats(1, 1e6))
def test_by_default_the_count_never_costs_more_than_a_hundredth(noise, cohort):
    s = count_noise(noise, cohort)
    assert (noise / (2 * s)) ** 2 <= 0.01 * (1 + 1e-9)
    assert sum_noise(noise, s) <= 1.0051 * noise
    assert s >= cohort / 20


@pytest.mark.parametrize("cohort", COHORTS)
def test_the_price_is_that_of_the_same_noise_without_a_count(cohort):
    for promise in ({"noise": 3.0}, {"epsilon": 2.0}):
        (still, exposure), (moving, _) = settled(cohort, **promise), settled(cohort, **promise, quantile=0.5)
        assert moving.claim(exposure) == still.claim(exposure)
        assert moving.event(exposure) == still.event(exposure)
        assert moving.noise == still.noise
        assert moving.deviation > still.deviation  # what the count costs is taken from the sum
        assert 1 / moving.sum_multiplier**2 + 1 / (2 * moving.count_deviation) ** 2 == pytest.approx(1 / still.noise**2)


def test_a_share_of_a_promise_is_split_too():
    whole, _ = settled(epsilon=4.0)
    part, _ = settled(epsilon=4.0, share=0.25, quantile=0.5)
    assert part.noise == pytest.approx(2 * whole.noise)
    assert part.sum_multiplier == pytest.approx(part.noise * 0.99**-0.5)


def test_without_a_promise_there_is_no_noise_at_all():
    one, exposure = settled(noise=0.0, quantile=0.5)
    assert (one.deviation, one.count_deviation) == (0.0, 0.0)
    assert math.isinf(one.claim(exposure)[-1].epsilon)
    assert one.describe()["spent_on_count"] == 0.0


def test_price_and_card_say_what_the_count_takes():
    cost = price(choose("fcf", {"privacy": {"mechanism": "gaussian", "epsilon": 8.0, "quantile": 0.5}}), 1000)
    noise = cost.stages[0].to_dict()["noise"]
    assert noise["spent_on_count"] == pytest.approx((noise["noise"] / (2 * noise["deviation_of_count"])) ** 2)
    assert 0 < noise["spent_on_count"] <= 0.01 + 1e-9
    assert noise["noise_of_sum"] > noise["noise"]
    assert "| spent on count |" in to_markdown(card(cost))
    assert "the server sees whether each update was within the clip bound" in cost.stages[0].visible


def test_plans_without_a_quantile_have_the_digest_they_had():
    assert not [name for name in choose("fpl-dp").stages[0].privacy if name.startswith("quantile")]


REFUSED = [
    ({"noise": 1.0, "quantile": 0.0}, r"privacy.quantile must be above 0 and at most 0.99, got 0.0"),
    ({"noise": 1.0, "quantile": 1.0}, r"privacy.quantile must be above 0 and at most 0.99, got 1.0"),
    ({"noise": 1.0, "quantile": 0.5, "place": "local"}, "privacy.quantile = 0.5 is for noise at the server, got place"),
    ({"noise": 1.0, "quantile": 0.5, "after_step": 2.0}, "moves the bound, and after_step = 2 is for one that stays"),
    (
        {"noise": 1.0, "quantile_rate": 0.1},
        "privacy.quantile_rate = 0.1 is a part of privacy.quantile, and there is none",
    ),
    (
        {"noise": 1.0, "quantile_noise": 3.0},
        "privacy.quantile_noise = 3 is a part of privacy.quantile, and there is none",
    ),
    ({"noise": 1.0, "quantile": 0.5, "quantile_noise": 0.0}, "privacy.quantile_noise must be at least 1e-06, got 0.0"),
    ({"noise": 1.0, "quantile": 0.5, "quantile_rate": 0.0}, "privacy.quantile_rate must be above 0, got 0.0"),
    (
        {"noise": 4.0, "quantile": 0.5, "quantile_noise": 2.0},
        "quantile_noise = 2 is too little: .* give more than 2, or",
    ),
    ({"epsilon": 1.0, "quantile": 0.5, "quantile_noise": 1.0}, "a count with it would cost all that noise = .* allows"),
]


@pytest.mark.parametrize(("privacy", "sentence"), REFUSED, ids=str)
def test_refused(privacy, sentence):
    with pytest.raises(PlanError, match=sentence) as caught:
        settled(**privacy)
    assert "\n" not in str(caught.value)


# ---- what is sent and released ----


def test_a_report_says_whether_it_was_within_the_round_s_clip():
    one, _ = settled(noise=1.0, quantile=0.5, clip=100.0)
    for clip, x, sent, within in ((5.001, [3.0, 4.0], [3.0, 4.0], 8), (2.5, [3.0, 4.0], [1.5, 2.0], -8)):
        public_state = {"clip": jnp.float32(clip)}
        said = one.encode(jax.random.key(0), {"x": jnp.array(x)}, public_state)
        np.testing.assert_allclose(one.to_numbers(said, public_state)["x"], sent, rtol=0.1)
        assert said[WITHIN] == within
    still, _ = settled(noise=1.0, clip=100.0)  # where the bound stays, nobody can move it
    said = still.encode(jax.random.key(0), {"x": jnp.array([300.0])}, {"clip": jnp.float32(1.0)})
    assert set(said) == {"x"}
    np.testing.assert_allclose(still.to_numbers(said, {})["x"], [100.0], rtol=0.1)


def release(mechanism, clip, keys=4000):
    """What many servers make of nobody: sums and the next clip."""
    after, then = _released(mechanism, jax.random.split(jax.random.key(0), keys), jnp.float32(clip))
    return np.asarray(after["x"]), np.asarray(then.public_state["clip"])


@jax.jit
def _released(mechanism, keys, clip):
    rule, params = MeanStep(), {"x": jnp.zeros(3)}
    memory = begin(mechanism, rule, ("x",), params)._replace(public_state={"clip": clip})
    total = zero_total(mechanism, params, ("x",), 1)
    return jax.vmap(lambda key: close(key, mechanism, rule, ("x",), params, total, memory)[:2])(keys)


def test_noise_is_scaled_with_the_round_s_clip_and_the_count_has_its_own():
    one, _ = settled(noise=2.0, quantile=0.5, quantile_noise=4.0, quantile_rate=1.0, clip=3.0)
    for clip in (0.5, 3.0, 40.0):
        sums, then = release(one, clip)
        assert sums.std() * 100 == pytest.approx(one.sum_multiplier * clip, rel=0.03)  # the mean is over 100
        counted = -np.log(then / clip) * 100  # Σ b + noise, of nobody
        assert counted.std() == pytest.approx(4.0, rel=0.06)
        assert abs(counted.mean()) < 5 * 4.0 / math.sqrt(4000)
        together = np.corrcoef(np.column_stack([sums, counted]), rowvar=False)
        assert np.abs(together - np.eye(4)).max() < 0.08  # and it is nobody else's noise


def test_the_clip_stays_where_it_can_be_read():
    """Updates of nothing are always within: the clip shrinks, and stops before it is nothing."""
    one, _ = settled(noise=0.0, quantile=0.5, quantile_rate=1.0, clip=2.0)
    total = ({"x": zeros_int64((2,)), WITHIN: widen(jnp.int32(100 * 8))}, jnp.full(1, 100))
    turn, public_state = (
        jax.jit(lambda public_state: one.next_public_state(jax.random.key(0), total, public_state)),
        {"clip": jnp.float32(2.0)},
    )
    for _ in range(60):
        public_state = turn(public_state)
    assert public_state["clip"] == pytest.approx(2e-6)


@pytest.mark.parametrize("noise", [0.05, 5.0])
def test_noise_pulls_the_clip_to_neither_side(noise):
    """Also next to a quantile of 1; and one round moves it by e^rate at most."""
    shares = 0.99 + noise * np.random.default_rng(0).normal(size=100_000).astype(np.float32)
    steps = np.log(next_bound(jnp.float32(1.0), jnp.asarray(shares), 0.99, 0.2, 1.0))
    assert abs(steps.mean()) < 5 * steps.std() / math.sqrt(steps.size)
    assert np.abs(steps).max() <= 0.2 * (1 + 1e-5)


@pytest.mark.parametrize("quantile", [0.2, 0.5, 0.9])
def test_the_clip_converges_to_the_quantile_of_known_lengths(quantile):
    """500 devices whose updates have lengths that are known, from a start far too large and far too small."""
    lengths = np.sort(np.random.default_rng(0).lognormal(1.0, 0.7, 500)).astype(np.float32)
    for start in (40.0, 0.1):
        one, _ = settled(devices=500, noise=2.0, quantile=quantile, clip=start)
        path = _path(one, jnp.asarray(lengths))
        below = (lengths[None] <= path[-50:, None]).mean()
        assert below == pytest.approx(quantile, abs=0.03)
        assert np.abs(np.log(path[-50:] / np.quantile(lengths, quantile))).mean() < 0.15


def _path(mechanism, lengths, rounds=200):
    """The clip of every round."""
    rule, params = MeanStep(), {"x": jnp.zeros(2)}
    keys = jax.random.split(jax.random.key(1), rounds)

    @jax.jit
    def turn(key, memory):
        say = lambda length: mechanism.encode(key, {"x": length * jnp.array([0.6, -0.8])}, memory.public_state)  # noqa: E731
        reports = Report(jax.vmap(say)(lengths), jnp.ones((lengths.size, 1)), jnp.ones(lengths.size, bool))
        total = add_reports(mechanism, zero_total(mechanism, params, ("x",), 1), reports)
        return close(key, mechanism, rule, ("x",), params, total, memory)[1]

    memory, path = begin(mechanism, rule, ("x",), params), []
    for key in keys:
        path.append(float(memory.public_state["clip"]))
        memory = turn(key, memory)
    return np.array(path)


# ---- the same wherever a round is played ----


@pytest.mark.slow
def test_a_run_tells_the_clip_of_every_round():
    run = simulate(counting(clip=50.0), WORLD, quiet=True)
    assert clips(run)[0] == 50.0
    assert np.mean(clips(run)[-10:]) == pytest.approx(np.median(LENGTHS), rel=0.1)
    assert run.public_state(0) == {"clip": clips(run)[-1]}
    assert run.card["public_state"] == [{"stage": 1, "number": "clip", "first": 50.0, "last": clips(run)[-1]}]
    assert f"| clip of stage 1 | 50 → {clips(run)[-1]:.4g} |" in to_markdown(run.card)
    told = report_data(run)
    assert [row["public_state"]["clip"] for row in told["rounds"]] == clips(run)
    assert {view["leaf"]: view["of"] for view in told["specimen"]["views"]} == {"counts": 60, WITHIN: 1}
    assert json.loads(json.dumps(told))["card"]["public_state"] == told["card"]["public_state"]


@pytest.mark.slow
def test_a_block_a_round_and_a_device_at_a_time_end_alike(monkeypatch):
    plan, few = counting(rounds=3), short_world(9)
    block, slow = (simulate(plan, few, quiet=True, performance=Performance(executor)) for executor in ("fast", "debug"))
    monkeypatch.setattr(stage_runner, "rounds_per_program", lambda *_: 1)
    single = simulate(plan, few, quiet=True)
    for other in (single, slow):
        np.testing.assert_allclose(clips(other), clips(block), rtol=1e-6)
        equal(other.params, block.params)
    assert len(set(clips(block))) == 3


@pytest.mark.bitwise
def test_a_run_that_was_cut_off_goes_on_with_its_clip(tmp_path):
    plan = counting(rounds=6)
    whole = simulate(plan, WORLD, quiet=True)

    def killed(run):
        if len(run.rounds) >= 3:
            raise RunError("killed")
        return {}

    with pytest.raises(RunError, match="killed"):
        simulate(
            plan, WORLD, quiet=True, out=tmp_path, evaluate=killed, every=2, performance=Performance(save_seconds=0.0)
        )
    assert 0 < Folder(tmp_path).latest() < 6
    resumed = simulate(plan, WORLD, quiet=True, out=tmp_path, resume=True)
    assert clips(resumed) == clips(whole)
    same(resumed.params, whole.params)
    assert Run.load(tmp_path, WORLD).public_state(0) == whole.public_state(0)


def test_a_saved_run_has_its_public_state(tmp_path):
    run = simulate(counting(rounds=3), WORLD, quiet=True)
    assert Run.load(run.save(tmp_path / "kept")).public_state(0) == run.public_state(0)


def test_a_stage_starts_its_own_clip():
    first, second = counting(rounds=3).stages[0], counting(rounds=2, clip=7.0).stages[0]
    run = simulate(replace(counting(), stages=(first, second)), WORLD, quiet=True)
    assert (clips(run)[0], clips(run)[3]) == (1.0, 7.0)
    assert [one["stage"] for one in run.card["public_state"]] == [1, 2]


def test_a_tally_of_a_block_is_told_round_by_round():
    block = RoundTally(np.array([3, 4, 0]), np.array([0, 0, 0]), {"clip": np.array([1.0, 0.5, 0.0], np.float32)})
    assert block.each(2) == [RoundTally(3, 0, {"clip": 1.0}), RoundTally(4, 0, {"clip": 0.5})]


@pytest.mark.slow
def test_its_claim_is_audited_with_canaries():
    plan = counting(rounds=2, noise=3.0, quantile_noise=2.0)
    assert audit(plan, users=10, canaries=60).passed


# ---- in a deployment ----


@pytest.fixture
def deployment(tmp_path) -> Deployment:
    """Three nodes of 1, 4 and 4 people who count in three rounds, with a bound that moves."""
    return Deployment(tmp_path, counting(rounds=3), short_world(9), (1, 4, 4)).enrol()


def test_a_deployment_moves_the_clip_as_the_simulator_does(deployment):
    deployment.play(1)
    deployment.restart()  # the server is killed, and reads its clip again
    deployment.play()
    run = simulate(deployment.bundle.plan, deployment.world, seed=0, quiet=True)
    np.testing.assert_allclose(
        [row["public_state"]["clip"] for row in deployment.session.folder.rows()], clips(run), rtol=1e-6
    )
    equal(jax.tree.map(np.asarray, deployment.session.params), jax.tree.map(np.asarray, run.params))
    assert len(set(clips(run))) == 3


def test_asked_again_with_another_clip_a_node_sends_the_same_bytes(deployment):
    deployment.play(1)
    deployment.session.open()
    for name, node in deployment.nodes.items():
        request = deployment.session.request(name)
        assert request.public_state
        first = post(node, request)
        assert first.report
        assert post(node, request) == first
        assert (
            post(
                node, replace(request, public_state=deployment.bundle.pack_public_state(0, {"clip": np.float32(99.0)}))
            )
            == first
        )


def test_the_clip_in_the_request_is_the_clip_on_the_device(deployment):
    """One person's report, opened: as long as the request's clip, and not as the plan's."""
    deployment.session.open()
    name = next(iter(deployment.nodes))
    request = replace(
        deployment.session.request(name),
        public_state=deployment.bundle.pack_public_state(0, {"clip": np.float32(0.125)}),
    )
    report = post(deployment.nodes[name], request).report
    (weight, *integers) = struct.unpack(f"<f{(len(report) - 22) // 4}i", report[18:])  # the weight first, the bit last
    mechanism = deployment.bundle.price.stages[0].mechanism
    assert np.linalg.norm(integers[:-1]) * mechanism.grid(len(integers) - 1).step == pytest.approx(1.0, rel=0.1)
    assert (weight, integers[-1]) == (1.0, -8)


@pytest.mark.parametrize("number", [0.0, -2.0, math.nan, math.inf, None])
def test_a_request_with_a_clip_that_is_none_is_refused_in_a_sentence(number, deployment):
    deployment.session.open()
    name = next(iter(deployment.nodes))
    public_state = b"" if number is None else deployment.bundle.pack_public_state(0, {"clip": np.float32(number)})
    refused = post(deployment.nodes[name], replace(deployment.session.request(name), public_state=public_state)).refused
    finite = number is not None and math.isfinite(number)
    sentence = (
        f"A number must be a positive finite number, got clip = {number:g}"
        if finite
        else "cannot read the public_state"
    )
    assert sentence in refused
    assert deployment.nodes[name].store.run(deployment.session.run).done == 0


def test_a_plan_without_public_state_takes_none(tmp_path, deployment):
    other = Deployment(tmp_path / "other", choose("popularity"), short_world(4), (1, 3)).enrol()
    other.session.open()
    name = next(iter(other.nodes))
    request = other.session.request(name)
    assert request.public_state == b""
    strange = deployment.bundle.pack_public_state(0, {"clip": np.float32(1.0)})
    assert "cannot read the public_state" in post(other.nodes[name], replace(request, public_state=strange)).refused
