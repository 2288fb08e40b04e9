"""The server on Flower: a session as a run of a SuperLink.

`conduct` is the way to run it: a process that stays, starts a run and takes its task. `app` is the same session as a plain
ServerApp, for a SuperLink that starts the process itself; its folders are in the run's configuration.
"""

import hashlib
import time
from pathlib import Path

from tacit.deploy.flower_transport import Desk, LostError, patient  # first: it turns telemetry off  # isort: skip

import httpx
from flwr.app import Context
from flwr.cli.build import build_fab_from_files
from flwr.common.serde import fab_to_proto, run_from_proto
from flwr.proto.control_pb2 import RegisterNodeRequest, StartRunRequest
from flwr.proto.runtime_pb2 import PullTaskInputRequest
from flwr.serverapp import Grid, ServerApp
from flwr.supercore.control import ControlHttpClient
from flwr.supercore.fab import Fab
from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor
from flwr.supercore.run import RunNotRunningException
from flwr.supercore.task_identity import TaskIdentity
from flwr.superlink.grid import HttpGrid

from tacit.deploy.bundle import read_kit
from tacit.deploy.signing import Sign, signer_of
from tacit.errors import RunError
from tacit.server.session.flower_loop import Conductor, Say
from tacit.server.session.session import Session

PATIENCE = 45.0  # seconds to wait for a SuperLink that does not answer, before the run is taken for lost
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
app = ServerApp()


@app.main()
def serve(grid: Grid, context: Context) -> None:
    """Play the rounds of the plan folder `folder`, and leave them in `out`; both are in the run's configuration."""
    folder, out = (Path(str(context.run_config[name])) for name in ("folder", "out"))
    kit = read_kit(folder)
    Conductor(Session.at(out, kit), grid, signer_of(kit.server, folder / "server.key")).play()


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
        except httpx.TransportError as problem:
            raise LostError(f"{type(problem).__name__}: {problem}") from None


def _control(desk: Desk) -> ControlHttpClient:
    return ControlHttpClient.from_server_address(
        server_address=desk.address,
        insecure=desk.root is None,
        root_certificates=desk.certificates,
        interceptors=[RuntimeVersionHttpInterceptor(component_name="flwr CLI")],
        retry_invoker=patient(PATIENCE),
    )


def _begin(desk: Desk) -> str:
    """Start a run and get hold of it; `LostError` where the SuperLink has gone meanwhile, though its port may answer."""
    until = time.monotonic() + 30.0
    try:
        start_run(desk)
        while time.monotonic() < until:
            token = desk.acquire("flwr-serverapp")
            if token is not None:
                return token
            time.sleep(0.1)
    except httpx.TransportError as problem:
        raise LostError(f"{type(problem).__name__}: {problem}") from None
    raise LostError("the SuperLink handed out no run")


def conduct(session: Session, desk: Desk, sign: Sign, say: Say) -> None:
    """Play a session as a run of this SuperLink; `LostError` where Flower gave the run up, and another must go on."""
    token = _begin(desk)
    try:
        with desk.task(token, PATIENCE) as client:
            grid = HttpGrid(desk.address, desk.root is None, desk.certificates, token=token)
            grid._retry_invoker = patient(PATIENCE)  # its own would end this process where a run is lost
            desk.bounded(grid._runtime_client)
            task = client.PullTaskInput(PullTaskInputRequest())
            TaskIdentity.task_id, TaskIdentity.run_id = task.task_id, task.run.run_id
            TaskIdentity.node_id = task.context.node_id
            grid.set_run(run_from_proto(task.run))
            Conductor(session, grid, sign, say).play()
    except (httpx.HTTPError, RunNotRunningException) as problem:
        raise LostError(f"{type(problem).__name__}: {problem}") from None
