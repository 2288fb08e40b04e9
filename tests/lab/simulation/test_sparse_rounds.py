"""Rounds of a few row-sparse reports: closing by the rows that were sent equals closing over the whole table."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from support.toys import close, same
from tacit.core.messages import Report
from tacit.core.sparse_rows import Rows, coalesce, dense
from tacit.lab.data.synthetic.small import taste_groups
from tacit.lab.plans.loader import choose
from tacit.lab.runs.run import simulate
from tacit.lab.simulation.federation import Federation, Performance
from tacit.privacy.mechanism import build_mechanism
from tacit.privacy.mechanisms._parts.summed import sum_rows
from tacit.server import round as server
from tacit.server.rule import build_rule

WORLD = taste_groups(users=60, items=200, events=10)
RULES = [
    {"rule": "mean_step", "rate": 0.05, "scale": "sum"},
    {"rule": "mean_step", "rate": 0.5},
    {"rule": "sgd", "rate": 0.1, "scale": "sum"},
    {"rule": "sgd", "rate": 0.1},
]


def stack(seed: int, devices: int, rows: int, table: int, weights: int = 1) -> Report:
    """Reports of some rows each, one device silent."""
    rng = np.random.default_rng(seed)
    index, value = rng.integers(table, size=(devices, rows)), rng.normal(size=(devices, rows, 3)).astype(np.float32)
    items = jax.vmap(lambda i, v: coalesce(i, v, table))(jnp.asarray(index), jnp.asarray(value))
    count = jax.vmap(lambda i, v: coalesce(i, v, table))(jnp.asarray(index), jnp.ones((devices, rows), jnp.int32))
    weight = jnp.asarray(rng.uniform(0.5, 2, (devices, weights)), jnp.float32)
    return Report({"items": items, "count": count}, weight, jnp.arange(devices) != 1)


@pytest.mark.bitwise
@pytest.mark.parametrize("weights", [1, 2])
@pytest.mark.parametrize("rule", RULES, ids=str)
def test_rows_and_tables_close_alike(rule, weights):
    rule, none = build_rule(rule), build_mechanism({"mechanism": "none"})
    reports = [stack(0, 4, 3, 50, weights), stack(1, 2, 5, 50, weights)]
    rng = np.random.default_rng(2)
    params = {"items": jnp.asarray(rng.normal(size=(50, 3)), jnp.float32), "other": jnp.ones(2)}
    reports = [one._replace(payload={"items": one.payload["items"]}) for one in reports]
    memory = server.Memory(rule.init({}), {})

    @jax.jit
    def over_the_table(params):
        total = server.zero_total(none, params, ("items",), weights)
        for one in reports:
            total = server.add_reports(none, total, one)
        return server.close(jax.random.key(0), none, rule, ("items",), params, total, memory)

    by_rows = jax.jit(lambda params: server.close_rows(rule, ("items",), params, reports, memory))
    if weights == 1:
        same(by_rows(params), over_the_table(params))
    else:  # where a product is added at once, a processor may round once instead of twice
        close(by_rows(params), over_the_table(params), 1e-6)
    assert int(by_rows(params)[2]) == 4  # one of each stack is silent
    assert not np.array_equal(by_rows(params)[0]["items"], params["items"])


def test_integers_are_counted_without_weights():
    report = stack(0, 3, 4, 9)
    rows, weight = sum_rows([(report.payload, report.weight, report.sent)])
    heard = [
        dense(Rows(*(leaf[u] for leaf in (report.payload["count"].index, report.payload["count"].value)), 9))
        for u in (0, 2)
    ]
    assert rows["count"].value.dtype == jnp.int32
    np.testing.assert_array_equal(dense(rows["count"])[:, 0], sum(heard))
    np.testing.assert_allclose(weight, report.weight[jnp.array([0, 2])].sum(0))


@pytest.mark.bitwise
def test_a_round_without_reports_changes_nothing():
    report = stack(0, 3, 4, 9)._replace(sent=jnp.zeros(3, bool))
    params = {"items": jnp.ones((9, 3)), "count": jnp.zeros(9, jnp.int32)}
    rule = build_rule({"rule": "mean_step"})
    moved, _, n = server.close_rows(rule, ("items",), params, [report], server.Memory((), {}))
    same(moved, params)
    assert int(n) == 0


def test_which_rounds_are_closed_by_rows():
    update = {"items": Rows(jnp.zeros(2, jnp.int32), jnp.zeros((2, 3)), 100)}
    none, noise = build_mechanism({"mechanism": "none"}), build_mechanism({"mechanism": "gaussian", "noise": 1.0})
    plain = build_rule(RULES[0])
    assert server.by_rows(none, plain, update, 12)
    assert not server.by_rows(none, plain, update, 13)  # too many for the table
    assert not server.by_rows(noise, plain, update, 1)  # noise is everywhere
    assert not server.by_rows(none, plain, {"items": jnp.zeros((100, 3))}, 1)
    for other in (
        {"rule": "adam", "rate": 0.1},
        {"rule": "sgd", "rate": 0.1, "decay": 0.5},
        {"rule": "sgd", "rate": 0.1, "momentum": 0.9},
        {"rule": "weighted_mean"},
        {"rule": "mean_step", "momentum": 0.9},
    ):
        assert not server.by_rows(none, build_rule(other), update, 1)


def plan_of(sampler: dict, rounds: int = 300, **settings):
    return choose("fpl-sequential", {"rounds": rounds, "cohort": sampler, **settings})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sampler", "apart"),
    [({"sampler": "one"}, 5e-8), ({"sampler": "fixed", "count": 5}, 0.0)],  # the step of one is fused with what follows
    ids=["one", "five"],
)
def test_scanned_rounds_by_rows_equal_those_by_tables(sampler, apart, monkeypatch):
    plan = plan_of(sampler)
    assert Federation(plan, WORLD).begin(0).job.by_rows
    rows = simulate(plan, WORLD, quiet=True)
    monkeypatch.setattr("tacit.lab.simulation.setup.by_rows", lambda *_: False)
    tables = simulate(plan, WORLD, quiet=True)
    close(rows.params, tables.params, apart)
    assert [row["bytes_up"] for row in rows.rounds] == [row["bytes_up"] for row in tables.rounds]
    for one, other in zip(rows.buckets, tables.buckets):
        close(one.home.local, other.home.local, apart)


@pytest.mark.slow
def test_histories_of_all_lengths_can_be_several_buckets(monkeypatch):
    plan = plan_of({"sampler": "fixed", "count": 3}, rounds=40)
    one = simulate(plan, WORLD, quiet=True)
    monkeypatch.setattr("tacit.lab.simulation.federation.bucket_cost", lambda *_: 0.0)
    several = simulate(plan, WORLD, quiet=True)
    assert len(one.buckets) == 1 < len(several.buckets)
    for name in ("items", "bias"):
        np.testing.assert_allclose(one.params[name], several.params[name], rtol=1e-6, atol=1e-7)


@pytest.mark.slow
def test_the_debug_executor_agrees_on_sparse_rounds():
    plan = plan_of({"sampler": "one"}, rounds=6)
    fast, debug = (simulate(plan, WORLD, quiet=True, performance=Performance(one)) for one in ("fast", "debug"))
    np.testing.assert_allclose(fast.params["items"], debug.params["items"], rtol=1e-6, atol=1e-7)
