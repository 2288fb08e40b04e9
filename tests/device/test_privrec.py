"""PrivRec: the paper's numbers, what a device trains, and what it keeps private."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tacit.core.catalog import Catalog, Field
from tacit.core.sparse_rows import dense_tree
from tacit.device.history import plain_history
from tacit.device.method import build
from tacit.device.round import KEYS
from tacit.errors import DataError, PlanError
from tacit.lab.data.synthetic import movies
from tacit.lab.data.synthetic.small import checkerboard
from tacit.lab.plans.loader import choose
from tacit.lab.runs.run import simulate
from tacit.privacy.mechanism import build_mechanism
from tacit.privacy.mechanisms._parts import clipped_sum
from tacit.privacy.price import price
from tacit.privacy.sampler import build_sampler
from tacit.server.rule import build_rule

KEY = jax.random.key(5, impl=KEYS)
DELTAS = jnp.array([(0.271, 0.542), (-0.271, 0.1355), (0.813, 0.271)])


def made(rate=0.1, **hyper):
    """A small PrivRec on a small world, its start, and what its first person has."""
    world = movies(30, 60, seed=1)
    settings = {"dim": 4, "hidden": (5,), "epochs": 2, "rate": rate, "item_rate": rate, **hyper}
    method = build(
        choose("privrec", {f"hyper.{name}": value for name, value in settings.items()}).stages[0], world.catalog
    )
    history = jax.tree.map(lambda leaf: jnp.asarray(leaf[0]), world.histories(np.array([0]), 32))
    return method, method.init(KEY), history


# ---- the server's half ----


def mean_of(deltas, rate, **privacy):
    """θ after a round from θ₀ = 0 in which these updates came, by the mechanism and the rule that runs use."""
    mechanism = build_mechanism(privacy or {"mechanism": "none"})
    if privacy:
        mechanism = mechanism.settle(build_sampler({"sampler": "fixed", "count": 3}).exposure(1, 100))
    payloads = jax.vmap(lambda d: mechanism.encode(KEY, {"x": d}, {}))(deltas)
    total = mechanism.add(mechanism.zero({"x": jnp.zeros(2)}, 1), payloads, jnp.ones((3, 1)), jnp.ones(3, bool))
    estimate = mechanism.estimate(KEY, total, jnp.asarray(3), {})
    rule = build_rule({"rule": "mean_step", "rate": rate})
    sent = jax.vmap(lambda payload: mechanism.to_numbers(payload, {}))(payloads)
    return sent["x"], rule.finish({"x": jnp.zeros(2)}, estimate, jnp.asarray(3), ())[0]["x"]


def test_reptile_moves_by_the_mean():
    np.testing.assert_allclose(mean_of(DELTAS, 0.5)[1], [0.1355, 0.15808333], rtol=1e-6)
    np.testing.assert_allclose(mean_of(DELTAS / 2.71, 0.5)[1], [0.05, 0.05833333], rtol=1e-6)  # a single step


@pytest.mark.parametrize(("after_step", "theta"), [(None, (0.1211581, -0.05986209)), (0.5, (0.1711581, -0.2431954))])
def test_clip_and_noise_inside_the_step_and_after_it(monkeypatch, after_step, theta):
    drawn = lambda key, grid, shape: jnp.round(jnp.array([0.3, -1.1]) * grid.noise.deviation).astype(jnp.int32)  # noqa: E731
    monkeypatch.setattr(clipped_sum, "draw_noise", drawn)
    settings = {} if after_step is None else {"after_step": after_step}
    clipped, moved = mean_of(DELTAS, 0.5, mechanism="gaussian", clip=0.5, noise=2.0, **settings)
    expected = [(0.2236068, 0.4472136), (-0.271, 0.1355), (0.4743416, 0.1581139)]
    step = 0.5 / 11  # of the grid of so few numbers, at most
    np.testing.assert_allclose(clipped, expected, atol=1.2 * step)
    np.testing.assert_allclose(moved, theta, atol=step)


@pytest.mark.slow
def test_noise_after_the_step_is_accounted_as_what_it_is():
    exposure = build_sampler({"sampler": "fixed", "count": 30}).exposure(1000, 4800)

    def cost(**settings):
        mechanism = build_mechanism({"mechanism": "gaussian", "delta": 1e-6, **settings}).settle(exposure)
        return next(claim.epsilon for claim in mechanism.claim(exposure) if claim.per == "run")

    assert cost(noise=2.0, after_step=2.0) == pytest.approx(cost(noise=1.0))
    assert cost(noise=2.0, after_step=0.5) == pytest.approx(cost(noise=4.0))
    assert cost(noise=2.0, after_step=2.0) > 4 * cost(noise=2.0)
    assert cost(epsilon=2.0, after_step=2.0) <= 2.0


def test_noise_after_the_step_is_the_server_s():
    with pytest.raises(PlanError, match=r"privacy.after_step = 0.5 is for noise at the server, got place = 'local'"):
        build_mechanism({"mechanism": "gaussian", "noise": 1.0, "place": "local", "after_step": 0.5})


# ---- the device's half ----


def forward(theta, method, history, items):
    """The model as the paper writes it, with whole tables, one field after the other."""
    about, person = method.catalog.attributes, np.asarray(history.person)
    genres, year = np.asarray(about["genres"])[items], np.asarray(about["year"])
    values = theta["item_values"]
    of_genres = (genres / genres.sum(1, keepdims=True)) @ values[1:17]
    of_year = ((year - year.mean()) / year.std())[items][:, None] * values[17]
    v = jnp.concatenate([theta["items"][items], of_genres, of_year], 1) @ theta["item_tower"][:-1]
    v = jax.nn.relu(v + theta["item_tower"][-1])
    places = 1 + person.astype(int) + np.array([0, 2, 8])
    u = theta["person_values"][places].ravel() @ theta["person_tower"][:-1] + theta["person_tower"][-1]
    x = jnp.concatenate([jnp.tile(jax.nn.relu(u), (len(items), 1)), v], 1)
    first, last = theta["head"][:45].reshape(9, 5), theta["head"][45:].reshape(6, 1)
    x = jax.nn.relu(x @ first[:-1] + first[-1])
    return (x @ last[:-1] + last[-1])[:, 0]


@pytest.mark.slow
def test_one_step_is_the_gradient_of_the_model_as_written():
    method, params, history = made(epochs=1, batch=0, negatives=0, rate=0.1)
    own = method.prepare(history)
    _, update, weight = method.local(KEY, params, {}, own)
    items = np.asarray(history.items)[np.asarray(history.items) >= 0]
    y = (np.asarray(history.labels)[: items.size] > 3).astype(np.float32)

    def loss(theta):
        odds = forward(theta, method, history, items)
        return (jnp.logaddexp(0, odds) - y * odds).mean()

    slope = jax.grad(loss)(params)
    for name, moved in dense_tree(update).items():
        np.testing.assert_allclose(moved, -0.1 * slope[name], atol=1e-6, err_msg=name)
    assert weight.tolist() == [1.0]
    everything = jnp.arange(60)
    scores = method.score(params, {}, own, jnp.full(3, -1), everything)
    np.testing.assert_allclose(scores, forward(params, method, history, np.arange(60)), rtol=1e-4, atol=1e-6)


@pytest.mark.slow
def test_maml_is_the_gradient_through_a_step():
    method, params, history = made(meta="maml", negatives=0, rate=0.1)
    items = np.asarray(history.items)[np.asarray(history.items) >= 0]
    y, half = (np.asarray(history.labels)[: items.size] > 3).astype(np.float32), items.size // 2

    def loss(theta, part):
        odds = forward(theta, method, history, items[part])
        return (jnp.logaddexp(0, odds) - y[part] * odds).mean()

    def asked(theta):
        slope = jax.grad(loss)(theta, slice(None, half))
        return loss(jax.tree.map(lambda t, g: t - 0.1 * g, theta, slope), slice(half, None))

    slope = jax.grad(asked)(params)
    update = dense_tree(method.local(KEY, params, {}, method.prepare(history))[1])
    for name, moved in update.items():
        np.testing.assert_allclose(moved, -slope[name], atol=1e-5, err_msg=name)


@pytest.mark.slow
def test_only_rows_that_occur_are_gathered_and_trained():
    method, params, history = made()
    own = method.prepare(history)
    rows = method.local(KEY, params, {}, own)[1]["items"]
    held = np.asarray(rows.index)[np.asarray(rows.index) < 60]
    had = set(np.asarray(history.items)[np.asarray(history.items) >= 0].tolist())
    assert had < set(held.tolist())
    assert np.asarray(rows.value)[: held.size].any(axis=1).all()
    assert not np.asarray(rows.value)[held.size :].any()
    drawn = method._samples(KEY, own)
    fresh = np.asarray(drawn.items)[np.asarray(drawn.place)[np.asarray(drawn.real)]].reshape(-1)
    liked = np.asarray(drawn.liked)[np.asarray(drawn.real)] > 0
    assert set(fresh[liked].tolist()) <= had
    strangers = ~np.isin(fresh, list(had))
    assert 2 * liked.sum() < strangers.sum() <= 4 * liked.sum()


def test_liked_is_above_three_and_without_ratings_everything():
    method, _, history = made()
    assert np.asarray(method.prepare(history)["liked"]).tolist() == np.asarray(history.labels > 3).tolist()
    plain = history._replace(labels=(history.items >= 0).astype(jnp.float32))
    assert np.asarray(method.prepare(plain)["liked"]).tolist() == np.asarray(history.items >= 0).tolist()


def test_the_newest_events_are_trained_on_and_older_ones_are_no_negatives():
    method, _, history = made(most=3)
    own, count = method.prepare(history), int((history.items >= 0).sum())
    assert np.asarray(own["items"]).tolist() == np.asarray(history.items)[count - 3 : count].tolist()
    assert int((own["had"].index < 60).sum()) == count


def test_there_is_no_private_state_and_adaptation_fits_the_user():
    method, params, history = made(epochs=150, rate=0.2, item_rate=0.2, adapts=())
    own = method.prepare(history)
    assert method.enter(KEY, own) == {}
    mine = method.adapt(KEY, params, {}, own)
    assert mine["items"].shape[0] <= 32 * 5
    before, after = (method.score(params, local, own, jnp.full(3, -1), jnp.arange(60)) for local in ({}, mine))
    liked = np.unique(np.asarray(history.items)[np.asarray(own["liked"])])
    rest = np.setdiff1d(np.arange(60), np.asarray(history.items))
    gap = [float(scores[liked].mean() - scores[rest].mean()) for scores in (before, after)]
    assert gap[1] > gap[0] + 0.4


def test_leaves_that_are_sent_and_leaves_that_adapt():
    method, params, history = made(sends=("bias",), adapts=("head",), bias=True)
    own = method.prepare(history)
    update = method.local(KEY, params, {}, own)[1]
    assert set(update) == {"bias"}
    alone = made(sends=("bias",), adapts=("bias",), bias=True)[0].local(KEY, params, {}, own)[1]
    assert not np.allclose(update["bias"].value, alone["bias"].value)  # the head moved beside it, and stayed at home
    assert set(method.adapt(KEY, params, {}, own)) == {"index", "head"}
    moved = {**params, "bias": params["bias"].at[7].add(2.0)}
    scores = [method.score(one, {}, own, jnp.full(3, -1), jnp.array([7, 8])) for one in (params, moved)]
    np.testing.assert_allclose(scores[1] - scores[0], [2, 0], atol=1e-6)


def test_word_fields_are_optional_and_users_may_have_no_fields():
    method, params, history = made(kinds=("multi", "words"))
    assert [field.name for field in method.net.item_fields] == ["genres", "title"]
    nobody = history._replace(person=jnp.zeros(0))
    update = method.local(KEY, params, {}, method.prepare(nobody))[1]
    assert np.asarray(update["person_values"]).any(axis=1).tolist() == [True]


def test_the_paper_s_size():
    fields = [Field("gender", "categorical", 2), Field("age", "categorical", 7), Field("occupation", "categorical", 21)]
    genres = (Field("genres", "multi", 18),)
    catalog = Catalog(3706, {"genres": jnp.zeros((3706, 18))}, genres, tuple(fields))
    settings = {"hyper.dim": 64, "hyper.hidden": (64, 32, 16, 8)}
    params = build(choose("privrec", settings).stages[0], catalog).init(KEY)
    unknown = 2 * 64  # what stands for a value that is not known, of an item and of a person
    assert sum(leaf.size for leaf in params.values()) == 271_873 + unknown


@pytest.mark.parametrize(
    ("setting", "value", "sentence"),
    [
        ("sends", ("itms",), r"hyper.sends of privrec has no name 'itms'; did you mean 'items'\?"),
        ("adapts", ("bias",), r"hyper.adapts of privrec has no name 'bias'"),
        ("kinds", ("word",), r"hyper.kinds of privrec has no name 'word'; did you mean 'words'\?"),
        ("hidden", (8, 0), r"hyper.hidden of privrec must be sizes of layers, at least 1 each, got \(8, 0\)"),
    ],
)
def test_refused(setting, value, sentence):
    with pytest.raises(PlanError, match=sentence):
        choose("privrec", {f"hyper.{setting}": value})


def test_replace_keeps_plans_whole():
    plan = choose("privrec")
    assert replace(plan, name="other").stages[0].hyper["hidden"] == plan.stages[0].hyper["hidden"]


def test_momentum_accumulates_earlier_rounds():
    rule = build_rule({"rule": "mean_step", "rate": 0.5, "momentum": 0.9})
    params = {"x": jnp.zeros(2)}
    state = rule.init(params)
    for _ in range(2):
        estimate = {"x": jnp.array([[4.0, -2.0]])}, jnp.array([2.0])
        params, state = rule.finish(params, estimate, jnp.asarray(2), state)
    np.testing.assert_allclose(params["x"], 0.5 * (1 + 1.9) * np.array([2, -1]), rtol=1e-6)
    with pytest.raises(PlanError, match=r"server.momentum must be above 0 and at most 0.999, got 1.0"):
        build_rule({"rule": "mean_step", "momentum": 1.0})


def test_counts_of_an_earlier_stage_decide_before_training():
    method, params, history = made(popular=2.0, smooth=5.0)
    counts = jnp.arange(60, dtype=jnp.int32) - 3  # noise may take a count below 0
    scores = method.score({**params, "counts": counts}, {}, method.prepare(history), jnp.full(3, -1), jnp.arange(60))
    np.testing.assert_allclose(scores, 2 * np.log1p(np.maximum(np.arange(60) - 3, 0) / 5), atol=1e-6)


def test_dislikes_may_be_left_out():
    own, met = made()[0].prepare(made()[2]), made()[2].items >= 0
    with_them, without = (made(dislikes=flag)[0]._samples(KEY, own).real.reshape(32, 5)[:, 0] for flag in (True, False))
    assert np.asarray(with_them).tolist() == np.asarray(met).tolist()
    assert np.asarray(without).tolist() == np.asarray(own["liked"]).tolist()


# ---- ratings ----


@pytest.mark.slow
def test_one_step_of_the_rating_head_is_the_gradient_of_the_squared_error():
    """Eq. 1 with a linear output: every event has its rating, and nothing is drawn."""
    method, params, history = made(output="rating", epochs=1, batch=0, rate=0.1)
    items = np.asarray(history.items)[np.asarray(history.items) >= 0]
    ratings = np.asarray(history.labels)[: items.size]
    own = method.prepare(history)

    def loss(theta):
        return jnp.square(forward(theta, method, history, items) - ratings).mean()

    slope = jax.grad(loss)(params)
    for name, moved in dense_tree(method.local(KEY, params, {}, own)[1]).items():
        np.testing.assert_allclose(moved, -0.1 * slope[name], atol=2e-6, err_msg=name)
    rows = method.local(KEY, params, {}, own)[1]["items"]
    assert set(np.asarray(rows.index)[np.asarray(rows.index) < 60].tolist()) == set(items.tolist())


@pytest.mark.slow
def test_ratings_that_fields_explain_are_predicted_exactly():
    """A toy without noise: 2 stars, and 2 more for items of the first kind. Held-out items get their very ratings."""
    kind = np.arange(40) % 2
    fields = (Field("kind", "categorical", 2),)
    catalog = Catalog(40, {"kind": jnp.asarray(kind, jnp.float32)[:, None]}, fields)
    settings = {"output": "rating", "dim": 4, "hidden": (4,), "item_spread": 0.0, "epochs": 1500, "batch": 0}
    settings |= {"rate": 0.05, "item_rate": 1e-6, "adapts": (), "most": 0}
    method = build(choose("privrec", {f"hyper.{name}": value for name, value in settings.items()}).stages[0], catalog)
    known = plain_history(jnp.arange(20))._replace(labels=jnp.asarray(4.0 - 2.0 * kind[:20]), person=jnp.zeros(0))
    own, params = method.prepare(known), method.init(KEY)
    mine = method.adapt(KEY, params, {}, own)
    asked = jnp.arange(20, 40)
    before, after = (method.score(params, local, own, jnp.full(3, -1), asked) for local in ({}, mine))
    error = [
        float(jnp.sqrt(jnp.mean(jnp.square(predicted - (4.0 - 2.0 * kind[20:]))))) for predicted in (before, after)
    ]
    assert error[0] > 1
    assert error[1] < 1e-3


@pytest.mark.slow
def test_steps_of_the_suggested_rates_learn_ratings_and_stay_finite():
    world = movies(60, 300, seed=1)
    method = build(choose("privrec", {"hyper.output": "rating"}).stages[0], world.catalog)
    params, histories = method.init(KEY), world.histories(np.arange(12), 128)

    def error(key, history):
        own = method.prepare(history)
        mine = method.adapt(key, params, {}, own)
        predicted = method.score(params, mine, own, jnp.full(3, -1), jnp.maximum(history.items, 0))
        return jnp.where(history.items >= 0, predicted - history.labels, 0.0)

    errors = np.asarray(jax.jit(jax.vmap(error))(jax.random.split(KEY, 12), histories))
    real = np.asarray(histories.items) >= 0
    assert np.sqrt((errors[real] ** 2).mean()) < 0.97 * np.asarray(histories.labels)[real].std()


def test_rating_output_differs_from_liking_output():
    method, _, history = made(output="rating", negatives=7, dislikes=False)
    mine = method._samples(KEY, method.prepare(history))
    met = np.asarray(history.items) >= 0
    assert np.asarray(mine.real).tolist() == met.tolist()
    assert np.asarray(mine.liked)[met].tolist() == np.asarray(history.labels)[met].tolist()
    with pytest.raises(PlanError, match=r"output must be one of 'liking', 'rating', got 'stars'"):
        choose("privrec", {"hyper.output": "stars"})
    with pytest.raises(PlanError, match=r"hyper.popular = 1 of privrec adds to log-odds, got output = 'rating'"):
        made(output="rating", popular=1.0)


@pytest.mark.parametrize("name", ["privrec", "privrec-central"])
def test_rating_output_needs_a_log_with_ratings(name):
    with pytest.raises(DataError, match=r"privrec predicts ratings, and this log has none; name their column"):
        simulate(choose(name, {"hyper.output": "rating"}), checkerboard(20)[0], quiet=True)


@pytest.mark.slow
def test_pooled_ratings_are_predicted_too():
    world = movies(200, 60, seed=1)
    settings = {"dim": 4, "hidden": (5,), "output": "rating", "passes": 20, "pace": 0.01}
    plan = choose("privrec-central", {f"hyper.{name}": value for name, value in settings.items()})
    run = simulate(plan, world, quiet=True)
    who = np.repeat(np.arange(200), world.lengths)
    predicted = jax.vmap(run.method.odds, (None, 0, 0))(run.params, world.person[who], world.items[:, None])[:, 0]
    error = float(np.sqrt(np.mean((np.asarray(predicted) - world.labels) ** 2)))
    assert error < 0.97 * world.labels.std()


# ---- plans ----


@pytest.mark.parametrize("name", ["privrec", "privrec-sgd", "privrec-maml", "privrec-ids-only", "dp-privrec-paper"])
def test_a_plan_trains_every_leaf_of_the_network(name):
    stage = choose(name).stages[0]
    method = build(stage, movies(20, 60).catalog)
    assert set(stage.trains) == set(method.sends or method.leaves)
    assert len(stage.trains) == 6


@pytest.mark.parametrize("epsilon", [8.0, 0.5])
def test_dp_privrec_keeps_its_guarantee_in_two_messages(epsilon):
    cost = price(choose("dp-privrec", epsilon=epsilon), 4832)
    assert cost.whole.epsilon == pytest.approx(epsilon, rel=1e-3)
    assert cost.whole.epsilon <= epsilon * (1 + 1e-6)
    assert [stage.messages for stage in cost.stages] == [1, 1]


@pytest.mark.slow
def test_laplace_noise_bounds_the_whole_difference():
    settings = {"mechanism": "laplace", "clip": "l1", "bound": 0.5, "epsilon": 4.0}
    plan = choose("privrec", {"privacy": settings, "rounds": 2})
    assert price(plan, 100).whole.epsilon == pytest.approx(4.0)
    method, params, history = made()
    update = method.local(KEY, params, {}, method.prepare(history))[1]
    quiet = build_mechanism({"mechanism": "laplace", "clip": "l1", "bound": 1e-3, "scale": 1e-12})
    sent = quiet.to_numbers(quiet.encode(KEY, update, {}), {})
    assert sum(float(jnp.abs(leaf).sum()) for leaf in sent.values()) == pytest.approx(1e-3, rel=1e-3)
