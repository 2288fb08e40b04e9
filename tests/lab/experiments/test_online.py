"""Online evaluation: what is known in each cycle, and what it costs."""

from dataclasses import replace

import numpy as np
import pytest

from tacit.errors import DataError
from tacit.lab.data import from_events
from tacit.lab.data.selection import owners, take
from tacit.lab.data.synthetic import apps
from tacit.lab.evaluation.candidates import Installed, SeenBefore
from tacit.lab.evaluation.scoring import ranks
from tacit.lab.evaluation.sessions import active_users, cycles_of, days_of, drop_quick_repeats
from tacit.lab.evaluation.splits import cold_start, cycle
from tacit.lab.experiments.online import simulate_cycles
from tacit.lab.plans.loader import load_plan
from tacit.lab.runs.run import simulate
from tacit.metrics import average, levels, per_case

DAY = 86_400.0
SMALL = {"hyper.dim": 8, "hyper.spread": 0.1}


@pytest.fixture(scope="module")
def log():
    return drop_quick_repeats(apps(12, days=12, seed=1))


# ---- balanced cycles ----


def few_days(people=40, most=9, span=60, seed=0):
    """People with 1 to `most` active days, somewhere within the span, and two events on each."""
    random = np.random.default_rng(seed)
    days = [np.sort(random.choice(span, random.integers(1, most + 1), replace=False)) for _ in range(people)]
    owner = np.repeat(np.arange(people), [2 * own.size for own in days])
    times = np.concatenate([np.repeat(own, 2) * DAY + np.tile([60.0, 120.0], own.size) for own in days])
    return from_events(owner, random.integers(0, 5, owner.size), times)


def variation(log, cycles, balanced):
    """The coefficient of variation of the number of active people in a cycle."""
    active = active_users(log, cycles_of(log, cycles, balanced), cycles)
    assert active.size == cycles
    return active.std() / active.mean()


@pytest.mark.parametrize(
    ("make", "cycles"),
    [
        (lambda: drop_quick_repeats(apps(100)), 34),
        (lambda: drop_quick_repeats(apps(30)), 34),
        (lambda: drop_quick_repeats(apps(60, days=7, seed=2)), 8),  # nobody has as many active days as there are cycles
        (few_days, 34),
        (lambda: few_days(most=1), 12),
        (lambda: few_days(people=7, most=5), 13),
    ],
)
def test_balanced_cycles_have_nearly_equal_numbers_of_active_people(make, cycles):
    log = make()
    active = active_users(log, cycles_of(log, cycles), cycles)
    assert active.max() - active.min() <= 1
    assert variation(log, cycles, True) < variation(log, cycles, False)


@pytest.mark.parametrize("cycles", [2, 5, 12, 34])
def test_balanced_cycles_keep_a_persons_days_whole_and_in_order(cycles):
    log = few_days(most=40)
    cycle, person, day = cycles_of(log, cycles), owners(log), days_of(log)
    assert cycle.shape == log.items.shape  # one cycle for each event
    assert cycle.min() >= 0
    assert cycle.max() < cycles
    for u in range(len(log)):
        mine, days = cycle[person == u], day[person == u]
        assert (np.diff(mine) >= 0).all()
        assert all(np.unique(mine[days == one]).size == 1 for one in np.unique(days))
        assert np.unique(mine).size == min(np.unique(days).size, cycles)  # active in as many cycles as there can be


