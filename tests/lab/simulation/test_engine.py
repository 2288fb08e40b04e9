"""The engine: batching, order, buckets, scanning, interruption and stages do not change results."""

import contextlib
import gc
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from support.toys import ITEMS, close, same, small_world
from tacit.core.plan import Plan, Stage
from tacit.core.run_folder import Folder
from tacit.core.sparse_rows import Rows, dense
from tacit.device.gate import send
from tacit.errors import DataError, DeviceError, PlanError, RunError
from tacit.lab.baselines.baseline import fitted_methods
from tacit.lab.data import Population, from_events
from tacit.lab.data.synthetic.small import taste_groups
from tacit.lab.plans.loader import choose, load_plan
from tacit.lab.runs.run import simulate
from tacit.lab.simulation.buckets import group_by_length, homes_by_id, split_large
from tacit.lab.simulation.federation import Performance
from tacit.privacy.mechanism import build_mechanism
from tacit.server.round import trained
from tacit.server.rule import build_rule

pytestmark = pytest.mark.bitwise

SGD = {"rule": "sgd", "rate": 0.3}


def fcf(rounds=4, sampler=None, weights="own", server=SGD, **privacy) -> Plan:
    hyper = {"dim": 4, "weights": weights, "penalty": 0.5}
    stage = Stage(
        "fcf", hyper, ("items",), {"mechanism": "none", **privacy}, server, sampler or {"sampler": "all"}, rounds
    )
    return Plan("test", (stage,))


def run(plan, world=None, **options):
    return simulate(plan, world or small_world(30), quiet=True, **options)


def every_bucket(monkeypatch):
    """So few devices would be merged into one bucket; these tests need several."""
    monkeypatch.setattr("tacit.lab.simulation.federation.bucket_cost", lambda *_: 0.0)


def homes_by_device(result):
    return homes_by_id(result.buckets)


@pytest.mark.slow
@pytest.mark.parametrize("weights", ["own", "all"])
@pytest.mark.parametrize(
    "options", [{"chunk": 1}, {"chunk": 7}, {"grid": (64,)}, {"grid": (2, 5, 11, 30, 40)}], ids=str
)
def test_same_seed_same_result_on_any_chunk_size_and_bucket_choice(weights, options, monkeypatch):
    plan = fcf(weights=weights, sampler={"sampler": "fixed", "count": 20})
    one = run(plan)
    every_bucket(monkeypatch)
    other = run(plan, performance=Performance(**options))
    assert len(one.buckets) == 1
    assert len(other.buckets) > (1 if options.get("grid") != (64,) else 0)
    close(one.params, other.params)
    close(homes_by_device(one), homes_by_device(other))


def test_counts_are_equal_bit_for_bit(monkeypatch):
    plan = load_plan("sr")
    one = run(plan)
    every_bucket(monkeypatch)
    same(one.params, run(plan, performance=Performance(chunk=3, grid=(4, 40))).params)


def test_same_seed_is_bit_for_bit_another_seed_is_not():
    plan = fcf(sampler={"sampler": "poisson", "rate": 0.5})
    one, two, other = run(plan, seed=5), run(plan, seed=5), run(plan, seed=6)
    same(one.params, two.params)
    assert not np.allclose(one.params["items"], other.params["items"])


def test_the_order_of_the_log_is_irrelevant():
    world = small_world(30)
    turned = world.lengths[::-1]
    items = np.concatenate([world.items[world.offsets[u] : world.offsets[u + 1]] for u in range(29, -1, -1)])
    mirror = Population(world.catalog, np.concatenate([[0], np.cumsum(turned)]), items)
    close(run(fcf(), world).params, run(fcf(), mirror).params)


