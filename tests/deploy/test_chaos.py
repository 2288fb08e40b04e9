"""Chaos: both sides are killed, and their disks are full, at random moments; replies come late, twice and in any order; clocks jump.

A kill is an exception at a random call that reaches the disk, after which the process is made anew from its folder. A power cut is a
copy of the disk at that call, with files that were not on it yet cut short, and the process is made anew from the copy, in another
place. After every run: nothing that was acknowledged is lost, no ledger shows less than was sent, the parameters are the simulator's,
and no file of a report is left. `make test-chaos` plays more than 200 rounds, and the kills of real processes.
"""

import contextlib
import errno
import os
import random
import re
import shutil
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import jax
import numpy as np
import pytest

pytest.importorskip("cryptography")

from support.deployment import Deployment, post, seeded_keys, short_world
from support.toys import close
from tacit.device.node.node import Node
from tacit.errors import TacitError
from tacit.lab.plans.loader import choose
from tacit.lab.runs.run import simulate
from tacit.server.session.session import Session

pytestmark = pytest.mark.filterwarnings("ignore::tacit.lab.analysis.feasibility.FeasibilityWarning")
RUNS = [
    (0, 3),
    *(pytest.param(seed, 12, marks=pytest.mark.slow) for seed in range(1, 19)),
]  # 18 · 12 = 216 rounds and 3
CUTS = [(100, 3), *(pytest.param(seed, 12, marks=pytest.mark.slow) for seed in range(101, 104))]
CALLS = ("replace", "fsync", "unlink")


class KilledError(BaseException):
    """The process ends here."""


class Disk:
    """Counts the calls that reach the disk, and ends the process or refuses the call at a random one."""

    def __init__(self, monkeypatch, dice: random.Random):
        self.dice, self.left, self.how = dice, -1, ""
        self.happened: Counter[str] = Counter()
        self.at_a_kill: Callable[[], None] = lambda: None
        for name in CALLS:
            monkeypatch.setattr(os, name, self._wrapped(getattr(os, name)))

    def _wrapped(self, call):
        def wrapped(*args, **kwargs):
            self.left -= 1
            if self.left == 0:
                self.happened[self.how] += 1
                if self.how == "killed after":
                    call(*args, **kwargs)
                if self.how == "full":
                    raise OSError(errno.ENOSPC, "No space left on device")
                self.at_a_kill()
                raise KilledError
            return call(*args, **kwargs)

        return wrapped

    def trouble(self, chance: float) -> None:
        """Perhaps let one of the next calls fail."""
        self.left = self.dice.randint(1, 14) if self.dice.random() < chance else -1
        self.how = self.dice.choice(("killed before", "killed after", "full"))

    def calm(self) -> None:
        """Let everything succeed."""
        self.left = -1


class Bad:
    """A deployment on bad days."""

    def __init__(self, deployment: Deployment, disk: Disk, dice: random.Random):
        self.deployment, self.disk, self.dice = deployment, disk, dice
        self.old: list = []  # replies that may come again
        self.acknowledged: Counter[str] = Counter()

    def server(self, act) -> None:
        """Let the server do something; where it is killed or its disk is full, the same command again."""
        while True:
            self.disk.trouble(0.3)
            try:
                act()
                return
            except (KilledError, OSError) as problem:
                self.disk.calm()
                self.restart_server(killed=isinstance(problem, KilledError))
                if not self.deployment.session.finished:
                    self.deployment.session.open()
                return
            finally:
                self.disk.calm()

    def restart_server(self, killed: bool) -> None:
        """The same command again."""
        del killed
        self.deployment.restart()

    def restart_node(self, name: str) -> None:
        """The same command again."""
        self.deployment.nodes[name] = Node(self.deployment.nodes[name].store.path, seeded=seeded_keys)

    def node(self, name: str) -> None:
        """Ask a node; where it is killed, it is started again."""
        session, node = self.deployment.session, self.deployment.nodes[name]
        request = session.request(name)
        self.disk.trouble(0.4)
        try:
            reply = post(node, request)
        except KilledError:
            self.restart_node(name)
            return
        finally:
            self.disk.calm()
        self.old.append(reply)
        if reply.refused:  # a full disk: it is asked again
            return
        if self.dice.random() < 0.2:
            return  # lost on its way
        self.server(lambda: self.take(session, reply))

    def take(self, session, reply) -> None:
        if session is self.deployment.session and session.receive(reply):
            self.acknowledged[reply.name] += 1

    def again(self) -> None:
        """An old reply arrives once more."""
        if self.old and self.dice.random() < 0.3:
            late = self.dice.choice(self.old)
            try:
                self.deployment.session.receive(late)
            except TacitError:
                return

    def play(self) -> None:
        self.server(self.deployment.session.open)
        for _ in range(4000):
            session = self.deployment.session
            if session.finished:
                return
            if not session.cohort:
                self.server(session.open)
                continue
            missing = session.missing
            if missing:
                self.node(self.dice.choice(missing))
                self.again()
                continue
            self.server(self.closed)
        raise AssertionError("the run does not end")

    def closed(self) -> None:
        self.deployment.session.close()
        if not self.deployment.session.finished:
            self.deployment.session.open()


