"""A real deployment on this machine: a server and nodes as processes, over loopback, and ways to kill them."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from support.deployment import Deployment
from tacit.deploy.certificates import make_certificates
from tacit.deploy.supervisor import free_port
from tacit.server.session.session import Session

TESTS = Path(__file__).resolve().parents[1]
SOURCE = TESTS.parent / "src"


class Loopback:
    """The processes of a deployment, as a context manager that ends everything it started.

    `seeded` gives them the simulator's noise, for a comparison of the two.
    """

    def __init__(self, deployment: Deployment, *options: object, secured: bool = False, seeded: bool = False):
        self.module = "support.seeded_command" if seeded else "tacit"
        self.deployment, self.options, self.certs = deployment, [*options], None
        if secured:  # TLS, and a key for each node
            self.certs = deployment.folder / "certs"
            make_certificates(self.certs, ["127.0.0.1"], 0)
            for number, node in enumerate(deployment.nodes.values(), 1):  # keys that the homes have already
                shutil.copy(node.store.path / "node.key", self.certs / f"node-{number}.key")
                (self.certs / f"node-{number}.pub").write_bytes(node.store.key.line)
            self.options += ["--certs", self.certs]
        self.address = f"127.0.0.1:{free_port()}"
        self.server: subprocess.Popen | None = None
        self.devices: dict[str, subprocess.Popen] = {}

    def __enter__(self) -> "Loopback":
        return self

    def __exit__(self, *_: object) -> None:
        running = [one for one in (self.server, *self.devices.values()) if one is not None]
        for process in running:
            process.terminate()
        for process in running:
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for note in self.deployment.folder.glob("*/flower/*.json"):  # what a killed parent left behind
            kill(json.loads(note.read_text())["pid"])

    def serve(self) -> None:
        """Start or restart the server, by the same command."""
        out = ["--out", self.deployment.folder / "run", "--address", self.address]
        self.server = self._start("server.log", "server", self.deployment.folder / "bundle", *out, *self.options)

    def attend(self, name: str, *options: object) -> None:
        """Start or restart a node."""
        home = self.deployment.nodes[name].store.path
        if self.certs is not None and not options:
            key = self.certs / f"node-{list(self.deployment.nodes).index(name) + 1}.key"
            options = ("--root", self.certs / "ca.crt", "--key", key)
        self.devices[name] = self._start(
            f"{home.name}.log", "device", "--home", home, "--server", self.address, *options
        )

    def start_all(self) -> "Loopback":
        self.serve()
        for name in self.deployment.nodes:
            self.attend(name)
        return self

    def _start(self, log: str, *words: object) -> subprocess.Popen:
        environment = {**os.environ, "PYTHONPATH": f"{SOURCE}{os.pathsep}{TESTS}", "PYTHONUNBUFFERED": "1"}
        command = [sys.executable, "-m", self.module, *map(str, words)]
        with open(self.deployment.folder / log, "ab") as file:
            return subprocess.Popen(command, stdout=file, stderr=file, env=environment)

    def said(self, log: str = "server.log") -> str:
        path = self.deployment.folder / log
        return path.read_text() if path.exists() else ""

    def until(self, happened: Callable[[], bool], seconds: float) -> float:
        """Wait until a condition holds, and return the seconds it took."""
        began = time.monotonic()
        while not happened():
            if time.monotonic() - began > seconds:
                raise TimeoutError(f"nothing in {seconds:g} s\n{self.said()[-2000:]}")
            time.sleep(0.2)
        return time.monotonic() - began

    def done(self) -> int:
        """The number of closed rounds."""
        pointer = self.deployment.folder / "run" / "state" / "LATEST"
        return int(pointer.read_text()) if pointer.exists() else 0

    def finish(self, seconds: float = 240.0) -> Session:
        """Wait until the server ends without an error, and open its session."""
        assert self.server is not None
        try:
            code = self.server.wait(seconds)
        except subprocess.TimeoutExpired:
            raise TimeoutError(self.said()[-3000:]) from None
        assert code == 0, self.said()[-3000:]
        return Session(self.deployment.folder / "run", self.deployment.bundle)

    def pid_of(self, folder: Path, program: str) -> int:
        return json.loads((folder / "flower" / f"{program}.json").read_text())["pid"]

    @property
    def superlink(self) -> int:
        return self.pid_of(self.deployment.folder / "run", "flower-superlink")

    def supernode(self, name: str) -> int:
        return self.pid_of(self.deployment.nodes[name].store.path, "flower-supernode")


def kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
