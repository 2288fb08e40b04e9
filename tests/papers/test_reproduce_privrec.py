"""The paper's tables on a log that is made in a second: every part comes, says what it was measured on, and can fail."""

import math
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tacit.lab.data.sources.frappe import SURROUNDINGS
from tacit.lab.data.synthetic import movies
from tacit.privacy.price import price
from tacit_papers import Options, paper
from tacit_papers.prices import overcounted
from tacit_papers.privrec import stages, study
from tacit_papers.privrec.orders import falls, faster, order, plateau, reached, rises
from tacit_papers.privrec.printed import COLUMNS, ORDER, TABLE2, TABLE3
from tacit_papers.privrec.stages import (
    BUDGETS,
    NOISY,
    PRIVATE,
    beside,
    budget_plan,
    by_chance,
    cost_of,
    helped,
    in_stages,
    noisy_plan,
    two_against_one,
)
from tacit_papers.privrec.study import CHANCE, SIZES, STAND_IN, Log, Study, app_log, movie_log, plan_of

pytestmark = pytest.mark.filterwarnings("ignore::tacit.lab.analysis.feasibility.FeasibilityWarning")

TINY = study.Size(
    {"dim": 4, "hidden": (4,), "epochs": 1, "most": 16, "rate": 0.1}, 20, (2, 4), (1, 2), (2, 4), (1.0, 8.0)
)


@pytest.fixture(scope="module")
def tiny():
    return Log("movies, tiny", movies(60, 60, seed=2), TINY)


@pytest.fixture
def module(tiny, monkeypatch):
    """The paper's file on a tiny log."""
    found = paper("privrec")
    monkeypatch.setattr(found, "movie_log", lambda *_: tiny)
    monkeypatch.setattr(found, "app_log", lambda *_: replace(tiny, label=STAND_IN, stand_in=STAND_IN))
    return found


def made(module, *parts):
    return list(module.reproduce(Options(parts=parts, seeds=(0,))))


@pytest.mark.slow
@pytest.mark.parametrize("number", [4, 5])
def test_accounting_stands_beside_the_paper(module, number):
    (table,) = made(module, f"table{number}")
    assert len(table.rows) == 18
    cells = {4: ("30 of 4800, δ = 1e-06", 16.6081, 2.4460), 5: ("15 of 760, δ = 1e-06", 45.5485, 8.5109)}
    row, printed, rdp = cells[number]
    assert table.rows[row]["printed"].ours == printed
    assert table.rows[row]["reproduced"].ours == pytest.approx(printed, abs=1.1e-4)
    assert table.rows[row]["RDP"].ours == pytest.approx(rdp, abs=1e-3)
    for cells in table.rows.values():
        assert cells["PLD, at least"].ours <= cells["PLD, at most"].ours <= cells["RDP"].ours
    assert [note.split(":")[0] for note in table.notes[:3]] == [
        "R4, smaller cohorts holds",
        "R4, larger δ holds",
        "R4, reproduced holds",
    ]


def test_activity(module):
    (figure,) = made(module, "figure2")
    shares = [share for _, share in figure.series["more than so many items"]]
    assert shares == sorted(shares, reverse=True)


@pytest.mark.slow
def test_ranking_stands_beside_the_paper(module):
    (table,) = made(module, "table2")
    assert table.rows["PrivRec"]["Hits@10"].paper == 0.168
    assert table.rows["FedGNN"]["Hits@10"].paper == 0.155
    assert any(note.startswith("FedGNN: a helper") for note in table.notes)
    assert table.rows["popularity"]["Hits@10"].paper is None
    for cells in table.rows.values():
        hits = [cells[f"Hits@{cut}"].ours for cut in (5, 10, 20, 30)]
        assert hits == sorted(hits)
    assert table.digests["NN-SELF"] != table.digests["PrivRec"]
    assert table.notes[0].startswith("R1 ")


