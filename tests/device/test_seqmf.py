"""SeqMF and its variants: worked numbers, what training does to a table, and their ranking on a small launch log."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from support.toys import close
from tacit.core.catalog import Catalog
from tacit.core.plan import Plan, Stage
from tacit.core.sparse_rows import Rows, dense, dense_tree
from tacit.device.history import plain_history
from tacit.device.method import build
from tacit.device.methods.seqmf_eb import draw_day
from tacit.device.round import KEYS
from tacit.errors import DataError, PlanError
from tacit.lab.analysis.feasibility import FeasibilityWarning
from tacit.lab.data import from_events
from tacit.lab.data.synthetic import apps
from tacit.lab.evaluation.candidates import Installed, SeenBefore
from tacit.lab.evaluation.scoring import ranks
from tacit.lab.evaluation.sessions import drop_quick_repeats
from tacit.lab.evaluation.splits import calendar_days, cold_start
from tacit.lab.plans.loader import load_plan, suggested
from tacit.lab.runs.device_cost import cost
from tacit.lab.runs.run import simulate
from tacit.lab.simulation.federation import Performance
from tacit.metrics import average, levels, per_case
from tacit.nets.counts.stay_or_leave import arrivals
from tacit.nets.counts.transitions import (
    apply_transitions,
    apply_transposed,
    relative_transitions,
    transition_counts,
    transition_design,
    within_days,
)
from tacit.nets.factor.least_squares import dual_ridge, gather
from tacit.nets.factor.softmax_fit import fit_softmax, masked_log_softmax, masked_softmax
from tacit.nets.sequence.windows import latest_events, pool_rows, recency
from tacit.privacy.card import to_markdown
from tacit.privacy.price import price

HISTORY = jnp.array([0, 1, 2, 0, 0, 1, 0, 2])  # (a, b, c, a, a, b, a, c)
Q = jnp.array([[0.5, -0.2], [0.1, 0.3], [-0.4, 0.6]])
DAY = 86_400.0


def method(name, items=3, **hyper):
    return build(Stage(name, hyper), Catalog(items))


def seqmf(**hyper):
    return method("seqmf", **{"dim": 2, "penalty": 0.1, "smoothing": 0.0, **hyper})


def gradient(one, history=HISTORY, table=Q):
    own = one.prepare(plain_history(history))
    local, update, _ = one.local(None, {"items": table}, {"vector": jnp.zeros(table.shape[1])}, own)
    return own, local["vector"], dense(update["items"])


# ---- worked numbers ----

S = np.array([[1 / 4, 2 / 4, 1 / 4], [1 / 2, 0, 1 / 2], [1 / 2, 0, 0]])
VECTOR = [1.0052902055622732, 1.0577085852478836]
F = [
    [-0.3948360702463267, -0.5426086175429027],
    [-0.2266126263654561, -0.12653881040648954],
    [-0.3426193388220854, -0.22342503164619426],
]
READINGS = {
    ("source", "occurrences"): (S, VECTOR),
    ("source", "departures"): ([[0.25, 0.5, 0.25], [0.5, 0, 0.5], [1, 0, 0]], [0.9809129383313179, 1.1501874244256345]),
    ("target", "occurrences"): ([[0.25, 0.25, 0.25], [1, 0, 0], [0.5, 0.5, 0]], [1.03322853688029, 1.0501330108827085]),
    ("target", "departures"): ([[0.25, 0.25, 0.25], [1, 0, 0], [1, 1, 0]], [1.019516324062878, 1.1021523579201933]),
}


def loss(table, p, c, steps):
    """½ Σ c (Qp + diag(S Q Qᵀ) − 1)², Eq. 3's data term for one person."""
    return 0.5 * jnp.sum(c * (table @ p + jnp.diagonal(steps @ table @ table.T) - 1) ** 2)