@pytest.mark.slow
@pytest.mark.parametrize(
    "sampler", [{"sampler": "one"}, {"sampler": "fixed", "count": 5}, {"sampler": "poisson", "rate": 0.1}]
)
def test_scanned_rounds_equal_rounds_one_by_one(sampler, monkeypatch):
    plan = fcf(rounds=300, sampler=sampler)
    every_bucket(monkeypatch)
    scanned = run(plan)
    monkeypatch.setattr("tacit.lab.simulation.stage_runner.TINY", 0)
    single = run(plan)
    close(scanned.params, single.params)
    assert [row["reports"] for row in scanned.rounds] == [row["reports"] for row in single.rounds]
    assert len(scanned.rounds) == 300


@pytest.mark.slow
def test_the_debug_executor_agrees():
    plan = fcf(rounds=2, sampler={"sampler": "fixed", "count": 6})
    fast, debug = run(plan), run(plan, performance=Performance("debug"))
    close(fast.params, debug.params)
    close(homes_by_device(fast), homes_by_device(debug))


@pytest.mark.slow
def test_the_debug_executor_correlates_the_same_noise():
    privacy = {"mechanism": "gaussian", "noise": 1.0, "correlation": "blt"}
    cohort = {"sampler": "pass", "count": 10, "shuffle": "once"}
    plan = choose("popularity", {"rounds": 9, "privacy": privacy, "cohort": cohort})
    fast, debug = run(plan), run(plan, performance=Performance("debug"))
    assert fast.price.stages[0].mechanism.describe()["buffers"] > 0
    close(fast.params, debug.params)


def test_the_debug_executor_names_the_device(monkeypatch):
    from tacit.device.methods.fcf import FCF

    def broken(self, Q, p, own):
        return Q * jnp.where(own.index[0] == 0, jnp.nan, 1.0)

    world = from_events(np.array([0, 0, 1, 1, 2]), np.array([3, 4, 0, 5, 2]), n_items=6)
    world = Population(world.catalog, world.offsets, world.items, users=["ada", "bob", "eve"])
    monkeypatch.setattr(FCF, "_gradient", broken)
    with pytest.raises(DeviceError, match=r"device 'bob', round 0, stage 1 .*not finite"):
        run(fcf(), world, performance=Performance("debug"))


def test_updates_that_are_not_finite_are_sent_as_zero_and_counted(monkeypatch):
    from tacit.device.methods.fcf import FCF

    honest = FCF._gradient

    def broken(self, Q, p, own):
        rows = honest(self, Q, p, own)
        return rows.with_value(rows.value * jnp.where(own.index[0] == 0, jnp.nan, 1.0))

    monkeypatch.setattr(FCF, "_gradient", broken)
    world = small_world(30)
    # A method is a static argument of jit: another hyper-parameter keeps the broken program apart.
    plan = fcf(rounds=3).with_setting("hyper.spread", 0.11)
    result = run(plan, world)
    has_item_0 = [0 in world.items[world.offsets[u] : world.offsets[u + 1]] for u in range(30)]
    np.testing.assert_array_equal(homes_by_device(result).zeroed, 3 * np.array(has_item_0))
    assert np.isfinite(result.params["items"]).all()
    assert all(row["reports"] == 30 for row in result.rounds), "a report is sent whatever is in it"


def test_a_replaced_update_looks_like_any_other():
    mechanism = build_mechanism({"mechanism": "none"})
    rows = Rows(jnp.array([1, 3], jnp.int32), jnp.array([[jnp.nan, 1.0], [2.0, 3.0]]), 5)
    report, spent, zeroed = send(jax.random.key(0), mechanism, {"items": rows}, jnp.ones(1), {}, jnp.int32(0))
    assert bool(zeroed)
    assert report.weight.tolist() == [1.0], "the weight does not tell"
    assert bool(report.sent)
    assert int(spent) == 1
    np.testing.assert_array_equal(dense(report.payload["items"]), np.zeros((5, 2)))
    assert (np.asarray(report.payload["items"].index) >= 5).all(), "nor do the positions"


