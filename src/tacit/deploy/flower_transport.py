"""Courier: how letters travel with Flower. Needs the `flower` extra.

Flower moves messages, keeps connections alive and knows its nodes. It would also ship program code with a run, and start a
process for each message; neither happens here. Both sides start Flower with its apps in processes of their own
(`--isolation process`), and those processes are Tacit's: they ask Flower for a task, answer it with the code that is
installed, and never open what was shipped. So a device runs nothing that a server sent.
"""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
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

from tacit.deploy.messages import Answer, Ask, Letter, from_plain, to_plain

HEARTBEAT = 10.0  # seconds; Flower gives a task up after about a minute without
_LETTER = "letter"
_ACQUIRE = frozenset({"/flwr.proto.Runtime/AcquireTask"})


class LostError(Exception):
    """Flower no longer knows the task: it was stopped, or given up while nobody could be heard."""


def to_record(letter: Ask | Answer) -> RecordDict:
    """A letter as Flower carries it."""
    return RecordDict({_LETTER: ConfigRecord(to_plain(letter))})


def from_record(kind: type[Letter], content: RecordDict) -> Letter:
    """The letter in a message's content."""
    found = content.config_records.get(_LETTER)
    return from_plain(kind, {} if found is None else dict(found))


def patient(seconds: float) -> RetryInvoker:
    """Try again for so long while nobody answers. What is answered with a refusal is not tried again."""
    return RetryInvoker(lambda: exponential(max_delay=5), httpx.TransportError, max_tries=None, max_time=seconds)


def refuse_oversized(largest: int, response: httpx.Response) -> None:
    """Refuse a part of a message by its announced length, before any of it is read; one that announces none, too."""
    if not response.request.url.path.endswith("/pull-object"):
        return
    size, packed = response.headers.get("content-length", "none"), "content-encoding" in response.headers
    if packed or not size.isdigit() or int(size) > largest:
        raise ObjectPullError("", f"a letter has at most {largest} bytes, got {size}: it is oversized")


@dataclass(frozen=True)
class Desk:
    """Where tasks are handed out: a SuperLink's or a SuperNode's runtime address, and the secret that opens it."""

    address: str
    secret: Path
    root: Path | None = None  # the certificate that vouches for it; None: an open connection
    largest: int | None = None  # the most bytes of a letter; None: any

    @property
    def certificates(self) -> bytes | None:
        """The root certificate's bytes."""
        return None if self.root is None else self.root.read_bytes()

    def client(self, *interceptors: Any, seconds: float = 0.0) -> RuntimeHttpClient:
        """A connection that is patient for so many seconds."""
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
        """The same connection, which takes nothing in that is larger than a letter can be."""
        if self.largest is not None:
            client._client.event_hooks["response"].append(partial(refuse_oversized, self.largest))
        return client

    def acquire(self, kind: str) -> str | None:
        """The token of a task of this kind that waits to be done, if there is one."""
        secret = SuperExecAuthHttpInterceptor(master_secret=self.secret.read_bytes(), protected_methods=_ACQUIRE)
        with self.client(secret) as client:
            found = client.AcquireTask(AcquireTaskRequest(supported_task_types=[kind]))
        return found.token if found.HasField("task") and found.token else None

    @contextmanager
    def task(self, token: str, seconds: float = 30.0) -> Iterator[RuntimeHttpClient]:
        """Work on a task: Flower is told that somebody does, and in the end how it went."""
        with self.client(RuntimeTokenHttpInterceptor(token), seconds=seconds) as client:
            over = threading.Event()
            threading.Thread(target=_beat, args=(self, token, over), daemon=True).start()
            status, details = "failed", "ended early"
            try:
                yield client
                status, details = "completed", ""
            finally:
                over.set()
                _tell(self, token, status, details)


def _beat(desk: Desk, token: str, over: threading.Event) -> None:
    """Say every few seconds that somebody works on the task."""
    with desk.client(RuntimeTokenHttpInterceptor(token)) as client:
        while not over.is_set():
            try:
                client.SendTaskHeartbeat(SendTaskHeartbeatRequest())
            except httpx.TransportError:
                over.wait(1.0)  # nobody there: soon again
                continue
            except httpx.HTTPStatusError:
                return  # the task is over; whoever works on it will be told at the next word
            over.wait(HEARTBEAT)


def _tell(desk: Desk, token: str, status: str, details: str) -> None:
    """How a task went. If nobody is there to be told, Flower finds out by itself."""
    request = PushTaskOutputRequest(context=None, sub_status=status, details=details)
    with desk.client(RuntimeTokenHttpInterceptor(token), seconds=5.0) as client:
        try:
            client.PushTaskOutput(request)
        except httpx.HTTPError:
            return
