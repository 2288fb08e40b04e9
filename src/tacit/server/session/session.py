"""Session: one deployed run at the server: enrolment, cohorts, reports, rounds, and how it resumes.

It needs no network and no clock: requests go out, replies come in. Everything that must survive is in its folder, a run
folder (see `tacit.core.run_folder`) with these files in addition:

run.json        the run's name, the plan folder's digest, the seed of the cohorts
roll.json       the enrolled nodes, and how many people each has
counters.json   the highest counter of each node's replies
open.json       the open round: its cohort, and how often it was abandoned
inbox/          its reports

Nothing in the folder can repeat the server's noise: the operating system draws a key for each close, which is used once and
never written down. A round that is closed again, because the folder came from a backup, has other noise.
"""

import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tacit.core.chacha import fresh_key
from tacit.core.run_folder import Folder, read_checked, write_checked
from tacit.deploy.bundle import Bundle
from tacit.deploy.messages import Reply, Request, ids_of
from tacit.deploy.signing import check_signature_of_reply
from tacit.errors import RunError, WireError
from tacit.privacy.accounting.events import event_to_dict
from tacit.server.checkpoint import load_checkpoint, save_checkpoint
from tacit.server.round import Memory, begin, checked_close
from tacit.server.rule import rule_of
from tacit.server.session.admission import Admission
from tacit.server.session.enrolment import Enrolment, draw_cohort
from tacit.server.session.inbox import CopyError, Inbox
from tacit.server.session.round_policy import RoundPolicy

KEPT = 5  # checkpoints, so that the run can go on from an earlier one where the newest is damaged
NoiseKey = Callable[[int, int], jax.Array]  # stage and round -> the key of the server's noise