def test_no_reports_after_the_allowance():
    result = run(fcf(rounds=5, messages=2))
    assert [row["reports"] for row in result.rounds] == [30, 30, 0, 0, 0]
    assert (homes_by_device(result).spent["0"] == 2).all()
    two = run(fcf(rounds=2, messages=2))
    same(result.params, two.params)


def test_a_pass_samples_every_device_once():
    result = run(fcf(rounds=3, sampler={"sampler": "pass", "count": 10}))
    assert (homes_by_device(result).spent["0"] == 1).all()


@pytest.mark.parametrize(
    "sampler", [{"sampler": "all"}, {"sampler": "fixed", "count": 5}], ids=lambda one: one["sampler"]
)
def test_a_deleted_run_is_freed(sampler):
    """Large runs, one after another, would fill the memory."""
    result = run(fcf(sampler=sampler))
    histories = [weakref.ref(leaf) for bucket in result.buckets for leaf in jax.tree.leaves(bucket.own)]
    assert all(one() is not None for one in histories)
    del result
    gc.collect()
    assert all(one() is None for one in histories)


def test_stages_follow_each_other():
    count = Stage("popularity", trains=("counts",), rounds=1, server={"rule": "count"})
    train = fcf().stages[0]
    result = run(Plan("two", (count, train)))
    assert set(result.params) == {"counts", "items"}
    alone = run(Plan("one", (count,)))
    same(result.params["counts"], alone.params["counts"])
    assert [row["stage"] for row in result.rounds] == [1, 2, 2, 2, 2]
    assert set(homes_by_device(result).local) == {"0", "1"}


def test_bytes_come_from_the_schema():
    dense = run(fcf(rounds=1))
    assert dense.bytes_up_per_device == 18 + 4 + ITEMS * 4 * 4
    world = small_world(30)
    distinct = np.mean([np.unique(world.items[world.offsets[u] : world.offsets[u + 1]]).size for u in range(30)])
    rows = run(fcf(rounds=1, wire="rows"), world)
    assert rows.bytes_up_per_device == pytest.approx(18 + 4 + 4 + distinct * (4 + 4 * 4))


# ---- the run folder ----


@pytest.mark.slow
@pytest.mark.parametrize("sampler", [{"sampler": "all"}, {"sampler": "fixed", "count": 4}], ids=["rounds", "scanned"])
def test_an_interrupted_run_ends_exactly_as_an_uninterrupted_one(tmp_path, sampler, monkeypatch):
    every_bucket(monkeypatch)
    first, second = fcf(rounds=300 if sampler["sampler"] == "fixed" else 9, sampler=sampler), load_plan("popularity")
    plan = Plan("two", (first.stages[0], second.stages[0]))
    whole = run(plan, out=tmp_path / "whole")
    calls = []

    def stop(result):
        calls.append(1)
        if len(calls) == 2:
            os.kill(os.getpid(), signal.SIGINT)
        return {"rounds": float(len(result.rounds))}

    with pytest.raises(KeyboardInterrupt):
        run(plan, out=tmp_path / "cut", evaluate=stop, every=3)
    done = Folder(tmp_path / "cut").latest()
    assert done == 6
    resumed = run(plan, out=tmp_path / "cut", resume=True)
    same(whole.params, resumed.params)
    same(homes_by_device(whole), homes_by_device(resumed))
    plain = lambda rows: [{k: v for k, v in row.items() if k not in ("seconds", "metrics")} for row in rows]  # noqa: E731
    assert plain(whole.rounds) == plain(resumed.rounds)
    assert plain(Folder(tmp_path / "cut").rows()) == plain(whole.rounds)


