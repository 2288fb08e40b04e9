"""Sequential baselines: each network against worked numbers, how pooled sequences are split, and that training learns order."""

import math
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.toys import same
from tacit.core.catalog import Catalog
from tacit.device.method import build
from tacit.device.methods.bert4rec import draw_masks
from tacit.device.round import KEYS
from tacit.errors import PlanError
from tacit.lab.baselines.central.next_item import Pool, draw_targets, pool
from tacit.lab.data import from_events
from tacit.lab.data.organisations import organisations
from tacit.lab.data.synthetic import movies
from tacit.lab.evaluation.candidates import AllItems
from tacit.lab.evaluation.scoring import ranks
from tacit.lab.evaluation.splits import leave_last_out
from tacit.lab.plans.loader import choose
from tacit.lab.runs.run import simulate
from tacit.nets.neural.graph import graph_edges, graph_step, new_session_graph, read_out
from tacit.nets.neural.losses import bpr_max, top1_max
from tacit.nets.sequence.attention import new_blocks, transformer
from tacit.nets.sequence.gru import gru_cell
from tacit.nets.sequence.windows import NextItemSamples
from tacit.privacy.price import price

KEY = jax.random.key(5, impl=KEYS)
CENTRAL = ["gru4rec", "bert4rec", "sr-gnn"]
SMALL = {"dim": 8, "window": 6, "drop": 0.0, "negatives": 0}


def made(name: str, items: int = 12, **hyper):
    """The method of a plan, small, for a catalog of items alone."""
    given = {f"hyper.{key}": value for key, value in {**SMALL, **hyper}.items()}
    return build(choose(name, given).stages[0], Catalog(items))


def question(before: list[int], target: int, window: int = 6) -> NextItemSamples:
    """One window, padded in front, and what came next."""
    row = jnp.array([[-1] * (window - len(before)) + before], jnp.int32)
    return NextItemSamples(row, jnp.array([target]), jnp.zeros((1, 0), jnp.int32), jnp.array([True]))


@jax.jit  # as one program: step by step, every operation would be compiled by itself
def lost_of(method, params, key, some):
    return method.losses(params, key, some)


@jax.jit
def scores_of(method, params, own, recent):
    return method.score(params, {}, own, recent, jnp.arange(method.catalog.n_items))


def surprise(method, params: dict, before: list[int], target: int) -> float:
    """−ln softmax of the target among all items, as a device would score them."""
    own, recent = {"newest": jnp.full(method.window, -1)}, question(before, target).before[0]
    scores = scores_of(method, params, own, recent)
    return float(jax.nn.logsumexp(scores) - scores[target])


# ---- pooled sequences ----


def by_hand(population, fields=("person", "sequence")):
    """Every sequence of every device as a list, in no order."""
    found: dict[tuple, list[int]] = {}
    for device in range(len(population)):
        for at in range(population.offsets[device], population.offsets[device + 1]):
            context = () if population.context is None else tuple(population.context[at, : len(fields)])
            found.setdefault((device, *context), []).append(int(population.items[at]))
    return sorted(found.values())


def lists(log: Pool) -> list[list[int]]:
    starts = np.flatnonzero(log.place == 0)
    return sorted(part.tolist() for part in np.split(log.items, starts[1:]))


def test_a_pool_has_all_sequences():
    log = movies(40, 60, silos=3)
    assert lists(pool(log)) == by_hand(log)
    held = organisations(log, "month")
    assert lists(pool(held)) == by_hand(held)
    assert len(lists(pool(held))) > len(log), "a person is cut into months"


def test_users_of_an_organisation_may_be_interleaved():
    """A log sorted by time: whose an event is says its field, not where it stands."""
    held = organisations(movies(40, 60, silos=3))
    rng = np.random.default_rng(0)
    keys = [rng.permutation(np.arange(held.offsets[d], held.offsets[d + 1])) for d in range(len(held))]
    order = np.concatenate(keys)
    mixed = type(held)(held.catalog, held.offsets, held.items[order], context=held.context[order])
    assert lists(pool(mixed)) == by_hand(mixed)


