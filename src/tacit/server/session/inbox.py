"""Inbox: the reports of the open round, one for each node, on disk before they count."""

import hashlib
import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tacit.core.messages import Report, unpack, unpack_tree
from tacit.core.run_folder import write_bytes
from tacit.deploy.bundle import Bundle
from tacit.deploy.messages import Reply
from tacit.errors import WireError
from tacit.privacy.mechanism import add_reports, empty_total, merge_totals

_FORMS = {b"r": "report", b"t": "total"}
_SUM = 32  # bytes of the checksum that each file begins with


class CopyError(WireError):
    """What a node sent shows that its folder was copied, or restored from a backup."""


class Inbox:
    """Reports by node. Only the first report of a node counts; a second one is ignored."""

    def __init__(self, path: Path, bundle: Bundle):
        self._path, self._kit = path, bundle
        self.people: dict[str, int] = {}  # how many people's reports each node's message holds

    def open(self, stage: int, round: int, names: Iterable[str]) -> None:
        """Begin a round, or resume it with the reports that had arrived."""
        self.stage, self.people = stage, {}
        self._folder = self._path / f"{stage}-{round}"
        self._folder.mkdir(parents=True, exist_ok=True)
        os.chmod(self._path, 0o700)  # under central privacy these are clipped, but have no noise yet
        for name in names:
            if not (self._folder / name).exists():
                continue
            try:
                self.people[name] = _count(self.message(name))
            except WireError:  # damaged: the node is asked again and sends the same bytes
                (self._folder / name).unlink()

    def put(self, reply: Reply, asked: int, people: int) -> bool:
        """Check a report and store it; False where the node has reported already, with the same bytes.

        It must fit its schema, and be one that the mechanism can make of some update: the first bound on what a false
        report can do. `asked` of the node's `people` are in the cohort.
        """
        stored = reply.form[:1].encode() + reply.report
        if reply.name in self.people:
            if stored != self._stored(reply.name):
                raise CopyError(
                    f"Node {reply.name[:8]} sent two different reports for one round: its folder was copied, or restored from "
                    "a backup. It takes no further part in this run."
                )
            return False
        if reply.form == "total" and people == 1:
            raise WireError("A node of one person sends a report, not a total.")
        message = self._read(reply.form, reply.report)
        count = _count(message)
        if not 0 <= count <= asked:
            raise WireError(f"A report of {asked} people must hold at most {asked} reports, got {count}.")
        if problem := self._check(message):
            raise WireError(problem)
        write_bytes(self._folder / reply.name, hashlib.sha256(stored).digest() + stored)
        self.people[reply.name] = count
        return True

    def _check(self, message: Any) -> str:
        """Why no device can have sent this message under the mechanism; empty where one can."""
        mechanism = self._kit.mechanism(self.stage)
        if not isinstance(message, Report):
            return mechanism.check_total(message[0], _count(message))
        if not _count(message):
            return ""  # a device that has spent its allowance sends no payload
        return mechanism.check_payload(jax.tree.map(lambda leaf: leaf[0], message.payload))

    def rename(self, old: str, new: str) -> None:
        """A node has another name; its report stays."""
        for report in self._path.glob(f"*/{old}"):
            os.replace(report, report.with_name(new))
        if old in self.people:
            self.people[new] = self.people.pop(old)

    @property
    def size(self) -> int:
        """How many bytes have arrived."""
        return sum((self._folder / name).stat().st_size - 1 - _SUM for name in self.people)

    def sum(self, names: Iterable[str]) -> Any:
        """The total of all reports, added in the order of these names: the same sum in whatever order they arrived."""
        mechanism, form = self._kit.mechanism(self.stage), self._kit.update_spec(self.stage)
        total = empty_total(mechanism, form.like, form.weights)
        for name in names:
            if name in self.people:
                message = self.message(name)
                add = add_reports if isinstance(message, Report) else merge_totals
                total = add(mechanism, total, jax.tree.map(jnp.asarray, message))
        return total

    def message(self, name: str) -> Any:
        """The message of a node: a total, or one report with a leading axis of length 1."""
        data = self._stored(name)
        return self._read(_FORMS[data[:1]], data[1:])

    def _stored(self, name: str) -> bytes:
        data = (self._folder / name).read_bytes()
        if hashlib.sha256(data[_SUM:]).digest() != data[:_SUM]:
            raise WireError(
                f"The stored report of node {name[:8]} does not match its checksum; the node is asked again."
            )
        return data[_SUM:]

    def clear(self) -> None:
        """Delete the reports of a closed round; a file that cannot be deleted is tried once more."""
        shutil.rmtree(self._path, ignore_errors=True)
        shutil.rmtree(self._path, ignore_errors=True)

    def _read(self, form: str, data: bytes) -> Any:
        if form == "total":
            return unpack_tree(self._kit.total(self.stage), data)
        if form != "report":
            raise WireError(f"A node sends a report or a total, got {form!r}.")
        return jax.tree.map(lambda leaf: np.asarray(leaf)[None], unpack(self._kit.report(self.stage), data))


def _count(message: Any) -> int:
    """How many people's reports a message holds."""
    return int(message.sent.sum() if isinstance(message, Report) else message[1])
