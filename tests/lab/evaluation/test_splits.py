"""Splits: training data and test cases by hand, and no training on the future of a test case."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit.core.catalog import Catalog
from tacit.errors import DataError
from tacit.lab.data import Population, from_events
from tacit.lab.data.selection import compact, k_core, owners, pick, take
from tacit.lab.evaluation.candidates import AllItems, Sampled, SeenBefore
from tacit.lab.evaluation.sessions import (
    active_users,
    cycles_of,
    days_of,
    drop_quick_repeats,
    merge_repeats,
    sessions_of,
    with_min_events,
)
from tacit.lab.evaluation.splits import (
    LeakWarning,
    calendar_days,
    cold_start,
    cycle,
    held_out_users,
    leave_last_out,
    month_sessions,
    temporal_ratio,
)

DAY = 86_400.0


def log(*people, n_items=10, labels=None):
    """A log from lists of (day.fraction, item) per person."""
    lengths = [len(events) for events in people]
    flat = [event for events in people for event in events]
    return Population(
        Catalog(n_items),
        np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        np.array([item for _, item in flat], np.int32),
        np.array([time for time, _ in flat]) * DAY,
        None if labels is None else np.array(labels, np.float32),
    )


def random_log(people=12, seed=0, days=40, n_items=10):
    rng = np.random.default_rng(seed)
    made = []
    for _ in range(people):
        times = np.sort(rng.uniform(0, days, rng.integers(0, 60)))
        made.append([(t, int(i)) for t, i in zip(times, rng.integers(n_items, size=times.size))])
    made[0] = [(0.0, 1), (days - 0.01, 2), (days, 3)]  # the log spans all days
    return log(*made, n_items=n_items)


@given(st.integers(0, 50), st.data())
def test_take_keeps_everybody(seed, data):
    world = random_log(seed=seed)
    keep = np.array(data.draw(st.lists(st.booleans(), min_size=world.items.size, max_size=world.items.size)), bool)
    part = take(world, keep)
    assert len(part) == len(world)
    for u in range(len(world)):
        mine = slice(world.offsets[u], world.offsets[u + 1])
        np.testing.assert_array_equal(part.items[part.offsets[u] : part.offsets[u + 1]], world.items[mine][keep[mine]])


def test_pick_renumbers():
    world = random_log()
    part = pick(world, np.array([2, 5]))
    assert len(part) == 2
    np.testing.assert_array_equal(part.histories(np.array([1]), 60).items, world.histories(np.array([5]), 60).items)


def test_compact_keeps_events_and_names():
    world = log([(1, 7), (2, 3)], [(1, 9), (2, 7)])
    world = Population(Catalog(10, {"year": np.arange(10)}), world.offsets, world.items, item_names=list("abcdefghij"))
    small = compact(world)
    assert small.catalog.n_items == 3
    assert [small.item_names[i] for i in small.items] == ["h", "d", "j", "h"]
    assert small.catalog.attributes["year"].tolist() == [3, 7, 9]


def test_leave_last_out_by_hand():
    split = leave_last_out(log([(1, 4), (2, 5), (3, 6)], [(1, 7)], [(1, 8), (5, 9)]))
    assert split.test.device.tolist() == [0, 2]
    assert split.test.target.tolist() == [6, 9]
    assert split.test.recent[0].tolist()[-2:] == [4, 5]
    assert split.train.lengths.tolist() == [2, 1, 1]
    assert split.valid.target.tolist() == [5]
    assert "1 of 3 devices have a single event" in split.notes[0]


def test_temporal_ratio_by_hand():
    split = temporal_ratio(log([(t, t % 10) for t in range(11)], [(0, 1), (1, 2)]))
    assert split.test.target.tolist() == [9, 0]  # ⌊.2·11⌋ = 2
    assert split.valid.target.tolist() == [8]  # ⌊.2·9⌋ = 1
    assert split.train.lengths.tolist() == [9, 2]
    assert "1 of 2 devices have too few events" in split.notes[0]


def test_calendar_days_and_sessions():
    minute = 1 / 1440
    world = log(
        [(0.5, 1), (30.0, 2), (30.0 + minute, 3), (30.0 + 2 * minute, 2), (30.5, 4), (30.5 + 14 * minute, 5)],
        [(29.9, 7), (29.9 + minute, 8)],
    )
    split = calendar_days(world, test=14, valid=7)
    assert split.test.target.tolist() == [3, 2, 5, 8]
    assert split.test.recent[:, -2:].tolist() == [[-1, 2], [2, 3], [-1, 4], [-1, 7]]
    assert split.test.session[0] == split.test.session[1] != split.test.session[2]
    assert split.train.lengths.tolist() == [1, 0]
    assert any("1 users have no training event" in note for note in split.notes)
    assert any("target items never occur in training" in note for note in split.notes)


def test_held_out_users_take_no_part():
    world = random_log(30, seed=2)
    split = held_out_users(world, seed=1)
    assert len(split.train) + len(split.people) == len(world)
    assert (split.people.lengths == split.log.lengths // 2).all()
    assert split.test.target.tolist() == split.log.items[split.test.event].tolist()
    again, other = held_out_users(world, seed=1), held_out_users(world, seed=2)
    assert again.people.digest == split.people.digest != other.people.digest


def test_held_out_positives_by_label():
    world = log(*[[(t, t) for t in range(4)]] * 5, labels=[5, 5, 2, 4] * 5)
    split = held_out_users(world, positive=lambda label: label > 3)
    assert split.test.target.tolist() == [3]


@pytest.mark.parametrize(("given", "history", "target"), [({"sessions": 0}, 0, [1]), ({"sessions": 1}, 2, [3])])
def test_cold_start_by_sessions(given, history, target):
    minute = 1 / 1440
    person = [(1, 0), (1 + minute, 1), (2, 2), (2 + minute, 3), (3, 4), (3 + minute, 5)]
    split = cold_start(log(*[person] * 5), **given)
    assert split.people.lengths.tolist() == [history]
    assert split.test.target.tolist() == target


def test_cold_start_by_days():
    minute = 1 / 1440
    person = [(1, 0), (1.5, 1), (2, 2), (2 + minute, 3), (3, 4), (3 + minute, 5)]
    split = cold_start(log(*[person] * 5), days=1)
    assert split.people.lengths.tolist() == [2]
    assert split.test.target.tolist() == [3]
    with pytest.raises(DataError, match="exactly one of them"):
        cold_start(log(person), days=1, sessions=1)


def test_month_sessions_warn_that_they_leak():
    person = [(0, 1), (1, 2), (2, 3), (40, 4), (41, 5), (80, 6)]
    with pytest.warns(LeakWarning, match="50% of the test cases precede training events"):
        split = month_sessions(log(person))
    assert split.test.target.tolist() == [3, 5]
    assert split.train.items.tolist() == [1, 2, 4]
    assert any("1 months with a single event" in note for note in split.notes)
    last = month_sessions(log(person[:-1]), only_last=True)
    assert last.test.target.tolist() == [5]
    assert not any("leak" in note for note in last.notes)


@pytest.mark.parametrize("split", [leave_last_out, temporal_ratio, calendar_days, held_out_users])
@pytest.mark.parametrize("seed", range(5))
def test_no_user_is_trained_on_their_own_future(split, seed):
    made = split(random_log(seed=seed))
    evaluated = made.test_population
    for device, event in zip(made.test.device, made.test.event):
        mine = evaluated.times[evaluated.offsets[device] : evaluated.offsets[device + 1]]
        assert (mine <= made.log.times[event]).all()
    assert not any("leak" in note for note in made.notes)


def test_days_cycles_and_who_is_active():
    world = random_log(20, seed=4)
    cycle = cycles_of(world, 5)
    person = owners(world)
    for u in range(len(world)):
        mine = cycle[person == u]
        assert (np.diff(mine) >= 0).all(), "in order"
        days = days_of(world)[person == u]
        for day in np.unique(days):
            assert np.unique(mine[days == day]).size == 1, "a day is not cut"
    busy = np.flatnonzero([np.unique(days_of(world)[person == u]).size >= 5 for u in range(len(world))])
    balanced, calendar = (active_users(world, one, 5) for one in (cycle, cycles_of(world, 5, balanced=False)))
    assert balanced.min() >= busy.size, "everybody with enough days is active in every cycle"
    assert balanced.sum() >= calendar.sum()


def test_a_cycle_is_answered_from_the_cycles_before():
    world = random_log(20, seed=4, days=60)
    cycles = cycles_of(world, 4)
    split = cycle(world, cycles, 2, gap=3 * DAY)
    assert (cycles[split.test.event] == 2).all()
    assert split.train.items.size == (cycles < 2).sum()
    with pytest.raises(DataError, match="cycle tests on cycles 1 to 3, got 0"):
        cycle(world, cycles, 0)


def test_cleaning_drops_a_relaunch_within_three_seconds():
    second = 1 / DAY
    world = log([(1, 5), (1 + 2 * second, 5), (1 + 4 * second, 5), (1 + 5 * second, 6), (1 + 6 * second, 5)])
    assert drop_quick_repeats(world).items.tolist() == [5, 6, 5]


def test_merge_repeats_and_at_least():
    world = log([(1, 5), (2, 6), (3, 5)], [(1, 7)])
    merged = merge_repeats(world)
    assert merged.items.tolist() == [6, 5, 7]
    assert len(with_min_events(merged, 2)) == 1
    with pytest.raises(DataError, match="leaves no user"):
        with_min_events(merged, 9)


def test_sessions_break_at_a_pause_and_between_people():
    minute = 1 / 1440
    world = log([(1, 0), (1 + 15 * minute, 1), (1 + 30.5 * minute, 2)], [(1, 3)])
    assert sessions_of(world).tolist() == [0, 0, 1, 2]


def test_missing_times_are_one_sentence():
    world = log([(1, 0), (2, 1)])
    bare = Population(world.catalog, world.offsets, world.items)
    for split in (calendar_days, month_sessions):
        with pytest.raises(DataError, match="needs times, and this log has none"):
            split(bare)


# ---- candidates ----


def test_sampled_candidates_were_never_touched():
    world = random_log(15, seed=3, n_items=200)
    split = leave_last_out(world)
    rows = Sampled(split, 50, seed=1).rows(np.arange(len(split.test)))
    assert rows.shape == (len(split.test), 51)
    assert 0 < split.seen.mean() < 1
    for row, device, target, seen in zip(rows, split.test.device, split.test.target, split.seen):
        assert row[0] == (-1 if seen else target), "items of the user are no candidates"
        mine = world.items[world.offsets[device] : world.offsets[device + 1]]
        assert not np.isin(row[1:], mine).any()
        assert np.unique(row).size == 51
    np.testing.assert_array_equal(rows, Sampled(split, 50, seed=1).rows(np.arange(len(split.test))))
    with pytest.raises(DataError, match="some user has fewer"):
        Sampled(split, 195)


def test_sampled_candidates_are_drawn_evenly():
    world = log(*[[(1, 0), (2, 1)]] * 3000)
    rows = Sampled(leave_last_out(world), 4, seed=0).rows(np.arange(3000))[:, 1:]
    # 3000 draws of 4 from 8: each item 1500 times, sd 27.4; 5 sd
    np.testing.assert_allclose(np.bincount(rows.ravel(), minlength=10)[2:], 1500, atol=137)


@pytest.mark.parametrize("plus_target", [False, True])
def test_seen_before_is_what_was_used_before_the_moment(plus_target):
    world = random_log(8, seed=5, days=60)
    split = calendar_days(world, gap=2 * DAY)
    candidates = SeenBefore(split, plus_target)
    rows = candidates.rows(np.arange(len(split.test)))
    for row, device, event, target in zip(rows, split.test.device, split.test.event, split.test.target):
        before = set(world.items[world.offsets[device] : event])
        if plus_target or target in before:
            assert row[0] == target
            assert set(row[row >= 0]) == before | {target}
        else:
            assert row[0] == -1
            assert set(row[row >= 0]) == before
    assert AllItems().rows(np.arange(3)) is None


def test_seen_in_training_is_what_training_holds():
    world = random_log(8, seed=5, days=60)
    split = calendar_days(world, gap=2 * DAY)
    rows = SeenBefore(split, plus_target=True, in_training=True).rows(np.arange(len(split.test)))
    for row, device, target in zip(rows, split.test.device, split.test.target):
        known = set(split.train.items[split.train.offsets[device] : split.train.offsets[device + 1]])
        assert set(row[row >= 0]) == known | {target}


def test_the_core_is_filtered_until_nothing_changes():
    # item 2 has one user of two items; without it that user has a single event left and falls away too
    user, item = np.array([0, 0, 1, 1, 2, 2, 3]), np.array([0, 1, 0, 1, 1, 2, 2])
    people = k_core(from_events(user, item), 2)
    assert (len(people), people.catalog.n_items, people.items.size) == (2, 2, 4)
    with pytest.raises(DataError, match=r"k_core\(9\) leaves no user; choose a smaller number"):
        k_core(from_events(user, item), 9)
