"""Transport over Flower: how messages of a deployment travel. Needs the `flower` extra.

Flower moves messages, keeps connections alive and identifies nodes. It could also ship program code with a run and start a
process for each message; Tacit uses neither. Both sides start Flower with its apps in separate processes
(`--isolation process`), and these processes are Tacit's: they take a task from Flower, work on it with the installed code,
and never open the code that was shipped. So a device runs no code that a server sent.

Flower has no public interface for such processes. All that is not public in Flower is used in this file and nowhere else.
"""

import hashlib
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")  # read when flwr is imported: before that, or never

import httpx
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.cli.build import build_fab_from_files
from flwr.common.serde import context_from_proto, fab_to_proto, run_from_proto
from flwr.proto.control_pb2 import RegisterNodeRequest, StartRunRequest
from flwr.proto.node_pb2 import Node as Number
from flwr.proto.runtime_pb2 import (
    AcquireTaskRequest,
    PullAppMessagesRequest,
    PullTaskInputRequest,
    PushTaskOutputRequest,
    SendTaskHeartbeatRequest,
)
from flwr.supercore.control import ControlHttpClient
from flwr.supercore.error import ApiErrorCode, FlowerError
from flwr.supercore.fab import Fab
from flwr.supercore.inflatable.inflatable_protobuf_utils import (
    make_confirm_message_received_fn_protobuf,
    make_pull_object_fn_protobuf,
)
from flwr.supercore.inflatable.inflatable_utils import ObjectPullError, pull_and_inflate_object_from_tree
from flwr.supercore.interceptors import (
    RuntimeTokenHttpInterceptor,
    RuntimeVersionHttpInterceptor,
    SuperExecAuthHttpInterceptor,
)
from flwr.supercore.retry import RetryInvoker, exponential
from flwr.supercore.run import RunNotRunningException
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supercore.task_identity import TaskIdentity
from flwr.superlink.grid import HttpGrid
from flwr.supernode.runtime.run_clientapp import push_message

from tacit.deploy.messages import MessageT, Reply, Request, from_plain, to_plain
from tacit.errors import RunError

IN_MEMORY = ":flwr-in-memory:"
HEARTBEAT = 10.0  # seconds; Flower gives a task up after about a minute without
_RECORD = "letter"  # part of the wire format
_ACQUIRE = frozenset({"/flwr.proto.Runtime/AcquireTask"})


PATIENCE = 45.0  # seconds to wait for a SuperLink that does not answer, before the run counts as lost
PULL_SECONDS = 20.0  # to wait for the rest of a message; where its run has ended, the rest never comes
_APP = b"""[project]
name = "tacit-rounds"
version = "1.0.0"
[tool.flwr.app]
publisher = "tacit"
[tool.flwr.app.components]
serverapp = "tacit_rounds:app"
clientapp = "tacit_rounds:app"
"""
_EMPTY = b'"""Empty: both sides run the code they have installed."""\n'
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


class WithdrawnError(Exception):
    """A message ended before it was read: its run ended, or it is larger than a message can be."""


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


# ---- a server ----


@contextmanager
def own_run(runtime: FlowerRuntime) -> Iterator[HttpGrid]:
    """Start a run on the SuperLink, take its task, and reach the nodes; `LostError` where Flower gave the run up."""
    token = _begin(runtime)
    try:
        with runtime.task(token, PATIENCE) as client:
            grid = HttpGrid(runtime.address, runtime.root is None, runtime.certificates, token=token)
            grid._retry_invoker = patient(PATIENCE)  # its own would end this process when a run is lost
            runtime.bounded(grid._runtime_client)
            task = client.PullTaskInput(PullTaskInputRequest())
            _identify(task)
            grid.set_run(run_from_proto(task.run))
            yield grid
    except (httpx.HTTPError, RunNotRunningException) as problem:
        raise LostError(f"{type(problem).__name__}: {problem}") from None


def start_run(runtime: FlowerRuntime) -> None:
    """Start a run on the SuperLink. It requires an app to ship, and gets an empty one."""
    content, _ = build_fab_from_files({"pyproject.toml": _APP, "tacit_rounds.py": _EMPTY})
    fab = Fab(hashlib.sha256(content).hexdigest(), content, {})
    with _control(runtime) as control:
        control.StartRun(StartRunRequest(fab=fab_to_proto(fab)))


def register(runtime: FlowerRuntime, public_key: bytes) -> None:
    """Admit the node with this public key; one that was admitted before stays admitted."""
    with _control(runtime) as control:
        try:
            control.RegisterNode(RegisterNodeRequest(public_key=public_key))
        except httpx.HTTPStatusError as problem:
            known = FlowerError.from_json(problem.response.text)
            if known is None or known.code != ApiErrorCode.PUBLIC_KEY_ALREADY_IN_USE:
                raise RunError(f"The SuperLink refused a node's key: {problem.response.text[:200]}.") from None
        except httpx.TransportError as problem:
            raise LostError(f"{type(problem).__name__}: {problem}") from None


def _begin(runtime: FlowerRuntime) -> str:
    """Start a run and acquire its task; `LostError` where the SuperLink has ended meanwhile, though its port may answer."""
    until = time.monotonic() + 30.0
    try:
        start_run(runtime)
        while time.monotonic() < until:
            token = runtime.acquire("flwr-serverapp")
            if token is not None:
                return token
            time.sleep(0.1)
    except httpx.TransportError as problem:
        raise LostError(f"{type(problem).__name__}: {problem}") from None
    raise LostError("the SuperLink handed out no run")


def _control(runtime: FlowerRuntime) -> ControlHttpClient:
    return ControlHttpClient.from_server_address(
        server_address=runtime.address,
        insecure=runtime.root is None,
        root_certificates=runtime.certificates,
        interceptors=[RuntimeVersionHttpInterceptor(component_name="flwr CLI")],
        retry_invoker=patient(PATIENCE),
    )


# ---- a node ----


def pull(client: RuntimeHttpClient) -> tuple[Message, Context]:
    """The message of a task, and the context that Flower expects back with the reply. The app that comes with it is ignored."""
    task = client.PullTaskInput(PullTaskInputRequest())
    _identify(task)
    context = context_from_proto(task.context)
    found = client.PullMessages(PullAppMessagesRequest())
    if not found.messages_list:
        raise WithdrawnError("its run has ended")
    number, tree = Number(node_id=context.node_id), found.message_object_trees[0]
    try:
        message = pull_and_inflate_object_from_tree(
            tree,
            make_pull_object_fn_protobuf(client.PullObject, number, context.run_id),
            make_confirm_message_received_fn_protobuf(client.ConfirmMessageReceived, number, context.run_id),
            return_type=Message,
            max_time=PULL_SECONDS,
        )
    except ObjectPullError as problem:
        raise WithdrawnError(str(problem)) from None
    message.metadata.__dict__["_message_id"] = tree.object_id  # it does not travel inside the message
    return message, context


def push(client: RuntimeHttpClient, reply: Message, context: Context) -> None:
    """Hand a reply to the SuperNode."""
    try:
        push_message(client, reply, context)
    except ObjectPullError as problem:
        raise WithdrawnError(str(problem)) from None


def _identify(task: Any) -> None:
    """Let Flower's functions of this process know whose task it works on."""
    TaskIdentity.task_id, TaskIdentity.run_id = task.task_id, task.run.run_id
    TaskIdentity.node_id = task.context.node_id
