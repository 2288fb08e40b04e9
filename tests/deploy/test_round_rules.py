"""The rules of a round over a grid that fails: each test fails where its rule is taken away."""

import time
from dataclasses import replace

import httpx
import jax
import numpy as np
import pytest

pytest.importorskip("flwr")

from flwr.proto.message_pb2 import PullObjectRequest, PullObjectResponse
from flwr.supercore.inflatable.inflatable_utils import ObjectPullError

from support.deployment import RUN, Deployment, post, short_world
from support.grid import Grid, hurry
from support.toys import close
from tacit.deploy.flower_transport import FlowerRuntime, to_record
from tacit.errors import RunError
from tacit.lab.plans.loader import choose
from tacit.lab.runs.run import simulate
from tacit.server.session.flower import RoundLoop

PLAN = choose("fcf", {"rounds": 3, "hyper.dim": 2})
ONCE = choose("fcf", {"rounds": 1, "hyper.dim": 2})
LIGHT = 0.1  # a goal that one person of nine reaches


@pytest.fixture(autouse=True)
def no_rest(monkeypatch) -> None:
    hurry(monkeypatch)


def play(deployment: Deployment, grid: Grid) -> list[str]:
    said: list[str] = []
    RoundLoop(deployment.session, grid, log=said.append).play()
    return said


def rows(deployment: Deployment, name: str) -> list:
    return [row[name] for row in deployment.session.folder.rows()]


def small(tmp_path, plan=PLAN, people=(1, 8), **policy) -> Deployment:
    return Deployment(tmp_path, plan, short_world(9), people, **{"wait": 20, "deadline": 20, **policy})


def slow_second(number, request):
    return "slow" if (number, request.kind) == (2, "round") else "reply"


# ---- goal, grace, deadline, minimum ----


def test_more_people_are_asked_than_are_needed_and_the_round_waits_for_the_goal_alone(tmp_path):
    """Six of nine are asked and half of them is enough: three never reply, and nobody waits for them."""
    plan = choose(ONCE, {"cohort": {"sampler": "fixed", "count": 6}})
    deployment = small(tmp_path, plan, (1,) * 9, goal=0.5)
    answered = []

    def fate(number, request):
        if request.kind == "round" and len(answered) == 3:
            return "nothing"
        answered.extend([number] if request.kind == "round" else [])
        return "reply"

    began = time.monotonic()
    play(deployment, Grid(deployment, fate))
    assert time.monotonic() - began < deployment.policy.deadline
    assert [len(asked) for asked in rows(deployment, "asked")] == [6]
    assert rows(deployment, "reports") == [3]
    assert [len(silent) for silent in rows(deployment, "silent")] == [3]


def test_a_deadline_closes_a_round_with_what_it_has(tmp_path):
    deployment = small(tmp_path, ONCE, deadline=0.5)
    play(
        deployment,
        Grid(deployment, lambda number, request: "nothing" if (number, request.kind) == (2, "round") else "reply"),
    )
    assert rows(deployment, "reports") == [1]
    assert rows(deployment, "silent") == [[list(deployment.nodes)[1]]]


@pytest.mark.parametrize(("grace", "reports"), [(0.0, 1), (10.0, 9)])
def test_a_late_report_is_collected_within_the_grace_and_refused_after_it(grace, reports, tmp_path):
    deployment = small(tmp_path, ONCE, goal=LIGHT, grace=grace)
    grid = Grid(deployment, slow_second)
    step, looks = grid.pull_messages, []

    def pull(names):
        looks.append(len(grid.slow))
        if looks.count(1) == 3:  # it has been on its way for a while
            grid.let_go()
        return step(names)

    grid.pull_messages = pull
    play(deployment, grid)
    assert rows(deployment, "reports") == [reports]


def test_a_late_report_is_never_added_to_a_later_round(tmp_path):
    """It arrives in the next round, is counted as late, and its node is asked for that round's own."""
    deployment = small(tmp_path, goal=LIGHT, rest=0)
    grid = Grid(deployment)

    def fate(number, request):
        if request.kind == "round" and number == 2 and request.round == 0:
            return "slow"
        if request.kind == "round" and number == 1 and request.round == 1:
            grid.let_go()
            return "nothing"
        return "reply"

    grid.fate = fate
    play(deployment, grid)
    assert rows(deployment, "reports") == [1, 8, 8]  # in the last one, the other is busy
    assert rows(deployment, "late") == [0, 1, 1]


def test_too_few_reports_abandon_a_round_and_what_arrives_later_counts_in_the_next_try(tmp_path):
    deployment = small(tmp_path, ONCE, minimum=9, deadline=0.3)
    grid = Grid(deployment, slow_second)
    said = []

    def log(words):
        said.append(words)
        if "too few; it is opened again" in words:
            grid.let_go()

    RoundLoop(deployment.session, grid, log=log).play()
    assert "round 0 of stage 1: 1 reports are too few; it is opened again" in said
    assert rows(deployment, "reports") == [9]
    assert rows(deployment, "tries") == [1]


def test_a_round_that_is_abandoned_too_often_stops_the_run_and_releases_nothing(tmp_path):
    deployment = small(tmp_path, ONCE, minimum=9, deadline=0.05, tries=2)
    with pytest.raises(RunError, match="was abandoned 2 times for want of 9 reports"):
        play(deployment, Grid(deployment, slow_second))
    assert deployment.session.done == 0


