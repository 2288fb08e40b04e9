"""Steps between frequent items: the equations against NumPy, the bound of a message, and that all follows from releases."""

import math
from dataclasses import replace
from functools import partial
from statistics import NormalDist
from typing import cast

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from support.toys import from_events
from tacit.core.catalog import Catalog, Field
from tacit.core.integer_grid import PARTS
from tacit.core.plan import Plan, Stage
from tacit.core.sparse_rows import dense
from tacit.device.history import plain_history
from tacit.device.methods.steps import Steps
from tacit.errors import PlanError
from tacit.lab.data.synthetic import movies
from tacit.lab.data.synthetic.small import taste_groups
from tacit.lab.evaluation.protocols import load_protocol
from tacit.lab.evaluation.scoring import ranks
from tacit.lab.evaluation.statistics import interval
from tacit.lab.plans.loader import choose
from tacit.lab.runs.run import simulate
from tacit.metrics import per_case
from tacit.privacy.accounting.accountant import gaussian_noise
from tacit.privacy.price import Price, price
from tacit.server.rules._steps import frequent, item_weights, largest
from tacit.server.rules.frequent_items import FrequentItems
from tacit.server.rules.gated_steps import GatedSteps
from tacit.server.rules.step_table import StepTable

KEY = jax.random.key(0)
N = 9
pytestmark = pytest.mark.filterwarnings("ignore::tacit.lab.analysis.feasibility.FeasibilityWarning")


# ---- the recipe in NumPy, from its formulas ----


def counts_of(histories) -> np.ndarray:
    """Σ over people of their distinct items / √(how many)."""
    found = np.zeros(N)
    for items in histories:
        own = sorted(set(items))
        found[own] += 1 / math.sqrt(len(own)) if own else 0
    return found


def table_of(items, head, g, window=10, decay=0.8, kept=None) -> np.ndarray:
    """One person's cells: events outside the head dropped, equal cells merged, then divided by the norm."""
    place = {item: at for at, item in enumerate(head)}
    line, table = [place[i] for i in items if i in place], np.zeros((len(head), len(head)))
    for a, i in enumerate(line):
        for k in range(1, window + 1):
            if a + k < len(line) and line[a + k] != i:
                table[i, line[a + k]] += decay ** (k - 1) * g[i] * g[line[a + k]]
    if kept is not None:
        table = np.where(kept, table, 0)
    return table / np.linalg.norm(table) if table.any() else table


def scores_of(E, head, counts, items, recent=20, fade=0.75) -> np.ndarray:
    """Σ fade^k E[newest head items], other items below by their counts."""
    place = {item: at for at, item in enumerate(head)}
    line = [place[i] for i in items if i in place][::-1][:recent]
    near = sum((fade**k * E[i] for k, i in enumerate(line)), np.zeros(len(head)))
    below = counts - counts.max() - 1 + near.min()
    found = below.copy()
    if line:
        found[list(head)] = near
    return found


def room_of(head, room):
    """Padded to the room there is."""
    return jnp.asarray([*head, *[N] * (room - len(head))], jnp.int32)


LENGTH = 16


def sent(method, params, items, length=None):
    padded = np.pad(np.asarray(items, np.int32), (0, (length or len(items) + 1) - len(items)), constant_values=-1)
    return _sent(method, params, padded)


@jax.jit
def _sent(method, params, items):
    return method.local(KEY, params, {}, method.prepare(plain_history(items)))[1]


def histories_of(rng, people=25):
    """Short ones with repeats; one is empty, one has a single event."""
    return [[], [4], *(rng.integers(0, N, length).tolist() for length in rng.integers(2, LENGTH, people))]


@pytest.mark.parametrize("window", [1, 10])
def test_a_device_sends_the_cells_of_the_formula(window):
    rng = np.random.default_rng(window)
    method = Steps(Catalog(N), window=window)
    for items in histories_of(rng):
        size = int(rng.integers(2, N + 1))
        head, g, kept = rng.permutation(N)[:size], rng.random(size) + 0.1, rng.random((N, N)) < 0.7
        weights = jnp.asarray([*g, *np.ones(N - size)])
        params = {
            **method.init(KEY),
            "head": room_of(head, N),
            "weights": weights,
            "kept": jnp.asarray(kept.reshape(-1)),
        }
        expected = table_of(items, head, g, window, kept=kept[:size, :size])
        found = np.asarray(dense(sent(method, params, items, LENGTH)["steps"])).reshape(N, N)
        np.testing.assert_allclose(found[:size, :size], expected, atol=2e-6)
        assert not found[size:].any()
        assert not found[:, size:].any()


