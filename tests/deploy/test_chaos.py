"""Chaos: both sides are killed, and their disks are full, at random moments; replies come late, twice and in any order; clocks jump.

A kill is an exception at a random call that reaches the disk, after which the process is made anew from its folder. After every run:
nothing that was acknowledged is lost, no ledger shows less than was sent, the parameters are the simulator's, and no file of a report
is left. `make test-chaos` plays more than 200 rounds, and the kills of real processes.
"""

import errno
import os
import random
import time
from collections import Counter
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

pytestmark = pytest.mark.filterwarnings("ignore::tacit.lab.analysis.feasibility.FeasibilityWarning")
RUNS = [
    (0, 3),
    *(pytest.param(seed, 12, marks=pytest.mark.slow) for seed in range(1, 19)),
]  # 18 · 12 = 216 rounds and 3
CALLS = ("replace", "fsync", "unlink")


class KilledError(BaseException):
    """The process ends here."""


class Disk:
    """Counts the calls that reach the disk, and ends the process or refuses the call at a random one."""

    def __init__(self, monkeypatch, dice: random.Random):
        self.dice, self.left, self.how = dice, -1, ""
        self.happened: Counter[str] = Counter()
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
            except (KilledError, OSError):
                self.disk.calm()
                self.deployment.restart()
                if not self.deployment.session.finished:
                    self.deployment.session.open()
                return
            finally:
                self.disk.calm()

    def node(self, name: str) -> None:
        """Ask a node; where it is killed, it is started again."""
        session, node = self.deployment.session, self.deployment.nodes[name]
        request = session.request(name)
        self.disk.trouble(0.4)
        try:
            reply = post(node, request)
        except KilledError:
            self.deployment.nodes[name] = Node(node.store.path, seeded=seeded_keys)
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


@pytest.mark.parametrize(("seed", "rounds"), RUNS)
def test_bad_days(tmp_path, monkeypatch, seed, rounds):
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
        bad = Bad(deployment, disk, dice)
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
    left = {path.relative_to(tmp_path / "run").parts[0] for path in Path(tmp_path / "run").rglob("*") if path.is_file()}
    known = {"run.json", "roll.json", "open.json", "counters.json", "rounds.jsonl", "plan.toml", "claims.json"}
    assert {name for name in left if not name.endswith(".partial")} <= known | {"environment.json", "state"}
