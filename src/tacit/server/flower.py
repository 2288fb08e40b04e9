"""The server on Flower: the rounds of a session over a grid of nodes.

The loop is Tacit's own, on messages: push, pull, never wait for all. A node that fails is asked again in the same round and
answers with the same bytes; a node that comes back under another number is known by its name.
"""

import hashlib
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from tacit.courier import Desk, LostError, from_record, patient, to_record  # first: it turns telemetry off  # isort: skip

import httpx
from flwr.app import Message
from flwr.cli.build import build_fab_from_files
from flwr.common.serde import fab_to_proto, run_from_proto
from flwr.proto.control_pb2 import RegisterNodeRequest, StartRunRequest
from flwr.proto.runtime_pb2 import PullTaskInputRequest
from flwr.serverapp import Grid
from flwr.supercore.control import ControlHttpClient
from flwr.supercore.fab import Fab
from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor
from flwr.supercore.run import RunNotRunningException
from flwr.supercore.task_identity import TaskIdentity
from flwr.superlink.grid import HttpGrid

from tacit.errors import RunError, TacitError
from tacit.letters import Answer, Ask
from tacit.server.session import Session

POLL = 0.5  # seconds between two looks at what has arrived
AGAIN = 3.0  # seconds before a node that failed is asked again
GREET = 20.0  # seconds before a node that would not take part is asked again whether it does
PATIENCE = 45.0  # seconds to wait for a SuperLink that does not answer, before the run is taken for lost
Say = Callable[[str], None]
Sign = Callable[[Ask], Ask]

_APP = b"""[project]
name = "tacit-rounds"
version = "1.0.0"
[tool.flwr.app]
publisher = "tacit"
[tool.flwr.app.components]
serverapp = "tacit_rounds:app"
clientapp = "tacit_rounds:app"
"""
_EMPTY = b'"""Nothing: both sides run what they have installed."""\n'


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
        began, told = time.monotonic(), -1
        while not (self.session.ready and self.where):
            self._step()
            if self.session.roll.people != told:
                told = self.session.roll.people
                self.say(f"{told} of {self.session.kit.people} people have enrolled, in {len(self.where)} nodes")
            if time.monotonic() - began > self.session.terms.wait:
                raise RunError(
                    f"After {self.session.terms.wait:g} seconds {told} of {self.session.kit.people} people had enrolled; "
                    "start more devices, or ask for a smaller share of them (--least)."
                )

    def _round(self, began: float) -> None:
        """Ask, and take what comes, until the goal is reached or time is up."""
        terms, reached = self.session.terms, None
        while time.monotonic() - began < terms.deadline:
            self._ask()
            self._step()
            if not self.session.missing:
                return
            if self.session.enough:
                reached = reached or time.monotonic()
                if time.monotonic() - reached >= terms.grace:
                    return

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
        (sent,) = self.grid.push_messages([message])
        if sent:
            self.pending[sent] = (name, number)

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
            self.say(f"node {name[:8] or number}: no answer (Flower's code {message.error.code})")
            self._later(name, number, AGAIN)
            return
        try:
            answer = from_record(Answer, message.content)
            if not name:
                self.session.enrol(answer)
                self._locate(answer.name, number)
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


# ---- Flower's side of it ----


def start_run(desk: Desk) -> None:
    """Ask the SuperLink for a run. It wants an app to ship: it gets an empty one."""
    content, _ = build_fab_from_files({"pyproject.toml": _APP, "tacit_rounds.py": _EMPTY})
    fab = Fab(hashlib.sha256(content).hexdigest(), content, {})
    with _control(desk) as control:
        control.StartRun(StartRunRequest(fab=fab_to_proto(fab)))


def register(desk: Desk, public_key: bytes) -> None:
    """Let the node with this key in; one that was let in before stays in."""
    with _control(desk) as control:
        try:
            control.RegisterNode(RegisterNodeRequest(public_key=public_key))
        except httpx.HTTPStatusError as problem:
            if problem.response.status_code != httpx.codes.CONFLICT:
                raise RunError(f"The SuperLink refused a node's key: {problem.response.text[:200]}.") from None


def _control(desk: Desk) -> ControlHttpClient:
    return ControlHttpClient.from_server_address(
        server_address=desk.address,
        insecure=desk.root is None,
        root_certificates=desk.certificates,
        interceptors=[RuntimeVersionHttpInterceptor(component_name="flwr CLI")],
        retry_invoker=patient(PATIENCE),
    )


def conduct(session: Session, desk: Desk, sign: Sign, say: Say) -> None:
    """Play a session as a run of this SuperLink; `LostError` where Flower gave the run up, and another must go on."""
    start_run(desk)
    token = None
    until = time.monotonic() + 30.0
    while token is None:
        if time.monotonic() > until:
            raise LostError("the SuperLink handed out no run")
        token = desk.acquire("flwr-serverapp")
        time.sleep(0.1)
    try:
        with desk.task(token, PATIENCE) as client:
            grid = HttpGrid(desk.address, desk.root is None, desk.certificates, token=token)
            grid._retry_invoker = patient(PATIENCE)  # its own would end this process where a run is lost
            task = client.PullTaskInput(PullTaskInputRequest())
            TaskIdentity.task_id, TaskIdentity.run_id = task.task_id, task.run.run_id
            TaskIdentity.node_id = task.context.node_id
            grid.set_run(run_from_proto(task.run))
            Conductor(session, grid, sign, say).play()
    except (httpx.HTTPError, RunNotRunningException) as problem:
        raise LostError(f"{type(problem).__name__}: {problem}") from None