def test_a_device_sends_normalised_counts():
    method = Steps(Catalog(N), sends="counts")
    for items in histories_of(np.random.default_rng(0)):
        found = np.asarray(dense(sent(method, method.init(KEY), items, LENGTH)["counts"]))
        np.testing.assert_allclose(found, counts_of([items]), atol=1e-6)


@pytest.mark.parametrize("items", [[0, 1] * 27, [0, 1, 2] * 18, list(range(N)) * 6, [3] * 9 + [4]])
def test_the_norm_is_that_of_merged_cells(items):
    """Divided by the norm of single pairs, a person who goes back and forth would send up to nine times the bound."""
    method = Steps(Catalog(N))
    for sends in ("counts", "steps"):
        (leaf,) = sent(replace(method, sends=sends), method.init(KEY), items, 55).values()
        assert float(jnp.linalg.norm(dense(leaf))) == pytest.approx(1.0, abs=1e-5)
        assert float(leaf.value.min()) >= 0


# ---- the rules ----


@pytest.mark.parametrize("seed", range(6))
def test_head_and_weights_follow_from_noisy_counts(seed):
    rng = np.random.default_rng(seed)
    counts, noise = (rng.gamma(0.5, 60, N) - 5).astype(np.float32), float(rng.choice([0.0, 3.0, 20.0]))
    fewest, room = int(rng.integers(4)), int(rng.integers(2, N + 1))
    rule = FrequentItems(least=fewest, share=0.05).settle(noise, Catalog(N))
    params = {"counts": jnp.zeros(N), "head": jnp.arange(room), "weights": jnp.ones(room)}
    made, _ = rule.finish(params, ({"counts": jnp.asarray(counts)[None]}, jnp.ones(1)), jnp.asarray(5), ())
    sigma = noise * math.sqrt(0.05)
    least = max(1.15 * max(counts.sum(), 0) ** 0.25 * sigma**0.75, 2.5 * noise)
    order = np.argsort(-counts, kind="stable")
    size = int(np.clip((counts >= least).sum(), min(fewest, room), room))
    assert np.asarray(made["head"])[:size].tolist() == order[:size].tolist()
    assert (np.asarray(made["head"])[size:] == N).all()
    shown = np.maximum(np.maximum(counts[order[:size]], 1), noise)
    np.testing.assert_allclose(np.asarray(made["weights"])[:size], (shown / shown.mean()) ** -0.2, rtol=1e-4)
    np.testing.assert_array_equal(made["counts"], counts)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 1.0])
def test_the_largest_cells_are_kept(share):
    room = 6
    rng = np.random.default_rng(int(10 * share))
    values, among = rng.normal(size=room * room).astype(np.float32), rng.random(room * room) < 0.7
    found = np.asarray(largest(jnp.asarray(values), jnp.asarray(among), jnp.asarray(share)))
    many = int(np.round(np.float32(share) * among.sum()))
    expected = np.zeros(room * room, bool)
    expected[sorted(np.flatnonzero(among), key=lambda at: -values[at])[:many]] = True
    np.testing.assert_array_equal(found, expected)