def test_worked_numbers():
    own, p, made = gradient(seqmf())
    np.testing.assert_allclose(relative_transitions(own).reshape(3, 3), S)
    np.testing.assert_allclose(p, VECTOR, rtol=1e-5)
    np.testing.assert_allclose(made, F, rtol=1e-5)
    c, h = jnp.array([0.5, 0.25, 0.25]), (Q * apply_transitions(relative_transitions(own), Q)).sum(axis=1)
    np.testing.assert_allclose(h, [-0.0125, 0.065, -0.16], rtol=1e-5)
    r = Q @ p + h
    np.testing.assert_allclose(r, [0.27860338573155985, 0.4828415961305924, 0.07250906892382084], rtol=1e-5)
    w = c * (r - 1)
    np.testing.assert_allclose(w, [-0.3606983071342201, -0.1292896009673519, -0.2318727327690448], rtol=1e-5)
    np.testing.assert_allclose(loss(Q, p, c, S), 0.271064799009656, rtol=1e-5)
    objective = loss(Q, p, c, S) + 0.05 * (p @ p + (Q**2).sum())
    np.testing.assert_allclose(objective, 0.4230325914449819, rtol=1e-5)
    step = [[0.6724180351231633, 0.08130430877145134], [0.20830631318272805, 0.3482694052032448]]
    np.testing.assert_allclose((Q - 0.5 * (made + 0.1 * Q))[:2], step, rtol=1e-5)


def test_the_server_step_is_the_printed_one():
    """Q − β (ΣF + λQ), through plan, gate and rule."""
    log = from_events(np.zeros(8, int), np.asarray(HISTORY))
    stage = Stage(
        "seqmf",
        {"dim": 2, "penalty": 0.1},
        ("items",),
        server={"rule": "sgd", "rate": 0.5, "decay": 0.1, "scale": "sum"},
        rounds=1,
    )
    run = simulate(Plan("one step", (stage,)), log, quiet=True)
    start = seqmf().init(_init_key())["items"]
    made = gradient(seqmf(), table=start)[2]
    close(run.params["items"], start - 0.5 * (made + 0.1 * start))


def read(reading, **hyper):
    return seqmf(**dict(zip(("orientation", "denominator"), reading)), **hyper)


@pytest.mark.parametrize("reading", READINGS, ids="/".join)
def test_readings_of_the_design_matrix(reading):
    """Eq. 5 and Eq. 6 disagree; each of the four readings is a pair of settings."""
    matrix, vector = READINGS[reading]
    one = read(reading)
    own, p, made = gradient(one)
    np.testing.assert_allclose(transition_design(own.table, own.uses, *reading), matrix)
    np.testing.assert_allclose(relative_transitions(own, *reading).reshape(3, 3), matrix)
    np.testing.assert_allclose(p, vector, rtol=1e-5)
    c = jnp.array([0.5, 0.25, 0.25])
    np.testing.assert_allclose(made, jax.grad(loss)(Q, p, c, jnp.asarray(matrix)), rtol=1e-4)
    home = one.adapt(None, {"items": Q}, {"vector": jnp.zeros(2)}, own)
    np.testing.assert_allclose(home["vector"], vector, rtol=1e-5)


def test_the_worked_example_is_the_default_reading():
    assert (seqmf().orientation, seqmf().denominator) == ("source", "occurrences")
    np.testing.assert_array_equal(gradient(seqmf())[1], gradient(read(("source", "occurrences")))[1])
    with pytest.raises(PlanError, match=r"orientation must be one of 'source', 'target', got 'row'"):
        seqmf(orientation="row")
    with pytest.raises(PlanError, match=r"denominator must be one of 'occurrences', 'departures', got 'all'"):
        seqmf(denominator="all")


@pytest.mark.parametrize("reading", READINGS, ids="/".join)
def test_readings_of_a_short_history(reading):
    """A short history keeps only the pairs that occur; each reading is the same matrix all the same."""
    own, _ = transition_counts(jnp.asarray(np.random.default_rng(0).integers(40, size=60)), 40, 128)
    assert isinstance(own.steps, Rows)
    made = relative_transitions(own, *reading)
    assert (np.diff(made.index)[: int((made.index < made.rows).sum()) - 1] > 0).all()
    n = own.items.shape[0]
    np.testing.assert_allclose(dense(made).reshape(n, n), transition_design(own.table, own.uses, *reading), rtol=1e-6)


def test_without_sequence_it_is_matrix_factorisation():
    _, p, made = gradient(seqmf(sequence=False))
    np.testing.assert_allclose(p, [1.0350665054413541, 0.9939540507859732], rtol=1e-5)
    np.testing.assert_allclose(made[0], [-0.35257343964066445, -0.33856935442129227], rtol=1e-5)


def test_weights_with_a_power():
    own = seqmf().prepare(plain_history(HISTORY))
    c = seqmf(gamma=0.5)._terms(Q, own).weight
    np.testing.assert_allclose(c, [0.4142135623730951, 0.29289321881345254, 0.29289321881345254], rtol=1e-6)


