"""What an operator sees of a run, and that it is true."""

import json
import urllib.request

import pytest

pytest.importorskip("flwr")

from typer.testing import CliRunner

from support.deployment import Deployment, short_world
from support.grid import Grid, hurry
from tacit.cli import app
from tacit.deploy.supervisor import free_port
from tacit.errors import RunError
from tacit.lab.plans.loader import choose
from tacit.server.session.flower import RoundLoop
from tacit.server.session.status import Status, read_status, released_so_far, served


@pytest.fixture
def deployment(tmp_path, monkeypatch) -> Deployment:
    hurry(monkeypatch)
    plan = choose("fcf", {"rounds": 3, "hyper.dim": 2, "privacy.mechanism": "gaussian", "privacy.epsilon": 8.0})
    return Deployment(tmp_path, plan, short_world(9), (1, 8), wait=20, deadline=20)


def test_the_status_of_a_run_is_that_of_its_log(deployment):
    status, seen = Status(deployment.folder / "run"), []
    grid = Grid(deployment)
    pull = grid.pull_messages

    def watched(names):
        seen.append(dict(status.values))
        return pull(names)

    grid.pull_messages = watched
    RoundLoop(deployment.session, grid, log=lambda words: None, status=status).play()
    rows = deployment.session.folder.rows()
    found = read_status(deployment.folder / "run")
    assert (found["phase"], found["rounds_done"], found["people_enrolled"]) == ("finished", 3, 9)
    assert found["bytes_up"] == sum(row["bytes_up"] for row in rows)
    assert found["epsilon"] == pytest.approx(deployment.bundle.price.whole.epsilon, rel=1e-6)
    assert [one["people"] for one in found["nodes"]] == [1, 8]
    opened = [one for one in seen if one.get("phase") == "round"]
    assert opened
    assert all(one["people_asked"] == 9 and 0 < one["seconds_left"] <= 20 for one in opened)
    printed = CliRunner().invoke(app, ["server", "status", str(deployment.folder / "run"), "--watch"]).stdout
    assert "3 of 3 are done" in printed
    with pytest.raises(RunError, match="has no status yet"):
        read_status(deployment.folder)


def test_the_cost_so_far_grows_to_the_price_of_the_run(deployment):
    costs = [released_so_far(deployment.bundle, done) for done in range(4)]
    assert costs[0] == 0.0
    assert costs == sorted(costs)
    assert costs[-1] == pytest.approx(deployment.bundle.price.whole.epsilon, rel=1e-6)


def test_refusals_are_shown_with_their_reason_and_without_control_characters(tmp_path):
    status = Status(tmp_path)
    for number in range(40):
        status.refuse("a", f"reason {number}\x1b[2J")
    assert len(status.refusals) == 20
    assert status.refusals[-1]["reason"] == r"reason 39\x1b[2J"
    assert status.refused["a"] == 40


def test_prometheus_reads_the_numbers_on_the_loopback_interface(deployment):
    status, port = Status(deployment.folder / "run"), free_port()
    status.update(deployment.session, 2, "enrolling", now=True)
    with served(status, port):
        text = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5).read().decode()
        with pytest.raises(RunError, match="cannot be used"), served(status, port):
            pass
    assert "# TYPE tacit_rounds gauge\ntacit_rounds 3\n" in text
    assert "tacit_nodes_connected 2\n" in text


def test_a_line_of_the_log_can_be_an_object(capsys):
    from tacit.deploy.supervisor import print_json_line

    print_json_line('a "word"\x07')
    assert json.loads(capsys.readouterr().out)["text"] == 'a "word"\\x07'