class PowerCut(Bad):
    """Whoever is killed goes on from a copy of the disk at that moment, elsewhere; the old place is gone."""

    def __init__(self, *parts):
        super().__init__(*parts)
        self.copies = 0
        self.disk.at_a_kill = self.copy

    def copy(self) -> None:
        """Copy the disk. What is still being written may be there in part: its bytes were not flushed."""
        self.copies += 1
        target = self.deployment.folder / f"copy{self.copies}"
        server = self.deployment.session.folder.path
        for path in (server, *(node.store.path for node in self.deployment.nodes.values())):
            shutil.copytree(path, target / path.name, ignore=shutil.ignore_patterns("*.lock"))
        for path in target.rglob("*.partial"):
            if path.is_file():
                data = path.read_bytes()
                path.write_bytes(data[: self.dice.randint(0, len(data))])

    def restart_server(self, killed: bool) -> None:
        """From the copy, where the power was cut; after a full disk, the same command again."""
        if killed:
            move_server(self.deployment, self._moved(self.deployment.session.folder.path))
        else:
            move_server(self.deployment, self.deployment.session.folder.path)

    def restart_node(self, name: str) -> None:
        """From the copy."""
        place = self._moved(self.deployment.nodes[name].store.path)
        self.deployment.nodes[name] = Node(place, seeded=seeded_keys)

    def _moved(self, path: Path) -> Path:
        shutil.rmtree(path)
        return self.deployment.folder / f"copy{self.copies}" / path.name


def move_server(deployment: Deployment, path: Path) -> None:
    """Start the server from this folder."""
    deployment.session = Session(path, deployment.bundle, deployment.policy, deployment.seeded)


@pytest.mark.parametrize(
    ("kind", "seed", "rounds"),
    [
        *(pytest.param(kind, *getattr(one, "values", one), marks=getattr(one, "marks", ())) for kind, runs in
          ((Bad, RUNS), (PowerCut, CUTS)) for one in runs),
    ],
)  # fmt: skip
def test_bad_days(tmp_path, monkeypatch, kind, seed, rounds):
    dice = random.Random(seed)
    plan = choose("fcf", {"rounds": rounds, "hyper.dim": 2})
    deployment = Deployment(tmp_path, plan, short_world(4), (1, 3)).enrol()
    now = [time.time()]

    def clock() -> float:
        now[0] += dice.choice((1.0, 60.0, 86_400.0, -3600.0, -40 * 86_400.0))
        return now[0]

    with monkeypatch.context() as patched:
        patched.setattr(time, "time", clock)
        disk = Disk(patched, dice)
        bad = kind(deployment, disk, dice)
        bad.play()
    assert sum(disk.happened.values()) > rounds / 3
    rows = deployment.session.folder.rows()
    assert [row["reports"] for row in rows] == [4] * rounds
    for name, node in deployment.nodes.items():
        ledger = node.store.ledger()
        assert ledger.messages == rounds  # as many as were sent, and no more
        assert bad.acknowledged[name] <= rounds
        ledger.close()
    run = simulate(plan, deployment.world, seed=0, quiet=True)
    close(*(jax.tree.map(np.asarray, one.params) for one in (deployment.session, run)))
    assert not deployment.session.copied
    assert kind is Bad or bad.copies
    server = deployment.session.folder.path
    left = {path.relative_to(server).parts[0] for path in server.rglob("*") if path.is_file()}
    known = {"run.json", "roll.json", "open.json", "counters.json", "rounds.jsonl", "plan.toml", "claims.json"}
    assert {name for name in left if not name.endswith(".partial")} <= known | {"environment.json", "state"}