@pytest.mark.parametrize(
    ("recent", "last", "expected"),
    [
        ([-1, 1, 2], 1, [-0.028896614268440146, 0.5578415961305924, 0.7525090689238209]),
        ([-1, 1, 2], 2, [-0.038896614268440155, 0.6578415961305923, 0.8925090689238208]),
        ([-1, 1, 2], 0, [-0.038896614268440155, 0.6578415961305923, 0.8925090689238208]),
        ([-1, -1, -1], 1, np.asarray(Q) @ VECTOR),
    ],
)
def test_inference(recent, last, expected):
    scores = seqmf(last=last).score({"items": Q}, {"vector": jnp.array(VECTOR)}, None, jnp.array(recent), jnp.arange(3))
    np.testing.assert_allclose(scores, expected, rtol=1e-4)


def test_a_mean_over_the_session():
    np.testing.assert_allclose(pool_rows(Q, jnp.array([2, 1, -1]), "mean"), (Q[1] + Q[2]) / 2)
    np.testing.assert_allclose(pool_rows(Q, jnp.array([-1, -1]), "mean"), [0, 0])


# ---- the mathematics ----


@pytest.mark.parametrize("smoothing", [0.0, 0.7])
def test_the_gradient_is_the_gradient(smoothing):
    """F is ∂/∂Q of Eq. 3 over the whole catalogue with p held, and by the envelope theorem p's own part is 0."""
    table = jnp.asarray(np.random.default_rng(1).normal(size=(5, 3)), jnp.float32)
    one = method("seqmf", 5, dim=3, penalty=0.1, smoothing=smoothing)
    own, p, made = gradient(one, HISTORY, table)
    d = np.array([4, 2, 2, 0, 0.0])
    c, a = (d + smoothing * 1) / (8 + smoothing * 5), (d > 0).astype(float)
    steps = np.zeros((5, 5))
    steps[:3, :3] = S

    def objective(table, p):
        r = table @ p + jnp.diagonal(steps @ table @ table.T)
        return 0.5 * jnp.sum(c * (r - a) ** 2) + 0.05 * p @ p

    close(made, jax.grad(objective)(table, p), tolerance=1e-4)
    close(jax.grad(objective, argnums=1)(table, p), jnp.zeros(3), tolerance=1e-5)
    assert isinstance(one.local(None, {"items": table}, {"vector": p}, own)[1]["items"], Rows) == (smoothing == 0)


def test_the_dual_is_the_primal():
    rng = np.random.default_rng(0)
    for n, d in ((4, 9), (9, 4)):
        rows, target, weight = rng.normal(size=(n, d)), rng.normal(size=n), rng.uniform(size=n) * (np.arange(n) < n - 1)
        p = np.linalg.solve(rows.T @ (weight[:, None] * rows) + 0.3 * np.eye(d), rows.T @ (weight * target))
        close(dual_ridge(*(jnp.asarray(x, jnp.float32) for x in (rows, weight, target)), 0.3), p, tolerance=1e-4)


@pytest.mark.slow
def test_few_steps_and_many_are_the_same_mathematics():
    """A long history keeps a table of steps, a short one the pairs that occur."""
    items = np.random.default_rng(0).integers(40, size=60)
    short, _ = transition_counts(jnp.asarray(items), 40, 128)
    long, _ = transition_counts(jnp.asarray(np.append(items, np.full(900, -1))), 40, 128)
    assert isinstance(short.steps, Rows)
    assert not isinstance(long.steps, Rows)
    close(short.table, long.table)
    rows = jnp.asarray(np.random.default_rng(1).normal(size=(40, 5)), jnp.float32)
    for product in (apply_transitions, apply_transposed):
        close(product(relative_transitions(short), rows), product(relative_transitions(long), rows))


def test_only_the_most_used_items_are_counted():
    own, place = transition_counts(jnp.array([5, 3, 3, 7, 5, 3, -1]), 9, 2)
    assert own.items.tolist() == [3, 5]
    assert own.uses.tolist() == [3, 2]
    assert own.table.tolist() == [[1, 0], [2, 0]]  # 7 stands between 3 and 5 once: no step
    assert place.tolist() == [1, 0, 0, -1, 1, 0, -1]