@settings(max_examples=40, deadline=None)
@given(lengths=st.lists(st.integers(1, 17), min_size=1, max_size=6), stride=st.integers(1, 7), seed=st.integers(0, 99))
def test_samples_cover_every_event(lengths, stride, seed):
    place = np.concatenate([np.arange(n) for n in lengths])
    log = Pool(np.arange(place.size), place, np.repeat(lengths, lengths) - 1 - place)
    at = draw_targets(np.random.default_rng(seed), log, stride)
    assert np.unique(at).size == at.size, "none is asked twice"
    assert (log.place[at] >= 1).all(), "nothing comes before a first event"
    asked = set()
    for event in at:
        asked |= set(range(event - min(stride, log.place[event]) + 1, event + 1))
    assert asked == set(np.flatnonzero(log.place >= 1))


# ---- the losses ----


def test_ranking_losses_by_hand():
    y, r = 0.4, np.array([1.0, -0.5, 0.2])
    real = np.array([True, True, False])
    s = np.exp(r[:2]) / np.exp(r[:2]).sum()
    sigma = lambda x: 1 / (1 + np.exp(-x))  # noqa: E731
    bpr = -math.log((s * sigma(y - r[:2])).sum()) + 0.5 * (s * r[:2] ** 2).sum()
    top = (s * (sigma(r[:2] - y) + 0.5 * sigma(r[:2] ** 2))).sum()
    given = (jnp.array([y]), jnp.asarray(r)[None], jnp.asarray(real)[None], 0.5)
    assert float(bpr_max(*given)[0]) == pytest.approx(bpr, rel=1e-5)
    assert float(top1_max(*given)[0]) == pytest.approx(top, rel=1e-5)
    nobody = (jnp.array([y]), jnp.asarray(r)[None], jnp.zeros((1, 3), bool), 0.5)
    assert np.isfinite(float(bpr_max(*nobody)[0]))


@pytest.mark.parametrize("objective", ["bpr_max", "top1_max"])
def test_a_higher_target_score_has_a_lower_loss(objective):
    method = made("gru4rec", objective=objective, negatives=5)
    params = method.init(KEY)
    tastes = jnp.stack([2 * params["items"][3], -2 * params["items"][3]])
    right, wrong = method._losses(params, KEY, tastes, jnp.array([3, 3]))
    assert right < wrong


def test_sampled_negatives_estimate_the_full_softmax():
    """Drawn rivals count as often as they would have to be drawn: over many draws they are the softmax of all."""
    few, every = made("gru4rec", 40, negatives=20), made("gru4rec", 40)
    params = every.init(KEY)
    tastes, target = jax.random.normal(KEY, (3, 8)), jnp.array([1, 7, 30])
    right = every.against_all(params, KEY, tastes, target)
    np.testing.assert_allclose(right, -jax.nn.log_softmax(tastes @ params["items"].T)[jnp.arange(3), target], rtol=1e-5)
    draws = jax.random.split(KEY, 400)
    drawn = jax.jit(jax.vmap(lambda key: few.against_all(params, key, tastes, target)))(draws)
    np.testing.assert_allclose(drawn.mean(0), right, atol=0.08)
    assert float(drawn.std(0).min()) > 0


# ---- GRU4Rec ----


def test_training_steps_of_gru4rec_equal_device_scores():
    method = made("gru4rec")
    params = method.init(KEY) | {"bias": jnp.linspace(-1, 1, 12)}
    lost, counts = lost_of(method, params, KEY, question([4, 7, 7, 2], 9))
    assert counts.tolist() == [False, False, True, True, True, True]
    line = [4, 7, 7, 2, 9]
    right = [surprise(method, params, line[:n], line[n]) for n in range(1, 5)]
    np.testing.assert_allclose(lost[2:], right, rtol=1e-5)


