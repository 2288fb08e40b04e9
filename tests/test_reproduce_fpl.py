"""The paper's tables on a log that is made in a second: every part comes, says what it was measured on, and can fail."""

import numpy as np
import pytest

from tacit.errors import PlanError
from tacit.lab.protocol import Answers
from tacit.lab.reproduce import Options, fpl_study, paper
from tacit.lab.reproduce.fpl import BEST_PI, COLUMNS, TABLE1, TABLE2
from tacit.lab.reproduce.fpl_study import GRIDS, ROWS, Grid, Study, covered, log_of, logs, oldest_first
from tacit.lab.split import Split
from tacit.lab.synthetic import tastes
from tacit.plans import Plan

QUICK = Grid((0.05,), (4,), (3,), (0.0, 0.5, 1.0), ((8, 4),), 1)
SCORES = {"random": 0.01, "top-pop": 0.05, "vae": 0.3, "bpr-mf": 0.2, "fcf": 0.15, "fcf-authors": 0.1}


def told(plan: Plan, split: Split, seed: int) -> Answers:
    """In place of learning and asking: numbers that are known, best at π = 0.5; a slow test below does both."""
    hyper = plan.stages[0].hyper
    level = SCORES[plan.name] if plan.name in SCORES else 0.2 - (hyper["pi"] - 0.5) ** 2 / 2
    people = np.unique(split.test.device)
    noise = np.random.default_rng([seed, len(plan.name)]).normal(0, 0.01, people.size)
    values = {"P@10": level + noise - noise.mean(), "R@10": level - noise + noise.mean()}
    metrics = {"P@10": level, "R@10": level, "F1@10": level, "IC@10": 100 * level, "G@10": level}
    return Answers("fpl", "all", metrics, values, people, ())


@pytest.fixture(scope="module")
def log():
    return log_of("tastes", tastes(devices=40, items=60, events=40))


@pytest.fixture(scope="module")
def made(log):
    """Everything, on one small log that passes for Italy."""
    module = paper("fpl")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "logs", lambda *_: [log._replace(country="Italy")])
        patch.setitem(GRIDS, "small", QUICK)
        patch.setattr(fpl_study, "_ask", told)
        return list(module.reproduce(Options()))


@pytest.mark.slow
def test_the_whole_command_on_a_small_log(log, monkeypatch):
    module = paper("fpl")
    monkeypatch.setattr(module, "logs", lambda *_: [log])
    monkeypatch.setitem(GRIDS, "small", QUICK)
    statistics, ranking, figure = module.reproduce(Options())
    found = {row: cells["F1@10"].ours for row, cells in ranking.rows.items()}
    assert all(found[row] > found["Random"] for row in found if row not in ("Random", "FCF, as the authors"))
    assert ranking.rows["Random"]["G@10"].ours > ranking.rows["Top-Pop"]["G@10"].ours
    assert statistics.rows["tastes"]["users"].paper is None
    assert len(figure.series["pFPL"]) == 3


def test_tables_stand_beside_the_paper(made, log):
    assert [one.name for one in made] == ["table1", "table2", "figure1"]
    statistics, ranking, _ = made
    assert statistics.rows["tastes"]["users"].ours == log.people == len(log.split.train)
    assert statistics.rows["tastes"]["a user"].paper == pytest.approx(39.98, abs=0.01)
    assert statistics.rows["tastes"]["filled in ‰"].paper == pytest.approx(1.57, abs=0.01)
    assert set(ranking.rows) == set(ROWS)
    assert ranking.columns == COLUMNS
    assert ranking.rows["pFPL"]["P@10"].paper == 0.04642
    assert ranking.rows["sFPL"]["F1@10"].paper == pytest.approx(2 * 0.04701 * 0.056 / (0.04701 + 0.056))
    assert ranking.rows["FCF"]["P@10"].paper is None
    assert ranking.rows["Top-Pop"]["P@10"].low < ranking.rows["Top-Pop"]["P@10"].ours
    assert "rate 0.05, dim 4, epochs 3 and π = 0.5 chosen on validation" in ranking.title