class Session:
    """A run: open a round, receive replies, close it, until all rounds are done.

    `seeded` makes the key of the server's noise where a test must know it; a real server leaves it out.
    """

    def __init__(
        self,
        path: str | Path,
        bundle: Bundle,
        policy: RoundPolicy | None = None,
        seeded: NoiseKey | None = None,
        admission: Admission | None = None,
    ):
        self.folder, self.bundle, self.policy = Folder(path), bundle, policy or RoundPolicy()
        self._seeded, self.admission = seeded, admission
        self.folder.read("run.json")
        known = read_checked(self.folder.path / "run.json")
        if known["digest"] != bundle.digest:
            raise RunError(
                f"{self.folder.path} is a run of plan folder {known['digest']}, got {bundle.digest}; resume it with its own."
            )
        self.run, self._draws = known["run"], int(known["draws"])
        (self.folder.path / "noise.npz").unlink(missing_ok=True)  # version 0.1 kept the key of all noise there
        self.enrolment = Enrolment(self.folder.path / "roll.json", bundle.people)
        self._inbox = Inbox(self.folder.path / "inbox", bundle)
        self.cohort: dict[str, np.ndarray] = {}  # of the open round: node -> which of its people
        self.tries, self.late = 0, 0
        self._nonces: set[str] = set()  # of hellos that were not answered yet
        self.copied: set[str] = set()  # nodes whose folder turned out to be a copy; they take no further part
        self._counters = self._read_counters()
        self._resting: dict[str, int] = {}  # node -> after how many rounds it may take part again
        self._params = self._public_state = b""  # of the open round
        self.follow_keys()
        self._restore()

    @classmethod
    def begin(
        cls,
        path: str | Path,
        bundle: Bundle,
        policy: RoundPolicy | None = None,
        *,
        run: str = "",
        draws: int | None = None,
        seeded: NoiseKey | None = None,
    ) -> "Session":
        """A new run in a new folder. The operating system draws its name and seed, unless a test passes them."""
        _create(Folder(path), bundle, run or secrets.token_hex(8), secrets.randbits(64) if draws is None else draws)
        return cls(path, bundle, policy, seeded)

    @classmethod
    def at(
        cls, path: str | Path, bundle: Bundle, policy: RoundPolicy | None = None, admission: Admission | None = None
    ) -> "Session":
        """The run in a folder, or a new one."""
        if not Folder(path).exists:
            _create(Folder(path), bundle, secrets.token_hex(8), secrets.randbits(64))
        return cls(path, bundle, policy, admission=admission)

    def reopened(self) -> "Session":
        """The same run, read again from its folder."""
        return Session(self.folder.path, self.bundle, self.policy, self._seeded, self.admission)

    def _restore(self) -> None:
        """Resume from the newest checkpoint; a round recorded after it is closed again: nobody has received its result."""
        self.done = self.folder.latest() or 0
        logged = max((row["done"] for row in self.folder.rows()), default=0)
        if logged > self.done + 1:  # one round more is a process that was killed between the two
            raise RunError(
                f"{self.folder.path} is damaged: {logged} rounds were closed, and its newest checkpoint is that after round "
                f"{self.done}; restore it from a backup, or go on from there by `tacit server rollback PLAN --out {self.folder.path}`."
            )
        self.params = jax.tree.map(jnp.asarray, self.bundle.params)
        self.folder.rewind(self.done)
        if self.done:
            self.params = jax.tree.map(jnp.asarray, self.folder.restore("params", self.params))
        if self.finished:
            self._inbox.clear()  # where the process ended between the last checkpoint and this
            return
        self._memory = self._begun()
        if self.round:
            saved = load_checkpoint(self.folder, self.params, self._memory)
            self.params, self._memory = jax.tree.map(jnp.asarray, saved)

    def _begun(self) -> Memory:
        """The server's memory before the first round of the stage."""
        form = self.bundle.update_specs[self.stage]
        update = None if form is None else form.like
        return begin(self.bundle.mechanism(self.stage), self._rule, tuple(self._stage.trains), self.params, update)

    # ---- progress ----

    @property
    def finished(self) -> bool:
        """Whether all rounds are done."""
        return self.done >= self.bundle.rounds

    @property
    def stage(self) -> int:
        """The index of the current stage."""
        ends = np.cumsum([stage.rounds for stage in self.bundle.plan.stages])
        return int(np.searchsorted(ends, self.done, side="right"))

    @property
    def round(self) -> int:
        """The index of the current round within its stage."""
        return self.done - self.bundle.first_round(self.stage)

    @property
    def _stage(self) -> Any:
        return self.bundle.plan.stages[self.stage]

    @property
    def _rule(self) -> Any:
        return rule_of(self._stage.server, self.bundle.price.stages[self.stage], self.bundle.catalog)

    @property
    def ready(self) -> bool:
        """Whether enough people have enrolled to begin, and as many volunteers as the price assumes."""
        people = self.enrolment.people >= self.policy.least * self.bundle.people
        return people and self.enrolment.volunteers.size >= self.bundle.most_volunteers

    @property
    def enrolled(self) -> str:
        """How many have enrolled, as text."""
        people, needed = f"{self.enrolment.people} of {self.bundle.people} people", self.bundle.most_volunteers
        return f"{people} and {self.enrolment.volunteers.size} of {needed} volunteers" if needed else people

    # ---- messages ----

    def hello(self) -> Request:
        """A request to a node to introduce itself."""
        self._nonces.add(nonce := secrets.token_hex(16))
        return Request("hello", self.bundle.digest, self.run, nonce=nonce)

    def final_request(self, name: str) -> Request:
        """The last parameters, to reply from."""
        return Request("end", self.bundle.digest, self.run, to=name, params=self.bundle.pack_params(self.params))

    def enrol(self, reply: Reply) -> None:
        """Enrol the node that replied to `hello`; the reply is signed, for this hello, by a node that is admitted."""
        self._check_sender(reply)
        self.follow_keys()
        if reply.nonce not in self._nonces:
            raise WireError(f"Node {reply.name[:8]} answered another hello; its reply is ignored.")
        self._nonces.discard(reply.nonce)
        if reply.refused:
            raise RunError(f"Node {reply.name} does not take part: {reply.refused}")
        agreed = ids_of(reply.volunteers, reply.people)
        if agreed is None:
            raise WireError(
                f"Node {reply.name} must name its volunteers from 0 to {reply.people - 1}, ascending, each once."
            )
        places, reserved = None, 0
        if self.admission is not None:
            if not self._opened:
                self.enrolment.strike([*self.enrolment.members.keys() - self.admission.nodes.keys()])
            given = self.admission.places
            waiting = self.admission.nodes.keys() - self.enrolment.members.keys() - {reply.name}
            places, reserved = given.get(reply.name), sum(given.get(name, 1) for name in waiting)
        self.enrolment.enrol(reply.name, reply.people, tuple(agreed.tolist()), self._opened, places, reserved)

    def _check_sender(self, reply: Reply) -> None:
        """Refuse a reply that is not signed by the node it names, or whose node is not admitted."""
        check_signature_of_reply(reply)
        if not self.admits(reply.name):
            raise RunError(f"Node {reply.name[:8]} is not admitted; `tacit server admit` admits it.")

    def admits(self, name: str) -> bool:
        """Whether a node may take part."""
        return name not in self.copied and (self.admission is None or name in self.admission.nodes)

    def follow_keys(self) -> dict[str, str]:
        """Go on with nodes that have changed their key under their new names; their places, counters and reports stay."""
        changed = {} if self.admission is None else self.admission.renamed(self.enrolment.members)
        for old, new in changed.items():
            self._counters[new] = max(self._counters.pop(old, 0), self._counters.get(new, 0))
            self._write_counters()
            if self._opened:
                found = read_checked(self.folder.path / "open.json")
                asked = {new if name == old else name: ids for name, ids in found["asked"].items()}
                write_checked(self.folder.path / "open.json", found | {"asked": asked})
            self.cohort = {new if name == old else name: ids for name, ids in self.cohort.items()}
            self._resting = {new if name == old else name: until for name, until in self._resting.items()}
            self.copied |= {new} if old in self.copied else set()
            self._inbox.rename(old, new)
            self.enrolment.rename(old, new)  # last: where this process ends before, it is repeated
        return changed

    def _read_counters(self) -> dict[str, int]:
        path = self.folder.path / "counters.json"
        mine = read_checked(path) if path.exists() else {}
        before = {} if self.admission is None else self.admission.counters
        return {name: max(mine.get(name, 0), before.get(name, 0)) for name in (*mine, *before)}

    def _write_counters(self) -> None:
        write_checked(self.folder.path / "counters.json", self._counters)
        if self.admission is not None:
            self.admission.note(self._counters)

    def _note_counter(self, reply: Reply) -> None:
        """Remember how many messages a node has sent; fewer than before shows that its folder is a copy."""
        seen = self._counters.get(reply.name, 0)
        if reply.form and reply.counter < seen:
            self.copied.add(reply.name)
            raise CopyError(
                f"Node {reply.name[:8]} sent its message {reply.counter} after its message {seen}: its folder was copied, or "
                "restored from a backup. It takes no further part in this run."
            )
        self._counters[reply.name] = max(seen, reply.counter)

    def open(self) -> None:
        """Open the next round, or the same one again, with a cohort that the plan's sampler draws among those enrolled."""
        before = read_checked(self.folder.path / "open.json") if self._opened else {}
        if before.get("done") == self.done:
            self.tries = before["tries"]
            self.cohort = {name: np.array(ids, "<i4") for name, ids in before["asked"].items()}
        else:
            self.tries, self.cohort = 0, self._draw()
            self._write_open()
        if self.tries >= self.policy.tries:
            raise RunError(
                f"Round {self.round} of stage {self.stage + 1} was abandoned {self.tries} times for want of "
                f"{self.policy.minimum} reports; check the nodes, then resume with more tries."
            )
        self._inbox.open(self.stage, self.round, self.cohort)
        self._params = self.bundle.pack_params(self.params)
        self._public_state = self.bundle.pack_public_state(self.stage, self._memory.public_state)

    @property
    def _opened(self) -> bool:
        """Whether a round was ever opened."""
        return (self.folder.path / "open.json").exists()

    def _draw(self) -> dict[str, np.ndarray]:
        """The cohort of the round, without nodes that failed recently, unless no other node is left."""
        drawn = draw_cohort(self.bundle, self.enrolment, self._draws, self.stage, self.round)
        rested = {name: ids for name, ids in drawn.items() if self._resting.get(name, 0) <= self.done}
        return rested or drawn

    def _write_open(self) -> None:
        cohort = {name: ids.tolist() for name, ids in self.cohort.items()}
        write_checked(self.folder.path / "open.json", {"done": self.done, "tries": self.tries, "asked": cohort})

    def request(self, name: str) -> Request:
        """The request to a node in the open round."""
        people = self.cohort[name].tobytes()
        return Request(
            "round",
            self.bundle.digest,
            self.run,
            name,
            self.stage,
            self.round,
            people,
            self._params,
            self._public_state,
            counter=self._counters.get(name, 0),
        )

    @property
    def missing(self) -> list[str]:
        """The nodes of the cohort that have not reported."""
        return [name for name in self.cohort if name not in self._inbox.people]

    @property
    def reported(self) -> int:
        """How many people's reports have arrived."""
        return sum(self._inbox.people.values())

    @property
    def enough(self) -> bool:
        """Whether the round has reached its goal."""
        people = sum(self.cohort[name].size for name in self._inbox.people)
        return self.policy.enough(people, sum(ids.size for ids in self.cohort.values()))

    def receive(self, reply: Reply) -> bool:
        """Take a report; False where it is late or a duplicate. Refuse one that does not match its schema."""
        self._check_sender(reply)
        current = (reply.run, reply.stage, reply.round) == (self.run, self.stage, self.round)
        if not current or reply.name not in self.cohort:
            self.late += 1
            if (
                reply.run == self.run and reply.name in self.enrolment.members
            ):  # old ones come late, too: no sign of a copy
                self._counters[reply.name] = max(self._counters.get(reply.name, 0), reply.counter)
            return False
        if reply.refused:
            raise WireError(f"Node {reply.name} sends no report: {reply.refused}")
        self._resting.pop(reply.name, None)
        try:
            new = self._inbox.put(reply, self.cohort[reply.name].size, self.enrolment.members[reply.name].people)
            self._note_counter(reply)
            return new
        except CopyError:
            self.copied.add(reply.name)
            raise
        except WireError as problem:
            raise WireError(f"The report of node {reply.name[:8]} is refused: {problem}") from None

    # ---- the end of a round ----

    def close(self, seconds: float = 0.0) -> dict[str, Any] | None:
        """Close the round, which took so long; its record, or None where too few reported and it must be opened again.

        Where the result is not finite, the round is abandoned: recorded with the reason, and the parameters stay.
        """
        for name in self.missing:
            self._resting[name] = self.done + 1 + self.policy.rest
        if self.cohort and self.reported < self.policy.minimum:  # an empty cohort needs no minimum: it reveals nothing
            self.tries += 1
            self._write_open()
            return None
        row = self._row() | {"seconds": seconds}
        params, memory, _, finite = _close(
            self._noise_key(),
            self.bundle.mechanism(self.stage),
            self._rule,
            tuple(self._stage.trains),
            self.params,
            self._inbox.sum(self.enrolment.members),
            self._memory,
        )
        if finite:
            self.params, self._memory = params, memory
        else:  # asked again, the nodes would send the same reports
            self._memory = self._memory._replace(noise=memory.noise)  # for the noise, it is a round like any other
            row["abandoned"] = "the sum of the reports, or the new parameters, are not finite numbers"
        self._write_counters()
        self.folder.append([row])
        save_checkpoint(self.folder, self.done + 1, self.params, self._memory, keep=KEPT)
        stage, self.done = self.stage, self.done + 1
        self._inbox.clear()
        if not self.finished and self.stage != stage:
            self._memory = self._begun()
        return row

    def _noise_key(self) -> jax.Array:
        """The key of the server's noise for one close."""
        if self._seeded is not None:
            return self._seeded(self.stage, self.round)
        return fresh_key(self.run.encode(), b"%d %d" % (self.stage, self.round))

    def _row(self) -> dict[str, Any]:
        priced, public_state = self.bundle.price.stages[self.stage], self._memory.public_state
        assert priced.event is not None
        broadcast = len(self._params) + len(self._public_state)
        return {
            "done": self.done + 1,
            "stage": self.stage + 1,
            "round": self.round,
            "asked": {name: int(ids.size) for name, ids in self.cohort.items()},
            "reports": self.reported,
            "silent": self.missing,
            "late": self.late,
            "tries": self.tries,
            "bytes_up": self._inbox.size,
            "bytes_down": sum(len(ids) * 4 + broadcast for ids in self.cohort.values()),
            "accountant": {"event": event_to_dict(priced.event), "rounds": self.round + 1, "covers": priced.covers},
            **(
                {"public_state": {name: float(number) for name, number in public_state.items()}} if public_state else {}
            ),
        }


