"""Inbox: the reports of the open round, on disk before they count, one for each node."""

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
from tacit.deploy.bundle import Kit
from tacit.deploy.messages import Answer
from tacit.errors import WireError
from tacit.privacy.mechanism import add_reports, empty_total, merge_totals

_FORMS = {b"r": "report", b"t": "total"}


class Inbox:
    """Reports by node. A second one from the same node is the first one again, whatever it says."""

    def __init__(self, path: Path, kit: Kit):
        self._path, self._kit = path, kit
        self.people: dict[str, int] = {}  # how many people's reports each node's message holds

    def open(self, stage: int, round: int, names: Iterable[str]) -> None:
        """Begin a round, or go on in it with what had arrived."""
        self.stage, self.people = stage, {}
        self._folder = self._path / f"{stage}-{round}"
        self._folder.mkdir(parents=True, exist_ok=True)
        os.chmod(self._path, 0o700)  # where the server adds the noise, these are bounded but not yet noised
        for name in names:
            if (self._folder / name).exists():
                self.people[name] = _count(self.message(name))

    def put(self, answer: Answer, asked: int) -> bool:
        """Check a report against its schema and keep it; False where the node has reported already."""
        if answer.name in self.people:
            return False
        total = self._read(answer.form, answer.report)
        count = _count(total)
        if not 0 <= count <= asked:
            raise WireError(f"A report of {asked} people must count at most so many, got {count}.")
        write_bytes(self._folder / answer.name, answer.form[:1].encode() + answer.report)
        self.people[answer.name] = count
        return True

    @property
    def size(self) -> int:
        """How much has arrived."""
        return sum((self._folder / name).stat().st_size - 1 for name in self.people)

    def sum(self, names: Iterable[str]) -> Any:
        """The total of all reports, in the order of these names: the same sum however they arrived."""
        mechanism, form = self._kit.mechanism(self.stage), self._kit.form(self.stage)
        total = empty_total(mechanism, form.like, form.weights)
        for name in names:
            if name in self.people:
                message = self.message(name)
                add = add_reports if isinstance(message, Report) else merge_totals
                total = add(mechanism, total, jax.tree.map(jnp.asarray, message))
        return total

    def message(self, name: str) -> Any:
        """What a node has sent: a total, or a report as a stack of one."""
        data = (self._folder / name).read_bytes()
        return self._read(_FORMS[data[:1]], data[1:])

    def clear(self) -> None:
        """The round is closed: forget what was in it."""
        shutil.rmtree(self._path, ignore_errors=True)

    def _read(self, form: str, data: bytes) -> Any:
        if form == "total":
            return unpack_tree(self._kit.total(self.stage), data)
        if form != "report":
            raise WireError(f"A node sends a report or a total, got {form!r}.")
        return jax.tree.map(lambda leaf: np.asarray(leaf)[None], unpack(self._kit.report(self.stage), data))


def _count(message: Any) -> int:
    """How many people's reports it holds."""
    return int(message.sent.sum() if isinstance(message, Report) else message[1])
