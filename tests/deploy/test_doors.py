"""Attacks on a deployment, in one process: what a stranger, a liar and the owner of a copied folder try, and do not get."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("cryptography")

from support.deployment import RUN, Deployment, post, short_world, stranger
from support.toys import close
from tacit.deploy.messages import Reply, from_plain, to_plain
from tacit.deploy.signing import (
    NodeKey,
    Signer,
    change_of_key,
    new_key,
    new_node_key,
    node_name,
    read_change_of_key,
)
from tacit.device.node.store import Store
from tacit.errors import DeviceError, RunError, WireError
from tacit.lab.plans.loader import choose
from tacit.lab.plans.publish import make_bundle
from tacit.lab.runs.run import simulate
from tacit.privacy.budget import Budget
from tacit.server.session.admission import Admission
from tacit.server.session.session import Session

PLAN = choose("dplcf", {"rounds": 4})
COUNTING = choose("fcf", {"rounds": 3, "hyper.dim": 2})


@pytest.fixture
def deployment(tmp_path) -> Deployment:
    return Deployment(tmp_path, COUNTING, short_world(4), (1, 3))


def files(folder) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


# ---- names ----


@pytest.mark.parametrize("name", ["", "..", "../../outside", "x" * 300, "a\0b", "\ud800", "roll.json", "a" * 32])
def test_a_name_that_does_not_follow_from_the_key_is_refused_and_touches_no_file(deployment, name):
    before = files(deployment.folder)
    honest = post(next(iter(deployment.nodes.values())), deployment.session.hello())
    with pytest.raises(WireError, match="is not signed by the node whose name it has"):
        deployment.session.enrol(replace(honest, name=name))
    assert files(deployment.folder) == before
    assert not deployment.session.enrolment.members


def test_who_answers_in_anothers_name_gets_nothing(deployment):
    """Neither with a key of one's own, nor with an old reply, nor with a reply that was altered."""
    one, two = deployment.nodes.values()
    hello = deployment.session.hello()
    honest = post(one, hello)
    forged = replace(two.store.key(Reply("", people=1, nonce=hello.nonce)), name=one.store.name)
    for reply in (forged, replace(honest, people=3), replace(honest, key=forged.key), replace(honest, signature=b"")):
        with pytest.raises(WireError, match="not signed"):
            deployment.session.enrol(reply)
    deployment.session.enrol(honest)
    with pytest.raises(WireError, match="answered another hello"):
        deployment.session.enrol(honest)
    deployment.enrol().session.open()
    report = post(two, deployment.session.request(two.store.name))
    with pytest.raises(WireError, match="not signed"):
        deployment.session.receive(replace(report, report=report.report[:-1] + b"\1"))
    assert deployment.session.receive(report)


def test_names_are_32_hexadecimal_digits_that_follow_from_the_key(deployment):
    for name, node in deployment.nodes.items():
        assert name == node_name(node.store.key.public)
        assert len(name) == 32
        assert set(name) <= set("0123456789abcdef")


# ---- words to strangers ----


def signed_deployment(tmp_path) -> tuple[Deployment, Signer]:
    """A deployment whose devices know their server's key."""
    deployment = Deployment(tmp_path, COUNTING, short_world(4), (1, 3))
    public = new_key(tmp_path / "server.key")
    bundle = make_bundle(tmp_path / "signed", COUNTING, deployment.world.catalog, 4, server=public)
    for node in deployment.nodes.values():
        node.store.install(tmp_path / "signed")
        (node.store.path / "plans" / deployment.bundle.digest).rename(tmp_path / node.store.name)
    deployment.session = Session.begin(tmp_path / "second", bundle)
    deployment.bundle = bundle
    return deployment, Signer(tmp_path / "server.key")


