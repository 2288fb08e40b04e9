"""Protocols, from log to numbers, on worlds whose answers are known."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_splits import DAY, random_log

from support.toys import close
from tacit.core.catalog import Catalog
from tacit.device.round import adapt
from tacit.errors import DataError, PlanError
from tacit.lab.data import Population
from tacit.lab.data.synthetic.small import taste_groups
from tacit.lab.evaluation.candidates import AllItems
from tacit.lab.evaluation.protocols import PROTOCOLS, load_protocol
from tacit.lab.evaluation.scoring import new_user_homes, rank_targets, ranks, top_lists
from tacit.lab.evaluation.splits import LeakWarning, Split, held_out_users, leave_last_out, temporal_ratio
from tacit.lab.plans.loader import load_plan
from tacit.lab.runs.run import simulate

every = pytest.mark.parametrize("name", sorted(PROTOCOLS))


def big_log():
    """Enough people, items and days for every protocol."""
    rng = np.random.default_rng(0)
    people, items = 40, 300
    lengths = rng.integers(25, 60, people)
    pieces = [np.sort(rng.choice(60, n)) + rng.uniform(0, 0.01, n).cumsum() / n for n in lengths]
    pieces[0][[0, -1]] = 0.0, 60.0
    liked = [rng.choice(items, 30, replace=False) for _ in range(people)]
    chosen = np.concatenate([rng.choice(mine, n) for mine, n in zip(liked, lengths)])
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    times = np.concatenate([np.sort(piece) for piece in pieces]) * DAY
    return Population(Catalog(items), offsets, chosen.astype(np.int32), times)


def answers(name, plan, log, seed=0):
    protocol = load_protocol(name)
    split = protocol.split(log, seed)
    return protocol.evaluate(simulate(load_plan(plan), split.train, quiet=True), split, seed)


@pytest.mark.parametrize(
    "name",
    [
        name if name in ("full", "seqmf-week", "dplcf") else pytest.param(name, marks=pytest.mark.slow)
        for name in sorted(PROTOCOLS)
    ],
)
@pytest.mark.filterwarnings("ignore::tacit.lab.evaluation.splits.LeakWarning")
def test_every_protocol_evaluates_every_kind_of_plan(name):
    log = big_log()
    if name == "seqmf-week":  # a log of days, not of months
        with pytest.raises(
            DataError, match=r"found no session of two events in the last 1 day\(s\); test on more days"
        ):
            answers(name, "random", log)
        log = replace(log, times=log.times / 20.1)
    found = {plan: answers(name, plan, log) for plan in ("random", "popularity", "mfu")}
    for made in found.values():
        assert set(made.metrics) == set(PROTOCOLS[name].metrics)
        assert all(np.isfinite(value) for value in made.metrics.values())
        for metric, values in made.values.items():
            assert values.shape == made.units.shape
            low, high = made.interval(metric).low, made.interval(metric).high
            assert low <= made.metrics[metric] + 1e-9
            assert made.metrics[metric] <= high + 1e-9
    assert ("sampled" in found["random"].candidates) == (name in ("dplcf", "fedseqrec"))
    again = answers(name, "random", log)
    assert again.metrics == found["random"].metrics, "same seed, same answers"


def test_a_constant_scorer_scores_like_random():
    """MRU with no session scores 0 everywhere: HR@10 is 10 in the number of candidates."""
    log = taste_groups(600, 60, events=12)
    split = leave_last_out(log)
    run = simulate(load_plan("mru"), split.train, quiet=True)
    blank = Split(log, split.train, type(split.test)(*(_blank(f, v) for f, v in vars(split.test).items())))
    found = ranks(run, blank, AllItems())
    free = 60 - split.train.lengths
    expected = float(np.mean(10 / free))
    # a mean of 600 coins: sd ≤ .02; 4 sd
    assert np.mean(found <= 10) == pytest.approx(expected, abs=0.08)
    _, lists = top_lists(run, blank)
    counts = np.bincount(lists[lists >= 0], minlength=60)
    assert counts.min() > 0, "no item is always last"


def _blank(name, value):
    return np.full_like(value, -1) if name == "recent" else value


def test_full_ranking_by_hand():
    log = taste_groups(50, 30, events=8)
    split = leave_last_out(log)
    run = simulate(load_plan("popularity"), split.train, quiet=True)
    counts = np.bincount(split.train.items, minlength=30)
    found = ranks(run, split)
    for u, target, got in zip(split.test.device, split.test.target, found):
        mine = split.train.items[split.train.offsets[u] : split.train.offsets[u + 1]]
        free = np.setdiff1d(np.arange(30), mine)
        better, equal = (counts[free] > counts[target]).sum(), (counts[free] == counts[target]).sum()
        assert 1 + better <= got <= better + equal


def test_lists_by_hand():
    log = taste_groups(50, 30, events=8)
    split = temporal_ratio(log)
    run = simulate(load_plan("popularity"), split.train, quiet=True)
    counts = np.bincount(split.train.items, minlength=30)
    devices, lists = top_lists(run, split, 5, among=np.unique(split.train.items))
    for u, row in zip(devices, lists):
        mine = split.train.items[split.train.offsets[u] : split.train.offsets[u + 1]]
        assert not np.isin(row, mine).any()
        free = np.setdiff1d(np.unique(split.train.items), mine)
        assert sorted(counts[row[row >= 0]])[::-1] == sorted(counts[free])[::-1][:5]


def _without_numbers(run, items, value=np.nan):
    """A run that has lost the counts of these items."""
    counts = run.params["counts"].astype(float).at[jnp.asarray(items)].set(value)
    return replace(run, params={**run.params, "counts": counts})


def test_an_item_whose_score_is_no_number_comes_last_and_is_not_listed():
    way = load_protocol("full")
    split = way.split(taste_groups(50, 30, events=8))
    run = simulate(load_plan("popularity"), split.train, quiet=True)
    item = int(np.bincount(split.test.target).argmax())
    one = _without_numbers(run, [item])
    found, about = rank_targets(one, split), split.test.target == item
    assert not found.by_chance.any(), "every other item has a score of its own, nearly"
    free = 30 - split.train.lengths[split.test.device]
    np.testing.assert_array_equal(found.rank[about], free[about])
    np.testing.assert_array_equal(found.rank, ranks(one, split))
    _, lists = top_lists(one, split, 5)
    assert (lists >= 0).all(), "the next best takes its place"
    assert not (lists == item).any()
    assert not way.evaluate(one, split).warnings


@pytest.mark.parametrize("score", [np.nan, 3.0], ids=["no number", "one number"])
def test_users_ranked_by_chance_are_reported(score):
    way = load_protocol("full")
    split = way.split(taste_groups(50, 30, events=8))
    run = simulate(load_plan("popularity"), split.train, quiet=True)
    assert not way.evaluate(run, split).warnings
    same = _without_numbers(run, np.arange(30), score)
    assert rank_targets(same, split).by_chance.all()
    found = way.evaluate(same, split)
    np.testing.assert_array_equal(found.by_chance, np.unique(split.test.device))
    assert found.warnings[0].startswith("chance ranks 50 of 50 users; half of the items or more have one score")


def test_lists_without_scores_are_empty_and_reported():
    way = load_protocol("bench")
    split = way.split(taste_groups(50, 30, events=8))
    run = simulate(load_plan("popularity"), split.train, quiet=True)
    found = way.evaluate(_without_numbers(run, np.arange(30)), split)
    assert found.metrics["HR@10"] == 0
    assert found.warnings[0].startswith("50 of 50 lists are empty: no candidate is left, or scores are no numbers")
    assert not way.evaluate(run, split).warnings


def test_new_users_are_evaluated_after_adapting():
    """A newcomer's vector solves the same system as if they had been trained on; nothing is kept of them."""
    split = held_out_users(taste_groups(120, 40, events=15), seed=1)
    run = simulate(load_plan("fcf").with_setting("rounds", 20), split.train, quiet=True)
    before = run.buckets[0].home.local["0"]["vector"].copy()
    found = ranks(run, split, AllItems("log"))
    chance = np.mean([(1 + 40 - n) / 2 for n in split.log.lengths[split.test.device]])
    assert found.mean() < 0.9 * chance
    close(before, run.buckets[0].home.local["0"]["vector"])
    homes = new_user_homes(run, split.people)
    assert sum(bucket.ids.size for bucket in homes) == len(split.people)


