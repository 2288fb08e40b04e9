"""Supervisor of Flower's own processes: start them in the background, find them after a crash, restart and stop them."""

import contextlib
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tacit.core.run_folder import write_json
from tacit.deploy.terminal import printable
from tacit.errors import RunError

LOG_BYTES = 4 << 20  # a longer log is set aside, and the one before it dropped
LONG = 60.0  # seconds: a process that ends sooner counts as a failed start


class FlowerProcess:
    """One of Flower's processes, with its folder: log, process number, port, and the secret of its runtime interface."""

    def __init__(self, folder: Path, program: str, port: int | None = None):
        self.folder, self.program = folder, program
        self.folder.mkdir(parents=True, exist_ok=True)
        self._note = folder / f"{program}.json"
        known = _read_note(self._note)
        self.port: int = port or known.get("port") or free_port()
        self._pid: int | None = known.get("pid")
        self._began: str = known.get("began", "")
        self._before = (known.get("port"), known.get("arguments"))
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def secret(self) -> Path:
        """A file that only its owner can read; Flower reads the secret from it, not from the command line."""
        path = self._secret_path
        if not path.exists():
            handle = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
            with os.fdopen(handle, "wb") as file:
                file.write(secrets.token_bytes(32))
        return path

    @property
    def alive(self) -> bool:
        """Whether it runs: as a child process, or left over from a parent that was killed."""
        if self._child is not None:
            return self._child.poll() is None
        return self._pid is not None and self._is_ours(self._pid)

    def _is_ours(self, pid: int) -> bool:
        """Whether a process is the one in the note: the same start time, program and folder. Numbers are used again."""
        words = _command(pid)
        return self._began == _start_time(pid) != "" and self.program in words and str(self._secret_path) in words

    @property
    def _secret_path(self) -> Path:
        return self.folder.absolute() / "secret"

    def left_over(self, arguments: list[str]) -> bool:
        """Whether it still runs with the arguments it would be started with now."""
        return self.alive and self._before == (self.port, arguments)

    def start(self, *arguments: str) -> None:
        """Start it, unless it runs already."""
        if self.alive:
            return
        common = ["--host", "127.0.0.1"] if "--host" not in arguments else []
        command = [str(Path(sys.executable).with_name(self.program)), *arguments, *common, "--port", str(self.port)]
        command += ["--isolation", "process", "--superexec-auth-secret-file", str(self.secret)]
        environment = {**os.environ, "FLWR_TELEMETRY_ENABLED": "0", "FLWR_HOME": str(self.folder / "home")}
        with open(self.folder / f"{self.program}.log", "ab") as output:
            self._child = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment, start_new_session=True
            )
        self._pid = self._child.pid
        self._before = (self.port, [*arguments])
        self._began = _start_time(self._pid)
        note = {"pid": self._pid, "began": self._began, "port": self.port, "arguments": arguments}
        write_json(self._note, note)

    @contextlib.contextmanager
    def kept_up(self, arguments: list[str], log: Callable[[str], None]) -> Iterator[None]:
        """Keep it running for as long as this lasts, then stop it."""
        if not self.left_over(arguments):
            self.stop()  # one left over with another address or other keys
        over = threading.Event()
        watch = threading.Thread(target=self._watch, args=(arguments, log, over), daemon=True)
        watch.start()
        try:
            yield
        finally:
            over.set()
            watch.join()
            self.stop()

    def _watch(self, arguments: list[str], log: Callable[[str], None], over: threading.Event) -> None:
        """Restart it whenever it ends, without a limit: after a crash, Flower refuses a node it knows for a minute."""
        pause, began = 2.0, None
        while not over.wait(0.5):
            self._shorten_log()
            if self.alive:
                continue
            if began is not None:
                pause = 1.0 if time.monotonic() - began > LONG else min(2 * pause, 15.0)
                log(f"{self.program} ended; it restarts in {pause:.0f} s ({self.folder / self.program}.log)")
                if over.wait(pause):
                    return
            self.start(*arguments)
            began = time.monotonic()
            log(f"started {self.program}; its log is {self.folder / self.program}.log")

    def _shorten_log(self) -> None:
        """Keep the log from growing without end: Flower writes a line for every request."""
        path = self.folder / f"{self.program}.log"
        with contextlib.suppress(OSError):
            if path.stat().st_size > LOG_BYTES:
                shutil.copyfile(path, path.with_suffix(".log.1"))
                os.truncate(path, 0)  # it is open for appending, so it goes on at the new end

    def wait(self, host: str = "127.0.0.1", seconds: float = 300.0) -> None:
        """Wait until it accepts connections."""
        until = time.monotonic() + seconds
        while not _listens(host, self.port):
            if time.monotonic() > until:
                raise RunError(f"{self.program} did not start; see {self.folder / self.program}.log.")
            time.sleep(0.2)

    def stop(self, seconds: float = 10.0) -> None:
        """Request it to end, and see that it does."""
        if self.alive and self._pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGTERM)
                until = time.monotonic() + seconds
                while self.alive and time.monotonic() < until:
                    time.sleep(0.1)
                if self.alive:
                    os.kill(self._pid, signal.SIGKILL)
        if self._child is not None:
            self._child.wait()
        self._note.unlink(missing_ok=True)


def free_port() -> int:
    """A port that is not in use."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def _listens(host: str, port: int) -> bool:
    with socket.socket() as tried:
        tried.settimeout(1.0)
        return tried.connect_ex((host, port)) == 0


def _read_note(path: Path) -> dict[str, Any]:
    """The note about a process; one that is torn or malformed counts as none."""
    types: dict[str, type] = {"pid": int, "began": str, "port": int, "arguments": list}
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        whole = all(type(found[name]) is kind for name, kind in types.items()) and found["pid"] > 0
        return found if whole and 0 < found["port"] < 65536 else {}
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return {}


def _start_time(pid: int) -> str:
    """When a process was started, in the system's own words; empty where there is no such process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
        return text.rpartition(")")[2].split()[19]  # in clock ticks since the system was started
    except (OSError, IndexError):
        found = subprocess.run(["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
        return found.stdout.strip()


def _command(pid: int) -> str:
    """The command line of a process; empty where there is no such process."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        found = subprocess.run(["ps", "-o", "command=", "-p", str(pid)], capture_output=True, text=True, check=False)
        return found.stdout


def end_by_signal() -> None:
    """Handle SIGTERM like Ctrl-C, so that everything that was started is stopped."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)


def print_line(text: str) -> None:
    """Print one line with the time of day."""
    print(f"{time.strftime('%H:%M:%S')} {printable(text)}", flush=True)


def print_json_line(text: str) -> None:
    """Print one line as a JSON object with the time in UTC."""
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    print(json.dumps({"time": now, "text": printable(text)}, ensure_ascii=False), flush=True)
