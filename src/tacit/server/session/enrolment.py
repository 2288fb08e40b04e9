"""Enrolment: the nodes of a run, the people of each, and the cohort of a round among those who have enrolled."""

from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tacit.core.run_folder import read_checked, write_checked
from tacit.deploy.bundle import Bundle
from tacit.errors import RunError
from tacit.privacy.sampler import Volunteers, build_sampler


class Member(NamedTuple):
    """An enrolled node: its people have the numbers first .. first + people − 1 of the plan's population."""

    name: str
    first: int
    people: int
    volunteers: tuple[int, ...] = ()  # which of its people volunteer, numbered from 0


class Enrolment:
    """The nodes of a run in order of enrolment, kept in a file. From the first round on no node is removed, so no number is given twice."""

    def __init__(self, path: Path, people: int):
        self._path, self.limit = path, people
        found = read_checked(path) if path.exists() else []
        self.members = {name: Member(name, first, count, tuple(agreed)) for name, first, count, agreed in found}

    @property
    def people(self) -> int:
        """How many people have enrolled."""
        return sum(member.people for member in self.members.values())

    @property
    def volunteers(self) -> np.ndarray:
        """The numbers of all volunteers in the plan's population, in order of enrolment."""
        numbers = [member.first + np.array(member.volunteers, np.int64) for member in self.members.values()]
        return np.concatenate([np.zeros(0, np.int64), *numbers])

    def enrol(
        self,
        name: str,
        people: int,
        volunteers: tuple[int, ...] = (),
        sealed: bool = False,
        places: int | None = None,
        reserved: int = 0,
    ) -> Member:
        """Add a node, or find it; refuse one whose number of people has changed, or that exceeds its places.

        A node has `places`, or else what the plan's population leaves beyond those `reserved` for nodes that are admitted
        and have not enrolled yet. The volunteers of a known node may change until the enrolment is sealed, because cohorts
        are drawn among them.
        """
        known = self.members.get(name)
        if known is not None:
            if known.people != people:
                raise RunError(
                    f"Node {name} enrolled {known.people} people and now has {people}; wait for the next run."
                )
            if not sealed and known.volunteers != volunteers:
                self._add(known._replace(volunteers=volunteers))
            return self.members[name]
        if people < 1 or self.people + people > self.limit:
            raise RunError(
                f"The plan is priced for {self.limit} people; {self.people} have enrolled, and node {name} has "
                f"{people} more. Make a plan folder for more people."
            )
        left = self.limit - self.people - reserved if places is None else places
        if people > left:
            raise RunError(
                f"Node {name} may enrol {left} people and has {people}; give it more places with `tacit server admit`."
            )
        return self._add(Member(name, self.people, people, volunteers))

    def strike(self, names: Collection[str]) -> None:
        """Free the places of these nodes; only before the first round, so that no number is given twice in a run."""
        if not any(name in self.members for name in names):
            return
        staying, first, self.members = [m for m in self.members.values() if m.name not in names], 0, {}
        for member in staying:
            self.members[member.name] = member._replace(first=first)
            first += member.people
        self._write()

    def rename(self, old: str, new: str) -> None:
        """A node has another name; its people and its place stay."""
        members = [member._replace(name=new) if member.name == old else member for member in self.members.values()]
        self.members = {member.name: member for member in members}
        self._write()

    def _add(self, member: Member) -> Member:
        self.members[member.name] = member
        self._write()
        return member

    def _write(self) -> None:
        write_checked(self._path, [list(one) for one in self.members.values()])

    def by_node(self, ids: np.ndarray) -> dict[str, np.ndarray]:
        """Node -> which of its own people have these numbers, counted from 0; nodes without any are left out."""
        found = {}
        for member in self.members.values():
            own = ids[(ids >= member.first) & (ids < member.first + member.people)] - member.first
            if own.size:
                found[member.name] = own.astype("<i4")
        return found


def draw_cohort(bundle: Bundle, enrolment: Enrolment, seed: int, stage: int, round: int) -> dict[str, np.ndarray]:
    """Node -> which of its people take part. The same seed, stage and round draw the same people of the plan.

    Volunteers are drawn among the first so many that the price assumes: where there are more, the others never take part;
    where there are fewer, the run does not begin.
    """
    sampler = build_sampler(bundle.plan.stages[stage].cohort)
    if isinstance(sampler, Volunteers):
        eligible = enrolment.volunteers[: bundle.volunteers(stage)]
        return enrolment.by_node(sampler.draw_among(seed, stage, round, eligible))
    return enrolment.by_node(sampler.draw(seed, stage, round, bundle.people))