def test_a_window_drops_older_events():
    items, times = jnp.array([0, 1, 0, 2, -1]), jnp.array([0, 1, 2.5, 3, 0]) * DAY
    assert within_days(items, times, 2.0).tolist() == [-1, 1, 0, 2, -1]
    one = seqmf(window=2.0)
    own = one.prepare(plain_history(items)._replace(times=times))
    assert own.uses.tolist() == [1, 1, 1]
    nobody = one.prepare(plain_history(jnp.full(5, -1))._replace(times=times))
    _, update, _ = one.local(None, {"items": Q}, {"vector": jnp.ones(2)}, nobody)
    assert not np.asarray(dense(update["items"])).any()


def test_a_window_without_times_is_refused():
    with pytest.raises(DataError, match=r"window = 7 days needs times, and this history has none; leave window out"):
        seqmf(window=7.0).prepare(plain_history(HISTORY))
    assert seqmf(window=7.0).needs_times
    assert not seqmf().needs_times
    with pytest.raises(PlanError, match=r"window must be above 0, got 0.0"):
        seqmf(window=0)


@pytest.mark.parametrize(("solves", "in_rounds", "at_home"), [("always", 1, 1), ("rounds", 1, 0), ("never", 0, 0)])
def test_when_the_user_vector_is_recomputed(solves, in_rounds, at_home):
    one, start = seqmf(solves=solves), {"vector": jnp.array([0.3, -0.1])}
    own = one.prepare(plain_history(HISTORY))
    for moves, local in (
        (in_rounds, one.local(None, {"items": Q}, start, own)[0]),
        (at_home, one.adapt(None, {"items": Q}, start, own)),
    ):
        close(local["vector"], jnp.array(VECTOR) if moves else start["vector"])


def test_newton_ends_where_the_slope_is_zero():
    rng = np.random.default_rng(0)
    rows, offsets = (jnp.asarray(rng.normal(size=s), jnp.float32) for s in ((6, 3), (2, 6)))
    chosen = jnp.asarray(rng.integers(9, size=(2, 6)), jnp.float32).at[:, 5].set(0)
    offered = jnp.arange(6) < 5

    def likelihood(p):
        said = masked_log_softmax(offsets + rows @ p, offered)
        return jnp.where(chosen > 0, chosen * said, 0).sum() - 0.5 * p @ p

    p = fit_softmax(rows, offsets, chosen, offered, 1.0, 6)
    assert np.abs(jax.grad(likelihood)(p)).max() < 1e-3
    np.testing.assert_allclose(
        masked_softmax(offsets, offered), jnp.exp(masked_log_softmax(offsets, offered)), rtol=1e-5
    )


# ---- stay or switch ----


def test_on_device_by_hand():
    one = method(
        "on_device", arrivals=2.0, steps=3.0, stays=4.0, stay=0.0, temper=1.0, first=1.0, second=0.5, older=0.2
    )
    own = one.prepare(plain_history(HISTORY))
    scores = one.score({}, {}, own, jnp.array([-1, 1, 2, 0]), jnp.arange(3))
    n = np.array([[1, 2, 1], [1, 0, 1], [1, 0, 0]])
    m = (np.array([2, 2, 2]) + 2 / 3) / (6 + 2)
    stays = (n[0, 0] + 4 * 0.5) / (4 + 4)
    g = m[1:] / m[1:].sum()
    onward = np.log((n[0, 1:] + 3 * g) / (3 + 3)) + np.array([0.5, 1.0])
    onward -= np.log(np.exp(onward).sum())
    np.testing.assert_allclose(scores, [np.log(stays), *(np.log(1 - stays) + onward)], rtol=1e-5)
    np.testing.assert_allclose(jnp.exp(scores).sum(), 1, rtol=1e-5)
    before = one.score({}, {}, own, jnp.array([-1, -1]), jnp.array([2, 0, -1]))
    np.testing.assert_allclose(before[:2], np.log((np.array([2, 2]) + 1) / (4 + 2)), rtol=1e-5)


def test_recency_counts_other_items():
    assert latest_events(jnp.array([3, -1, 5, -1]), 0).tolist() == [5, 3, -1, -1]
    assert recency(jnp.array([4, 4, 1, 4, 2, 2]), jnp.array([1, 2, 4, 0])).tolist() == [2, 0, 1, 0]
    assert recency(jnp.array([-1, -1]), jnp.array([1, -1])).tolist() == [0, 0]


def test_cross_entropy_uses_own_items_only():
    one = method("seqmf_ce", 5, dim=3)
    params = one.init(jax.random.key(0))
    own = one.prepare(plain_history(HISTORY))
    update = dense(one.local(None, params, {}, own)[1]["items"])
    assert np.asarray(update[:3]).any()
    assert not np.asarray(update[3:]).any()