def test_an_empty_newcomer_is_answered_too():
    split = held_out_users(taste_groups(60, 30, events=8))
    bare = Split(split.log, split.train, split.test, people=_empty(split.people))
    run = simulate(load_plan("fcf").with_setting("rounds", 2), split.train, quiet=True)
    assert (ranks(run, bare) >= 1).all()


def _empty(people):
    return Population(people.catalog, np.zeros(len(people) + 1, np.int64), np.zeros(0, np.int32))


def test_a_leaking_protocol_says_so():
    with pytest.warns(LeakWarning):
        split = load_protocol("fedseqrec").split(random_log(10, days=200, n_items=200))
    assert any("leak" in note for note in split.notes)


def test_results_by_length_of_history():
    log = taste_groups(200, 40, events=12)
    protocol = load_protocol("full")
    split = protocol.split(log)
    made = protocol.evaluate(simulate(load_plan("popularity"), split.train, quiet=True), split)
    groups = made.by_history("HR@10", split, parts=2)
    assert sum(one.users for one in groups.values()) == 200
    mean = sum(one.mean * one.users for one in groups.values()) / 200
    assert mean == pytest.approx(made.metrics["HR@10"])
    with pytest.raises(PlanError, match="need one value a user"):
        replace(made, by="session").by_history("HR@10", split)


