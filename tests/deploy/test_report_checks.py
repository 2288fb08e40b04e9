"""What the server refuses: reports that no device can have made, and a close whose result is not finite."""

from dataclasses import replace

import jax
import numpy as np
import pytest

pytest.importorskip("flwr")

from support.deployment import Deployment, post, short_world
from support.grid import Grid, hurry
from support.toys import same
from tacit.core.messages import pack, pack_tree, unpack, unpack_tree
from tacit.deploy.flower_transport import from_record, to_record
from tacit.deploy.messages import Reply
from tacit.errors import WireError
from tacit.lab.plans.loader import choose
from tacit.server.session.flower import RoundLoop

pytestmark = pytest.mark.filterwarnings("ignore::tacit.lab.analysis.feasibility.FeasibilityWarning")
PLAN = choose("fcf", {"rounds": 2, "hyper.dim": 2})


@pytest.fixture
def deployment(tmp_path, monkeypatch) -> Deployment:
    hurry(monkeypatch)
    return Deployment(tmp_path, PLAN, short_world(9), (1, 1, 7), wait=20, deadline=20)


def with_values(deployment: Deployment, reply: Reply, value: float) -> Reply:
    """The same message with one number in every place of what was sent."""
    bundle = deployment.bundle

    def filled(tree):
        return jax.tree.map(lambda leaf: np.full_like(leaf, value) if leaf.dtype.kind == "f" else leaf, tree)

    if reply.form == "total":
        form = bundle.total(reply.stage)
        return replace(reply, report=pack_tree(form, filled(unpack_tree(form, reply.report))))
    form = bundle.report(reply.stage)
    report = unpack(form, reply.report)
    return replace(reply, report=pack(form, report._replace(payload=filled(report.payload))))


def lie(deployment: Deployment, grid: Grid, names: list[str], value: float, round: int = 0) -> None:
    """Let these nodes send one number in every place, in one round."""
    honest = grid.reply

    def reply(number, message):
        answer = honest(number, message)
        said = from_record(Reply, answer.content)
        if said.form and said.name in names and said.round == round:
            lied = with_values(deployment, said, value)
            answer.content = to_record(deployment.nodes[said.name].store.key(lied))
        return answer

    grid.reply = reply


def bound_to(monkeypatch, deployment: Deployment, most: float) -> None:
    """A mechanism whose payloads have a largest number."""

    def too_large(tree) -> str:
        largest = max(float(np.abs(leaf).max(initial=0.0)) for leaf in jax.tree.leaves(tree))
        return f"A number must be at most {most:g}, got {largest:g}." if largest > most else ""

    kind = type(deployment.bundle.mechanism(0))
    monkeypatch.setattr(kind, "check_payload", lambda self, payload: too_large(payload))
    monkeypatch.setattr(
        kind, "check_total", lambda self, total, people: too_large(total) and f"{people} people: too large."
    )


@pytest.mark.parametrize(("number", "words"), [(0, "must be at most 1000, got 5000"), (2, "7 people: too large")])
def test_a_report_that_no_device_can_send_is_refused_and_the_round_goes_on(number, words, deployment, monkeypatch):
    bound_to(monkeypatch, deployment, 1000.0)
    grid, names, said = Grid(deployment), list(deployment.nodes), []
    lie(deployment, grid, [names[number]], 5000.0)
    RoundLoop(deployment.session, grid, log=said.append).play()
    refused = [line for line in said if "is refused" in line]
    assert len(refused) == 1
    assert names[number][:8] in refused[0]
    assert words in refused[0]
    first, second = deployment.session.folder.rows()
    assert first["silent"] == [names[number]]
    assert first["reports"] == 9 - (1, 1, 7)[number]
    assert second["round"] == 1


def test_without_a_check_the_same_reports_are_taken(deployment):
    """The false reports above are right in form: only the mechanism can tell."""
    grid = Grid(deployment)
    lie(deployment, grid, list(deployment.nodes), 5000.0)
    RoundLoop(deployment.session, grid, log=lambda line: None).play()
    assert deployment.session.folder.rows()[0]["reports"] == 9


def test_a_silent_report_has_no_payload_to_check(deployment, monkeypatch):
    bound_to(monkeypatch, deployment, -1.0)
    deployment.enrol().session.open()
    name = next(iter(deployment.nodes))
    reply = post(deployment.nodes[name], deployment.session.request(name))
    form = deployment.bundle.report(0)
    silent = pack(form, unpack(form, reply.report)._replace(sent=np.False_))
    assert deployment.session.receive(deployment.nodes[name].store.key(replace(reply, report=silent)))
    assert deployment.session.reported == 0


def test_a_node_of_one_person_sends_no_total(deployment):
    deployment.enrol().session.open()
    one, _, many = deployment.nodes
    total = post(deployment.nodes[many], deployment.session.request(many))
    with pytest.raises(WireError, match=f"node {one[:8]} is refused: A node of one person sends a report, not a total"):
        deployment.session.receive(deployment.nodes[one].store.key(total))


def test_a_close_that_is_not_finite_is_abandoned_and_changes_nothing(deployment):
    """Two finite numbers whose sum is none."""
    grid, said = Grid(deployment), []
    lie(deployment, grid, list(deployment.nodes)[:2], 3e38)
    closed = deployment.session.close
    after = []
    deployment.session.close = lambda seconds: [closed(seconds), after.append(deployment.session.params)][0]
    RoundLoop(deployment.session, grid, log=said.append).play()
    abandoned, fine = deployment.session.folder.rows()
    assert "not finite" in abandoned["abandoned"]
    assert "abandoned" not in fine
    assert any("abandoned: the sum of the reports" in line for line in said)
    same(jax.tree.map(np.asarray, after[0]), deployment.bundle.params)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(after[1]))
    assert any((np.asarray(after[1][name]) != leaf).any() for name, leaf in deployment.bundle.params.items())
    deployment.restart()
    same(jax.tree.map(np.asarray, deployment.session.params), jax.tree.map(np.asarray, after[1]))


def test_an_estimate_that_is_not_finite_is_not_rounded_to_a_count(tmp_path, monkeypatch):
    """The rule `count` makes whole numbers of its estimate, and infinity would become one."""
    plan = choose("popularity", {"privacy": {"mechanism": "none"}, "server": {"rule": "count"}})
    deployment = Deployment(tmp_path, plan, short_world(3), (1, 2)).enrol()
    kind = type(deployment.bundle.mechanism(0))
    monkeypatch.setattr(kind, "estimate", _infinite(kind.estimate))
    deployment.session.open()
    for name in deployment.session.missing:
        deployment.session.receive(post(deployment.nodes[name], deployment.session.request(name)))
    assert "not finite" in deployment.session.close()["abandoned"]
    same(jax.tree.map(np.asarray, deployment.session.params), deployment.bundle.params)


def _infinite(real):
    def estimate(self, *words):
        sums, weight = real(self, *words)
        return jax.tree.map(lambda leaf: leaf.astype(np.float32) / 0.0, sums), weight

    return estimate
