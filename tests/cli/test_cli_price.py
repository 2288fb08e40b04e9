"""`tacit price`, and budgets on the command line."""

import json

import pytest
from test_cli import tacit, tacit_alone

GAUSSIAN = ["--set", "privacy.epsilon=4", "--set", "privacy.mechanism=gaussian"]  # the part may be named last


def test_price_says_everything_before_anything_runs():
    printed = tacit("price", "fcf", "--users", "5000", "--items", "300", *GAUSSIAN).stdout
    for words in (
        "fcf for 5,000 devices: ε = 4, δ = 1.0e-05 per run, central, unit user, replace-one, trust: server",
        "can tell which of two possible users is the real one at most 98.2 %",
        "ε = ∞ per message",
        "visible: the server sees each clipped report",
        "noise 11.84",
        "30 message(s) of",
        "operations a round",
        "feasibility: workable",
    ):
        assert words in printed


def test_price_in_json_and_as_a_card():
    found = json.loads(tacit_alone("price", "fcf", "--json", *GAUSSIAN).stdout)
    assert found["guarantee"]["epsilon"] == pytest.approx(4, rel=1e-3)
    assert found["guarantee"]["trust"] == "server"
    (stage,) = found["stages"]
    assert stage["outlook"]["numbers"] == 16_000
    assert stage["noise"]["noise"] == pytest.approx(11.84, abs=0.01)
    card = tacit("price", "popularity", "--card").stdout
    assert card.startswith("# Privacy card: popularity")
    assert "There is no guarantee for a user" in card


@pytest.mark.slow
def test_price_of_the_papers():
    found = json.loads(tacit_alone("price", "--papers", "--json").stdout)
    assert len(found["privrec_tables"]) == 36
    assert any(row["accounted"] == "∞" and row["epsilon"] == "inf" for row in found["rows"])


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["price"], "Name a plan to price"),
        (["price", "fcff"], "did you mean 'fcf'"),
        (["price", "fcf", "--set", "privacy.epsilon=4"], "empty promise"),
        (["price", "mfu", "--epsilon", "4"], "epsilon = 4 needs a stage that sends updates, and mfu has none"),
        (["audit", "mfu", "--epsilon", "4"], "epsilon = 4 needs a stage that sends updates"),
        (["compare", "mfu", "random", "--epsilon", "4"], "epsilon = 4 needs a plan that sends something"),
        (
            ["price", "fcf", "--set", "privacy.mechanism=gausian", "--set", "privacy.epsilon=4"],
            "did you mean 'gaussian'",
        ),
        (
            ["price", "fcf", "--set", "privacy.mechanism=laplace", "--set", "privacy.epsilon=-1"],
            "at least 1e-06 and at most 1e+06, got -1",
        ),
        (["price", "fcf", *GAUSSIAN, "--set", "privacy.delta=0.1"], "privacy.delta"),
        (["run", "fcf", "--window", "3"], "--window needs --budget"),
        (["run", "fcf", "--budget", "-1"], "Budget.epsilon must be above 0"),
    ],
)
def test_mistakes_get_one_sentence(words, sentence):
    result = tacit(*words, check=False)
    assert result.returncode == 2
    assert sentence in result.stderr
    assert "Traceback" not in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


@pytest.mark.slow
def test_a_budget_holds_over_runs(tmp_path):
    plan = ["--set", "privacy.mechanism=laplace", "--set", "privacy.epsilon=2", "--set", "rounds=2", "--devices", "50"]
    words = ["run", "fcf", *plan, "--json", "--budget", "3"]
    first = tacit_alone(*words, "--out", str(tmp_path / "one"))
    assert "warning: Stage 1 of fcf looks hopeless" in first.stderr
    second = json.loads(tacit_alone(*words, "--after", str(tmp_path / "one"), "--out", str(tmp_path / "two")).stdout)
    assert json.loads(first.stdout)["spent"]["messages"]["worst"] == 2
    assert second["spent"]["messages"]["worst"] == 3
    assert second["spent"]["epsilon"]["worst"] <= 3
    assert (tmp_path / "two" / "card.md").read_text(encoding="utf-8").startswith("# Privacy card: fcf")


def test_one_promise_is_shared_by_all_stages():
    printed = tacit("price", "dp-privrec", "--epsilon", "2", "--users", "5000").stdout
    assert printed.startswith("dp-privrec for 5,000 devices: ε = 2, δ = ")