_close = jax.jit(checked_close, static_argnums=3)


def _create(folder: Folder, bundle: Bundle, run: str, draws: int) -> None:
    """Write the first files of a run.

    A run begins with the last file: where the process is killed before that, the same call starts over.
    """
    folder.refuse_another()
    folder.path.mkdir(parents=True, exist_ok=True)
    write_checked(folder.path / "run.json", {"run": run, "digest": bundle.digest, "draws": str(draws)})
    facts = {"run": run, "digest": bundle.digest, "plan_digest": bundle.plan.digest, "people": bundle.people}
    claims = [claim.to_dict() for stage in bundle.price.claims for claim in stage]
    folder.begin(bundle.plan.to_toml(), facts, claims)


def roll_back(path: str | Path, bundle: Bundle, to: int | None = None) -> int:
    """Go on with the parameters of an earlier checkpoint, or of the newest sound one; the number of its rounds.

    The numbers of rounds go on where they were, because devices report once in a round and what was released stays
    released. This is post-processing, so it costs no privacy.
    """
    folder = Folder(path)
    sound = folder.sound()
    done = max([row["done"] for row in folder.rows()] + folder.checkpoints(), default=0)
    if not sound or (to is not None and to not in sound):
        known = ", ".join(map(str, sound)) or "no round"
        wanted = "" if to is None else f" after round {to}"
        raise RunError(f"{folder.path} has no sound checkpoint{wanted}; it has those after rounds: {known}.")
    at = sound[-1] if to is None else to
    stage_at, stage_now = (
        max(number for number in range(len(bundle.plan.stages)) if bundle.first_round(number) <= place)
        for place in (at, done)
    )
    if stage_at != stage_now and done < bundle.rounds:
        raise RunError(
            f"Round {at} is of an earlier stage than round {done}; only the current stage can be taken up again."
        )
    folder.take_up(at, done)
    return at
