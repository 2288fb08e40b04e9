"""The server on Flower: the rounds of a session, as a run of a SuperLink.

`run_session` is the way to run it: a process that stays, starts a run and takes its task. `app` is the same session as a
plain ServerApp, for a SuperLink that starts the process itself; its folders are in the run's configuration.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from flwr.app import Context, Message
from flwr.serverapp import Grid, ServerApp

from tacit.deploy.bundle import read_bundle
from tacit.deploy.flower_transport import (
    FlowerRuntime,
    from_record,
    own_run,
    to_record,
)  # first: it turns telemetry off  # isort: skip
from tacit.deploy.messages import Reply, Request
from tacit.deploy.signing import Sign, signer_of
from tacit.errors import RunError, TacitError
from tacit.server.session.session import Session
from tacit.server.session.status import Status

POLL = 0.5  # seconds between two polls for replies
RETRY = 3.0  # seconds before a node that failed gets its request again
GREET = 20.0  # seconds before a node that refused to take part gets another hello
Logger = Callable[[str], None]
app = ServerApp()


@app.main()
def run_app(grid: Grid, context: Context) -> None:
    """Run the rounds of the plan folder `folder` and write them to `out`; both are in the run's configuration."""
    folder, out = (Path(str(context.run_config[name])) for name in ("folder", "out"))
    bundle = read_bundle(folder)
    RoundLoop(Session.at(out, bundle), grid, signer_of(bundle.server, folder / "server.key")).play()


def run_session(
    session: Session, runtime: FlowerRuntime, sign: Sign, log: Logger, status: Status | None = None
) -> None:
    """Run a session as a run of this SuperLink; `LostError` where Flower gave the run up, and another must continue."""
    with own_run(runtime) as grid:
        RoundLoop(session, grid, sign, log, status).play()