def test_a_letter_that_is_not_signed_is_told_nothing(tmp_path):
    deployment, sign = signed_deployment(tmp_path)
    node = next(iter(deployment.nodes.values()))
    before = files(node.store.path)
    hello = deployment.session.hello()
    letters = [
        hello,
        replace(hello, digest="0" * 32),
        replace(hello, version=1),
        replace(hello, kind="end", run="invented"),
        replace(hello, kind="round", to=node.store.name, people=b"\0\0\0\0"),
        replace(sign(hello), run="another"),
    ]
    for letter in letters:
        assert node.reply_to(letter) == Reply("", refused="This device answers its own server alone.")
    node.store.agree(False)  # not even that
    assert node.reply_to(hello).refused == "This device answers its own server alone."
    assert files(node.store.path) - before == {"consent.json"} - before
    assert "has paused it" in node.reply_to(sign(hello)).refused
    assert node.store.name in node.reply_to(sign(replace(hello, digest="0" * 32))).name


def test_an_unknown_kind_of_message_is_refused(deployment):
    values = to_plain(deployment.session.hello())
    with pytest.raises(WireError, match="kind must be one of 'hello', 'round', 'end', got 'dance'"):
        from_plain(type(deployment.session.hello()), values | {"kind": "dance"})


# ---- places ----


def admitted(tmp_path, deployment: Deployment) -> Admission:
    """The keys of all nodes of a deployment, in a folder as `tacit certs` makes it."""
    (tmp_path / "certs").mkdir()
    admission = Admission(tmp_path / "certs")
    for number, node in enumerate(deployment.nodes.values()):
        (tmp_path / "certs" / f"node-{number}.pub").write_bytes(node.store.key.line)
    deployment.session.admission = admission
    return admission


def test_only_admitted_keys_take_part_and_a_removed_one_ends(tmp_path, deployment):
    admission = admitted(tmp_path, deployment)
    one, _two = deployment.nodes
    with pytest.raises(RunError, match="is not admitted; `tacit server admit` admits it"):
        deployment.session.enrol(stranger(deployment, people=1))
    deployment.enrol().session.open()
    admission.remove("node-0")
    report = post(deployment.nodes[one], deployment.session.request(one))
    with pytest.raises(RunError, match="is not admitted"):
        deployment.session.receive(report)
    assert [*admission.removed] == [one]
    assert admission.admit(one[:6]) == one
    assert deployment.session.receive(report)
    with pytest.raises(RunError, match="did you mean 'node-1'"):
        admission.remove("node1")


def test_one_node_cannot_take_the_places_of_others(tmp_path, deployment):
    admission = admitted(tmp_path, deployment)
    greedy, _honest = deployment.nodes.values()
    said = post(greedy, deployment.session.hello())
    with pytest.raises(RunError, match="may enrol 3 people and has 4; give it more places"):
        deployment.session.enrol(greedy.store.key(replace(said, people=4)))
    admission.admit("node-1", places=3)
    said = post(greedy, deployment.session.hello())
    with pytest.raises(RunError, match="may enrol 1 people and has 2"):
        deployment.session.enrol(greedy.store.key(replace(said, people=2)))
    deployment.enrol()
    assert [member.people for member in deployment.session.enrolment.members.values()] == [1, 3]


def test_who_is_struck_off_before_the_first_round_frees_its_places(tmp_path, deployment):
    admission = admitted(tmp_path, deployment)
    deployment.enrol()
    admission.remove("node-0")
    two = [*deployment.nodes.values()][1]
    deployment.session.enrol(post(two, deployment.session.hello()))
    (member,) = deployment.session.enrolment.members.values()
    assert (member.first, member.people) == (0, 3)


def test_an_invitation_admits_once(tmp_path, deployment):
    admission = admitted(tmp_path, deployment)
    code, line = admission.invite(), (tmp_path / "certs" / "node-0.pub").read_bytes()
    assert admission.accept("another", line) is None
    assert admission.accept(code, line) == next(iter(deployment.nodes))
    assert admission.accept(code, line) is None
    assert code not in (tmp_path / "certs" / "invitations.json").read_text()


# ---- keys that change ----


