"""What a log looks like, in numbers that can be checked by hand; and the papers' tables."""

import json
import subprocess
import sys

import numpy as np
import polars as pl
import pytest
from rich.console import Console
from typer.testing import CliRunner

from tacit.cli.data import app
from tacit.errors import DataError
from tacit.lab.data import from_events
from tacit.lab.data.describe import count_sessions, describe_log, events_over_time, long_tail, print_statistics
from tacit.lab.data.interactions import interactions
from tacit_papers import datasets
from tacit_papers.datasets import CLAIMS, Claim, compare

DAY = 86_400


@pytest.fixture
def log(tmp_path):
    rows = {
        "user_id": ["a", "a", "a", "a", "b", "c"],
        "item_id": [1, 1, 2, 3, 1, 1],
        "datetime": [0, 60, 2000, 12 * DAY, 100, 200],
        "weight": [1.0, 1.0, 0.0, 1.0, 1.0, 1.0],
    }
    pl.DataFrame(rows).write_csv(tmp_path / "log.csv")
    return tmp_path / "log.csv"


def test_statistics_by_hand(log):
    found = describe_log(interactions(log))
    assert (found.users, found.items, found.events) == (3, 3, 6)
    assert found.density == pytest.approx(5 / 9)
    assert found.sparsity == pytest.approx(4 / 9)
    assert (found.events_per_user, found.events_per_item) == (2, 2)
    assert (found.lengths["0%"], found.lengths["50%"], found.lengths["100%"]) == (1, 1, 4)
    assert found.histogram == [(1, 1, 2), (2, 3, 0), (4, 7, 1)]
    assert found.label_counts == {"0": 1, "1": 5}
    assert found.tail["1%"] == pytest.approx(4 / 6)
    assert found.tail["100%"] == 1.0
    assert found.silos is None
    assert "2 of 3 users have fewer than 2 events; kept." in found.notes


def test_events_over_time_are_twelve_equal_parts(log):
    periods = events_over_time(interactions(log).times)
    assert len(periods) == 12
    assert periods[0] == ("1970-01-01", 5)
    assert periods[-1] == ("1970-01-12", 1)
    assert events_over_time(None) == []
    assert events_over_time(np.zeros(3)) == []


def test_the_long_tail_of_an_even_log_is_a_straight_line():
    tail = long_tail(np.arange(100), 100)
    assert tail["10%"] == pytest.approx(0.1)
    assert tail["50%"] == pytest.approx(0.5)


def test_sessions_end_with_a_pause(log):
    world = interactions(log)
    assert count_sessions(world, 900) == 3 + 2
    assert count_sessions(world, 30) == 4 + 2
    assert count_sessions(world, 1e9) == 3
    with pytest.raises(DataError, match="A count of sessions needs times"):
        count_sessions(from_events(np.array([0]), np.array([0])), 900)


def test_the_page_is_plain_when_piped(log):
    console = Console(width=100, record=True, force_terminal=False)
    with console.capture() as held:
        print_statistics("toy", describe_log(interactions(log)), console)
    page = held.get()
    assert "\x1b" not in page
    for word in ("users", "sparsity 44.4444%", "Long tail", "Events over time", "Note: 2 of 3 users"):
        assert word in page


def test_describe_a_file_on_the_command_line(log):
    say = CliRunner()
    found = json.loads(say.invoke(app, ["describe", str(log), "--json"]).output)
    assert (found["users"], found["events"], found["sparsity"]) == (3, 6, pytest.approx(4 / 9))
    assert "events per user" in say.invoke(app, ["describe", str(log)]).output
    renamed = say.invoke(app, ["describe", str(log), "--json", "--user", "item_id", "--item", "user_id"])
    assert json.loads(renamed.output)["lengths"]["100%"] == 4
    assert say.invoke(app, ["describe"]).exit_code == 2
    lost = say.invoke(app, ["describe", "nothing.csv"])
    assert "There is no file 'nothing.csv'" in str(lost.exception)


def test_monthly_sessions_leave_out_single_events(log):
    found = datasets._monthly(interactions(log))
    assert found == {"clients": 0, "users": 1, "items": 3, "sessions in all": 1}


def test_the_training_part_is_without_the_newest_fifth():
    world = from_events(np.repeat([0, 1], [10, 4]), np.arange(14), np.arange(14))
    found = datasets._training_part(world)
    assert (found["users"], found["items"], found["interactions"]) == (2, 12, 12)


def test_claims_agree_with_themselves():
    for claim in CLAIMS:
        if "sparsity" in claim.printed:
            dense = claim.printed["interactions"] / claim.printed["users"] / claim.printed["items"]
            assert 1 - dense == pytest.approx(claim.printed["sparsity"], abs=2e-5)
        if "per user" in claim.printed:
            assert claim.printed["interactions"] / claim.printed["users"] == pytest.approx(
                claim.printed["per user"], abs=0.01
            )


def test_absent_data_is_said_to_be_absent(tmp_path, monkeypatch):
    monkeypatch.setenv("TACIT_DATA", str(tmp_path))
    say = CliRunner()
    printed = json.loads(say.invoke(app, ["describe", "--papers", "--json"]).output)
    assert {one["why"] for one in printed} == {"not present"}
    assert len(printed) == len(CLAIMS) == 11
    (tmp_path / "ml-1m").mkdir()
    (tmp_path / "ml-1m" / "README").write_text("no ratings")
    (one,) = compare((next(claim for claim in CLAIMS if claim.dataset == "ml-1m"),))
    assert one.computed is None
    assert "needs the file ratings.dat" in one.why
    page = say.invoke(app, ["describe", "--papers"], env={"COLUMNS": "200"}).output
    assert "1,000,209" in page
    assert "not present" in page


def test_present_data_is_computed(tmp_path, monkeypatch):
    monkeypatch.setenv("TACIT_DATA", str(tmp_path))
    (tmp_path / "lsapp").mkdir()
    rows = "".join(f"{u}\t0\t2018-01-16 0{h}:00:00\tapp{h}\tOpened\n" for u in (1, 2) for h in range(3))
    (tmp_path / "lsapp" / "lsapp.tsv").write_text(f"user_id\tsession_id\ttimestamp\tapp_name\tevent_type\n{rows}")
    (one,) = compare(tuple(claim for claim in CLAIMS if claim.dataset == "lsapp"))
    assert one.computed == {"users": 2, "items": 3, "sessions per user": 3.0}
    assert isinstance(one.claim, Claim)


def test_cycles_show_who_is_active(tmp_path):
    path = tmp_path / "log.csv"
    rows = [f"u{u},i{k % 5},2024-01-{1 + (u * 3 + k) % 28:02d}" for u in range(6) for k in range(12)]
    path.write_text("user_id,item_id,datetime\n" + "\n".join(rows) + "\n")
    command = [sys.executable, "-m", "tacit", "data", "describe", str(path), "--cycles", "4"]
    made = json.loads(subprocess.run([*command, "--json"], capture_output=True, text=True, check=True).stdout)
    assert made["active_by_own_days"] == [6, 6, 6, 6]
    assert sum(made["active_by_calendar"]) <= 24
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "active by own days" in shown