@pytest.mark.slow
def test_figures_come(module):
    made_by = {one.title: one for one in made(module, "figure3", "figure6", "figure8", "figure9")}
    assert len(made_by) == 9
    assert sum(title.endswith(f"[{STAND_IN}]") for title in made_by) == 3
    rounds = next(one for title, one in made_by.items() if "by rounds" in title)
    assert [x for x, _ in rounds.series["PrivRec"]] == [2.0, 4.0]
    budgets = next(one for title, one in made_by.items() if "against ε" in title)
    assert [x for x, _ in budgets.series["counts and tastes, ours"]] == [1.0, 8.0]
    for curve in BUDGETS:  # each point by a plan of its own
        assert len(budgets.digests[curve]) == len(budgets.series[curve])
    assert budgets.series["PrivRec in the paper"] == [(1.0, 0.217), (8.0, 0.217)]
    printed = next(note for note in budgets.notes if note.startswith("DP-PrivRec, as printed: drawn at"))
    assert printed.count("∞ for the run") == 2
    assert len(budgets.digests["PrivRec, no noise"]) == len(rounds.digests["PrivRec"]) == 1
    assert all(one.notes[0].startswith("R") for one in made_by.values())


@pytest.mark.slow
def test_lines_with_noise_are_answered_and_priced(tiny, monkeypatch):
    few = {row: NOISY[row] for row in ("PrivRec", "counts and tastes at ε = 8", "popularity, without noise")}
    monkeypatch.setattr(stages, "NOISY", few)  # all eight take minutes to compile
    found, costs = stages.with_noise(tiny, (0,))
    assert set(found.values) == set(costs) == set(found.digests) == set(few)
    assert all(0 <= found.mean(row, "Hits@10") <= 1 for row in few)
    assert not any(found.values[row][CHANCE].any() for row in few)
    assert costs["PrivRec"].startswith("ε = ∞ for the run")
    assert costs["counts and tastes at ε = 8"].startswith("ε = 8 for the run, unit user")


def test_lines_with_noise_are_what_they_say(tiny):
    plans = {row: noisy_plan(row, tiny, 48) for row in NOISY}
    open_one, private = (plans[row].stages for row in (PRIVATE.partition(", stage")[0], PRIVATE))
    assert open_one[0].privacy["mechanism"] == "none"
    assert private[0].privacy == private[1].privacy == open_one[1].privacy
    assert open_one[1].hyper["dim"] == open_one[0].hyper["dim"] == 4
    assert plans["DP-PrivRec at ε = 8"].stages[1].cohort["count"] == 48
    assert plans["DP-PrivRec-One, as printed"].stages[0].privacy["clip"] == 40.0
    assert cost_of(price(plans["DP-PrivRec, as printed"], 48)).startswith("ε = ∞ for the run, unit user, replace-one")
    assert "only if what stage 1 learned were public" in cost_of(price(plans["DP-PrivRec, as printed"], 48))


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [1.0, 8.0])
def test_points_of_figure_6_are_two_stages_priced_as_they_are(tiny, epsilon):
    """As printed ε is of stage 2 alone and the run's is ∞; with a private stage 1 it is of both together."""
    plans = {row: budget_plan(row, tiny, 48, epsilon) for row in BUDGETS}
    cost = {row: price(plan, 48) for row, plan in plans.items()}
    printed = cost["DP-PrivRec, as printed"]
    assert [stage.method for stage in plans["DP-PrivRec, as printed"].stages] == ["masks", "privrec"]
    assert (printed.whole.epsilon, printed.beside[0].epsilon) == (math.inf, pytest.approx(epsilon, rel=1e-3))
    for row in (PRIVATE, "DP-PrivRec-One, as printed", "counts and tastes, ours"):
        assert 0.999 * epsilon < cost[row].whole.epsilon <= epsilon * (1 + 1e-6)
        assert cost[row].whole.trust == "server"
    one, other = (stage.privacy for stage in plans[PRIVATE].stages)
    assert one == other
    assert one["noise"] > printed.stages[1].mechanism.noise, "two stages share what one had"
    words = beside(PRIVATE, {epsilon: plans[PRIVATE]}, 48)
    assert words.endswith(f"as the paper counts the same noise, {epsilon:g} for the run.")
    paper = float(words.partition(f"ε = {epsilon:g}, ")[2].partition(" as the paper")[0])
    noise = one["noise"] / 2
    assert paper == pytest.approx(overcounted(48, 30, 1e-5, noise, 100), rel=0.01)
    assert "∞ for the run" in beside("DP-PrivRec, as printed", {epsilon: plans["DP-PrivRec, as printed"]}, 48)


