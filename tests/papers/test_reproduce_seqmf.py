"""SeqMF's tables and figures: what is printed beside what, and what the notes compute."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from tacit.cli import app
from tacit.lab.experiments.online import Timeline
from tacit.report import write_paper
from tacit.report.page import curves_chart
from tacit_papers import Options, seqmf
from tacit_papers.seqmf.printed import CORES, DIM, INSTALLED, METRICS, MILLISECONDS, TABLES
from tacit_papers.seqmf.study import RIVALS, TUNED, Static, mechanisms, operations, phone_flops, place
from tacit_papers.tables import Cell, Figure, Table


@pytest.fixture
def tiny(monkeypatch):
    for people in ("USERS", "FOLLOWED"):
        monkeypatch.setattr(seqmf, people, {"small": {"LSApp": 8, "App Usage": 8}})
    monkeypatch.setattr(seqmf, "TRIALS", {"small": 0})


def test_printed_numbers():
    assert TABLES["LSApp"]["SeqMF"][2] == 0.871
    assert TABLES["App Usage"]["SR"][2] == 0.746
    for rows in TABLES.values():
        for row in rows.values():
            assert len(row) == len(METRICS) == 9
            assert row[0] == row[3] == row[6]  # at 1 the three are one


def test_activity(tiny):
    calendar, cycles = seqmf.reproduce(Options(("figure2",), seeds=(0, 1)))  # of which one is shown
    counts = [people for _, people in cycles.series["active people"]]
    assert len(counts) == len(calendar.series["active people"]) == 34
    assert max(counts) - min(counts) <= 1  # as Figure 2, right
    assert calendar.data == "apps, synthetic, 8 people, 1 seed"
    (note,) = cycles.notes
    assert note.startswith(f"From {min(counts):g} to {max(counts):g} of 8 people are active, coefficient of variation ")


# ---- section 4.3: the cost of a round on a phone ----


def test_the_printed_cost_formula():
    """Every number of section 4.3, from the inputs it names: 80 apps, dimension 128, eight cores of which two are kept."""
    counted = operations(INSTALLED, DIM)
    assert (INSTALLED, DIM) == (80, 128)
    assert counted == {"user vector": 5_057_376, "gradient": 4_336_880}
    assert phone_flops(CORES) == pytest.approx(66.24e9)
    milliseconds = {part: 1e3 * count / phone_flops(CORES) for part, count in counted.items()}
    assert sum(milliseconds.values()) == pytest.approx(0.1418, abs=5e-5)
    # The paper rounds each of the two, and adds what is rounded.
    assert {part: round(value, 3) for part, value in milliseconds.items()} == MILLISECONDS
    assert sum(MILLISECONDS.values()) == pytest.approx(0.141)
    assert round(sum(milliseconds.values()), 3) == 0.142


def test_the_cost_formula_counts_whole_operations():
    for dim in range(1, 9):
        exact = dim**3 / 3 + 3 * dim**2 / 2 + 7 * dim / 6 + 2 * dim * (dim - 1)
        assert operations(0, dim)["user vector"] == pytest.approx(dim + exact)
    assert operations(2, 3)["gradient"] == 3 * 2 + 3 * 3 * 2 + 2 * 3 * (2 + 4) + 2 * 2 * 9 + 4 * 4


def test_the_cost_stands_beside_what_was_measured():
    (table,) = seqmf.reproduce(Options(("cost",), seeds=(0,)))
    assert "80 apps, dimension 128" in table.data
    user, both = table.texts()["user vector, T_u"], table.texts()["both"]
    assert user["operations"] == "5,057,376"
    assert both["operations"] == "9,394,256"
    assert both["ms, by the formula"] == "0.1418 (0.1410)"
    assert float(both["ms, measured here"]) > 0
    assert any("0.076 + 0.065 = 0.141" in note for note in table.notes)


def answered(**rows):
    found = Static()
    for row in (*RIVALS, TUNED):
        values = np.full(6, rows.get(row, 0.5)) + 0.01 * np.arange(6)
        found.values[row] = dict.fromkeys(METRICS, values)
        found.epsilon[row] = "4.5" if row == "seqmf, private" else "0"
    return found


def test_orders_follow_from_the_numbers():
    held = seqmf._orders(answered(SeqMF=0.6, **{"SR-od": 0.7}), "LSApp")
    assert [note[:8] for note in held[:3]] == ["S1 holds", "S2 holds", "S3 holds"]
    lost = seqmf._orders(answered(SeqMF=0.4, MFU=0.3, **{"SR-od": 0.1}), "LSApp")
    assert all("does not hold" in note for note in lost[:3])
    assert "-0.1000" in lost[3]  # SeqMF against the untrained table


def lines(**means):
    names = [*seqmf.REGIMES, *mechanisms(4.5)]
    return {name: [Timeline(None, {"HR@5": np.full(3, means.get(name, 0.5))}, (), None)] for name in names}


def test_notes_of_the_regimes():
    rows = {"SeqMF Full": 0.9, "SeqMF Rare": 0.8, "SeqMF Global": 0.7, "SR-od": 0.6, "MRU": 0.6}
    notes = seqmf._followed_notes(lines(**rows), "LSApp")
    assert notes[0].startswith("S4 holds")
    assert notes[1].startswith("S4 holds")
    assert "differs from the same table before any training: 0.4000" in notes[2]
    worse = seqmf._followed_notes(lines(**{**rows, "SR-od": 0.95, "SeqMF Rare": 0.95}), "LSApp")
    assert all("does not hold" in note for note in worse[:2])
    other = seqmf._followed_notes(lines(**{"SeqMF Full": 0.9, "control: untrained Q": 0.901}), "App Usage")
    assert [note[:8] for note in other[:3]] == ["S5 does ", "S5 does ", "S5 does "]
    assert "cannot be distinguished from" in other[3]


def test_noise_is_read_beside_the_untrained_table(monkeypatch):
    monkeypatch.setattr(seqmf, "_true_totals", lambda lines, epsilon: "")
    notes = seqmf._noised_notes(lines(**{"no noise": 0.6, "QHarmony as printed": 0.62, "Kashin": 0.55}), 4.5)
    assert notes[0].startswith("S6 holds")
    assert notes[1].startswith("S6 holds")
    assert "QHarmony keeps +0.1200 of what training brings, which is +0.1000" in notes[2]


def test_the_place_is_synthetic_and_says_so():
    where = place("App Usage", None, (3,), 9)
    assert (where.label, where.protocol, where.cycles, where.every, where.epsilon) == (
        "apps500, synthetic, 9 people, 1 seed",
        "seqmf-week",
        8,
        2,
        1.1,
    )
    assert len(where.worlds) == 1


def test_a_page_draws_tables_and_curves(tmp_path):
    table = Table("table1", "Table 1: numbers", "a world", ("HR@5",))
    table.add("<b>SeqMF", {"HR@5": Cell(0.5, 0.4, 0.6, 0.871)})
    figure = Figure(
        "figure3", "Figure 3", "a world", "cycle", "HR@5", {"Full": [(1, 0.5), (2, 0.6)], "control: no": [(1, 0.4)]}
    )
    found = {"paper": "seqmf", "size": "small", "seeds": 1, "parts": [table.to_dict(), figure.to_dict()]}
    page = write_paper(json.loads(json.dumps(found)), tmp_path / "page.html").read_text()
    assert "0.500 ± 0.100 (0.871)" in page
    assert "&lt;b&gt;SeqMF" in page
    drawn = curves_chart(figure.to_dict())["data"]["values"]
    assert [(row["name"], row["y"]) for row in drawn] == [("Full", 0.5), ("Full", 0.6), ("control: no", 0.4)]
    assert drawn[2]["dash"] == [4, 3]


@pytest.mark.slow
def test_the_command(tiny, tmp_path):
    page = tmp_path / "seqmf.html"
    made = CliRunner().invoke(
        app, ["reproduce", "seqmf", "--part", "figure6", "--seeds", "1", "--json", "--report", str(page)]
    )
    assert made.exit_code == 0, made.output
    left, right = json.loads(made.stdout)["parts"]
    assert set(mechanisms(1.1)) <= set(left["series"])
    assert "QHarmony as printed ∞, QHarmony-clip 30.8" in right["notes"][-1]
    assert "cumulative δHR@5" in page.read_text()
