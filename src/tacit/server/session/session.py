"""Session: one run of a deployment, as the server lives it: who is there, whom to ask, what came, and where to go on.

It knows no network and no clock: letters out, letters in. Everything that must survive is in its folder, which is a run
folder (see `tacit.core.run_folder`) with some more in it:

run.json        the run's name, the plan folder's digest, the seed of the cohorts
noise.npz       the root of the server's own noise
roll.json       the nodes, and how many people each has
open.json       the open round: who was asked, and how often it was abandoned
inbox/          its reports
"""

import json
import secrets
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tacit.core.run_folder import Folder, read_arrays, write_json
from tacit.deploy.bundle import Kit
from tacit.deploy.messages import Answer, Ask, ids_of
from tacit.errors import RunError, WireError
from tacit.privacy.accounting.events import event_to_dict
from tacit.server import checkpoint
from tacit.server.round import Memory, begin, close, noise_key
from tacit.server.rule import build_rule
from tacit.server.session import cohort
from tacit.server.session.create import start
from tacit.server.session.enrolment import Roll
from tacit.server.session.inbox import Inbox
from tacit.server.session.round_policy import Terms

KEYS = "threefry2x32"


class Session:
    """A run: open a round, take what comes, close it; again, until all rounds are done."""

    def __init__(self, path: str | Path, kit: Kit, terms: Terms | None = None):
        self.folder, self.kit, self.terms = Folder(path), kit, terms or Terms()
        words = json.loads(self.folder.read("run.json"))
        if words["digest"] != kit.digest:
            raise RunError(
                f"{self.folder.path} is a run of plan folder {words['digest']}, got {kit.digest}; resume it with its own."
            )
        self.run, self._draws = words["run"], int(words["draws"])
        noise = read_arrays(self.folder.path / "noise.npz", {"noise": np.zeros(2, np.uint32)})["noise"]
        self._noise = jax.random.wrap_key_data(jnp.asarray(noise), impl=KEYS)
        self.roll = Roll(self.folder.path / "roll.json", kit.people)
        self._inbox = Inbox(self.folder.path / "inbox", kit)
        self.asked: dict[str, np.ndarray] = {}  # of the open round: node -> who of its people
        self.tries, self.late = 0, 0
        self._resting: dict[str, int] = {}  # node -> after how many rounds it is asked again
        self._params = self._dials = b""  # of the open round
        self._restore()

    @classmethod
    def begin(
        cls,
        path: str | Path,
        kit: Kit,
        terms: Terms | None = None,
        *,
        run: str = "",
        draws: int | None = None,
        noise: Any = None,
    ) -> "Session":
        """A new run in a new folder. Names, cohorts and noise come from the operating system, unless a test says them."""
        start(Folder(path), kit, run or secrets.token_hex(8), secrets.randbits(64) if draws is None else draws, noise)
        return cls(path, kit, terms)

    @classmethod
    def at(cls, path: str | Path, kit: Kit, terms: Terms | None = None) -> "Session":
        """The run that lives in a folder, or a new one."""
        return cls(path, kit, terms) if Folder(path).exists else cls.begin(path, kit, terms)

    def again(self) -> "Session":
        """The same run, from its folder."""
        return Session(self.folder.path, self.kit, self.terms)

    def _restore(self) -> None:
        """Go on after the newest checkpoint; rounds written down after it will be closed again, to the same end."""
        self.done = self.folder.latest() or 0
        self.params = jax.tree.map(jnp.asarray, self.kit.params)
        self.folder.rewind(self.done)
        if self.done:
            self.params = jax.tree.map(jnp.asarray, self.folder.restore("params", self.params))
        if self.finished:
            return
        self._memory = self._begun()
        if self.round:
            saved = checkpoint.load(self.folder, self.params, self._memory)
            self.params, self._memory = jax.tree.map(jnp.asarray, saved)

    def _begun(self) -> Memory:
        """The memory before the first round of the stage."""
        return begin(self.kit.mechanism(self.stage), self._rule, tuple(self._stage.trains), self.params)

    # ---- where it stands ----

    @property
    def finished(self) -> bool:
        """Whether all rounds are done."""
        return self.done >= self.kit.rounds

    @property
    def stage(self) -> int:
        """The stage being played."""
        ends = np.cumsum([stage.rounds for stage in self.kit.plan.stages])
        return int(np.searchsorted(ends, self.done, side="right"))

    @property
    def round(self) -> int:
        """The round being played, within its stage."""
        return self.done - self.kit.first_round(self.stage)

    @property
    def _stage(self) -> Any:
        return self.kit.plan.stages[self.stage]

    @property
    def _rule(self) -> Any:
        return build_rule(self._stage.server)

    @property
    def ready(self) -> bool:
        """Whether enough people have enrolled to begin, and as many volunteers as the price counts on."""
        people = self.roll.people >= self.terms.least * self.kit.people
        return people and self.roll.volunteers.size >= self.kit.most_volunteers

    @property
    def gathered(self) -> str:
        """How many have enrolled, in words."""
        words, needed = f"{self.roll.people} of {self.kit.people} people", self.kit.most_volunteers
        return f"{words} and {self.roll.volunteers.size} of {needed} volunteers" if needed else words

    # ---- letters ----

    def hello(self) -> Ask:
        """Who are you?"""
        return Ask("hello", self.kit.digest, self.run)

    def farewell(self, name: str) -> Ask:
        """The last parameters, to answer from."""
        return Ask("end", self.kit.digest, self.run, to=name, params=self.kit.pack_params(self.params))

    def enrol(self, answer: Answer) -> None:
        """A node says who it is."""
        if answer.refused:
            raise RunError(f"Node {answer.name} does not take part: {answer.refused}")
        agreed = ids_of(answer.volunteers, answer.people)
        if agreed is None:
            raise WireError(
                f"Node {answer.name} must name its volunteers from 0 to {answer.people - 1}, ascending, each once."
            )
        self.roll.enrol(answer.name, answer.people, tuple(agreed.tolist()), sealed=self._opened)

    def open(self) -> None:
        """Open the next round, or the same one again: ask whoever the plan's sampler draws, among those enrolled."""
        before = json.loads(self.folder.read("open.json")) if self._opened else {}
        if before.get("done") == self.done:
            self.tries = before["tries"]
            self.asked = {name: np.array(ids, "<i4") for name, ids in before["asked"].items()}
        else:
            self.tries, self.asked = 0, self._draw()
            self._note_open()
        if self.tries >= self.terms.tries:
            raise RunError(
                f"Round {self.round} of stage {self.stage + 1} was abandoned {self.tries} times for want of "
                f"{self.terms.minimum} reports; see to the nodes, then resume with more tries."
            )
        self._inbox.open(self.stage, self.round, self.asked)
        self._params = self.kit.pack_params(self.params)
        self._dials = self.kit.pack_dials(self.stage, self._memory.dials)

    @property
    def _opened(self) -> bool:
        """Whether a round was ever opened."""
        return (self.folder.path / "open.json").exists()

    def _draw(self) -> dict[str, np.ndarray]:
        """Whom to ask: not those who failed of late, unless nobody else is left."""
        drawn = cohort.draw(self.kit, self.roll, self._draws, self.stage, self.round)
        rested = {name: ids for name, ids in drawn.items() if self._resting.get(name, 0) <= self.done}
        return rested or drawn

    def _note_open(self) -> None:
        asked = {name: ids.tolist() for name, ids in self.asked.items()}
        write_json(self.folder.path / "open.json", {"done": self.done, "tries": self.tries, "asked": asked})

    def letter(self, name: str) -> Ask:
        """What a node is asked in the open round."""
        people = self.asked[name].tobytes()
        return Ask("round", self.kit.digest, self.run, name, self.stage, self.round, people, self._params, self._dials)

    @property
    def missing(self) -> list[str]:
        """Who was asked and has not reported."""
        return [name for name in self.asked if name not in self._inbox.people]

    @property
    def reported(self) -> int:
        """How many people's reports are in."""
        return sum(self._inbox.people.values())

    @property
    def enough(self) -> bool:
        """Whether the round has reached its goal."""
        people = sum(self.asked[name].size for name in self._inbox.people)
        return self.terms.enough(people, sum(ids.size for ids in self.asked.values()))

    def receive(self, answer: Answer) -> bool:
        """Take a report; False where it is late, or there already. One that does not fit its schema is refused."""
        if (answer.run, answer.stage, answer.round) != (
            self.run,
            self.stage,
            self.round,
        ) or answer.name not in self.asked:
            self.late += 1
            return False
        if answer.refused:
            raise WireError(f"Node {answer.name} stays silent: {answer.refused}")
        self._resting.pop(answer.name, None)
        return self._inbox.put(answer, self.asked[answer.name].size)

    # ---- the end of a round ----

    def close(self, seconds: float = 0.0) -> dict[str, Any] | None:
        """Close the round, which took so long: what is written down of it, or None where too few reported, and it must be
        opened again."""
        for name in self.missing:
            self._resting[name] = self.done + 1 + self.terms.rest
        if self.asked and self.reported < self.terms.minimum:  # a round that asks nobody has nobody to hide
            self.tries += 1
            self._note_open()
            return None
        row = self._row() | {"seconds": seconds}
        self.params, self._memory, _ = _close(
            noise_key(self._noise, self.stage, self.round),
            self.kit.mechanism(self.stage),
            self._rule,
            tuple(self._stage.trains),
            self.params,
            self._inbox.sum(self.roll.members),
            self._memory,
        )
        self.folder.append([row])
        checkpoint.save(self.folder, self.done + 1, self.params, self._memory)
        stage, self.done = self.stage, self.done + 1
        self._inbox.clear()
        if not self.finished and self.stage != stage:
            self._memory = self._begun()
        return row

    def _row(self) -> dict[str, Any]:
        priced, dials = self.kit.price.stages[self.stage], self._memory.dials
        assert priced.event is not None
        letter = len(self._params) + len(self._dials)
        return {
            "done": self.done + 1,
            "stage": self.stage + 1,
            "round": self.round,
            "asked": {name: int(ids.size) for name, ids in self.asked.items()},
            "reports": self.reported,
            "silent": self.missing,
            "late": self.late,
            "tries": self.tries,
            "bytes_up": self._inbox.size,
            "bytes_down": sum(len(ids) * 4 + letter for ids in self.asked.values()),
            "accountant": {"event": event_to_dict(priced.event), "rounds": self.round + 1, "covers": priced.covers},
            **({"dials": {name: float(dial) for name, dial in dials.items()}} if dials else {}),
        }


_close = jax.jit(close, static_argnums=3)