def test_orders_of_stages_can_fail():
    falling = dict(zip(NOISY, (0.9, 0.1, 0.8, 0.7, 0.2, 0.3, 0.4, 0.5)))
    assert [note.split(":")[0].endswith(" holds") for note in in_stages(falling)] == [True, False, True, True, True]
    one, two, _ = (row for row in NOISY if "as printed" in row)
    unsaid = in_stages(falling, {one, two})
    assert unsaid[0] == f"R3 by means, as printed does not hold: chance ranks most users in {two} and in {one}."
    assert unsaid[2:] == in_stages(falling)[2:], "one line by chance may still be below another"
    level = dict.fromkeys(NOISY, 0.1)
    held = ["does not hold" not in note.split(":")[0] for note in in_stages(level)]
    assert held == [False, True, False, False, False]


def test_two_stages_against_one_is_said_only_where_it_is_shown():
    rng = np.random.default_rng(0)
    people = dict.fromkeys(NOISY, rng.random(200))
    one, two, private = (row for row in NOISY if "as printed" in row)
    people |= {two: people[one] + 0.1, private: people[one] - 0.1}
    people["DP-PrivRec at ε = 8"] = people["DP-PrivRec-One at ε = 8"] + rng.normal(size=200)
    sound = np.zeros(200, bool)
    found = Study({row: {"Hits@10": values, CHANCE: sound} for row, values in people.items()})
    said = two_against_one(found)
    assert by_chance(found) == []
    assert said[0].startswith("with stage 1 open (ε = ∞), printed noise in stage 2: two stages are better than one; ")
    assert "Hits@10 +0.1000 (+0.1000 to +0.1000) by the first stage." in said[0]
    assert said[1].startswith("with stage 1 private too, printed noise in both: one stage is better than two; ")
    assert "ε ≤ 8 in all: neither one stage nor two is shown to be better; " in said[2]
    lost = np.arange(200) > 0
    found.values[one] = found.values[two] = {"Hits@10": people[one], CHANCE: lost}
    of = "199 of 200 users"
    assert two_against_one(found)[0].endswith(f": chance ranks {of} in both; there is nothing to compare.")
    assert two_against_one(found)[1] == said[1], "of one line alone, not of both"
    words = f"chance ranks {of}; half of the items or more have one score, or none is a number."
    assert by_chance(found) == [f"{one}: {words}", f"{two}: {words}"]


def test_figures_4_and_5_have_the_paper_s_line_and_say_which_order_holds(module, tiny, monkeypatch):
    """Without Frappe, the log is a stand-in, and every title and note says so."""
    hits = {f"Hits@{cut}": np.full(3, cut / 100) for cut in (5, 10, 20, 30)}
    values = {row: {**hits, CHANCE: np.zeros(3, bool)} for row in NOISY}
    monkeypatch.setattr(
        module, "with_noise", lambda *_: (Study(values, dict.fromkeys(NOISY, "made")), dict.fromkeys(NOISY, "ε = ∞."))
    )
    four, five = made(module, "figure4", "figure5")
    assert four.series["PrivRec in the paper"] == [(5.0, 0.131), (10.0, 0.168), (20.0, 0.217), (30.0, 0.269)]
    assert five.series["PrivRec in the paper"][0] == (5.0, 0.549)
    assert (four.data, five.data) == ("movies, tiny", STAND_IN)
    assert (STAND_IN in five.title, STAND_IN in four.title) == (True, False)
    assert five.notes[-1].startswith("Evaluation: new items only")
    assert five.notes[-2].startswith(f"The log is a {STAND_IN}, and the paper's numbers are of Frappe itself")
    assert not any(STAND_IN in note for note in four.notes)
    assert [note.partition(":")[0] for note in four.notes[:2]] == [
        "with stage 1 open (ε = ∞), printed noise in stage 2",
        "with stage 1 private too, printed noise in both",
    ]
    assert "PrivRec: ε = ∞." in four.notes