def test_the_mean_is_over_places_that_exist():
    method = made("gru4rec")
    params, own = method.init(KEY), {"items": jnp.array([4, 7, 2, 5, 6]), "place": jnp.array([0, 1, 2, 0, 1])}
    loss = jax.jit(lambda theta: method.loss(theta, own, jnp.array([2, 4, -1, 0]), KEY))(params)
    right = [
        surprise(method, params, before, after) for before, after in (([4], 7), ([4, 7], 2), ([5], 6))
    ]  # not across sequences, not before the first, not what is out of range
    assert float(loss) == pytest.approx(np.mean(right), rel=1e-5)


# ---- BERT4Rec ----


def test_bert4rec_has_the_published_parameter_count():
    """30,430·100 items, 30·100 positions, 4 blocks of 4(100² + 100) + 100·512 + 512 + 512·100 + 100 + 4·100."""
    hyper = {"dim": 100, "blocks": 4, "heads": 2, "wide": 512, "window": 29}
    method = build(choose("bert4rec", {f"hyper.{k}": v for k, v in hyper.items()}).stages[0], Catalog(30_430))
    leaves = jax.tree.leaves(jax.eval_shape(method.init, KEY))
    assert sum(math.prod(leaf.shape) for leaf in leaves) == 3_621_248


def test_a_block_by_hand():
    theta, x = new_blocks(KEY, 1, 4, 6), np.asarray(jax.random.normal(KEY, (3, 4)))
    theta = {name: leaf + 0.1 * jax.random.normal(KEY, leaf.shape) for name, leaf in theta.items()}
    attention, wide, narrow, norms = (np.asarray(leaf[0], float) for leaf in theta.values())
    dense = lambda layer, x: x @ layer[:-1] + layer[-1]  # noqa: E731
    norm = lambda n, x: (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-6) * n[0] + n[1]  # noqa: E731
    q, k, v = (dense(layer, x) for layer in attention[:3])
    seen = []
    for head in (slice(0, 2), slice(2, 4)):
        power = np.exp(q[:, head] @ k[1:, head].T / math.sqrt(2))  # the first step is padding
        seen.append(power / power.sum(1, keepdims=True) @ v[1:, head])
    x = norm(norms[0], x + dense(attention[3], np.concatenate(seen, axis=1)))
    right = norm(norms[1], x + dense(narrow, np.asarray(jax.nn.gelu(dense(wide, x)))))
    given = jax.random.normal(KEY, (3, 4))
    made = transformer(theta, given, jnp.array([False, True, True]), 2)
    np.testing.assert_allclose(made[1:], right[1:], atol=1e-5)


def test_a_share_of_real_events_is_masked_and_at_least_one():
    real = jnp.arange(20) >= jnp.array([[0], [10], [18], [19], [20]])
    at, counts = draw_masks(KEY, real, 0.3)
    assert counts.sum(1).tolist() == [6, 3, 1, 1, 0]
    for row in range(5):
        hidden = np.asarray(at[row])[np.asarray(counts[row])]
        assert np.unique(hidden).size == hidden.size
        assert np.asarray(real)[row, hidden].all()


def test_bert4rec_does_not_see_masked_items():
    """The last of three is hidden: what is lost is what a device would be surprised by, whatever stands there."""
    method = made("bert4rec", hidden=0.01)
    params = method.init(KEY)
    draws = jax.random.split(KEY, 32)
    lost, counts = jax.jit(jax.vmap(lambda key: method.losses(params, key, question([4, 7], 9))))(draws)
    assert (counts.sum(1) == 1).all()
    asks_last = np.isclose(lost[:, 0], surprise(method, params, [4, 7], 9), rtol=1e-5)
    assert 3 < asks_last.sum() < 20, "one of three places, by chance"