def test_two_rounds_keep_what_was_released_and_add_it_up():
    rng = np.random.default_rng(0)
    room, first, second = 4, *rng.normal(size=(2, 16)).astype(np.float32)
    params = {"counts": jnp.zeros(N), "head": jnp.asarray([5, 2, 7, N]), "kept": jnp.ones(16, bool)}
    params["steps"] = jnp.zeros(16)
    rule = StepTable(keep=(0.5,))
    state = rule.init(params)
    made = []
    for total in (first, second):
        params, state = rule.finish(params, ({"steps": jnp.asarray(total)[None]}, jnp.ones(1)), jnp.asarray(3), state)
        made.append({name: np.asarray(leaf) for name, leaf in params.items()})
    Y1, Y2 = first.reshape(room, room), second.reshape(room, room)
    Z = Y1 + 0.2 * Y1.T
    cells = [(i, j) for i in range(3) for j in range(3) if i != j]  # the fourth place of the head is empty
    best = sorted(cells, key=lambda cell: -Z[cell])[:3]
    kept = np.zeros((room, room), bool)
    kept[tuple(zip(*best))] = True
    np.testing.assert_array_equal(made[0]["kept"].reshape(room, room), kept)
    Y = np.where(kept, Y2, 0) + 0.3 * Y1  # noise on cells that nobody sent is no part of it
    E = np.where(np.eye(room, dtype=bool), 0, Y + 0.2 * Y.T)
    np.testing.assert_allclose(made[1]["steps"].reshape(room, room), E, rtol=1e-5, atol=1e-6)


# ---- whole runs ----


@jax.jit
def scored(method, params, recent):
    return method.score(params, {}, recent, recent, jnp.arange(N))


def little_log(people=30, seed=1):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 14, people)
    histories = [rng.integers(0, N, length).tolist() for length in lengths]
    return histories, from_events(np.repeat(np.arange(people), lengths), np.concatenate(histories), n_items=N)


def no_noise(plan="steps-once", **settings):
    quiet = {"mechanism": "gaussian", "clip": 1.0, "noise": 0.0, "update_form": "nonnegative"}
    sending = {f"{number}.privacy": quiet for number in (1, 2)}
    return choose(plan, {**sending, **{name.replace("__", "."): value for name, value in settings.items()}})


def test_a_run_without_noise_is_the_recipe():
    histories, log = little_log()
    plan = no_noise().with_setting("1.hyper.most", 5).with_setting("2.hyper.most", 5)
    run = simulate(plan, log, quiet=True)
    counts = counts_of(histories)
    head = np.argsort(-counts, kind="stable")[:5]
    shown = np.maximum(counts[head], 1)
    g = (shown / shown.mean()) ** -0.2
    Y = np.sum([table_of(items, head, g) for items in histories], axis=0)
    E = np.where(np.eye(5, dtype=bool), 0, Y + 0.2 * Y.T)
    np.testing.assert_allclose(run.params["counts"], counts, atol=1e-3)
    assert np.asarray(run.params["head"]).tolist() == head.tolist()
    np.testing.assert_allclose(np.asarray(run.params["steps"]).reshape(5, 5), E, atol=2e-2)  # on the grid of integers
    method = run.method
    for items in histories[:9]:
        recent = jnp.asarray([*[-1] * (LENGTH - len(items)), *items], jnp.int32)
        found = np.asarray(scored(method, run.params, recent))
        expected = scores_of(
            np.asarray(run.params["steps"]).reshape(5, 5), head, np.asarray(run.params["counts"]), items
        )
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_the_head_follows_from_the_noisy_counts_that_were_released():
    _, log = little_log(people=400)
    run = simulate(choose("steps-once", {"1.server.least": 2}, epsilon=4.0), log, quiet=True, seed=3)
    noise = deviations(run.price)[0]
    counts = jnp.asarray(run.params["counts"])
    least = max(1.15 * float(counts.sum()) ** 0.25 * (noise * math.sqrt(0.05)) ** 0.75, 2.5 * noise)
    head = frequent(counts, least, 2, N)
    np.testing.assert_array_equal(run.params["head"], head)
    np.testing.assert_allclose(run.params["weights"], item_weights(counts, head, noise, 0.2), rtol=1e-5)
    exact = counts_of([log.items[a:b].tolist() for a, b in zip(log.offsets, log.offsets[1:])])
    assert np.abs(np.asarray(counts) - exact).std() == pytest.approx(noise, rel=0.8)


# ---- the price ----


def deviations(cost: Price) -> list[float]:
    """The noise of each stage, in units of the bound, which is 1."""
    return [stage.mechanism.describe()["deviation_of_sum"] for stage in cost.stages if stage.mechanism]