def test_fedgnn_s_note_prints_infinity():
    assert "Its printed ε = 1 is of one number of one message" in helped()
    assert "a person's is ∞ (a message names the rows" in helped()


def test_plans_of_rows_keep_what_makes_them():
    size = SIZES["small"]
    assert plan_of("PrivRec", size).stages[0].hyper["epochs"] == 10
    assert plan_of("PrivRec-SGD", size).stages[0].hyper["epochs"] == 1
    assert plan_of("NN-SELF", size).stages[0].hyper["meta"] == "maml"
    assert plan_of("FOFL-SELF", size).stages[0].hyper["kinds"] == ()
    assert plan_of("untrained", size).stages[0].rounds == 0
    assert plan_of("PrivRec-CEN", size).stages[0].cohort["sampler"] == "pooled"
    assert plan_of("PrivRec", SIZES["paper"]).stages[0].hyper["hidden"] == (64, 32, 16, 8)


def test_nobody_asked_took_part_and_no_more_than_the_size_says(tiny):
    split = replace(tiny, size=TINY._replace(asked=5), known={}).split(0)
    assert np.unique(split.test.device).size == 5
    assert len(split.train) == 48


def test_rows_on_a_stand_in_say_so(tiny):
    log = replace(tiny, label=STAND_IN, stand_in=STAND_IN)
    values = {row: {name: np.full(3, 0.1) for name in COLUMNS} for row in study.ROWS}
    table = paper("privrec").Paper(Options(seeds=(0,))).ranking("table3", "Table 3: Frappe", log, Study(values), TABLE3)
    assert table.title == f"Table 3: Frappe, 1 seed [{STAND_IN}]"
    assert all(row.endswith(f" [{STAND_IN}]") for row in table.rows)
    assert table.rows[f"PrivRec [{STAND_IN}]"]["Hits@5"].paper == 0.549


# ---- orders ----


def test_orders_are_checked_and_not_taken_for_granted():
    assert order("R1", {"a": 0.2, "b": 0.1}, "Hits@10") == "R1 holds: Hits@10: a 0.2000 > b 0.1000."
    assert order("R1", {"a": 0.1, "b": 0.2}, "Hits@10").startswith(
        "R1 does not hold: Hits@10: b (0.2000) is not below a"
    )
    assert plateau("R2", "rounds", {1: 0.1, 2: 0.3, 3: 0.35}).startswith("R2 in rounds holds")
    assert plateau("R2", "rounds", {1: 0.1, 2: 0.15, 3: 0.35}).startswith("R2 in rounds does not hold")
    assert rises("R3", "x", [(1, 0.2), (8, 0.1)]).startswith("R3, rising with ε does not hold")
    assert rises("R3", "x", [(1, 0.0064), (8, 0.0069)]).startswith("R3, rising with ε does not hold")
    assert rises("R3", "x", [(1, 0.1), (8, 0.2)]).startswith("R3, rising with ε holds")
    assert reached("R3", "x", [(1, 0.1), (8, 0.3)], 0.2).startswith("R3, PrivRec as the bound does not hold")
    assert faster("R6", [(1, 9.0)], [(1, 10.0)]).startswith("R6, by 10 % or more holds")
    assert faster("R6", [(1, 9.5)], [(1, 10.0)]).startswith("R6, by 10 % or more does not hold")


def cell(cohort, delta, upper):
    return {"cohort": cohort, "delta": delta, "upper": upper, "printed": 2.0, "reproduced": 2.0, "factor": 2.0 / upper}


