"""Evaluation with repeated items: expected values by hand, for every protocol, with and without repeats."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit.cli.common import print_trials
from tacit.core.catalog import Catalog
from tacit.errors import DataError, PlanError
from tacit.lab.analysis.report_data import report_data
from tacit.lab.data import Population
from tacit.lab.data.describe import describe_log
from tacit.lab.data.selection import owners
from tacit.lab.data.synthetic.small import taste_groups
from tacit.lab.evaluation.candidates import AllItems, Sampled
from tacit.lab.evaluation.protocols import PROTOCOLS, load_protocol
from tacit.lab.evaluation.repeats import WORDS, choose_repeats, new_items_only, repeat_share, repeats_allowed
from tacit.lab.evaluation.scoring import ranks
from tacit.lab.evaluation.sessions import shuffle_ties, tied_events
from tacit.lab.evaluation.splits import LeakWarning, leave_last_out
from tacit.lab.experiments.compare import compare
from tacit.lab.experiments.trial import trial
from tacit.lab.experiments.tune import tune
from tacit.lab.plans.loader import load_plan
from tacit.lab.runs.run import simulate
from tacit.report.page import report_page as render

DAY = 86_400.0


def log_of(*people, n_items, times=True):
    lengths = [len(items) for items in people]
    clock = np.concatenate([np.arange(n) for n in lengths]) * DAY if times else None
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    return Population(Catalog(n_items), offsets, np.concatenate(people).astype(np.int32), clock)


def toy(n_items=8):
    """Four users. Counted once a user, before the last event: item 0 four times, 1 three, 3 two, 2 once.

    The targets of the first and the last user are items they have.
    """
    return log_of([0, 1, 2, 0], [0, 1, 2], [0, 3, 1], [0, 1, 3, 1], n_items=n_items)


def no_repeats(n_items=8):
    """The same counts, but every target is new: 3, 2, 1 and 2."""
    return log_of([0, 1, 2, 3], [0, 1, 2], [0, 3, 1], [0, 1, 3, 2], n_items=n_items)


def evaluated(name, log, repeats=None, plan="popularity"):
    way = load_protocol(name, repeats=repeats)
    split = way.split(log)
    return way.evaluate(simulate(load_plan(plan), split.train, quiet=True), split)


def dcg(*found):
    return pytest.approx(np.mean([1 / np.log2(1 + rank) for rank in found]), abs=1e-6)


# ---- last item out, by hand ----


@pytest.mark.parametrize("name", ["full", "bench"])
def test_new_items_only_by_hand(name):
    """The second user lacks 2, 3 and the items of no user: 3 is before 2. The third lacks 1 and 2: 1 is first."""
    found = evaluated(name, toy(), "new")
    assert found.units.tolist() == [1, 2]
    assert found.metrics["NDCG@10"] == dcg(2, 1)
    assert any("2 of 4 test cases" in note and "not evaluated" in note for note in found.notes)


@pytest.mark.parametrize("name", ["full", "bench"])
def test_repeats_allowed_by_hand(name):
    """Nothing is left out: 0 is first, then 1, 3 and 2."""
    found = evaluated(name, toy(), "all")
    assert found.units.tolist() == [0, 1, 2, 3]
    assert found.metrics["NDCG@10"] == dcg(1, 4, 2, 2)
    assert not any("not evaluated" in note for note in found.notes)


@pytest.mark.parametrize("name", ["full", "bench"])
def test_without_repeats_by_hand(name):
    """The first person lacks 3, the second 2 and 3, the third 1 and 2, the last 2."""
    found = evaluated(name, no_repeats())
    assert found.metrics["NDCG@10"] == dcg(1, 2, 1, 1)
    assert found.parts == ()
    assert found.treatment == "new items only: no user has an item twice"


def test_sampled_candidates_by_hand():
    """Of 102 items everybody lacks 99, so that all of them are drawn; of 100 items all others are."""
    found = evaluated("dplcf", toy(102), "new")
    assert found.metrics["NDCG@10"] == dcg(2, 1)
    assert found.units.tolist() == [1, 2]
    found = evaluated("dplcf", toy(100), "all")
    assert found.metrics["NDCG@10"] == dcg(1, 4, 2, 2)
    assert evaluated("dplcf", no_repeats(103)).units.tolist() == [0, 1, 2, 3]


def test_a_table_of_both_treatments_by_hand():
    for repeats in ("new", "all"):
        new, everything, had, unseen = evaluated("full", toy(), repeats).parts
        assert [part.label for part in (new, everything, had, unseen)] == [
            "new items only",
            "repeats allowed",
            "repeats allowed, items the user has",
            "repeats allowed, new items",
        ]
        assert [part.cases for part in (new, everything, had, unseen)] == [2, 4, 2, 2]
        assert new.metrics["NDCG@10"] == dcg(2, 1)
        assert everything.metrics["NDCG@10"] == dcg(1, 4, 2, 2)
        assert had.metrics["NDCG@10"] == dcg(1, 2)
        assert unseen.metrics["NDCG@10"] == dcg(4, 2)


def test_popularity_cannot_win_by_what_is_left_out():
    """Every target is an item that the user has: an error instead of a number."""
    log = log_of([0, 1, 0], [0, 2, 2], n_items=30)
    with pytest.raises(DataError, match=r"All 2 test cases .* repeats='all'"):
        evaluated("full", log, "new")


def test_a_target_that_is_no_candidate_is_a_miss():
    """Whoever ranks without a protocol: an item that is left out is never found."""
    split = leave_last_out(toy())
    run = simulate(load_plan("popularity"), split.train, quiet=True)
    last = np.iinfo(np.int32).max
    assert ranks(run, split, AllItems()).tolist() == [last, 2, 1, last]
    assert ranks(run, split, AllItems("log")).tolist() == [last, 2, 1, last]
    assert ranks(run, split, AllItems("nothing")).tolist() == [1, 4, 2, 2]
    wide = leave_last_out(toy(102))
    run = simulate(load_plan("popularity"), wide.train, quiet=True)
    assert ranks(run, wide, Sampled(wide, 99)).tolist() == [last, 2, 1, last]


# ---- every protocol, against a slow reading of its definition ----


def long_log(repeats: bool, seed=0):
    """Enough people, items and days for every protocol; few or no ties among counts."""
    rng = np.random.default_rng(seed)
    people, items = 30, 400
    weight = 1 / np.arange(1, items + 1) ** 0.4
    rows = []
    for _ in range(people):
        own = rng.choice(items, 45, replace=False, p=weight / weight.sum())
        rows.append(rng.choice(own[:18], 45) if repeats else own)
    times = [np.sort(np.repeat(rng.choice(58, 15, replace=False), 3)) * DAY + np.tile([0, 60, 120], 15) for _ in rows]
    times[0][0], times[0][-1] = 0, 59 * DAY
    offsets = np.arange(people + 1) * 45
    return Population(Catalog(items), offsets, np.concatenate(rows).astype(np.int32), np.concatenate(times))


def counts_of(train):
    """How many people have each item: what the plan `popularity` learns."""
    n = train.catalog.n_items
    pair = np.unique(owners(train) * n + train.items)
    return np.bincount(pair % n, minlength=n)


def candidates_by_definition(name, split, case):
    """What may be listed for a test case, from the words of the protocol."""
    device, target, n = split.test.device[case], split.test.target[case], split.log.catalog.n_items
    history = set(
        split.test_population.items[
            split.test_population.offsets[device] : split.test_population.offsets[device + 1]
        ].tolist()
    )
    events = slice(split.log.offsets[device], split.log.offsets[device + 1])
    ever = set(split.log.items[events].tolist())
    before = set(split.log.items[split.log.offsets[device] : split.test.event[case]].tolist())
    among = set(range(n))
    if name in ("seqmf", "seqmf-week"):
        return history | {target}
    if name == "seqmf-strict":
        return before
    if name == "first-session":
        return ever
    if name in ("bench", "fpl"):
        among = set(np.unique(split.train.items).tolist())
    if split.repeats == "all":
        return among
    return among - (ever - {target} if name == "privrec" else history)


def slow_hits(name, split, counts, cut):
    """For each test case, the least and the most that HR@cut may be, whatever becomes of ties."""
    found = []
    for case in range(len(split.test)):
        target = split.test.target[case]
        offered = candidates_by_definition(name, split, case)
        if target not in offered:
            found.append((0, 0))
            continue
        rivals = counts[sorted(offered - {target})]
        above, equal = (rivals > counts[target]).sum(), (rivals == counts[target]).sum()
        found.append((int(above + equal < cut), int(above < cut)))
    return np.array(found)


RANKED = [name for name, way in PROTOCOLS.items() if not way.lists and name not in ("dplcf", "fedseqrec")]


@pytest.mark.parametrize("repeats", [True, False], ids=["repeats", "none"])
@pytest.mark.parametrize("name", RANKED)
def test_ranks_agree_with_the_definition(name, repeats):
    log = long_log(repeats)
    if name == "seqmf-week":
        log = replace(log, times=log.times / 8)
    for treatment in (None,) if PROTOCOLS[name].fixed_repeats else ("new", "all"):
        way = load_protocol(name, repeats=treatment)
        split = way.split(log)
        run = simulate(load_plan("popularity"), split.train, quiet=True)
        got = ranks(run, split, way.make_candidates(split, 0))
        for cut in (1, 5, 10):
            low, high = slow_hits(name, split, counts_of(split.train), cut).T
            assert (low <= (got <= cut)).all()
            assert ((got <= cut) <= high).all()


@pytest.mark.parametrize("repeats", [True, False], ids=["repeats", "none"])
@pytest.mark.parametrize("name", [name for name, way in PROTOCOLS.items() if way.lists])
def test_lists_agree_with_the_definition(name, repeats):
    log = long_log(repeats)
    if name == "fpl" and repeats:  # repeats are merged, and eighteen items are too few for this protocol
        log = replace(
            log, items=np.concatenate([np.tile(np.arange(22) + u, 3)[:45] for u in range(30)]).astype(np.int32)
        )
    for treatment in (None,) if PROTOCOLS[name].fixed_repeats else ("new", "all"):
        way = load_protocol(name, repeats=treatment)
        split = way.split(log)
        run = simulate(load_plan("popularity"), split.train, quiet=True)
        answers, counts = way.evaluate(run, split), counts_of(split.train)
        low, high = slow_hits(name, split, counts, 10).T
        per_person = [(low[mine].sum(), high[mine].sum()) for mine in _by_device(split, answers.units)]
        recalled = answers.values.get("HR@10")
        if recalled is None:  # fpl: P@10 counts what was found
            recalled = answers.values["P@10"] * 10
            assert all(least - 1e-9 <= got <= most + 1e-9 for got, (least, most) in zip(recalled, per_person))
        else:
            assert all((least > 0) <= got <= (most > 0) for got, (least, most) in zip(recalled, per_person))


def _by_device(split, devices):
    return [np.flatnonzero(split.test.device == device) for device in devices]


@pytest.mark.filterwarnings("ignore::tacit.lab.evaluation.splits.LeakWarning")
@pytest.mark.parametrize("repeats", ["new", "all"])
@pytest.mark.parametrize("name", ["dplcf", "fedseqrec"])
def test_sampled_rows_follow_the_treatment(name, repeats):
    """The target, then 99 different others: items that the user never had, or any."""
    way = load_protocol(name, repeats=repeats)
    split = way.split(long_log(True))
    rows = way.make_candidates(split, 0).rows(np.arange(len(split.test)))
    assert rows.shape[1] == 100
    assert (np.sort(rows, axis=1)[:, 1:] != np.sort(rows, axis=1)[:, :-1]).all()
    ever = [set(split.log.items[split.log.offsets[u] : split.log.offsets[u + 1]].tolist()) for u in split.test.device]
    had = [len(mine & set(row[1:].tolist())) for mine, row in zip(ever, rows)]
    assert (max(had) == 0) == (repeats == "new")


@pytest.mark.filterwarnings("ignore::tacit.lab.evaluation.splits.LeakWarning")
@pytest.mark.parametrize("repeats", [True, False], ids=["repeats", "none"])
@pytest.mark.parametrize("name", sorted(PROTOCOLS))
def test_no_target_of_new_items_only_is_an_item_of_the_user(name, repeats):
    log = long_log(repeats)
    if name == "seqmf-week":
        log = replace(log, times=log.times / 8)
    if name == "fpl" and repeats:
        log = replace(
            log, items=np.concatenate([np.tile(np.arange(22) + u, 3)[:45] for u in range(30)]).astype(np.int32)
        )
    way = load_protocol(name)
    split = way.split(log)
    assert split.repeats in ("new", "all")
    assert split.treatment
    assert ("new items only" if split.repeats == "new" else "repeats allowed") in split.treatment
    if split.repeats == "new":
        assert not split.seen.any()
    answers = way.evaluate(simulate(load_plan("popularity"), split.train, quiet=True), split)
    assert answers.treatment == split.treatment
    if answers.parts:
        whole = next(part for part in answers.parts if part.label == WORDS[split.repeats])
        for metric, value in answers.metrics.items():
            assert whole.metrics[metric] == pytest.approx(value)
    else:
        assert not split.seen.any()


# ---- the choice ----


def test_the_choice_follows_the_log():
    assert repeat_share(no_repeats()) == 0
    assert repeat_share(log_of([0, 0, 0, 1], n_items=2)) == 0.5
    few = choose_repeats(toy())
    assert (few.repeats, few.words) == (
        "new",
        "new items only: 14 % of the events repeat an item of the same user; repeats='all' evaluates these too",
    )
    often = choose_repeats(log_of([0, 0, 0, 1], [1, 1, 1, 1, 0], n_items=2))
    assert often.repeats == "all"
    assert "56 % of the events repeat" in often.words
    assert "repeats='new'" in often.words


def test_the_choice_is_made_once_for_a_search():
    """What a search sees of a log may repeat less; it is evaluated as the whole log is."""
    people = [[0, 1, 2, 3, 4, 3, 4, 3, 4], [4, 5, 6, 7, 6, 7, 6, 7, 6]] * 4
    log = log_of(*people, n_items=30)
    assert choose_repeats(log).repeats == "all"
    found = tune("popularity", log, {"rounds": [1]}, quiet=True)
    assert found.test.evaluation.repeats == "all"
    assert "repeats allowed" in found.to_dict()["treatment"]


def test_a_treatment_that_makes_no_sense_is_refused():
    with pytest.raises(
        PlanError, match=r"seqmf ranks items that a user has used before.*repeats must be 'all', got 'new'"
    ):
        load_protocol("seqmf", repeats="new")
    with pytest.raises(PlanError, match=r"fpl merges repeated events.*repeats must be 'new', got 'all'"):
        load_protocol("fpl", repeats="all")
    with pytest.raises(PlanError, match="repeats must be 'new' or 'all', got 'both'"):
        load_protocol("full", repeats="both")
    with pytest.raises(PlanError, match="ties must be 'file' or 'random', got 'coin'"):
        load_protocol("full", ties="coin")


def test_both_treatments_can_be_made_from_either():
    split = leave_last_out(toy())
    new = new_items_only(split, "because")
    assert (new.test.device.tolist(), new.left_out.device.tolist()) == ([1, 2], [0, 3])
    both = repeats_allowed(new, "because")
    assert both.test.device.tolist() == [0, 1, 2, 3]
    assert both.left_out is None
    again = new_items_only(both, "because")
    assert again.test.event.tolist() == new.test.event.tolist()


def test_every_face_says_the_treatment():
    log = toy(30)
    run = simulate("popularity", log, protocol="full", repeats="all", quiet=True)
    assert run.evaluation.treatment.startswith("repeats allowed")
    assert run.evaluate() == run.metrics
    assert run.evaluation.repeats == "all", "evaluating again keeps the treatment"
    found = compare(["popularity", "mfu"], log, repeats="new", quiet=True)
    assert found.common.treatment == "new items only, as requested"
    assert found.to_dict()["treatment"] == "new items only, as requested"
    parts = found.to_dict()["plans"][0]["parts"]
    assert [part["cases"] for part in parts] == [2, 4, 2, 2]


def test_tables_and_reports_show_both_treatments(capsys):
    tried = trial(load_plan("popularity"), toy(30), repeats="new", quiet=True)
    print_trials([tried])
    shown = " ".join(capsys.readouterr().out.split())
    assert "full: among all items not yet seen; new items only, as requested" in shown
    for words in ("new items only │ 2 │ 0.815", "repeats allowed │ 4 │ 0.673", "2 of 4 test cases have a target"):
        assert words in shown
    page = render([report_data(tried, sample=False)])
    assert "New items only, as requested." in page
    assert '<th scope="col" class="number">repeats allowed<small>4</small></th>' in page
    plain = render([report_data(trial(load_plan("popularity"), no_repeats(30), quiet=True), sample=False)])
    assert "New items only: no user has an item twice." in plain
    assert "repeats allowed<small>" not in plain


def test_a_log_is_described_as_it_will_be_evaluated():
    found = describe_log(tie_log())
    assert (found.repeated, found.tied) == (pytest.approx(2 / 14), 0.25)
    assert found.evaluation == choose_repeats(toy()).words
    assert describe_log(taste_groups(20, 30, events=5)).tied is None


# ---- ties of time stamps ----


def tie_log():
    """The last two events of the first person happened in one second; the second person's did not."""
    log = toy()
    times = log.times.copy()
    times[3] = times[2]
    return replace(log, times=times)