def test_the_noise_is_that_of_exact_gaussian_privacy_and_grows_by_root_two_under_replacement():
    alone = {f"{number}.cohort": {"sampler": "all", "relation": "add_remove"} for number in (1, 2)}
    replaced, present = (price(choose("steps-once", some, epsilon=2.0), 1000) for some in ({}, alone))
    sigma = gaussian_noise(2.0, 1e-5)
    for cost, factor in ((replaced, math.sqrt(2)), (present, 1.0)):
        assert deviations(cost) == pytest.approx(
            [factor * sigma / math.sqrt(share) for share in (0.05, 0.95)], rel=2e-3
        )
        assert cost.whole.epsilon == pytest.approx(2.0, rel=1e-3)
    assert replaced.whole.relation == "replace_one"
    assert present.whole.relation == "add_remove"


# ---- the gate, the prior and three rounds ----


def gated_in_numpy(counts0, totals, sigma, features, recipe, room):
    """§2b of the recipe on given noisy sums: counts at σ/√.05, then the sums of four rounds; a list of what each made."""
    n = counts0.size
    above = lambda many: NormalDist().inv_cdf(1 - many / n)  # noqa: E731
    n0 = (counts0 >= above(1) * sigma / math.sqrt(0.05)).sum()
    assert n0 >= 5
    s = float(np.clip(1.2 / math.sqrt(n0), 0.05, 0.45))
    counts = (0.05 * counts0 + (s - 0.05) * totals[0][:n]) / s
    noise = sigma / math.sqrt(s)
    least = max(1.1 * counts.sum() ** 0.25 * sigma**0.75, above(10) * noise) if n > 20 else -math.inf
    K = int(np.clip((counts >= least).sum(), 20, room))
    head = np.argsort(-counts, kind="stable")[:K]
    shown = np.maximum(np.maximum(counts[head], 1), noise)
    g = (shown / shown.mean()) ** -recipe.power
    off, m = ~np.eye(K, dtype=bool), np.outer(shown * g, shown * g)
    V, Z, sd, kept, made, ts = np.zeros((K, K)), np.zeros((K, K)), 0.0, off, [], []
    prior, popular = Z, 0.0
    for turn, total in enumerate(totals[1:]):
        before, Y = Z, total.reshape(room, room)[:K, :K]
        V = np.where(kept, Y, 0) + recipe.carry * V
        Z = V + recipe.transpose * V.T
        sd = sigma / math.sqrt((1 - s) * recipe.shares[turn])
        if turn == 0:
            columns = np.stack([(m * feature[np.ix_(head, head)])[off] for feature in features], axis=1)
            factor = np.linalg.lstsq(columns, Z[off], rcond=None)[0]
            F = np.zeros((K, K))
            F[off] = np.maximum(columns @ factor, 0)
            v = sd**2 * (1 + recipe.transpose**2)
            wrong = max(((Z - F)[off] ** 2).mean() - v, v * math.sqrt(2 / off.sum()))
            prior = recipe.prior * v / wrong * F
            alone = (m * Z)[off].sum() / (m**2)[off].sum() * m
            left = max(((Z - alone)[off] ** 2).mean() - v, 0) + 8 * v * math.sqrt(2 / off.sum())
            popular = (alone[off] ** 2).mean() / left
        else:
            X = np.stack([m[kept], before[kept]], axis=1)
            ts.append(np.linalg.inv(X.T @ X) @ X.T @ Y[kept] / np.sqrt(np.diag(np.linalg.inv(X.T @ X))) / sd)
        if turn < 2:
            cells = [(i, j) for i in range(K) for j in range(K) if i != j]
            best = sorted(cells, key=lambda cell: -(Z + prior)[cell])[: round(recipe.kept[turn] * len(cells))]
            kept = np.zeros((K, K), bool)
            kept[tuple(zip(*best))] = True
            made.append(kept)
    E = np.where(off, Z, 0)
    Q = np.where(off, np.maximum((V + V.T) / 2 - 2 * sd / math.sqrt(2), 0), 0)
    Q /= np.maximum(Q.sum(1, keepdims=True), 1e-9)
    E = np.where(off, E + recipe.smooth * E @ Q.T, 0)
    assert ts[0][1] >= 2  # or the last round would be of counts
    r = ((max(ts[1][0], 0) + 1) / max(ts[1][1] - 1, 0.5)) ** 2
    c = 8 * r * popular**3 + 4 * max(r - 2, 0)
    E = np.where(off, E + c * E.sum() / m[off].sum() * m, 0)
    return s, counts, head, g, made, E