@dataclass
class RoundLoop:
    """Runs a session's rounds over a grid of Flower's nodes.

    It pushes requests and pulls replies, and does not wait for every node. A node that fails gets the same request again
    in the same round and replies with the same bytes; a node that reconnects under another number is recognised by its name.
    """

    session: Session
    grid: Grid
    sign: Sign = lambda request: request
    log: Logger = print
    status: Status | None = None
    numbers: dict[str, int] = field(default_factory=dict)  # a node's name -> its number in the grid, which may change
    pending: dict[str, tuple[str, int]] = field(default_factory=dict)  # message -> node's name ("" in a hello), number
    retry: dict[str, float] = field(default_factory=dict)  # name -> when to send the request again
    greet: dict[int, float] = field(default_factory=dict)  # number -> when to send a hello; infinity: it was sent

    def play(self) -> None:
        """Run the remaining rounds, then send the final parameters to all nodes."""
        self._gather()
        while not self.session.finished:
            began = time.monotonic()
            self.session.open()
            self._tell("round", began + self.session.policy.deadline)
            self.retry = dict.fromkeys(self.session.missing, 0.0)
            self._round(began)
            row = self.session.close(seconds := time.monotonic() - began)
            self.log(_describe(self.session, row, seconds))
            self._tell("finished" if self.session.finished else "closed")
        self._finish()

    def _tell(self, phase: str, deadline: float | None = None) -> None:
        """Write the status."""
        if self.status is not None:
            self.status.deadline = deadline or 0.0
            self.status.update(self.session, len(self.numbers), phase, now=True)

    def _gather(self) -> None:
        """Wait until enough people have enrolled and, where the run resumes, until a node has reconnected."""
        began, reported = time.monotonic(), ""
        while not (self.session.ready and self.numbers):
            self._step()
            if self.session.enrolled != reported:
                reported = self.session.enrolled
                self.log(f"{reported} have enrolled, in {len(self.numbers)} nodes")
            if time.monotonic() - began > self.session.policy.wait:
                help = "start more devices, or begin with a smaller share of them (--least)"
                if self.session.bundle.most_volunteers:
                    help += "; people volunteer by `tacit device volunteer`"
                raise RunError(f"After {self.session.policy.wait:g} seconds {reported} had enrolled; {help}.")
        self.greet |= dict.fromkeys(self.numbers.values(), math.inf)

    def _round(self, began: float) -> None:
        """Send requests and receive replies until the goal is reached or the deadline has passed."""
        policy, reached = self.session.policy, None
        while time.monotonic() - began < policy.deadline:
            self._send_requests()
            self._step()
            if not self.session.missing or self._all_replied:
                return
            if self.session.enough:
                reached = reached or time.monotonic()
                if time.monotonic() - reached >= policy.grace:
                    return

    @property
    def _all_replied(self) -> bool:
        """Whether enough people have reported, and every other node has refused."""
        enough = self.session.reported >= self.session.policy.minimum
        return enough and not any(name in self.retry for name in self.session.missing)

    def _send_requests(self) -> None:
        """Send requests to connected nodes that are due and have none pending."""
        for old, new in self.session.follow_keys().items():
            if old in self.retry:  # the round waits for it under its new name
                self.retry[new] = self.retry.pop(old)
        now = time.monotonic()
        waiting = {name for name, _ in self.pending.values()}
        for name in self.session.missing:
            if not self.session.admits(name):
                self.retry.pop(name, None)
                continue
            if self.retry.get(name, now + 1) <= now and name in self.numbers and name not in waiting:
                self._push(self.session.request(name), name, self.numbers[name])

    def _push(self, request: Request, name: str, number: int) -> None:
        group = f"{request.stage}-{request.round}" if request.kind == "round" else request.kind
        message = Message(to_record(self.sign(request)), number, "train", ttl=3600.0, group_id=group)
        sent = next(iter(self.grid.push_messages([message])), None)
        if sent:
            self.pending[sent] = (name, number)
        else:  # the SuperLink did not accept it
            self._later(name, number, RETRY)

    def _step(self) -> None:
        """Send a hello to new nodes, read the messages that have arrived, and sleep for a moment."""
        now = time.monotonic()
        if self.status is not None:
            phase = "round" if self.status.deadline else "enrolling"
            self.status.update(self.session, len(self.numbers), phase)
        for number in self.grid.get_node_ids():
            if self.greet.get(number, 0.0) <= now:
                self.greet[number] = math.inf
                self._push(self.session.hello(), "", number)
        for message in self.grid.pull_messages(list(self.pending)):
            name, number = self.pending.pop(message.metadata.reply_to_message_id, ("", 0))
            self._read(message, name, number)
        time.sleep(POLL)

    def _read(self, message: Message, name: str, number: int) -> None:
        """Read a reply, or Flower's error in place of one."""
        if message.has_error():
            self.log(
                f"node {name[:8] or number}: no answer (Flower's code {message.error.code}: {message.error.reason})"
            )
            self._later(name, number, RETRY)
            return
        try:
            reply = from_record(Reply, message.content)
            if not reply.name:
                raise RunError(f"node {name[:8] or number}: {reply.refused[:300]}")
            if not name:
                self.session.enrol(reply)
                self._locate(reply.name, number)
                if self.session.bundle.most_volunteers and not self.session.ready:
                    self._later("", number, GREET)  # its people may volunteer meanwhile
            elif reply.name != name:
                raise RunError(f"Node {name[:8]} answered as {reply.name[:8]}; its reply is ignored.")
            else:
                self.session.receive(reply)
        except Exception as problem:  # nothing that one node sends ends the loop
            known = isinstance(problem, TacitError)
            reason = str(problem) if known else f"node {name[:8] or number}: {type(problem).__name__}: {problem}"
            self.log(reason)
            if self.status is not None:
                self.status.refuse(name or str(number), reason)
            self.retry.pop(name, None)  # it has replied: in this round, the same request again would not help
            if not name:
                self._later("", number, GREET)

    def _later(self, name: str, number: int, seconds: float) -> None:
        """Send a node its request again after some time, or a hello to one that has no name yet."""
        if name:
            self.retry[name] = time.monotonic() + seconds
        else:
            self.greet[number] = time.monotonic() + seconds

    def _locate(self, name: str, number: int) -> None:
        """Record the number of a node; requests that were pending under its former number are sent again."""
        self.numbers[name] = number
        for sent in [one for one, (to, _) in self.pending.items() if to == name]:
            del self.pending[sent]
        if name in self.session.missing:
            self.retry[name] = 0.0

    def _finish(self) -> None:
        """Send the final parameters to all connected nodes; others receive them in a later run."""
        self.pending.clear()
        for name, number in self.numbers.items():
            self._push(self.session.final_request(name), name, number)
        until = time.monotonic() + 30.0
        while self.pending and time.monotonic() < until:
            for message in self.grid.pull_messages(list(self.pending)):
                self.pending.pop(message.metadata.reply_to_message_id, None)
            time.sleep(POLL)


def _describe(session: Session, row: dict | None, seconds: float) -> str:
    if row is None:
        return f"round {session.round} of stage {session.stage + 1}: {session.reported} reports are too few; it is opened again"
    asked = sum(row["asked"].values())
    abandoned = f"; abandoned: {row['abandoned']}" if "abandoned" in row else ""
    return (
        f"round {row['round']} of stage {row['stage']}: {row['reports']} of {asked} people, {seconds:.1f} s{abandoned}"
    )