def days(one, times):
    own = one.prepare(plain_history(HISTORY)._replace(times=jnp.asarray(times)))
    return own.days.day.tolist(), int(own.days.total)


def test_days_are_counted_per_user_and_halves_without_times():
    one = method("seqmf_eb")
    assert days(one, np.array([0, 0.5, 3, 3.1, 3.2, 9, 9.5, 9.9]) * DAY) == ([0, 1, 1, 1, 2, 2, 2], 3)
    assert days(one, np.zeros(8)) == ([0, 0, 0, 1, 1, 1, 1], 2)


def test_a_day_is_predicted_from_the_days_before():
    one = method("seqmf_eb")
    own = one.prepare(plain_history(HISTORY))
    drawn = [draw_day(jax.random.key(seed), own.days, 3) for seed in range(8)]
    seen = {(float(before.sum()), float(on.sum())) for before, on in drawn}
    assert seen == {(0, 3), (3, 4)}  # the first half given nothing, the second given the first


@pytest.mark.slow
def test_the_prior_and_its_gradient():
    """Own items only, p held, and the derivative of the cross-entropy of a day's steps by differences."""
    one = method("seqmf_eb", 4, rank=2)
    params = jax.tree.map(lambda leaf: leaf + 0.1, one.init(jax.random.key(0)))
    own, key = one.prepare(plain_history(HISTORY)), jax.random.key(3)
    update = dense_tree(one.local(key, params, {}, own)[1])
    before, on = draw_day(key, own.days, 4)
    index, real = own.habits.items, own.habits.real
    p = one._vector({name: gather(leaf, index) for name, leaf in params.items()}, arrivals(before), real)
    loss = jax.jit(lambda params: one._loss({k: gather(v, index) for k, v in params.items()}, p, before, on, real))
    for name, leaf in update.items():
        assert not np.asarray(leaf[3]).any()
        for at in np.ndindex(*leaf[:3].shape):
            up, down = (loss({**params, name: params[name].at[at].add(step)}) for step in (0.01, -0.01))
            np.testing.assert_allclose(leaf[at], (up - down) / 0.02, atol=1e-3)


def test_the_report_at_an_empty_history():
    one = method("seqmf_eb", 4, at="empty", stays_too=False)
    b = jnp.array([0.0, 1.0, 0.0, 0.0])
    update = one.local(None, {"b": b}, {}, one.prepare(plain_history(HISTORY)))[1]["b"]
    expected = 4 * (np.asarray(jax.nn.softmax(b)) - np.array([2, 2, 2, 0]) / 6)
    np.testing.assert_allclose(update, np.clip(expected, -1, 1), rtol=1e-5)
    nobody = one.local(None, {"b": b}, {}, one.prepare(plain_history(jnp.full(4, -1))))[1]["b"]
    assert not np.asarray(nobody).any()
    with pytest.raises(PlanError, match=r"at = 'empty' learns b alone, got rank = 2 and stays_too = True"):
        method("seqmf_eb", at="empty", rank=2)


# ---- plans ----

EPSILON = {
    **dict.fromkeys(("seqmf-no-noise", "seqmf-ce", "seqmf-eb", "seqmf-paper", "seqmf-authors"), np.inf),
    **{"seqmf": 4.5, "mf": 0, "on-device": 0},
}
ONE_SHAPE = (2560,)  # one bucket: these tests are about answers, and each shape is compiled anew


@pytest.fixture(scope="module")
def tiny():
    return apps(12, days=6, seed=0)


def run_of(plan, log, **settings):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FeasibilityWarning)  # so few people can learn next to nothing through noise
        run = simulate(plan, log, quiet=True, performance=Performance(grid=ONE_SHAPE), settings=settings)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(run.params))
    return run


@pytest.mark.parametrize("name", EPSILON)
def test_every_plan_loads_and_has_a_price(name):
    plan = load_plan(name)
    assert price(plan, 1000).whole.epsilon == EPSILON[name]
    assert Plan.from_toml(plan.to_toml()) == plan


def test_the_printed_mechanism_keeps_an_epsilon_for_its_signs_alone():
    claims = price(load_plan("seqmf-paper"), 1000).claims[0]
    assert [(claim.per, claim.epsilon) for claim in claims[2:]] == [("message", 4.5), ("run", 18)]


