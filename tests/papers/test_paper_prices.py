"""Five papers as claimed and as accounted: the printed numbers come out, the true ones hold, and the page says the same."""

import json
import math
import re
from pathlib import Path

import pytest

from tacit.core.run_folder import plain
from tacit_papers import prices

PAGE = Path(__file__).resolve().parents[2] / "docs" / "privacy.md"
NUMBER = re.compile(r"\d+(?:\.\d+)?(?:e-?\d+)?")


@pytest.fixture(scope="module")
def rows():
    return prices.rows()


@pytest.fixture(scope="module")
def cells():
    return prices.privrec_tables()


def find(rows, *words):
    """The rows that mention all of these words in paper or setting."""
    return [row for row in rows if all(word in f"{row['paper']} {row['setting']}" for word in words)]


# ---- Tables 4 and 5 ----


@pytest.mark.slow
def test_every_printed_cell_is_reproduced_to_its_last_digit(cells):
    assert len(cells) == 36
    for cell in cells:
        assert math.floor(cell["reproduced"] * 1e4) / 1e4 == cell["printed"], cell


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cohort", "devices", "delta", "value"),
    [
        (5, 4800, 1e-8, 1.743989329767271),
        (30, 4800, 1e-6, 16.60818840861105),
        (15, 760, 1e-4, 40.94337505977805),
        (2, 760, 1e-8, 2.2994100753670508),
    ],
)
def test_reproduced_beyond_the_printed_digits(cells, cohort, devices, delta, value):
    key = ("cohort", "devices", "delta")
    (cell,) = [cell for cell in cells if tuple(cell[name] for name in key) == (cohort, devices, delta)]
    assert cell["reproduced"] == pytest.approx(value, abs=1e-6)


def test_true_numbers_are_in_order_and_smaller(cells):
    for cell in cells:
        assert 0 < cell["lower"] < cell["upper"] < cell["rdp"] < cell["printed"]
        assert cell["factor"] == pytest.approx(cell["printed"] / cell["upper"])
    ratios = [cell["factor"] for cell in cells if cell["delta"] == 1e-6]
    assert min(ratios) > 2.7
    assert max(ratios) < 13


def test_a_smaller_delta_costs_more(cells):
    for name in ("reproduced", "rdp", "lower", "upper"):
        for small, middle, large in zip(cells[::3], cells[1::3], cells[2::3]):
            assert small[name] > middle[name] > large[name]


# ---- the overview ----


def test_what_has_no_finite_guarantee_says_so(rows):
    assert [row["epsilon"] for row in find(rows, "QHarmony", "one message") if "signs" not in row["setting"]] == [
        math.inf,
        math.inf,
    ]
    assert all(row["epsilon"] == math.inf for row in find(rows, "FPL"))
    assert [row["epsilon"] for row in find(rows, "AP, one interaction")] == [math.inf, pytest.approx(1.0)]
    assert find(rows, "FedSeqRec", "any λ")[0]["epsilon"] == math.inf
    assert find(rows, "both stages")[0]["epsilon"] == math.inf
    assert all(row["accounted"].startswith("∞") for row in rows if math.isinf(row["epsilon"]))


def test_messages_add_up(rows):
    signs = find(rows, "QHarmony", "updates, signs only")
    assert [row["epsilon"] for row in signs if row["delta"] == 0] == pytest.approx([13.5, 3.3])
    assert all(row["epsilon"] <= 13.5 for row in signs if row["delta"] > 0)
    assert [row["epsilon"] for row in find(rows, "SP, App Usage") if row["delta"] == 0] == pytest.approx(
        [60, 120, 1682]
    )
    assert [row["epsilon"] for row in find(rows, "SP, MovieLens") if row["delta"] == 0] == pytest.approx(
        [253, 506, 9953]
    )
    assert [row["epsilon"] for row in find(rows, "corrected")] == pytest.approx([4, 800])


def test_privrec_as_trained_and_as_printed(rows):
    upper = {row["setting"]: row["epsilon"] for row in find(rows, "DP-PrivRec")}
    assert upper["20 of 4800, 80 rounds, as trained"] == pytest.approx(0.398, abs=1e-3)
    assert upper["30 of 760, 40 rounds, as trained"] == pytest.approx(2.554, abs=1e-3)
    trained = " ".join(row["reason"] for row in find(rows, "as trained"))
    assert ("1.184" in trained, "3.992" in trained) == (True, True)
    steps = find(rows, "Algorithm 2")
    assert ["16.69" in steps[0]["reason"], "0.9835" in steps[1]["reason"]] == [True, True]
    assert steps[0]["epsilon"] > 5 * upper["Table 4, 30 of 4800, z = 1, 1000 rounds"]
    assert "2.668 instead of 2.446" in find(rows, "200 private rounds")[0]["reason"]


def test_a_share_of_zero_hides_nothing():
    assert prices.disclosed(0.1, 34.34, 1717) == pytest.approx(0.9933110228182959, abs=1e-9)
    assert prices.disclosed(1.0, 20, 60) == pytest.approx(0.953930201013048, abs=1e-9)
    assert prices.disclosed(0.0, 20, 60) == 0.0


def test_one_answer_in_both_directions():
    p = 1 / (1 + math.exp(-1))
    assert prices.response_epsilon(p, 1 - p) == pytest.approx((1.0, 1.0))
    assert prices.response_epsilon(1.0, math.exp(-1)) == (math.inf, pytest.approx(1.0))
    assert prices.response_epsilon(0.9, 0.2)[0] == pytest.approx(2.079441541679836)


def test_rows_have_all_columns_and_become_json(rows, cells):
    for row in rows:
        assert set(prices.COLUMNS) <= set(row)
        assert all(row[name] for name in prices.COLUMNS)
    for cell in cells:
        assert set(prices.CELL_COLUMNS) == set(cell)
    assert json.loads(json.dumps(plain({"rows": rows, "cells": cells}), allow_nan=False))