@pytest.mark.parametrize("public", [True, False])
def test_the_gated_rule_is_the_recipe(public):
    rng, n, room, sigma = np.random.default_rng(4), 60, 55, 1.0
    genres, years = rng.random((n, 5)) < 0.4, rng.integers(1930, 2000, n).astype(np.float32)
    fields = (Field("genres", "multi", 5), Field("year", "numeric")) if public else ()
    columns = {"genres": jnp.asarray(genres, jnp.float32), "year": jnp.asarray(years)} if public else {}
    catalog = Catalog(n, columns, fields)
    rule = cast(GatedSteps, GatedSteps().settle(sigma / math.sqrt(0.95), catalog))
    unit = genres / np.maximum(np.linalg.norm(genres, axis=1), 1e-9)[:, None]
    g, gap = unit @ unit.T, np.abs(years[:, None] - years) / years.std() * 16
    features = [np.ones((n, n)), g, g**3, *(np.exp(-gap / w) for w in (1, 4, 15)), g * np.exp(-gap / 4)]
    counts0 = (rng.gamma(0.4, 40, n) + rng.normal(0, 4, n)).astype(np.float32)
    totals = [rng.normal(2, 3, room * room).astype(np.float32) for _ in range(4)]
    totals[0][:n] = counts0 + 1
    expected = gated_in_numpy(counts0, totals, sigma, features if public else features[:1], rule.recipe, room)
    s, counts, head, weights, kept, E = expected
    params = {**Steps(catalog, sends="as_asked", most=room).init(KEY), "counts": jnp.asarray(counts0)}
    state, asked, made = rule.init(params), [], []
    finish = jax.jit(lambda *parts: rule.finish(*parts))
    for total in totals:
        asked.append(float(rule.asks(params, state)["share"]))
        params, state = finish(params, ({"steps": jnp.asarray(total)[None]}, jnp.ones(1)), jnp.asarray(9), state)
        made.append(params)
    K = len(head)
    assert room > K
    assert asked == pytest.approx([(s - 0.05) / 0.95, *((1 - s) / 0.95 * a for a in rule.recipe.shares)], rel=1e-5)
    assert sum(asked) == pytest.approx(1.0, abs=1e-6)
    np.testing.assert_allclose(made[0]["counts"], counts, rtol=1e-4)
    assert np.asarray(made[0]["head"])[:K].tolist() == head.tolist()
    assert (np.asarray(made[0]["head"])[K:] == n).all()
    np.testing.assert_allclose(np.asarray(made[0]["weights"])[:K], weights, rtol=1e-4)
    for round, expected in enumerate(kept, 1):
        found = np.asarray(made[round]["kept"]).reshape(room, room)
        assert (found[:K, :K] != expected).mean() < 0.003  # least squares in float32 may swap two at the edge
        assert found.sum() == expected.sum()
    found = np.asarray(made[3]["steps"]).reshape(room, room)
    assert not found[K:].any()
    assert (np.abs(found[:K, :K] - E) > 1e-2).mean() < 0.05


def test_where_little_stands_out_of_the_noise_all_goes_to_counts():
    _, log = little_log(people=60)
    run = simulate("steps", log, epsilon=0.3, quiet=True)
    parts = [row["public_state"]["part"] for row in run.rounds if row.get("public_state")]
    assert parts == [PARTS - 3, 1, 1, 1]
    assert (np.asarray(run.params["head"]) == N).all()
    counts, none = np.asarray(run.params["counts"]), jnp.full(LENGTH, 3)
    found = np.asarray(scored(run.method, run.params, none))
    assert np.argsort(-found).tolist() == np.argsort(-counts).tolist()
    # The whole ε went into them: .05 and .95 of it, averaged by their share.
    exact = counts_of([log.items[a:b].tolist() for a, b in zip(log.offsets, log.offsets[1:])])
    assert np.abs(counts - exact).std() < 4 * math.sqrt(2) * gaussian_noise(0.3, 1e-5)


