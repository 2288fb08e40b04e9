"""Transport over Flower: how messages of a deployment travel. Needs the `flower` extra.

Flower moves messages, keeps connections alive and identifies nodes. It could also ship program code with a run and start a
process for each message; Tacit uses neither. Both sides start Flower with its apps in separate processes
(`--isolation process`), and these processes are Tacit's: they take a task from Flower, work on it with the installed code,
and never open the code that was shipped. So a device runs no code that a server sent.
"""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")  # read when flwr is imported: before that, or never

import httpx
from flwr.app import ConfigRecord, RecordDict
from flwr.proto.runtime_pb2 import AcquireTaskRequest, PushTaskOutputRequest, SendTaskHeartbeatRequest
from flwr.supercore.inflatable.inflatable_utils import ObjectPullError
from flwr.supercore.interceptors import (
    RuntimeTokenHttpInterceptor,
    RuntimeVersionHttpInterceptor,
    SuperExecAuthHttpInterceptor,
)
from flwr.supercore.retry import RetryInvoker, exponential
from flwr.supercore.runtime import RuntimeHttpClient

from tacit.deploy.messages import MessageT, Reply, Request, from_plain, to_plain
from tacit.errors import RunError

IN_MEMORY = ":flwr-in-memory:"
HEARTBEAT = 10.0  # seconds; Flower gives a task up after about a minute without
_RECORD = "letter"  # part of the wire format
_ACQUIRE = frozenset({"/flwr.proto.Runtime/AcquireTask"})


OLDEST, NEWEST = (1, 41), (1, 43)  # the versions of Flower that this file knows: from the first to before the second


def check_flower() -> None:
    """Refuse a Flower that this file does not know: there, the control interface might be open to outsiders."""
    found = version("flwr")
    if not OLDEST <= tuple(int(part) for part in found.split(".")[:2]) < NEWEST:
        supported = " to before ".join(".".join(map(str, one)) for one in (OLDEST, NEWEST))
        raise RunError(f"A server needs Flower from {supported}, got {found}; install tacit[flower].")


def superlink_arguments() -> list[str]:
    """How a SuperLink is started: on the loopback interface, without TLS, which the proxy in front has.

    What it is sent stays in memory: no report is ever in a file of Flower's.
    """
    return ["--host", "127.0.0.1", "--insecure", "--database", IN_MEMORY, "--disable-runtime-dependency-installation"]


class LostError(Exception):
    """Flower no longer knows the task: it was stopped, or given up while the connection was lost."""


def to_record(message: Request | Reply) -> RecordDict:
    """A message as Flower carries it."""
    return RecordDict({_RECORD: ConfigRecord(to_plain(message))})


def from_record(kind: type[MessageT], content: RecordDict) -> MessageT:
    """The message in the content of one of Flower's."""
    found = content.config_records.get(_RECORD)
    return from_plain(kind, {} if found is None else dict(found))


def patient(seconds: float) -> RetryInvoker:
    """Retry for so many seconds while no connection is possible. A request that was refused is not tried again."""
    return RetryInvoker(lambda: exponential(max_delay=5), httpx.TransportError, max_tries=None, max_time=seconds)


def refuse_oversized(largest: int, response: httpx.Response) -> None:
    """Refuse a part of a message by its announced length before it is read; also one that announces no length."""
    if not response.request.url.path.endswith("/pull-object"):
        return
    size, packed = response.headers.get("content-length", "none"), "content-encoding" in response.headers
    if packed or not size.isdigit() or int(size) > largest:
        raise ObjectPullError("", f"a message has at most {largest} bytes, got {size}: it is oversized")


@dataclass(frozen=True)
class FlowerRuntime:
    """The runtime interface of a SuperLink or a SuperNode, which assigns tasks: its address and its secret."""

    address: str
    secret: Path
    root: Path | None = None  # the certificate authority of its TLS certificate; None: no TLS
    largest: int | None = None  # the most bytes of a message; None: no limit

    @property
    def certificates(self) -> bytes | None:
        """The root certificate's bytes."""
        return None if self.root is None else self.root.read_bytes()

    def client(self, *interceptors: Any, seconds: float = 0.0) -> RuntimeHttpClient:
        """A connection that retries for so many seconds."""
        named = RuntimeVersionHttpInterceptor(component_name="SuperExec")
        made = RuntimeHttpClient.from_server_address(
            server_address=self.address,
            insecure=self.root is None,
            root_certificates=self.certificates,
            interceptors=[named, *interceptors],
            retry_invoker=patient(seconds) if seconds else None,
        )
        return self.bounded(made)

    def bounded(self, client: RuntimeHttpClient) -> RuntimeHttpClient:
        """The same connection, which refuses whatever is larger than a message can be."""
        if self.largest is not None:
            client._client.event_hooks["response"].append(partial(refuse_oversized, self.largest))
        return client

    def acquire(self, kind: str) -> str | None:
        """The token of a waiting task of this kind, if there is one."""
        secret = SuperExecAuthHttpInterceptor(master_secret=self.secret.read_bytes(), protected_methods=_ACQUIRE)
        with self.client(secret) as client:
            found = client.AcquireTask(AcquireTaskRequest(supported_task_types=[kind]))
        return found.token if found.HasField("task") and found.token else None

    @contextmanager
    def task(self, token: str, seconds: float = 30.0) -> Iterator[RuntimeHttpClient]:
        """Work on a task: send heartbeats meanwhile, and report its outcome at the end."""
        with self.client(RuntimeTokenHttpInterceptor(token), seconds=seconds) as client:
            over = threading.Event()
            threading.Thread(target=_send_heartbeats, args=(self, token, over), daemon=True).start()
            status, details = "failed", "ended early"
            try:
                yield client
                status, details = "completed", ""
            finally:
                over.set()
                _report_outcome(self, token, status, details)


def _send_heartbeats(runtime: FlowerRuntime, token: str, over: threading.Event) -> None:
    """Tell Flower every few seconds that the task is being worked on."""
    with runtime.client(RuntimeTokenHttpInterceptor(token)) as client:
        while not over.is_set():
            try:
                client.SendTaskHeartbeat(SendTaskHeartbeatRequest())
            except httpx.TransportError:
                over.wait(1.0)  # no connection: try again soon
                continue
            except httpx.HTTPStatusError:
                return  # the task has ended; the worker's next request fails, too
            over.wait(HEARTBEAT)


def _report_outcome(runtime: FlowerRuntime, token: str, status: str, details: str) -> None:
    """Report how a task ended. Without a connection, Flower finds out by itself."""
    request = PushTaskOutputRequest(context=None, sub_status=status, details=details)
    with runtime.client(RuntimeTokenHttpInterceptor(token), seconds=5.0) as client:
        try:
            client.PushTaskOutput(request)
        except httpx.HTTPError:
            return