def rotated(node, admission: Admission) -> str:
    """The new name of a node that changed its key."""
    node.store.rotate_key(lambda statement: admission.rotate(*read_change_of_key(statement)))
    return node.store.name


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("when", ["before its report", "after its report"])
def test_a_node_that_changes_its_key_keeps_its_place_its_counter_and_its_report(tmp_path, deployment, when, restart):
    admission = admitted(tmp_path, deployment)
    admission.admit("node-1", places=3)
    deployment.enrol().play(1).session.open()
    one, two = deployment.nodes
    node = deployment.nodes[two]
    old = node.store.key
    sent = post(node, deployment.session.request(two)).report
    if when == "after its report":
        assert deployment.session.receive(post(node, deployment.session.request(two)))
    new = rotated(node, admission)
    assert new != two
    assert (admission.places[new], admission.counters[new]) == (3, 1)
    assert {*admission.nodes} == {one, new}
    assert (tmp_path / "certs" / "node-1.pub").read_bytes() == node.store.key.line
    with pytest.raises(RunError, match="is not admitted"):  # with the old key: no more
        deployment.session.receive(old(Reply("", run=RUN, form="total", report=sent)))
    if restart:
        deployment.session = Session(
            tmp_path / "run", deployment.bundle, deployment.policy, deployment.seeded, admission
        )
        deployment.session.open()
    deployment.session.enrol(post(node, deployment.session.hello()))
    members = deployment.session.enrolment.members
    assert [(member.name, member.first, member.people) for member in members.values()] == [(one, 0, 1), (new, 1, 3)]
    assert (new in deployment.session.missing) == (when == "before its report")
    again = post(node, deployment.session.request(new))
    assert again.report == sent  # the same bytes, under the new name
    assert deployment.session.receive(again) == (when == "before its report")
    deployment.nodes[new] = deployment.nodes.pop(two)
    deployment.play()
    assert [row["reports"] for row in deployment.session.folder.rows()] == [4] * 3
    ledger = node.store.ledger()
    assert ledger.messages == 3
    ledger.close()
    run = simulate(COUNTING, deployment.world, seed=0, quiet=True)
    one, other = ({name: np.asarray(leaf) for name, leaf in each.params.items()} for each in (deployment.session, run))
    close(one, other)


def test_a_change_of_a_key_needs_both_keys_and_an_admitted_node(tmp_path, deployment):
    admission = admitted(tmp_path, deployment)
    one, two = (node.store.key for node in deployment.nodes.values())
    new_node_key(tmp_path / "new.key")
    new = NodeKey(tmp_path / "new.key")
    sound = change_of_key(one, new)
    lines, other = sound.split(b"\n"), change_of_key(two, new).split(b"\n")
    for forged in (
        b"", sound[:-2], b"\n".join([lines[0], *other[1:]]), b"\n".join([*lines[:2], lines[3], lines[2]]),
        b"\n".join([*lines[:3], lines[2]]), sound + b"\n",
    ):  # fmt: skip
        with pytest.raises(WireError, match="not signed with the old key and the new one"):
            read_change_of_key(forged)
    assert admission.rotate(*read_change_of_key(change_of_key(new, one))) is None  # of a stranger
    assert admission.rotate(*read_change_of_key(change_of_key(one, two))) is None  # two nodes do not become one
    assert admission.rotate(*read_change_of_key(sound)) == new.name
    assert admission.rotate(*read_change_of_key(sound)) == new.name  # the answer was lost: the same again
    assert admission.rotate(*read_change_of_key(change_of_key(new, one))) is None  # a key that was given up stays so
    admission.remove(new.name)
    assert admission.rotate(*read_change_of_key(sound)) is None  # an old statement takes nobody back
    assert {*admission.nodes} == {two.name}


def test_an_interrupted_change_of_a_key_goes_on(tmp_path, deployment):
    admission, node = admitted(tmp_path, deployment), next(iter(deployment.nodes.values()))
    before, shown = node.store.name, []

    def lost(statement: bytes) -> None:
        shown.append(admission.rotate(*read_change_of_key(statement)))
        raise RunError("the answer is lost")

    with pytest.raises(RunError, match="lost"):
        node.store.rotate_key(lost)
    assert node.store.name == before
    assert rotated(node, admission) == shown[0]
    assert not (node.store.path / "node.key.next").exists()