def test_heads_must_divide():
    with pytest.raises(PlanError, match=r"hyper\.dim of bert4rec must be a multiple of heads = 2, got 7"):
        made("bert4rec", dim=7)


# ---- SR-GNN ----


def test_a_session_graph_by_hand():
    """Items a, b, a, c after a place of padding: a is followed by b and by c, half each."""
    items = jnp.array([-1, 3, 5, 3, 8])
    into, out = (np.asarray(part) for part in graph_edges(items))
    a, b, c = 1, 2, 4
    right = np.zeros((5, 5))
    right[a, b], right[a, c], right[b, a] = 0.5, 0.5, 1.0
    np.testing.assert_allclose(out, right)
    right = np.zeros((5, 5))
    right[b, a], right[c, a], right[a, b] = 1.0, 1.0, 1.0
    np.testing.assert_allclose(into, right)
    theta, x = new_session_graph(KEY, 3), jax.random.normal(KEY, (9, 3))[jnp.maximum(items, 0)]
    theta = {name: leaf + 0.1 for name, leaf in theta.items()}
    sent = [x @ theta[name][:-1] + theta[name][-1] for name in ("edge_in", "edge_out")]
    at_a = jnp.append(sent[0][b], 0.5 * sent[1][b] + 0.5 * sent[1][c])
    h_a = gru_cell(at_a @ theta["node_input"][:-1] + theta["node_input"][-1], theta["node_state"], x[a])
    h = graph_step(theta, items, x)
    np.testing.assert_allclose(h[jnp.array([1, 3])], jnp.stack([h_a, h_a]), rtol=1e-5)
    last, W = h[4], {name: np.asarray(leaf) for name, leaf in theta.items()}
    votes = [
        jax.nn.sigmoid(last @ W["last_layer"] + h[t] @ W["each_layer"][:-1] + W["each_layer"][-1]) @ W["voice"]
        for t in range(1, 5)
    ]
    taste = np.append(last, sum(vote * h[t] for vote, t in zip(votes, range(1, 5)))) @ W["mix_layer"]
    np.testing.assert_allclose(read_out(theta, h, items >= 0), taste, rtol=1e-4)


def test_the_loss_of_sr_gnn_equals_device_scores():
    method = made("sr-gnn")
    params = method.init(KEY)
    lost, counts = lost_of(method, params, KEY, question([4, 7, 4, 2], 9))
    assert counts.tolist() == [1.0]
    assert float(lost[0]) == pytest.approx(surprise(method, params, [4, 7, 4, 2], 9), rel=1e-5)


# ---- the networks of federated plans, fitted centrally ----

TINY = {"width": 6, "dim": 8, "heads": 2, "hidden": 4, "window": 6, "short": 3, "batch": 8, "epochs": 1}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fedseqrec", pytest.param("fednewsrec", marks=pytest.mark.slow)])
def test_the_same_network_from_pooled_data(name):
    """The parameters are those of the federated plan; the fit is the device's own loss on everybody's events."""
    central = choose(f"{name}-central", {f"hyper.{key}": value for key, value in TINY.items()})
    federated = choose(name).stages[-1]
    assert set(central.stages[0].trains) == set(federated.trains)
    assert price(central, 4).whole.epsilon == math.inf
    log = organisations(movies(24, 50, silos=3))
    run = simulate(central, log, quiet=True)
    first = run.method.init(KEY)
    assert all(np.isfinite(run.params[leaf]).all() for leaf in first)
    found = pool(log)
    own = {"items": jnp.asarray(found.items), "place": jnp.asarray(found.place)}
    loss = jax.jit(lambda theta: run.method.loss(theta, own, jnp.arange(200), KEY))
    before, after = loss(first), loss({name: run.params[name] for name in first})
    assert after < before


# ---- all of them ----