@pytest.mark.parametrize("planted", [False, True])
def test_where_the_steps_say_no_more_than_the_counts_the_last_round_goes_to_counts(planted):
    """A table of products of counts with noise, beside one where each item has a successor as well."""
    rng, n, sigma = np.random.default_rng(5), 60, 2.0
    rule = cast(GatedSteps, GatedSteps().settle(sigma / math.sqrt(0.95), Catalog(n)))
    truth = 400 / np.arange(1, n + 1)
    params = {**Steps(Catalog(n), sends="as_asked", most=n).init(KEY), "counts": jnp.asarray(truth, jnp.float32)}
    state, finish, last, asked = rule.init(params), jax.jit(lambda *parts: rule.finish(*parts)), params, 0.0
    for turn in range(4):
        if int(params["phase"]) == 0:
            total = np.pad(truth + turn, (0, n * n - n))
        else:
            shown = np.append(truth, 0)[np.asarray(params["head"])]
            total = np.outer(shown, shown) / 2000 + 40 * np.eye(n, k=1) * planted + rng.normal(0, 4, (n, n))
        last, asked = params, float(rule.asks(params, state)["share"]) * 0.95
        sent = ({"steps": jnp.asarray(total.reshape(-1), jnp.float32)[None]}, jnp.ones(1))
        params, state = finish(params, sent, jnp.asarray(9), state)
    assert int(last["phase"]) == planted
    assert bool((np.asarray(params["head"]) < n).any()) == planted
    if not planted:
        share = float(state.counted)
        expected = (share * np.asarray(last["counts"]) + asked * (truth + 3)) / (share + asked)
        np.testing.assert_allclose(params["counts"], expected, rtol=1e-5)


def test_a_device_sends_what_it_is_asked_for():
    method = Steps(Catalog(N), sends="as_asked", most=4)
    items = [3, 1, 1, 2, 8, 0, 2]
    for phase in (0, 1):
        params = {**method.init(KEY), "phase": jnp.int32(phase)}
        found = np.asarray(dense(sent(method, params, items, LENGTH)["steps"]))
        if phase:
            expected = table_of(items, [0, 1, 2, 3], np.ones(4)).reshape(-1)
        else:
            expected = np.pad(counts_of([items]), (0, 16 - N))
        np.testing.assert_allclose(found, expected, atol=1e-6)


def test_a_message_without_room_for_the_counts_is_refused():
    with pytest.raises(
        PlanError, match=r"hyper\.most and hyper\.upload leave 16 numbers in a message.*at least 5 items"
    ):
        Steps(Catalog(17), sends="as_asked", most=4)


@pytest.mark.parametrize(("upload", "room"), [(1.0, 500), (0.25, 250), (100.0, 700), (None, 700)])
def test_as_many_items_are_in_the_head_as_fit_into_a_message(upload, room):
    method = Steps(Catalog(900), most=700, upload=upload)
    steps = jax.eval_shape(method.init, KEY)["steps"]
    assert method.room == room
    assert upload is None or steps.size * steps.dtype.itemsize <= upload * 1e6


# ---- never worse than popularity ----


def popularity_of(epsilon: float) -> Plan:
    """The counts of the plan, with the whole ε and no head."""
    privacy = {"mechanism": "gaussian", "clip": 1.0, "epsilon": epsilon, "update_form": "nonnegative"}
    server = {"rule": "frequent_items", "level": 1e9, "least": 0}
    stage = Stage("steps", {"sends": "counts"}, ("counts", "head", "weights"), privacy, server, rounds=1)
    return choose(Plan("private-popularity", (stage,)))


@pytest.mark.slow
@pytest.mark.parametrize("people", [200, 1500])
@pytest.mark.parametrize("epsilon", [0.25, 1.0, 8.0])
@pytest.mark.parametrize("log", [partial(movies, items=150, seed=5), taste_groups], ids=["movies", "groups"])
def test_the_plan_is_not_worse_than_private_popularity(log, epsilon, people):
    """The interval of the difference over users, of the mean over seeds, does not lie below 0; also where order tells little."""
    split = load_protocol("full").split(log(people), 0)
    plans = popularity_of(epsilon), choose("steps", epsilon=epsilon)
    found = [
        np.mean(
            [per_case(ranks(simulate(plan, split.train, seed=seed, quiet=True), split), "NDCG@10") for seed in (1, 2)],
            axis=0,
        )
        for plan in plans
    ]
    assert interval(found[1] - found[0]).high >= 0