def test_a_round_waits_for_a_node_that_changes_its_key(tmp_path, deployment):
    pytest.importorskip("flwr")
    from tacit.server.session.flower import RoundLoop

    admission = admitted(tmp_path, deployment)
    deployment.enrol().session.open()
    one, two = deployment.nodes
    assert deployment.session.receive(post(deployment.nodes[one], deployment.session.request(one)))
    loop: Any = RoundLoop(deployment.session, None)  # type: ignore[arg-type]
    loop.retry = {two: 0.0}
    new = rotated(deployment.nodes[two], admission)
    loop._send_requests()
    assert loop.session.missing == [*loop.retry] == [new]
    assert not loop._all_replied
    admission.remove(new)
    loop._send_requests()
    assert loop._all_replied  # one that is struck off is not waited for


def test_the_command_with_the_former_key_does_not_bring_it_back(tmp_path, deployment):
    admission, node = admitted(tmp_path, deployment), next(iter(deployment.nodes.values()))
    (tmp_path / "node-1.key").write_bytes((node.store.path / "node.key").read_bytes())
    node.store.use_key(tmp_path / "node-1.key")
    new = rotated(node, admission)
    with pytest.raises(DeviceError, match="was replaced by `tacit device rotate`; leave --key out"):
        node.store.use_key(tmp_path / "node-1.key")
    assert node.store.name == new


# ---- copies and backups of a home ----


def copy_of(node, folder):
    import shutil

    from support.deployment import seeded_keys
    from tacit.device.node.node import Node

    shutil.copytree(node.store.path, folder)
    return Node(folder, seeded=seeded_keys)


@pytest.mark.parametrize("number", [0, 1], ids=["alone", "shard"])
def test_a_home_that_is_behind_notices_and_charges_what_its_copy_sent(tmp_path, deployment, number):
    deployment.enrol()
    name = [*deployment.nodes][number]
    node = deployment.nodes[name]
    old = copy_of(node, tmp_path / "copy")
    deployment.play(2)
    deployment.session.open()
    refused = post(old, deployment.session.request(name))
    assert "was copied, or restored from a backup" in refused.refused
    assert not refused.report
    ledger = old.store.ledger()
    assert ledger.messages == 2  # as many as its copy sent
    entries = ledger.summary().get("entries") or ledger.summary()["messages"]
    assert next(iter(entries.values())) == 2
    ledger.close()
    assert "was copied" in post(old, deployment.session.request(name)).refused  # once is enough
    assert post(node, deployment.session.request(name)).report  # the one that is ahead goes on


def test_messages_of_unknown_runs_count_as_unbounded(deployment):
    deployment.enrol().session.open()
    name, node = next(iter(deployment.nodes.items()))
    node.store.limit(Budget(100.0))
    assert "was copied" in post(node, replace(deployment.session.request(name), counter=7)).refused
    ledger = node.store.ledger()
    assert (ledger.messages, ledger.summary()["spent"]) == (7, np.inf)
    ledger.close()


def test_a_server_sees_two_reports_or_an_older_counter(deployment):
    deployment.enrol().play(1).session.open()
    (one, first), (two, second) = deployment.nodes.items()
    reply = post(second, deployment.session.request(two))
    with pytest.raises(WireError, match=r"sent its message 0 after its message 1"):
        deployment.session.receive(second.store.key(replace(reply, counter=0)))
    assert two in deployment.session.copied
    reply = post(first, deployment.session.request(one))
    assert deployment.session.receive(reply)
    assert not deployment.session.receive(reply)
    other = bytearray(reply.report)
    other[-1] ^= 1
    with pytest.raises(WireError, match="two different reports for one round"):
        deployment.session.receive(first.store.key(replace(reply, report=bytes(other))))
    with pytest.raises(RunError, match="is not admitted"):
        deployment.session.receive(reply)


def test_counters_survive_a_restart(deployment):
    deployment.enrol().play(2)
    deployment.restart()
    deployment.session.open()
    assert [deployment.session.request(name).counter for name in deployment.nodes] == [2, 2]


# ---- nothing is made for a request that is refused ----


