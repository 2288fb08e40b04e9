"""The round loop over a grid that loses, repeats and renumbers: no network, but Flower's own messages."""

import httpx
import jax
import numpy as np
import pytest

pytest.importorskip("flwr")

from flwr.app import ConfigRecord, Message, RecordDict

from support.deployment import Deployment, short_world
from support.grid import Grid, hurry
from support.toys import close
from tacit.deploy import flower_transport
from tacit.deploy.flower_transport import LostError, from_record, to_record
from tacit.deploy.messages import Reply
from tacit.device.node.flower import reply_message
from tacit.errors import RunError, WireError
from tacit.lab.plans.loader import choose
from tacit.lab.runs.run import simulate
from tacit.server.session import flower
from tacit.server.session.flower import RoundLoop

PLAN = choose("fcf", {"rounds": 3, "hyper.dim": 2})


@pytest.fixture
def deployment(tmp_path, monkeypatch) -> Deployment:
    hurry(monkeypatch)
    return Deployment(tmp_path, PLAN, short_world(9), (1, 8), wait=20, deadline=20)


def play(deployment: Deployment, grid: Grid) -> list[str]:
    said: list[str] = []
    RoundLoop(deployment.session, grid, log=said.append).play()
    params = simulate(PLAN, deployment.world, seed=0, quiet=True).params
    close(*(jax.tree.map(np.asarray, one) for one in (deployment.session.params, params)))
    return said


def test_rounds_are_played_and_everybody_has_the_last_parameters(deployment):
    said = play(deployment, Grid(deployment))
    assert said[-1].startswith("round 2 of stage 1: 9 of 9 people")
    for node in deployment.nodes.values():
        kept = node.store.newest().broadcast(deployment.bundle.params)
        close(kept, jax.tree.map(np.asarray, deployment.session.params))


def test_a_node_that_fails_is_asked_again_in_the_same_round(deployment):
    grid, failed = Grid(deployment), []

    def fate(number, request):
        if request.kind == "round" and number == 2 and request.round not in failed:
            failed.append(request.round)
            return "error"
        return "reply"

    grid.fate = fate
    said = play(deployment, grid)
    assert failed == [0, 1, 2]
    assert sum("no answer (Flower's code 5: gone)" in words for words in said) == 3
    assert [row["reports"] for row in deployment.session.folder.rows()] == [9, 9, 9]


def test_a_node_that_comes_back_under_another_number_is_known_by_its_name(deployment):
    grid = Grid(deployment)

    def fate(number, request):
        if request.kind == "round" and request.round == 1 and number == 2:
            grid.nodes[7] = grid.nodes.pop(2)  # it was restarted; its message is lost without a word
            return "nothing"
        return "reply"

    grid.fate = fate
    play(deployment, grid)
    assert (7, "hello") in grid.asked
    assert list(deployment.session.enrolment.members) == list(deployment.nodes)


def test_a_node_that_agrees_later_is_let_in_later(deployment):
    late = list(deployment.nodes.values())[1]
    late.store.agree(False)
    grid, hellos = Grid(deployment), []

    def fate(number, request):
        hellos.append(number)
        if hellos.count(2) == 3:
            late.store.agree(True)
        return "reply"

    grid.fate = fate
    said = play(deployment, grid)
    assert any("does not take part" in words for words in said)


def test_an_answer_in_another_nodes_name_is_left_aside(deployment):
    grid = Grid(deployment)
    one, two = deployment.nodes.values()
    loop = RoundLoop(deployment.session, grid, log=lambda words: None)
    loop._gather()
    deployment.session.open()
    message = Message(to_record(deployment.session.request(one.store.name)), 1, "train")
    message.metadata.__dict__["_message_id"] = "x"
    said: list[str] = []
    loop.log = said.append
    other = two.store.key(Reply("", form="report"))
    loop._read(Message(to_record(other), reply_to=message), one.store.name, 1)
    assert "answered as" in said[0]
    assert deployment.session.reported == 0


def test_too_few_people_is_a_sentence(deployment, monkeypatch):
    deployment.session.policy = type(deployment.policy)(wait=0.01)
    with pytest.raises(RunError, match=r"After 0\.01 seconds 0 of 9 people had enrolled; start more devices"):
        RoundLoop(deployment.session, type("Empty", (Grid,), {"get_node_ids": lambda self: []})(deployment)).play()


def test_a_message_that_is_no_request_is_refused(deployment):
    node = next(iter(deployment.nodes.values()))
    message = Message(RecordDict({"letter": ConfigRecord({"kind": "hello"})}), 1, "train")
    message.metadata.__dict__["_message_id"] = "x"
    said = from_record(Reply, reply_message(node, message).content)
    assert "must have version 3" in said.refused
    with pytest.raises(WireError, match="must have version 3, got None"):
        from_record(Reply, RecordDict())


def test_both_sides_are_plain_apps_of_flower_too(deployment):
    """For whoever runs a SuperLink and SuperNodes their own way: the folders are in the configuration."""
    from flwr.app import Context

    from tacit.device.node import flower as device
    from tacit.server.session import flower as server
    from tacit.server.session.session import Session

    class Apps(Grid):
        def reply(self, number, message):
            home = {"home": str(self.nodes[number].store.path)}
            return device.app(message, Context(1, number, home, RecordDict(), {}))

    folders = {"folder": str(deployment.folder / "bundle"), "out": str(deployment.folder / "run")}
    server.app(Apps(deployment), Context(1, 1, {}, RecordDict(), folders))
    params = simulate(PLAN, deployment.world, seed=0, quiet=True).params
    ended = Session(deployment.folder / "run", deployment.bundle).params
    close(*(jax.tree.map(np.asarray, one) for one in (ended, params)))


class Gone:
    """A SuperLink that has gone, though its port may answer: somebody else may hold it."""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def __getattr__(self, name):
        raise httpx.ConnectError("Connection refused")


@pytest.mark.parametrize(
    "call",
    [
        lambda runtime: flower.run_session(None, runtime, None, None),
        lambda runtime: flower_transport.register(runtime, b""),
    ],
)
def test_a_superlink_that_has_gone_while_a_run_begins_is_a_run_to_begin_again(monkeypatch, call):
    monkeypatch.setattr(flower_transport, "_control", lambda runtime: Gone())
    monkeypatch.setattr(flower_transport, "build_fab_from_files", lambda files: (b"", ""))
    with pytest.raises(LostError, match="ConnectError: Connection refused"):
        call(None)