# The other plans are run below.
@pytest.mark.parametrize("name", ["seqmf itself", "seqmf-paper", "seqmf-authors", "mf"])
def test_plans_run(name, tiny):
    run = run_of(suggested("seqmf") if name == "seqmf itself" else name, tiny)
    start = build(run.plan.stages[0], tiny.catalog).init(_init_key())["items"]
    moved = float(jnp.abs(run.params["items"] - start).max())
    least, most = {"mf": (0, 0), "seqmf-authors": (1e-6, 1e-5)}.get(name, (1e-3, 1))
    assert least <= moved <= most


def _init_key(seed=0):
    """The key a run of this seed starts its first stage's table with."""
    return jax.random.fold_in(jax.random.fold_in(jax.random.key(seed, impl=KEYS), 0), 0)


def top_share(table):
    """How much of ‖Q‖² lies in one direction."""
    values = np.linalg.svd(np.asarray(table), compute_uv=False)
    return values[0] ** 2 / (values**2).sum()


def test_the_printed_objective_collapses_and_cross_entropy_does_not(tiny):
    server = {"rule": "adam", "rate": 0.03, "decay": 1.0, "scale": "sum"}
    stage = Stage("seqmf", {"dim": 16, "spread": 0.125, "penalty": 1.0}, ("items",), server=server, rounds=60)
    start = build(stage, tiny.catalog).init(jax.random.key(0))["items"]
    assert top_share(start) < 0.2
    assert top_share(run_of(Plan("printed", (stage,)), tiny).params["items"]) > 0.85
    other = Stage("seqmf_ce", {"dim": 16, "spread": 0.125}, ("items",), server={**server, "decay": 0.1}, rounds=60)
    assert top_share(run_of(Plan("cross-entropy", (other,)), tiny).params["items"]) < 0.4


# ---- who beats whom ----


def hit_rate(run, split, candidates, n=5):
    found = ranks(run, split, candidates)
    return average(per_case(found, f"HR@{n}"), levels("user", split.test.device, split.test.session)).value


@pytest.fixture(scope="module")
def launches():
    split = calendar_days(drop_quick_repeats(apps(60, days=28, seed=0)), test=2, valid=1, recent=64)
    return split, SeenBefore(split, plus_target=True, in_training=True)


@pytest.mark.slow
def test_staying_or_switching_beats_counting(launches):
    split, seen = launches
    found = {name: hit_rate(run_of(name, split.train), split, seen) for name in ("mfu", "sr-od", "on-device")}
    assert found["on-device"] > found["sr-od"] + 0.01
    assert found["on-device"] > found["mfu"] + 0.05
    assert 0.85 < found["on-device"] < 0.97


@pytest.mark.slow
def test_cross_entropy_learns(launches):
    split, seen = launches
    before, after = (hit_rate(run_of("seqmf-ce", split.train, **some), split, seen) for some in ({"rounds": 0}, {}))
    assert after > before + 0.02


@pytest.fixture(scope="module")
def newcomers():
    split = cold_start(apps(1000, days=2, seed=0), sessions=0, recent=64)
    return split, Installed(split)


@pytest.mark.slow
def test_a_shared_prior_helps_new_users_and_noise_keeps_part_of_it(newcomers):
    split, installed = newcomers
    names = {"on-device": {}, "seqmf-no-noise": {}, "seqmf": {}, "seqmf-eb": {"rounds": 10, "server.rate": 0.2}}
    found = {name: hit_rate(run_of(name, split.train, **more), split, installed) for name, more in names.items()}
    gain = found["seqmf-no-noise"] - found["on-device"]
    assert gain > 0.015
    assert found["seqmf-eb"] > found["on-device"] + 0.015
    assert found["seqmf"] > found["on-device"] + 0.4 * gain


# ---- what it asks of a device ----


@pytest.mark.parametrize(("name", "sends"), [("seqmf", True), ("on-device", False)])
def test_the_card_says_what_a_device_needs(name, sends, tiny):
    run = run_of(name, tiny)
    run.cost = cost(run)
    own = jax.tree.leaves(run.buckets[0].own)
    assert run.cost["held_bytes"] > sum(leaf.nbytes // leaf.shape[0] for leaf in own)
    assert run.cost["adapt_ms"] > 0
    assert ("round_ms" in run.cost) == sends
    if sends:
        assert run.cost["message_bytes"] == run.bytes_up_per_device
        assert run.cost["working_bytes"] > 4 * tiny.catalog.n_items
    page = to_markdown(run.card)
    assert "Cost on a device" in page
    assert ("one round, ms" in page) == sends