@pytest.mark.parametrize("arrived", [0, 1, 2], ids=["no report", "one of two", "all reports"])
def test_a_server_moves_to_another_machine_from_its_backup(tmp_path, arrived):
    """The backup is of between two rounds; the machine is lost in the next one, with the reports that had arrived there."""
    plan = choose("fcf", {"rounds": 4, "hyper.dim": 2})
    deployment = Deployment(tmp_path, plan, short_world(4), (1, 3)).enrol().play(2)
    shutil.copytree(tmp_path / "run", tmp_path / "backup" / "run")
    deployment.session.open()
    for name in deployment.session.missing[:arrived]:
        assert deployment.session.receive(post(deployment.nodes[name], deployment.session.request(name)))
    shutil.rmtree(tmp_path / "run")
    move_server(deployment, tmp_path / "backup" / "run")
    deployment.play()
    assert [row["reports"] for row in deployment.session.folder.rows()] == [4] * 4
    for node in deployment.nodes.values():
        ledger = node.store.ledger()
        assert ledger.messages == 4
        ledger.close()
    run = simulate(plan, deployment.world, seed=0, quiet=True)
    close(*(jax.tree.map(np.asarray, one.params) for one in (deployment.session, run)))


def test_a_backup_from_before_a_closed_round_gets_no_second_report(tmp_path):
    """Its server would release that round again, with other noise; no device reports in a round that it is past."""
    plan = choose("fcf", {"rounds": 4, "hyper.dim": 2})
    deployment = Deployment(tmp_path, plan, short_world(4), (1, 3)).enrol().play(1)
    shutil.copytree(tmp_path / "run", tmp_path / "backup" / "run")
    deployment.play(2)
    move_server(deployment, tmp_path / "backup" / "run")
    deployment.session.open()
    for name, node in deployment.nodes.items():
        reply = post(node, deployment.session.request(name))
        assert "it reports once in a round" in reply.refused
        assert not reply.report
        ledger = node.store.ledger()
        assert ledger.messages == 3
        ledger.close()
    assert deployment.session.close() is None  # nothing is released
    assert deployment.session.done == 1


@pytest.mark.parametrize("how", ["killed before", "full"])
def test_no_report_is_left_where_the_last_close_ends_too_early(tmp_path, monkeypatch, how):
    deployment = Deployment(tmp_path, choose("fcf", {"rounds": 1, "hyper.dim": 2}), short_world(4), (1, 3)).enrol()
    session = deployment.session
    session.open()
    for name in session.missing:
        session.receive(post(deployment.nodes[name], session.request(name)))
    monkeypatch.setattr(f"{__name__}.CALLS", ("unlink",))
    with monkeypatch.context() as patched:
        disk = Disk(patched, random.Random(0))
        disk.left, disk.how = 1, how
        with contextlib.suppress(KilledError):
            session.close()
        assert disk.happened[how] == 1
    if how != "full":
        deployment.restart()
    assert deployment.session.finished
    assert not (tmp_path / "run" / "inbox").exists()


def test_the_page_says_how_many_rounds_are_played():
    runs = [getattr(one, "values", one)[1] for one in (*RUNS, *CUTS)]
    page = (Path(__file__).resolve().parents[2] / "docs" / "deploy.md").read_text(encoding="utf-8")
    assert re.search(rf"for\s+{sum(runs)} rounds", page)