def test_refused_and_invented_runs_leave_nothing(tmp_path, deployment):
    deployment.enrol().session.open()
    name, node = next(iter(deployment.nodes.items()))
    node.store.limit(Budget(1e-6))
    request = deployment.session.request(name)
    before = files(node.store.path)
    for number in range(3):
        invented = replace(request, run=f"invented{number}")
        assert "covers no message of this run" in post(node, invented).refused
        assert "took no part in this run" in post(node, replace(invented, kind="end")).refused
        assert "failed to make a report" in post(node, replace(invented, params=b"broken")).refused
    assert files(node.store.path) - before <= {"ledger"}


def test_only_the_newest_runs_are_kept(deployment, monkeypatch):
    monkeypatch.setattr("tacit.device.node.store.RUNS", 3)
    deployment.enrol().session.open()
    name, node = next(iter(deployment.nodes.items()))
    for number in range(5):
        assert post(node, replace(deployment.session.request(name), run=f"run{number}")).report
    assert {path.name for path in (node.store.path / "runs").iterdir()} == {"run2", "run3", "run4"}
    assert RUN not in {path.name for path in (node.store.path / "runs").iterdir()}


# ---- a home holds what Tacit made ----


def test_erase_leaves_what_is_not_tacits(deployment):
    node = next(iter(deployment.nodes.values()))
    (node.store.path / "thesis.txt").write_text("years")
    (node.store.path / "photos").mkdir()
    (node.store.path / "photos" / "one.jpg").write_bytes(b"x")
    node.store.erase()
    left = {str(path.relative_to(node.store.path)) for path in node.store.path.rglob("*") if path.is_file()}
    assert left == {"ledger", "thesis.txt", "photos/one.jpg"}


def test_a_folder_with_other_files_does_not_become_a_home(tmp_path):
    (tmp_path / "thesis.txt").write_text("years")
    with pytest.raises(
        DeviceError, match=r"holds 'thesis.txt', which is not a device's; name a new or an empty folder"
    ):
        Store(tmp_path).create()
    assert files(tmp_path) == {"thesis.txt"}


def test_a_damaged_key_is_a_sentence_and_an_empty_reply(deployment):
    node = next(iter(deployment.nodes.values()))
    (node.store.path / "node.key").write_bytes(b"\xff\0")
    assert node.reply_to(deployment.session.hello()).name == ""
    with pytest.raises(DeviceError, match="is not a node's private key, or is damaged"):
        _ = node.store.name


# ---- clocks ----


@pytest.mark.parametrize("people", [1, 2], ids=["alone", "shard"])
def test_one_line_far_ahead_does_not_freeze_a_budget_with_a_window(tmp_path, people):
    """A message entered while the clock was 50 years ahead goes on counting; those after it renew as ever."""
    from dataclasses import replace as changed

    from tacit.device.ledger.node_ledger import open_node_ledger
    from tacit.privacy.accounting.events import Pure
    from tacit.privacy.budget import DAY, Entry

    now, users = [1.8e9], [str(number) for number in range(people)]
    who = np.arange(people)
    page = Entry(0.0, "p", "a", 0, 0, "user", "replace_one", Pure(1.0), 1.0, 0.0, 9)

    def ledger():
        found = open_node_ledger(tmp_path / "ledger", users, Budget(2.0, days=7))
        clock = found.ledger if people == 1 else found
        clock._clock = lambda: now[0]
        return found

    first = ledger()
    now[0] += 50 * 365 * DAY
    first.reserve(page, who, "x")
    now[0] -= 50 * 365 * DAY
    first.reserve(changed(page, round=1), who, "y")
    with pytest.raises(DeviceError):
        first.reserve(changed(page, round=2), who, "z")
    first.close()
    now[0] += 8 * DAY
    later = ledger()
    later.reserve(changed(page, round=2), who, "z")
    with pytest.raises(DeviceError):
        later.reserve(changed(page, round=3), who, "w")
    now[0] -= 300 * DAY  # setting the clock back renews nothing
    with pytest.raises(DeviceError):
        later.reserve(changed(page, round=3), who, "w")
    later.close()
