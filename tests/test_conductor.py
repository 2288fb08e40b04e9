"""The round loop over a grid that loses, repeats and renumbers: no network, but Flower's own messages."""

import jax
import numpy as np
import pytest

pytest.importorskip("flwr")

from flwr.app import ConfigRecord, Error, Message, RecordDict
from flwr.supercore.task_identity import TaskIdentity

from deployment import Town, short_world
from tacit.courier import from_record, to_record
from tacit.device.flower import reply
from tacit.errors import RunError, WireError
from tacit.lab.shelf import choose
from tacit.lab.simulate import simulate
from tacit.letters import Answer, Ask
from tacit.server import flower
from toys import close

PLAN = choose("fcf", {"rounds": 3, "hyper.dim": 2})


class Grid:
    """Nodes by number. `fate` says what becomes of a message: an answer, an error, or nothing."""

    def __init__(self, town: Town):
        self.nodes = dict(enumerate(town.nodes.values(), 1))
        self.waiting: dict[str, Message] = {}
        self.asked: list[tuple[int, str]] = []
        self.fate = lambda number, ask: "answer"

    def get_node_ids(self):
        return list(self.nodes)

    def push_messages(self, messages):
        names = []
        for message in messages:
            name = f"m{len(self.asked)}"
            message.metadata.__dict__["_message_id"] = name
            number, ask = message.metadata.dst_node_id, from_record(Ask, message.content)
            self.asked.append((number, ask.kind))
            fate = self.fate(number, ask) if number in self.nodes else "error"
            if fate == "answer":
                self.waiting[name] = reply(self.nodes[number], message)
            elif fate == "error":
                self.waiting[name] = Message(Error(5, "gone"), reply_to=message)
            names.append(name)
        return names

    def pull_messages(self, names):
        return [self.waiting.pop(name) for name in list(names) if name in self.waiting]


@pytest.fixture
def town(tmp_path, monkeypatch) -> Town:
    for name, value in (("POLL", 0.0), ("AGAIN", 0.01), ("GREET", 0.05)):
        monkeypatch.setattr(flower, name, value)
    TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 1
    return Town(tmp_path, PLAN, short_world(9), (1, 8), wait=20, deadline=20)


def play(town: Town, grid: Grid) -> list[str]:
    said: list[str] = []
    flower.Conductor(town.session, grid, say=said.append).play()
    params = simulate(PLAN, town.world, seed=0, quiet=True).params
    close(*(jax.tree.map(np.asarray, one) for one in (town.session.params, params)))
    return said


def test_rounds_are_played_and_everybody_has_the_last_parameters(town):
    said = play(town, Grid(town))
    assert said[-1].startswith("round 2 of stage 1: 9 of 9 people")
    for node in town.nodes.values():
        kept = node.store.newest().broadcast(town.kit.params)
        close(kept, jax.tree.map(np.asarray, town.session.params))


def test_a_node_that_fails_is_asked_again_in_the_same_round(town):
    grid, failed = Grid(town), []

    def fate(number, ask):
        if ask.kind == "round" and number == 2 and ask.round not in failed:
            failed.append(ask.round)
            return "error"
        return "answer"

    grid.fate = fate
    said = play(town, grid)
    assert failed == [0, 1, 2]
    assert sum("no answer (Flower's code 5)" in words for words in said) == 3
    assert [row["reports"] for row in town.session.folder.rows()] == [9, 9, 9]


def test_a_node_that_comes_back_under_another_number_is_known_by_its_name(town):
    grid = Grid(town)

    def fate(number, ask):
        if ask.kind == "round" and ask.round == 1 and number == 2:
            grid.nodes[7] = grid.nodes.pop(2)  # it was restarted; its message is lost without a word
            return "nothing"
        return "answer"

    grid.fate = fate
    play(town, grid)
    assert (7, "hello") in grid.asked
    assert list(town.session.roll.members) == list(town.nodes)


def test_a_node_that_agrees_later_is_let_in_later(town):
    late = list(town.nodes.values())[1]
    late.store.agree(False)
    grid, hellos = Grid(town), []

    def fate(number, ask):
        hellos.append(number)
        if hellos.count(2) == 3:
            late.store.agree(True)
        return "answer"

    grid.fate = fate
    said = play(town, grid)
    assert any("does not take part" in words for words in said)


def test_an_answer_in_another_nodes_name_is_left_aside(town):
    grid = Grid(town)
    one, two = town.nodes.values()
    conductor = flower.Conductor(town.session, grid, say=lambda words: None)
    conductor._gather()
    town.session.open()
    message = Message(to_record(town.session.letter(one.store.name)), 1, "train")
    message.metadata.__dict__["_message_id"] = "x"
    said: list[str] = []
    conductor.say = said.append
    conductor._read(Message(to_record(Answer(two.store.name, form="report")), reply_to=message), one.store.name, 1)
    assert "answered as" in said[0]
    assert town.session.reported == 0


def test_too_few_people_is_a_sentence(town, monkeypatch):
    town.session.terms = type(town.terms)(wait=0.01)
    with pytest.raises(RunError, match=r"After 0\.01 seconds 0 of 9 people had enrolled; start more devices"):
        flower.Conductor(town.session, type("Empty", (Grid,), {"get_node_ids": lambda self: []})(town)).play()


def test_a_message_that_is_no_letter_is_refused(town):
    node = next(iter(town.nodes.values()))
    message = Message(RecordDict({"letter": ConfigRecord({"kind": "hello"})}), 1, "train")
    message.metadata.__dict__["_message_id"] = "x"
    said = from_record(Answer, reply(node, message).content)
    assert "must have version 2" in said.refused
    with pytest.raises(WireError, match="must have version 2, got None"):
        from_record(Answer, RecordDict())