def rounds_of_seven(people: int = 30, length: int = 12):
    """Everybody goes round seven items, then round seven others; where they begin is their own affair."""
    start = np.arange(people)
    items = (start[:, None] + np.arange(length)) % 7 + 7 * (start[:, None] % 2)
    return from_events(np.repeat(start, length), items.ravel(), n_items=14)


@pytest.mark.slow
@pytest.mark.parametrize("name", CENTRAL)
def test_order_is_learned(name):
    split = leave_last_out(rounds_of_seven(), recent=6)
    hyper = {**SMALL, "dim": 16, "rate": 0.01, "epochs": 80, "batch": 16, "penalty": 0.0}
    hyper |= {"wide": 32} if name == "bert4rec" else {}
    run = simulate(choose(name, {f"hyper.{key}": value for key, value in hyper.items()}), split.train, quiet=True)
    # Thirty people are too few to learn the order from masked items: bert4rec knows which seven. The chain below has more.
    best = 7 if name == "bert4rec" else 1
    assert (ranks(run, split, AllItems("nothing")) <= best).mean() > 0.95


@pytest.mark.parametrize("name", CENTRAL)
def test_a_session_is_scored_by_itself_or_the_newest_sequence_is(name):
    method = made(name)
    params, own = method.init(KEY), {"newest": jnp.array([-1, -1, -1, -1, 3, 5])}
    at_home = scores_of(method, params, own, jnp.full(3, -1, jnp.int32))
    np.testing.assert_allclose(at_home, scores_of(method, params, own, jnp.array([-1, 3, 5])), rtol=1e-4, atol=1e-6)
    assert not np.allclose(at_home, scores_of(method, params, own, jnp.array([-1, 5, 3])))


@pytest.mark.parametrize("name", CENTRAL)
def test_pooled_data_has_no_guarantee(name):
    whole = price(choose(name), 100).whole
    assert whole.epsilon == math.inf
    assert any("raw data" in word for word in whole.conditions)


# ---- beside them ----


@pytest.mark.bitwise
def test_fcf_learns_across_organisations_as_it_does_without():
    """Each person is a device, whoever holds their data: an organisation's column changes nothing."""
    log = movies(40, 60, silos=3)
    plan = choose("fcf", {"hyper.dim": 4, "rounds": 2})
    together = simulate(plan, log, quiet=True).params["items"]
    same(together, simulate(plan, replace(log, silo=None, silo_names=None), quiet=True).params["items"])
    assert np.isfinite(together).all()


# ---- how good they are ----


def chain(people: int = 400, length: int = 20, items: int = 60, seed: int = 0):
    """Each item has one that follows it with probability 0.6; else any comes: nobody can be right more often."""
    rng = np.random.default_rng(seed)
    follows, line = rng.permutation(items), np.empty((people, length), int)
    line[:, 0] = rng.integers(items, size=people)
    for t in range(1, length):
        line[:, t] = np.where(rng.random(people) < 0.6, follows[line[:, t - 1]], rng.integers(items, size=people))
    return from_events(np.repeat(np.arange(people), length), line.ravel(), n_items=items)


@pytest.mark.slow
@pytest.mark.parametrize("name", CENTRAL)
def test_each_is_close_to_the_best_possible(name):
    split = leave_last_out(chain(), recent=10)
    hyper = {"dim": 32, "window": 10, "negatives": 0, "rate": 0.005, "batch": 32}
    hyper |= {"epochs": 80, "wide": 64} if name == "bert4rec" else {"epochs": 6}
    run = simulate(choose(name, {f"hyper.{key}": value for key, value in hyper.items()}), split.train, quiet=True)
    right = (ranks(run, split, AllItems("nothing")) == 1).mean()
    known = (chain_successors(split) == split.test.target).mean()
    assert known - 0.06 < right <= known + 0.03


def chain_successors(split) -> np.ndarray:
    """What follows each question's last event, by who made the log."""
    follows = np.random.default_rng(0).permutation(60)
    return follows[split.test.recent[:, -1]]
