"""Status of a deployed run, for its operator: a file in the run folder, and the same numbers for Prometheus.

status.json is replaced while the server runs, at most once a second; `tacit server status` shows it. It holds names of nodes,
numbers and the reasons of refusals, and nothing of a report.
"""

import http.server
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tacit.core.run_folder import read_checked, write_checked
from tacit.deploy.bundle import Bundle
from tacit.deploy.terminal import printable
from tacit.errors import RunError
from tacit.privacy.budget import Budget, BudgetTally
from tacit.privacy.price import ledger_entry_of
from tacit.server.session.session import Session

EVERY = 1.0  # seconds between two writes
REASONS = 20  # the newest refusals that are kept
METRICS = {
    "rounds_done": "Rounds that were closed.",
    "rounds": "Rounds of the plan.",
    "people_enrolled": "People who have enrolled.",
    "people": "People that the plan is priced for.",
    "nodes_connected": "Nodes that have connected since the server started.",
    "people_asked": "People in the cohort of the open round.",
    "people_reported": "People whose reports have arrived in the open round.",
    "reports_late": "Replies that came after their round.",
    "refusals": "Replies that were refused, or that refused, since the server started.",
    "seconds_left": "Seconds to the deadline of the open round.",
    "bytes_up": "Bytes of reports in closed rounds.",
    "bytes_down": "Bytes of broadcasts in closed rounds.",
    "epsilon": "The privacy cost so far of a device that answered as often as it could.",
}


class Status:
    """What a running server tells its operator."""

    def __init__(self, folder: Path):
        self._path, self._written = folder / "status.json", 0.0
        self.refusals: list[dict[str, Any]] = []
        self.refused: Counter[str] = Counter()
        self.deadline = 0.0  # of the open round, as time.monotonic()
        self.values: dict[str, Any] = {}
        self._closed: tuple[int, dict[str, Any]] = (-1, {})  # after so many rounds: what only a close changes

    def refuse(self, node: str, reason: str) -> None:
        """Remember a refusal, of a node or by one."""
        self.refused[node] += 1
        self.refusals = [
            *self.refusals[1 - REASONS :],
            {"time": time.time(), "node": node, "reason": printable(reason)},
        ]

    def update(self, session: Session, connected: int, phase: str, now: bool = False) -> None:
        """Take the state of a session, and write it where the last time is long enough ago."""
        if not now and time.monotonic() - self._written < EVERY:
            return
        self._written = time.monotonic()
        if self._closed[0] != session.done:
            rows = session.folder.rows()
            sums = {name: sum(row[name] for row in rows) for name in ("bytes_up", "bytes_down")}
            self._closed = (session.done, {**sums, "epsilon": released_so_far(session.bundle, session.done)})
        opened = phase == "round"
        nodes = [
            {"node": name, "people": member.people, "state": _state(session, name), "refusals": self.refused[name]}
            for name, member in session.enrolment.members.items()
        ]
        self.values = {
            "time": time.time(),
            "run": session.run,
            "plan": session.bundle.plan.name,
            "phase": phase,
            "stage": None if session.finished else session.stage + 1,
            "round": None if session.finished else session.round,
            "rounds_done": session.done,
            "rounds": session.bundle.rounds,
            "people_enrolled": session.enrolment.people,
            "people": session.bundle.people,
            "nodes_connected": connected,
            "people_asked": sum(ids.size for ids in session.cohort.values()) if opened else 0,
            "people_reported": session.reported if opened else 0,
            "reports_late": session.late,
            "refusals": sum(self.refused.values()),
            "seconds_left": max(0.0, self.deadline - time.monotonic()) if opened else 0.0,
            **self._closed[1],
            "delta": session.bundle.price.whole.delta,
            "claim": str(session.bundle.price.whole),
            "nodes": nodes,
            "newest_refusals": self.refusals,
        }
        write_checked(self._path, self.values)

    def prometheus(self) -> str:
        """The numbers as Prometheus reads them."""
        lines = []
        for name, help in METRICS.items():
            if name in self.values:
                value = float(self.values[name])
                text = "+Inf" if value == float("inf") else f"{value:.10g}"
                lines += [f"# HELP tacit_{name} {help}", f"# TYPE tacit_{name} gauge", f"tacit_{name} {text}"]
        return "\n".join(lines) + "\n"


def released_so_far(bundle: Bundle, done: int) -> float:
    """The ε, after so many rounds, of a device that answered as often as it could, at the plan's δ."""
    tally = BudgetTally(Budget(float("inf"), bundle.price.whole.delta, unit=bundle.price.whole.unit))
    for number, priced in enumerate(bundle.price.stages):
        played = min(done - bundle.first_round(number), bundle.plan.stages[number].rounds)
        if played > 0 and priced.event is not None:
            tally.add(ledger_entry_of(priced, "", "run", number, 0.0, 0), min(played, int(priced.messages)))
    return tally.epsilon


def read_status(folder: Path) -> dict[str, Any]:
    """The newest status of a run folder."""
    if not (folder / "status.json").exists():
        raise RunError(f"{folder} has no status yet; `tacit server PLAN --out {folder}` writes it.")
    return read_checked(folder / "status.json")


@contextmanager
def served(status: Status, port: int | None) -> Iterator[None]:
    """Serve the numbers to Prometheus at /metrics of a port of the loopback interface; None: nowhere."""
    if port is None:
        yield
        return
    try:
        server = http.server.ThreadingHTTPServer(("127.0.0.1", port), _handler(status.prometheus))
    except (OSError, OverflowError) as problem:
        raise RunError(f"--metrics {port} cannot be used ({problem}); choose another port.") from None
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()


def _handler(text: Callable[[], str]) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        """Answers GET /metrics."""

        def do_GET(self) -> None:
            """Answer one request."""
            body = text().encode() if self.path == "/metrics" else b""
            self.send_response(200 if body else 404)
            self.send_header("content-type", "text/plain; version=0.0.4")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Print nothing."""

    return Handler


def _state(session: Session, name: str) -> str:
    if name in session.copied:
        return "copied"
    if not session.admits(name):
        return "removed"
    if name not in session.cohort:
        return "not asked"
    return "waited for" if name in session.missing else "reported"