@pytest.mark.parametrize("sampler", [{"sampler": "all"}, {"sampler": "fixed", "count": 4}], ids=["rounds", "scanned"])
def test_momentum_is_in_the_checkpoint(tmp_path, sampler):
    """Half of the rounds, then the rest from the checkpoint: bit for bit the run that was never interrupted."""
    plan = fcf(rounds=6, sampler=sampler, server={**SGD, "momentum": 0.9})
    whole = run(plan)

    def stop(_):
        os.kill(os.getpid(), signal.SIGINT)
        return {}

    with pytest.raises(KeyboardInterrupt):
        run(plan, out=tmp_path / "cut", evaluate=stop, every=3)
    assert Folder(tmp_path / "cut").latest() == 3
    resumed = run(plan, out=tmp_path / "cut", resume=True)
    same(whole.params, resumed.params)
    same(homes_by_device(whole), homes_by_device(resumed))
    plain = run(fcf(rounds=6, sampler=sampler))
    assert not np.allclose(whole.params["items"], plain.params["items"], atol=1e-4)  # momentum does something


def test_resuming_after_the_end_changes_nothing(tmp_path):
    whole = run(fcf(), out=tmp_path / "r")
    again = run(fcf(), out=tmp_path / "r", resume=True)
    same(whole.params, again.params)
    assert len(Folder(tmp_path / "r").rows()) == 4


@pytest.mark.parametrize("seen", [3, 9], ids=["in the second stage", "after the end"])
def test_a_run_of_two_stages_resumes_from_its_last_checkpoint(tmp_path, seen):
    plan = Plan("two", (load_plan("popularity").stages[0], fcf(rounds=4).stages[0]))

    def killed(result):
        if len(result.rounds) >= seen:
            raise RunError("killed")
        return {}

    with contextlib.suppress(RunError):
        run(plan, out=tmp_path / "cut", evaluate=killed, every=1, performance=Performance(save_seconds=0.0))
    assert 1 < (Folder(tmp_path / "cut").latest() or 0) <= min(seen, 5)  # the first stage has one round
    whole, resumed = run(plan), run(plan, out=tmp_path / "cut", resume=True)
    same(whole.params, resumed.params)
    same(homes_by_device(whole), homes_by_device(resumed))
    assert [row["done"] for row in Folder(tmp_path / "cut").rows()] == [1, 2, 3, 4, 5]


def test_a_killed_run_resumes(tmp_path):
    """kill -9 while it runs, at a random time; the folder is complete and the result is the same."""
    code = (
        "import sys; sys.path[:0] = [sys.argv[2], sys.argv[2] + '/../..']\n"
        "from test_engine import Performance, fcf, run\n"
        "run(fcf(rounds=4000), out=sys.argv[1], performance=Performance(save_seconds=0.0))"
    )
    folder = Folder(tmp_path / "killed")
    child = subprocess.Popen([sys.executable, "-c", code, str(folder.path), os.path.dirname(__file__)])
    deadline = time.monotonic() + 60
    while (folder.latest() or 0) < 5 and time.monotonic() < deadline:
        time.sleep(0.02)
    child.kill()
    child.wait()
    assert 5 <= (folder.latest() or 0) < 4000
    stage = fcf(rounds=4000).stages[0]
    resumed = simulate(
        Plan("test", (stage,)),
        small_world(30),
        quiet=True,
        out=folder.path,
        resume=True,
        performance=Performance(save_seconds=1e9),
    )
    whole = run(fcf(rounds=4000))
    same(whole.params, resumed.params)
    assert [row["round"] for row in folder.rows()] == list(range(4000))


@pytest.mark.slow
def test_a_run_resumes_on_a_machine_with_other_buckets(tmp_path, monkeypatch):
    whole = run(fcf(rounds=6))
    run(fcf(rounds=6), out=tmp_path / "r")
    folder = Folder(tmp_path / "r")
    half = run(fcf(rounds=3))
    shutil.rmtree(folder.path / "state")
    (folder.path / "state").mkdir()
    folder.checkpoint(
        3, {"params": half.params, "rule": {"state": rule_state(half)}, "homes": homes_by_id(half.buckets)}
    )
    every_bucket(monkeypatch)
    resumed = run(fcf(rounds=6), out=tmp_path / "r", resume=True)
    assert len(resumed.buckets) > 1
    close(whole.params, resumed.params)
    close(homes_by_id(whole.buckets), homes_by_id(resumed.buckets))