def test_every_order_is_said_to_hold_or_not(made, log):
    notes = [*made[1].notes, *made[2].notes]
    for order in ("P1 ", "P4 (VAE", "P4 (FCF", "P2 (pFPL", "P2 (sFPL", "P3 "):
        (said,) = [note for note in notes if note.startswith(order)]
        assert " holds: " in said
    # pFPL is above Top-Pop by far here, and π = 0 is above it too.
    (near,) = [note for note in notes if note.startswith("P5 ")]
    assert "does not hold" in near
    assert any("Paired t-test, pFPL − Top-Pop, P@10" in note for note in notes)
    assert any(f"VAE answers for all {log.people} people here" in note for note in notes)
    assert any("oldest fifth instead of the newest" in note for note in notes)


def test_the_curve_has_every_pi(made):
    assert [x for x, _ in made[2].series["pFPL"]] == [0.0, 0.5, 1.0]
    assert [x for x, _ in made[2].series["sFPL"]] == [0.0, 1.0]
    assert len(made[2].digests["pFPL"]) == 3  # each point by a plan of its own


def test_orders_are_checked_and_not_taken_for_granted():
    module = paper("fpl")
    assert module._peak("sFPL", [(0.1, 0.2), (0.5, 0.3), (1.0, 0.1)], "Italy").startswith(
        "P2 (sFPL peaks below π = 1) holds"
    )
    rising = module._peak("pFPL", [(0.1, 0.1), (1.0, 0.3)], "Brazil")
    assert "does not hold" in rising
    assert "the paper's best is 0.8" in rising


def test_the_paper_s_own_numbers_keep_the_paper_s_orders():
    """Typing them in went well."""
    for rows in TABLE2.values():
        assert max(rows, key=lambda row: rows[row][0]) == "VAE"
        assert rows["FCF, as the authors"][0] < rows["pFPL"][0]
        assert rows["Random"][3] > max(one[3] for name, one in rows.items() if name != "Random")
    for users, items, records in TABLE1.values():
        assert 0.0007 < records / users / items < 0.0017
    assert BEST_PI["Italy"] == (0.4, 1.0)


def test_forms_do_as_many_triples_as_the_log_has_records(log):
    one = Study(log, QUICK, (0,))
    chosen = {"rate": 0.05, "dim": 4, "epochs": 10}
    for row in ("pFPL", "pFPL+"):
        stage = one.plan(row, 0.5, chosen).stages[0]
        assert stage.rounds * stage.hyper["triples"] * log.people == pytest.approx(10 * log.records, rel=0.1)
    grid = QUICK._replace(slow_epochs=10)
    for row in ("sFPL", "sFPL+"):
        stage = Study(log, grid, (0,)).plan(row, 0.5, chosen).stages[0]
        assert stage.cohort["sampler"] == "one"
        assert stage.rounds * stage.hyper["triples"] == pytest.approx(10 * log.records, rel=0.02)
    assert one.plan("sFPL", 0.5, chosen).stages[0].rounds == log.records  # one epoch at most


def test_the_oldest_fifth_is_the_newest_of_time_turned_round(log):
    turned = oldest_first(log.split)
    first = log.split.log.items[: log.split.log.lengths[0]]
    asked = turned.test.target[turned.test.device == 0]
    np.testing.assert_array_equal(np.sort(asked), np.sort(first[: asked.size]))
    assert turned.train.lengths.tolist() == log.split.train.lengths.tolist()


def test_coverage_of_the_core(log):
    assert covered(log) == 1.0  # everybody here has more than ten items that ten people have
    sparse = log_of("tastes", tastes(devices=12, items=800, events=40))
    assert covered(sparse) < 0.2


def test_without_data_the_log_is_synthetic_and_says_so(monkeypatch, tmp_path):
    monkeypatch.setenv("TACIT_DATA", str(tmp_path))
    (only,) = logs(None, "small")
    assert only.label == "movies, synthetic, 800 people"
    assert only.country is None
    assert [one.label for one in logs("tastes", "small")] == ["tastes"]


def test_a_paper_is_found_by_its_name():
    assert "pairwise" in paper("fpl").ABOUT
    with pytest.raises(PlanError, match="did you mean 'fpl'"):
        paper("flp")
    assert fpl_study.CORE == 10
