"""Sequential baselines: what each network computes, by hand; how pooled sequences are cut; that the fit learns order."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.catalog import Catalog
from tacit.device.method import build
from tacit.device.round import KEYS
from tacit.lab.central.next_item import Pool, pool, questions
from tacit.lab.data import from_events
from tacit.lab.evaluate import ranks
from tacit.lab.organisations import organisations
from tacit.lab.shelf import choose
from tacit.lab.simulate import simulate
from tacit.lab.split import leave_last_out
from tacit.lab.worlds import movies
from tacit.nets.ranking import bpr_max, top1_max
from tacit.nets.windows import Samples
from tacit.privacy.price import price

KEY = jax.random.key(5, impl=KEYS)
CENTRAL = ["gru4rec"]
SMALL = {"dim": 8, "window": 6, "drop": 0.0, "negatives": 0}


def made(name: str, items: int = 12, **hyper):
    """The method of a plan, small, for a catalog of items alone."""
    given = {f"hyper.{key}": value for key, value in {**SMALL, **hyper}.items()}
    return build(choose(name, given).stages[0], Catalog(items))


def question(before: list[int], target: int, window: int = 6) -> Samples:
    """One window, padded in front, and what came next."""
    row = jnp.array([[-1] * (window - len(before)) + before], jnp.int32)
    return Samples(row, jnp.array([target]), jnp.zeros((1, 0), jnp.int32), jnp.array([True]))


def surprise(method, params: dict, before: list[int], target: int) -> float:
    """−ln softmax of the target among all items, as a device would score them."""
    own = {"newest": jnp.full(method.window, -1)}
    scores = method.score(params, {}, own, jnp.array(before, jnp.int32), jnp.arange(method.catalog.n_items))
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


def test_a_pool_is_everybodys_sequences():
    log = movies(40, 60, silos=3)
    assert lists(pool(log)) == by_hand(log)
    held = organisations(log, "month")
    assert lists(pool(held)) == by_hand(held)
    assert len(lists(pool(held))) > len(log), "a person is cut into months"


def test_people_of_an_organisation_may_come_in_turns():
    """A log sorted by time: whose an event is says its field, not where it stands."""
    held = organisations(movies(40, 60, silos=3))
    rng = np.random.default_rng(0)
    keys = [rng.permutation(np.arange(held.offsets[d], held.offsets[d + 1])) for d in range(len(held))]
    order = np.concatenate(keys)
    mixed = type(held)(held.catalog, held.offsets, held.items[order], context=held.context[order])
    assert lists(pool(mixed)) == by_hand(mixed)


@settings(max_examples=40, deadline=None)
@given(lengths=st.lists(st.integers(1, 17), min_size=1, max_size=6), stride=st.integers(1, 7), seed=st.integers(0, 99))
def test_questions_leave_no_event_out(lengths, stride, seed):
    place = np.concatenate([np.arange(n) for n in lengths])
    log = Pool(np.arange(place.size), place, np.repeat(lengths, lengths) - 1 - place)
    at = questions(np.random.default_rng(seed), log, stride)
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
def test_a_target_in_front_loses_less(objective):
    method = made("gru4rec", objective=objective, negatives=5)
    params = method.init(KEY)
    tastes = jnp.stack([2 * params["items"][3], -2 * params["items"][3]])
    right, wrong = method._lost(params, KEY, tastes, jnp.array([3, 3]))
    assert right < wrong


def test_a_few_items_stand_for_all():
    """Drawn rivals count as often as they would have to be drawn: over many draws they are the softmax of all."""
    few, every = made("gru4rec", 40, negatives=20), made("gru4rec", 40)
    params = every.init(KEY)
    tastes, target = jax.random.normal(KEY, (3, 8)), jnp.array([1, 7, 30])
    right = every.against_all(params, KEY, tastes, target)
    np.testing.assert_allclose(right, -jax.nn.log_softmax(tastes @ params["items"].T)[jnp.arange(3), target], rtol=1e-5)
    drawn = jax.vmap(lambda key: few.against_all(params, key, tastes, target))(jax.random.split(KEY, 400))
    np.testing.assert_allclose(drawn.mean(0), right, atol=0.08)
    assert float(drawn.std(0).min()) > 0


# ---- GRU4Rec ----


def test_every_step_of_gru4rec_asks_as_a_device_would():
    method = made("gru4rec")
    params = method.init(KEY) | {"bias": jnp.linspace(-1, 1, 12)}
    lost, counts = method.lost(params, KEY, question([4, 7, 7, 2], 9))
    assert counts.tolist() == [False, False, True, True, True, True]
    line = [4, 7, 7, 2, 9]
    right = [surprise(method, params, line[:n], line[n]) for n in range(1, 5)]
    np.testing.assert_allclose(lost[2:], right, rtol=1e-5)


def test_the_mean_is_over_places_that_exist():
    method = made("gru4rec")
    params, own = method.init(KEY), {"items": jnp.array([4, 7, 2, 5, 6]), "place": jnp.array([0, 1, 2, 0, 1])}
    loss = method.loss(params, own, jnp.array([2, 4, -1, 0]), KEY)
    right = [
        surprise(method, params, before, after) for before, after in (([4], 7), ([4, 7], 2), ([5], 6))
    ]  # not across sequences, not before the first, not what is out of range
    assert float(loss) == pytest.approx(np.mean(right), rel=1e-5)


# ---- all of them ----


def rounds_of_seven(people: int = 30, length: int = 12):
    """Everybody goes round seven items, then round seven others; where they begin is their own affair."""
    start = np.arange(people)
    items = (start[:, None] + np.arange(length)) % 7 + 7 * (start[:, None] % 2)
    return from_events(np.repeat(start, length), items.ravel(), n_items=14)


@pytest.mark.parametrize("name", CENTRAL)
def test_order_is_learned(name):
    split = leave_last_out(rounds_of_seven(), recent=6)
    hyper = {**SMALL, "dim": 16, "rate": 0.02, "epochs": 25, "batch": 16, "penalty": 0.0}
    run = simulate(choose(name, {f"hyper.{key}": value for key, value in hyper.items()}), split.train, quiet=True)
    assert (ranks(run, split) == 1).mean() > 0.95


@pytest.mark.parametrize("name", CENTRAL)
def test_a_session_is_scored_by_itself_or_the_newest_sequence_is(name):
    method = made(name)
    params, none, all_items = method.init(KEY), jnp.full(3, -1, jnp.int32), jnp.arange(12)
    own = {"newest": jnp.array([-1, -1, -1, -1, 3, 5])}
    at_home = method.score(params, {}, own, none, all_items)
    np.testing.assert_allclose(at_home, method.score(params, {}, own, jnp.array([-1, 3, 5]), all_items), rtol=1e-5)
    assert not np.allclose(at_home, method.score(params, {}, own, jnp.array([5, 3]), all_items))


@pytest.mark.parametrize("name", CENTRAL)
def test_nothing_is_promised_of_pooled_data(name):
    whole = price(choose(name), 100).whole
    assert whole.epsilon == math.inf
    assert any("raw data" in word for word in whole.conditions)
