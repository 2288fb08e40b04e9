"""Roll: which nodes take part, how many people each holds, and where those stand among the people of the plan."""

import json
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tacit.core.run_folder import write_json
from tacit.errors import RunError


class Member(NamedTuple):
    """A node: its people are numbers first .. first + people − 1 of the plan's."""

    name: str
    first: int
    people: int
    volunteers: tuple[int, ...] = ()  # who of them volunteers, numbered from 0


class Roll:
    """The nodes of a run, in the order they came; kept in a file. Nobody is ever struck off: numbers are not given twice."""

    def __init__(self, path: Path, people: int):
        self._path, self.limit = path, people
        found = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
        self.members = {name: Member(name, first, count, tuple(agreed)) for name, first, count, agreed in found}

    @property
    def people(self) -> int:
        """How many people have enrolled."""
        return sum(member.people for member in self.members.values())

    @property
    def volunteers(self) -> np.ndarray:
        """Who volunteers, numbered as the plan's people are; those who came first, first."""
        mine = [member.first + np.array(member.volunteers, np.int64) for member in self.members.values()]
        return np.concatenate([np.zeros(0, np.int64), *mine])

    def enrol(self, name: str, people: int, volunteers: tuple[int, ...] = (), sealed: bool = False) -> Member:
        """Enter a node, or find it; refuse one that has grown since, or that the plan has no place for.

        Who of a known node volunteers may change until the roll is sealed: from then on cohorts are drawn among them.
        """
        known = self.members.get(name)
        if known is not None:
            if known.people != people:
                raise RunError(
                    f"Node {name} enrolled {known.people} people and now has {people}; wait for the next run."
                )
            if not sealed and known.volunteers != volunteers:
                self._enter(known._replace(volunteers=volunteers))
            return self.members[name]
        if people < 1 or self.people + people > self.limit:
            raise RunError(
                f"The plan is priced for {self.limit} people; {self.people} have enrolled, and node {name} brings "
                f"{people} more. Make a plan folder for more people."
            )
        return self._enter(Member(name, self.people, people, volunteers))

    def _enter(self, member: Member) -> Member:
        self.members[member.name] = member
        write_json(self._path, [list(one) for one in self.members.values()])
        return member

    def asked(self, ids: np.ndarray) -> dict[str, np.ndarray]:
        """Which of each node's own people these are, numbered from 0; nodes without any are left out."""
        found = {}
        for member in self.members.values():
            mine = ids[(ids >= member.first) & (ids < member.first + member.people)] - member.first
            if mine.size:
                found[member.name] = mine.astype("<i4")
        return found