def rule_state(result):
    stage = result.plan.stages[0]
    return build_rule(stage.server).init(trained(result.params, stage.trains))


def test_another_run_is_not_resumed(tmp_path):
    run(fcf(), out=tmp_path / "r")
    with pytest.raises(RunError, match="holds a run already"):
        run(fcf(), out=tmp_path / "r")
    with pytest.raises(RunError, match="seed is 0, this run's is 1"):
        run(fcf(), out=tmp_path / "r", resume=True, seed=1)
    with pytest.raises(RunError, match="plan_digest"):
        run(fcf(rounds=5), out=tmp_path / "r", resume=True)
    with pytest.raises(RunError, match="population"):
        run(fcf(), small_world(31), out=tmp_path / "r", resume=True)
    with pytest.raises(RunError, match="is not a run folder"):
        run(fcf(), out=tmp_path / "nothing", resume=True)


def test_the_folder_records_the_run(tmp_path):
    result = run(fcf(), out=tmp_path / "r", evaluate=lambda r: {"answer": 42.0})
    read = lambda name: json.loads((tmp_path / "r" / name).read_text())  # noqa: E731
    assert Plan.from_toml((tmp_path / "r" / "plan.toml").read_text()) == result.plan
    assert read("metrics.json")["metrics"] == {"answer": 42.0}
    assert {claim["epsilon"] for claim in read("claims.json")} == {"inf"}
    assert read("environment.json")["population"]["devices"] == 30
    saved = np.load(tmp_path / "r" / "state" / "000000004" / "params.npz")
    np.testing.assert_array_equal(saved["['items']"], result.params["items"])


# ---- refusals ----


def test_trains_must_name_the_update():
    with pytest.raises(PlanError, match="trains names 'itmes'"):
        run(Plan("p", (Stage("fcf", trains=("itmes",), rounds=1, server=SGD),)))


def test_a_cohort_larger_than_the_population_is_refused():
    with pytest.raises(PlanError, match=r"at most the number of devices, 30, got 31"):
        run(fcf(sampler={"sampler": "fixed", "count": 31}))


def test_an_empty_log_is_refused():
    with pytest.raises(DataError, match="at least one event"):
        from_events(np.zeros(0, int), np.zeros(0, int))


def test_pooling_is_for_baselines_only():
    with pytest.raises(PlanError, match=f"fits {', '.join(fitted_methods('pooled'))} in the lab"):
        run(fcf(rounds=0, sampler={"sampler": "pooled"}))


def test_every_device_is_in_one_bucket():
    lengths = np.array([0, 1, 8, 9, 300, 20000, 40000])
    found = group_by_length(lengths)
    assert sorted(np.concatenate([ids for _, ids in found])) == list(range(7))
    assert all(length >= lengths[ids].max() for length, ids in found)
    merged = group_by_length(lengths, merge_below=1e9)
    assert [ids.size for _, ids in merged] == [7], "one program is cheaper than six"


def test_large_buckets_are_split():
    groups = [(8, np.arange(1000)), (16, np.arange(1000, 1010))]
    parts = split_large(groups, 2)
    assert [(length, ids.size) for length, ids in parts] == [(8, 500), (8, 500), (16, 10)]
    assert sorted(np.concatenate([ids for _, ids in parts])) == list(range(1010))


def test_truncated_histories_keep_the_latest_events():
    world = from_events(np.array([0, 0, 0, 1]), np.array([5, 6, 7, 1]))
    np.testing.assert_array_equal(world.histories(np.array([0, 1]), 2).items, [[6, 7], [1, -1]])


def test_the_built_in_log_is_made_from_its_seed():
    one, two, other = taste_groups(50, seed=1), taste_groups(50, seed=1), taste_groups(50, seed=2)
    assert one.digest == two.digest != other.digest
    for u in range(50):
        mine = one.items[one.offsets[u] : one.offsets[u + 1]]
        assert np.unique(mine).size == mine.size