def test_accounting_is_checked_and_not_taken_for_granted():
    right = [cell(5, 1e-8, 0.3), cell(10, 1e-8, 0.6), cell(5, 1e-6, 0.2), cell(10, 1e-6, 0.5)]
    assert [note.split(":")[0].endswith(" holds") for note in falls("R4", right)[:3]] == [True] * 3
    assert falls("R4", right)[3] == "The printed ε is 3.3 to 10.0 times what 1000 rounds cost at most."
    wrong = [{**right[0], "upper": 0.7, "reproduced": 2.1}, *right[1:]]
    held = [" does not hold" not in note.split(":")[0] for note in falls("R4", wrong)[:3]]
    assert held == [False, True, False]


def test_the_paper_s_own_numbers_keep_the_paper_s_orders():
    """Typing them in went well."""
    for printed in (TABLE2, TABLE3):
        for row in printed.values():
            hits, gains = ([x for x in part if x is not None] for part in (row[:4], row[4:]))
            assert len(row) == len(COLUMNS)
            assert hits == sorted(hits)
            assert gains == sorted(gains)
        best = [printed[row][3] for row in ORDER]
        assert best == sorted(best, reverse=True)


# ---- logs ----


@pytest.mark.slow
def test_without_data_the_log_is_synthetic_and_says_so(monkeypatch, tmp_path):
    monkeypatch.setenv("TACIT_DATA", str(tmp_path))
    log = movie_log(None, "small")
    assert log.label == "movies, synthetic, 1,500 people"
    apps = app_log("small")
    assert apps.label.startswith("synthetic stand-in for Frappe: 957 people, 4,082 apps, ")
    assert apps.stand_in == STAND_IN
    assert (len(apps.people), apps.people.catalog.n_items) == (957, 4082)
    assert [field.name for field in apps.people.catalog.person_fields] == list(SURROUNDINGS)
    assert [field.name for field in apps.people.catalog.item_fields] == ["cost"]
    assert 90_000 < apps.people.items.size < 110_000
    assert all(
        (column >= 0).all() and (column < field.size).all()
        for column, field in zip(apps.people.person.T, apps.people.catalog.person_fields)
    )
    privrec = plan_of("PrivRec", apps.size).stages[0]
    assert (privrec.rounds, privrec.cohort["count"]) == (40, 30)
    assert noisy_plan("DP-PrivRec, as printed", apps, 765).stages[1].privacy["clip"] == 35.0


def test_frappe_itself_is_used_where_it_is_and_surroundings_become_a_person_s_own(monkeypatch, tmp_path):
    columns = ("user", "item", "cnt", *SURROUNDINGS, "cost")
    events = [  # user, app, count, part of the day
        *((7, app, 1, day) for app, day in ((1, "evening"), (2, "morning"), (3, "evening"))),
        *((8, app, 2, day) for app, day in ((1, "morning"), (2, "morning"))),
    ]
    rest = ("sunday", "weekend", "home", "sunny", "Spain", "0", "free")
    lines = ["\t".join(map(str, (*event, *rest))) for event in events]
    (tmp_path / "frappe").mkdir()
    (tmp_path / "frappe" / "frappe.csv").write_text("\n".join(["\t".join(columns), *lines]) + "\n")
    monkeypatch.setenv("TACIT_DATA", str(tmp_path))
    log = app_log("small")
    assert (log.label, log.stand_in, log.told("a row")) == ("frappe", "", "a row")
    assert [field.name for field in log.people.catalog.person_fields] == list(SURROUNDINGS)
    daytime = log.people.catalog.person_fields[0].values
    assert [daytime[int(own)] for own in log.people.person[:, 0]] == ["evening", "morning"]


@pytest.mark.skipif(not Path(os.environ.get("TACIT_DATA", "data"), "ml-1m").is_dir(), reason="needs MovieLens-1M")
def test_with_data_it_is_the_paper_s():
    log = movie_log(None, "paper")
    assert (log.label, len(log.people), log.people.items.size) == ("ml-1m", 6040, 1_000_209)