def test_a_persons_few_days_lie_apart():
    """Two active days in ten cycles are not in neighbouring cycles, and nobody's days all come late."""
    log = few_days(people=30, most=9, seed=3)
    cycle, person = cycles_of(log, 34), owners(log)
    for u in range(len(log)):
        mine = np.unique(cycle[person == u])
        assert (np.diff(mine) >= 34 // (2 * mine.size + 2)).all()


def test_balanced_cycles_of_a_log_with_idle_people():
    log = from_events(np.array([0, 2]), np.array([0, 1]), np.array([1.0, 1.0]) * DAY)  # person 1 has no event
    assert active_users(log, cycles_of(log, 3), 3).sum() == 2


def test_a_person_without_earlier_events_is_not_evaluated():
    """The only candidate would be the target itself: a hit for every method."""
    times = np.array([0, 10, 20, 86_400, 86_410, 86_420, 86_430], float)
    log = from_events(np.array([0, 0, 0, 0, 0, 1, 1]), np.array([0, 1, 0, 1, 0, 2, 3]), times)
    found = simulate_cycles("mru", log, 2, every=2, metrics=("HR@1",), balanced=False).metrics["HR@1"]
    assert found.tolist() == [0.0]  # person 0 alone: MRU says 1 after 1
    new = from_events(np.array([0, 0, 1, 1]), np.array([0, 1, 2, 3]), np.array([0, 10, 86_400, 86_410], float))
    assert np.isnan(simulate_cycles("mru", new, 2, every=2, metrics=("HR@1",), balanced=False).metrics["HR@1"]).all()


# ---- a plan over time ----


def test_a_cycle_is_answered_by_what_came_before_it(log):
    """The third point of a timeline is what a fresh run on cycles 0 to 2 answers for cycle 3."""
    found = simulate_cycles("sr-od", log, 4, every=9).metrics["HR@5"]
    when = cycles_of(log, 4)
    split = cycle(log, when, 3, recent=64)
    run = simulate("sr-od", split.train, quiet=True)
    seen = SeenBefore(split, plus_target=True, in_training=True)
    groups = levels("user", split.test.device, split.test.session)
    assert found[2] == average(per_case(ranks(run, split, seen), "HR@5"), groups).value


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::tacit.lab.analysis.feasibility.FeasibilityWarning")
def test_the_table_is_trained_again_and_every_ledger_goes_on(log):
    privacy = {"mechanism": "qharmony", "epsilon_per_message": 1.5, "k": 2}
    one = simulate_cycles(
        "seqmf-authors", log, 6, every=2, again=3, settings={**SMALL, "rounds": 5, "privacy": privacy}
    )
    assert one.updates == (3, 5)
    assert one.run.spent()["messages"] == {"median": 5 + 2 * 3, "worst": 5 + 2 * 3}
    np.testing.assert_allclose(one.run.spent()["epsilon"]["worst"], 11 * 1.5)
    assert simulate_cycles("seqmf-authors", log, 6, every=2, settings={**SMALL, "rounds": 0}).updates == ()


@pytest.mark.slow
def test_who_does_not_follow_knows_what_was_known_when_the_table_was_trained(log):
    """Rare equals Full right after a training, and Global never uses a history at all."""
    settings = {**SMALL, "rounds": 1}
    full, rare = (
        simulate_cycles("seqmf-authors", log, 4, every=2, settings=settings, knows=knows)
        for knows in ("cycles", "updates")
    )
    a, b = full.metrics["HR@5"], rare.metrics["HR@5"]
    assert (a[[0, 2]] == b[[0, 2]]).all()
    assert a[1] != b[1]
    np.testing.assert_allclose(rare.ahead(full, "HR@5"), np.nancumsum(b - a))


def test_a_cycle_in_which_nobody_is_active_is_no_number():
    times = np.array([0, 1, 2, 3, 4, 5]) * DAY / 2  # three days in five cycles
    log = from_events(np.zeros(6, int), np.array([0, 1, 0, 1, 0, 1]), times)
    found = simulate_cycles("mru", log, 5, every=2, metrics=("HR@1",)).metrics["HR@1"]
    assert np.isnan(found).all()  # and half a day is longer than a session


def test_bad_cycles_are_refused(log):
    with pytest.raises(DataError, match=r"simulate_cycles needs every to be at least 1 cycle, got 0"):
        simulate_cycles("mru", log, 4, every=0)
    with pytest.raises(DataError, match=r"cycles_of needs at least 2 cycles, got 1"):
        simulate_cycles("mru", log, 1, every=1)
    with pytest.raises(DataError, match=r"needs times"):
        simulate_cycles("mru", replace(log, times=None), 4, every=1)


def test_installed_is_everything_a_person_ever_uses(log):
    split = cold_start(log, sessions=0)
    rows = Installed(split).rows(np.arange(len(split.test)))
    for device in np.unique(split.test.device)[:3]:
        own = set(split.log.items[owners(split.log) == device].tolist())
        some = np.flatnonzero(split.test.device == device)
        assert all(set(row[row >= 0].tolist()) == own for row in rows[some])
        assert (rows[some, 0] == split.test.target[some]).all()
    assert all(len(set(row[row >= 0].tolist())) == (row >= 0).sum() for row in rows)


def test_a_chart_is_how_often_people_go_somewhere():
    log = from_events(np.array([0, 0, 0, 1, 1]), np.array([0, 0, 1, 1, 2]), n_items=4)
    b = np.asarray(simulate("seqmf-popularity-prior", log, quiet=True).params["b"])
    np.testing.assert_allclose(np.exp(b), (np.array([1, 2, 1, 0]) + 0.25) / 5, rtol=1e-6)
    with pytest.raises(Exception, match=r"a pooled chart gives b alone, got rank = 0 and stays_too = True"):
        simulate(load_plan("seqmf-popularity-prior").with_setting("hyper", {"at": "day"}), log, quiet=True)


def test_no_rounds_train_nothing(log):
    plan = load_plan("seqmf-authors").with_setting("rounds", 0)
    assert plan.stages[0].trains == ()
    run = simulate(plan, take(log, cycles_of(log, 4) < 1), quiet=True)
    assert run.rounds == []
    assert run.price.whole.epsilon == 0
    assert run.update(log, rounds=0, quiet=True).rounds == []
