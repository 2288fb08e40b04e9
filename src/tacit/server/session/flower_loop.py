"""Conductor: the rounds of a session over a grid of Flower's nodes.

The loop is Tacit's own, on messages: push, pull, never wait for all. A node that fails is asked again in the same round and
answers with the same bytes; a node that comes back under another number is known by its name.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from tacit.deploy.flower_transport import from_record, to_record  # first: it turns telemetry off  # isort: skip

from flwr.app import Message
from flwr.serverapp import Grid

from tacit.deploy.messages import Answer, Ask
from tacit.deploy.signing import Sign
from tacit.errors import RunError, TacitError
from tacit.server.session.session import Session

POLL = 0.5  # seconds between two looks at what has arrived
AGAIN = 3.0  # seconds before a node that failed is asked again
GREET = 20.0  # seconds before a node that would not take part is asked again whether it does
Say = Callable[[str], None]


@dataclass
class Conductor:
    """Plays a session's rounds over a grid."""

    session: Session
    grid: Grid
    sign: Sign = lambda ask: ask
    say: Say = print
    where: dict[str, int] = field(default_factory=dict)  # a node's name -> its number in the grid, which may change
    pending: dict[str, tuple[str, int]] = field(
        default_factory=dict
    )  # message -> the name asked ("" in a hello), number
    again: dict[str, float] = field(default_factory=dict)  # name -> when to ask it again
    greet: dict[int, float] = field(default_factory=dict)  # number -> when to ask who it is; infinity: it was asked

    def play(self) -> None:
        """Every round that is left; then everybody is sent the last parameters."""
        self._gather()
        while not self.session.finished:
            began = time.monotonic()
            self.session.open()
            self.again = dict.fromkeys(self.session.missing, 0.0)
            self._round(began)
            row = self.session.close(seconds := time.monotonic() - began)
            self.say(_words(self.session, row, seconds))
        self._part()

    def _gather(self) -> None:
        """Wait until enough people have enrolled, and, where the run goes on, until one node is back."""
        began, told = time.monotonic(), ""
        while not (self.session.ready and self.where):
            self._step()
            if self.session.gathered != told:
                told = self.session.gathered
                self.say(f"{told} have enrolled, in {len(self.where)} nodes")
            if time.monotonic() - began > self.session.terms.wait:
                help = "start more devices, or ask for a smaller share of them (--least)"
                if self.session.kit.most_volunteers:
                    help += "; people volunteer by `tacit device volunteer`"
                raise RunError(f"After {self.session.terms.wait:g} seconds {told} had enrolled; {help}.")
        self.greet |= dict.fromkeys(self.where.values(), math.inf)

    def _round(self, began: float) -> None:
        """Ask, and take what comes, until the goal is reached or time is up."""
        terms, reached = self.session.terms, None
        while time.monotonic() - began < terms.deadline:
            self._ask()
            self._step()
            if not self.session.missing or self._all_have_spoken:
                return
            if self.session.enough:
                reached = reached or time.monotonic()
                if time.monotonic() - reached >= terms.grace:
                    return

    @property
    def _all_have_spoken(self) -> bool:
        """Whether enough have reported, and everybody else has said that they will not."""
        enough = self.session.reported >= self.session.terms.minimum
        return enough and not any(name in self.again for name in self.session.missing)

    def _ask(self) -> None:
        """Letters to those who are due and here."""
        now = time.monotonic()
        asked = {name for name, _ in self.pending.values()}
        due = [
            n for n in self.session.missing if self.again.get(n, now + 1) <= now and n in self.where and n not in asked
        ]
        for name in due:
            self._push(self.session.letter(name), name, self.where[name])

    def _push(self, ask: Ask, name: str, number: int) -> None:
        group = f"{ask.stage}-{ask.round}" if ask.kind == "round" else ask.kind
        message = Message(to_record(self.sign(ask)), number, "train", ttl=3600.0, group_id=group)
        sent = next(iter(self.grid.push_messages([message])), None)
        if sent:
            self.pending[sent] = (name, number)
        else:  # the SuperLink did not take it
            self._later(name, number, AGAIN)

    def _step(self) -> None:
        """Greet who is new, read what has arrived, and rest for a moment."""
        now = time.monotonic()
        for number in self.grid.get_node_ids():
            if self.greet.get(number, 0.0) <= now:
                self.greet[number] = math.inf
                self._push(self.session.hello(), "", number)
        for message in self.grid.pull_messages(list(self.pending)):
            name, number = self.pending.pop(message.metadata.reply_to_message_id, ("", 0))
            self._read(message, name, number)
        time.sleep(POLL)

    def _read(self, message: Message, name: str, number: int) -> None:
        """An answer, or word that there is none."""
        if message.has_error():
            self.say(
                f"node {name[:8] or number}: no answer (Flower's code {message.error.code}: {message.error.reason})"
            )
            self._later(name, number, AGAIN)
            return
        try:
            answer = from_record(Answer, message.content)
            if not name:
                self.session.enrol(answer)
                self._locate(answer.name, number)
                if self.session.kit.most_volunteers and not self.session.ready:
                    self._later("", number, GREET)  # somebody there may volunteer meanwhile
            elif answer.name != name:
                raise RunError(f"Node {name[:8]} answered as {answer.name[:8]}; its answer is left aside.")
            else:
                self.session.receive(answer)
        except TacitError as problem:
            self.say(str(problem))
            self.again.pop(name, None)  # it has spoken: in this round, asking again would not help
            if not name:
                self._later("", number, GREET)

    def _later(self, name: str, number: int, seconds: float) -> None:
        """Ask a node again, or ask again who it is, after some time."""
        if name:
            self.again[name] = time.monotonic() + seconds
        else:
            self.greet[number] = time.monotonic() + seconds

    def _locate(self, name: str, number: int) -> None:
        """A node is here, perhaps again: what was on its way to where it was before is asked anew."""
        self.where[name] = number
        for sent in [one for one, (to, _) in self.pending.items() if to == name]:
            del self.pending[sent]
        if name in self.session.missing:
            self.again[name] = 0.0

    def _part(self) -> None:
        """Everybody who is here is sent the last parameters; who is not will hear of them another time."""
        self.pending.clear()
        for name, number in self.where.items():
            self._push(self.session.farewell(name), name, number)
        until = time.monotonic() + 30.0
        while self.pending and time.monotonic() < until:
            for message in self.grid.pull_messages(list(self.pending)):
                self.pending.pop(message.metadata.reply_to_message_id, None)
            time.sleep(POLL)


def _words(session: Session, row: dict | None, seconds: float) -> str:
    if row is None:
        return f"round {session.round} of stage {session.stage + 1}: {session.reported} reports are too few; once more"
    asked = sum(row["asked"].values())
    return f"round {row['round']} of stage {row['stage']}: {row['reports']} of {asked} people, {seconds:.1f} s"