def test_a_round_that_asks_nobody_passes_as_it_does_in_the_simulator(tmp_path):
    plan = choose(PLAN, {"cohort": {"sampler": "poisson", "rate": 0.05}})
    deployment = small(tmp_path, plan)
    play(deployment, Grid(deployment))
    run = simulate(plan, deployment.world, seed=0, quiet=True)
    assert rows(deployment, "reports") == [row["reports"] for row in run.rounds]
    assert 0 in rows(deployment, "reports")
    close(*(jax.tree.map(np.asarray, one.params) for one in (deployment.session, run)))


# ---- busy and failed nodes ----


def test_a_node_that_is_busy_is_asked_nothing_more(tmp_path):
    deployment = small(tmp_path, goal=LIGHT, rest=0)
    grid = Grid(deployment, slow_second)
    play(deployment, grid)
    assert grid.asked.count((2, "round")) == 1  # of three rounds
    assert grid.asked.count((1, "round")) == 3


@pytest.mark.parametrize(("rest", "asked"), [(0, [True] * 3), (1, [True, False, True]), (2, [True, False, False])])
def test_a_node_that_failed_rests_for_so_many_rounds(rest, asked, tmp_path):
    deployment = small(tmp_path, goal=LIGHT, rest=rest, deadline=1.0)

    def fate(number, request):
        return "nothing" if request.kind == "round" and (number, request.round) == (2, 0) else "reply"

    play(deployment, Grid(deployment, fate))
    two = list(deployment.nodes)[1]
    assert [two in row for row in rows(deployment, "asked")] == asked


# ---- the switch at home, and versions ----


def test_a_device_that_is_paused_in_a_run_sends_nothing_more_and_holds_nobody_up(tmp_path):
    deployment = small(tmp_path)
    second = list(deployment.nodes.values())[1]

    def fate(number, request):
        if request.kind == "round" and request.round == 1:
            second.store.agree(False)
        return "reply"

    began = time.monotonic()
    said = play(deployment, Grid(deployment, fate))
    assert time.monotonic() - began < deployment.policy.deadline
    assert rows(deployment, "reports") == [9, 1, 1]
    assert any("sends no report: This device does not take part" in words for words in said)
    assert second.store.run(RUN).done == 1
    node_ledger = second.store.ledger()
    node_ledger.close()
    assert node_ledger.summary()["messages"] == {"median": 1.0, "worst": 1.0}


def test_a_node_of_another_version_is_told_so_and_does_not_enrol(tmp_path):
    deployment = small(tmp_path, wait=0.5)
    said: list[str] = []
    with pytest.raises(RunError, match="1 of 9 people had enrolled"):
        RoundLoop(
            deployment.session,
            Grid(deployment, lambda number, request: "old" if number == 2 else "reply"),
            log=said.append,
        ).play()
    assert any("must have version 3, got 1: one side runs another Tacit; update it." in words for words in said)
    assert list(deployment.session.enrolment.members) == [next(iter(deployment.nodes))]


def test_a_device_refuses_a_message_of_another_version(tmp_path):
    deployment = small(tmp_path)
    node = next(iter(deployment.nodes.values()))
    assert "reads messages of version 3, got 1" in node.reply_to(replace(deployment.session.hello(), version=1)).refused


# ---- sizes ----


class Unread(httpx.SyncByteStream):
    """A body that must not be looked at."""

    def __iter__(self):
        raise AssertionError("it was read")
        yield b""


def pull(tmp_path, response: httpx.Response) -> PullObjectResponse:
    """How a Tacit process treats a part of a message, where a message has at most 100 bytes."""
    (tmp_path / "secret").write_bytes(b"secret")
    with FlowerRuntime("127.0.0.1:1", tmp_path / "secret", largest=100).client() as client:
        client._client._transport = httpx.MockTransport(lambda request: response)
        return client.PullObject(PullObjectRequest())


def test_a_message_larger_than_a_message_is_refused_before_it_is_read(tmp_path):
    with pytest.raises(ObjectPullError, match="at most 100 bytes, got 101: it is oversized"):
        pull(tmp_path, httpx.Response(200, headers={"content-length": "101"}, stream=Unread()))
    with pytest.raises(ObjectPullError, match="at most 100 bytes, got none"):
        pull(tmp_path, httpx.Response(200, stream=Unread()))
    squeezed = {"content-length": "9", "content-encoding": "gzip"}
    with pytest.raises(ObjectPullError, match="oversized"):
        pull(tmp_path, httpx.Response(200, headers=squeezed, stream=Unread()))
    found = PullObjectResponse(object_found=True, object_content=b"x" * 90)
    assert pull(tmp_path, httpx.Response(200, content=found.SerializeToString())) == found


@pytest.mark.parametrize("name", ["fcf", "dplcf"])
def test_every_message_of_a_run_is_within_the_bound(name, tmp_path):
    deployment = Deployment(tmp_path, choose(name, {"rounds": 1}), short_world(9), (1, 8)).enrol()
    deployment.session.open()
    sizes = []
    for one, node in deployment.nodes.items():
        reply = post(node, deployment.session.request(one))
        for message in (deployment.session.request(one), deployment.session.final_request(one), reply):
            sizes.append(len(to_record(message)["letter"].deflate()))
    assert max(sizes) < deployment.bundle.largest < max(sizes) + 2 * 65_536