def test_a_wrong_name_gets_the_nearest():
    with pytest.raises(PlanError, match="did you mean 'fpl'"):
        load_protocol("fpll")


@pytest.mark.bitwise
def test_evaluation_does_not_depend_on_chunks(monkeypatch):
    split = leave_last_out(taste_groups(70, 40, events=10))
    run = simulate(load_plan("fcf").with_setting("rounds", 3), split.train, quiet=True)
    whole = ranks(run, split)
    monkeypatch.setattr("tacit.lab.evaluation.scoring.CHUNK_SCORES", dict.fromkeys(("cpu", "gpu"), 40 * 8))
    np.testing.assert_array_equal(whole, ranks(run, split))
    assert jnp.isfinite(run.params["items"]).all()


@pytest.fixture(scope="module")
def newcomers():
    """A split with new users, a run without them, and their ranks."""
    split = held_out_users(taste_groups(90, 40, events=30), 0.4)
    run = simulate(load_plan("privrec").with_setting("rounds", 1), split.train, quiet=True)
    return split, run, ranks(run, split)


@pytest.mark.slow
@pytest.mark.parametrize("most", [0, 5_000, 100_000])
def test_users_adapt_in_batches_of_any_size_and_once_each(monkeypatch, newcomers, most):
    (split, run, whole), adapted = newcomers, []

    def counted(method, stage, params, home, own):
        jax.debug.callback(lambda secret: adapted.append(tuple(np.ravel(secret))), home.secret)
        return adapt(method, stage, params, home, own)

    monkeypatch.setattr("tacit.lab.evaluation.scoring.adapt", counted)
    monkeypatch.setattr("tacit.lab.evaluation.scoring.CHUNK_HELD", dict.fromkeys(("cpu", "gpu"), most))
    monkeypatch.setattr("tacit.lab.evaluation.scoring.chunk_events", lambda: 7 * 64)
    jax.clear_caches()
    close(ranks(run, split), whole)
    people = np.unique(split.test.device).size
    assert np.unique(split.test.device, return_counts=True)[1].max() > 1
    assert len(set(adapted)) == people <= len(adapted) < 1.3 * people


@pytest.mark.bitwise
def test_answering_a_devices_cases_together_changes_nothing(monkeypatch):
    protocol = load_protocol("seqmf")
    split = protocol.split(big_log(), 0)
    run = simulate(load_plan("sr-od"), split.train, quiet=True)
    offered = protocol.make_candidates(split, 0)
    together = ranks(run, split, offered)
    monkeypatch.setattr("tacit.lab.evaluation.scoring._TOGETHER", 1)
    np.testing.assert_array_equal(together, ranks(run, split, offered))
    assert np.unique(split.test.device, return_counts=True)[1].max() > 1