def test_ties_are_counted_and_reported():
    split = load_protocol("full", repeats="all").split(tie_log())
    note = next(note for note in split.notes if "time stamp" in note)
    assert note == (
        "25 % of the test targets have the time stamp of the event before them: the order of the file decides which "
        "of the two is the target; ties='random' draws it"
    )
    drawn = load_protocol("full", repeats="all", ties="random").split(tie_log())
    assert any("a random draw" in note for note in drawn.notes)
    assert not any("time stamp" in note for note in load_protocol("full", repeats="all").split(toy()).notes)


def test_a_draw_moves_ties_alone_and_moves_them_evenly():
    log = tie_log()
    assert tied_events(log).tolist() == [False, False, False, True] + [False] * 10
    last = [int(shuffle_ties(log, seed).items[3]) for seed in range(200)]
    assert 70 < last.count(2) < 130
    assert set(last) == {0, 2}
    for seed in range(5):
        moved = shuffle_ties(log, seed)
        np.testing.assert_array_equal(moved.items[4:], log.items[4:])
        np.testing.assert_array_equal(moved.times, log.times)
        np.testing.assert_array_equal(np.sort(moved.items[:4]), np.sort(log.items[:4]))


@given(st.integers(0, 1000))
def test_a_draw_keeps_each_event_whole(seed):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 6, 5)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    times = np.concatenate([np.sort(rng.integers(0, 3, n)) for n in lengths]).astype(float)
    items = np.arange(offsets[-1], dtype=np.int32)
    log = Population(Catalog(items.size), offsets, items, times, items.astype(np.float32))
    moved = shuffle_ties(log, seed)
    np.testing.assert_array_equal(moved.labels, moved.items)
    np.testing.assert_array_equal(moved.times, times[moved.items])
    np.testing.assert_array_equal(owners(log)[moved.items], owners(log))


def test_a_draw_needs_times():
    with pytest.raises(DataError, match=r"ties = 'random' needs times"):
        load_protocol("full", ties="random").split(taste_groups(20, 30, events=5))


def test_a_leak_is_still_reported():
    with pytest.warns(LeakWarning):
        split = load_protocol("fedseqrec", repeats="all").split(long_log(True))
    assert any("leak" in note for note in split.notes)
