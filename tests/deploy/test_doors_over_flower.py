"""Attacks on real processes: what is reachable from outside, and what is left in files."""

import contextlib
import os
import ssl
import time
from pathlib import Path

import httpx
import pytest

pytest.importorskip("flwr")

from flwr.proto.control_pb2 import ListNodesRequest, RegisterNodeRequest
from flwr.supercore.control import ControlHttpClient
from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor

from support.deployment import Deployment, short_world
from support.loopback import Loopback
from tacit.lab.plans.loader import choose

pytestmark = [
    pytest.mark.deployed,
    pytest.mark.filterwarnings("ignore::tacit.lab.analysis.feasibility.FeasibilityWarning"),
]
PLAN = choose("fcf", {"rounds": 3, "hyper.dim": 2})


def control(deployed: Loopback) -> ControlHttpClient:
    """Flower's control interface, as an outsider looks for it."""
    assert deployed.certs is not None
    return ControlHttpClient.from_server_address(
        server_address=deployed.address,
        insecure=False,
        root_certificates=(deployed.certs / "ca.crt").read_bytes(),
        interceptors=[RuntimeVersionHttpInterceptor(component_name="flwr CLI")],
    )


def test_a_stranger_reaches_nothing_but_the_fleets_paths_and_no_report_is_left_in_a_file(tmp_path):
    deployment = Deployment(tmp_path, PLAN, short_world(2), (1, 1))
    with Loopback(deployment, secured=True).start_all() as deployed:
        deployed.until(lambda: "listening" in deployed.said(), 90)
        with control(deployed) as outside:
            for call, request in (
                (outside.ListNodes, ListNodesRequest()),
                (outside.RegisterNode, RegisterNodeRequest(public_key=b"x")),
            ):
                with pytest.raises(httpx.HTTPStatusError) as refused:
                    call(request)
                assert refused.value.response.status_code == 404
        trusted = ssl.create_default_context(cafile=str(tmp_path / "certs" / "ca.crt"))
        with httpx.Client(base_url=f"https://{deployed.address}", verify=trusted) as plain:
            for path in ("/", "/docs", "/v1/control/list-nodes", "/v1/runtime/acquire-task", "/v1/fleet/register-node"):
                assert plain.post(path, content=b"x").status_code == 404, path
            for path in ("/v1/fleet/../control/list-nodes", "/v1/fleet/pull-messages?x=1", "/v1/fleet/%70ull-messages"):
                assert plain.post(path, content=b"x").status_code == 404, path
            assert plain.get("/v1/fleet/pull-messages").status_code == 404
            assert plain.post("/v1/fleet/pull-messages", content=b"x").status_code == 401  # without an admitted key
        seen: set[bytes] = set()
        until = time.monotonic() + 150
        while deployed.done() < 2 and time.monotonic() < until:
            for folder, _, names in os.walk(tmp_path / "run" / "inbox"):
                with contextlib.suppress(OSError):  # the round was closed meanwhile
                    seen |= {Path(folder, name).read_bytes()[-200:] for name in names if not name.endswith(".partial")}
            time.sleep(0.005)
        deployed.finish()
    assert deployment.session.folder.path.exists()
    assert seen
    kept = [
        path for path in tmp_path.rglob("*") if path.is_file() and "home" not in path.relative_to(tmp_path).parts[0]
    ]
    for path in kept:
        data = path.read_bytes()
        assert not any(report in data for report in seen), path
    assert not list(tmp_path.rglob("*.sqlite*"))


def test_an_invited_node_joins_with_its_own_key_and_a_removed_one_ends(tmp_path):
    from typer.testing import CliRunner

    from tacit.cli import app

    deployment = Deployment(tmp_path, PLAN, short_world(2), (1, 1), deadline=30)
    one, _ = deployment.nodes
    with Loopback(deployment, "--deadline", 10, "--least", 0.5, secured=True) as deployed:
        for path in (tmp_path / "certs").glob("node-*"):
            path.unlink()
        code = CliRunner().invoke(app, ["server", "invite", "--certs", str(tmp_path / "certs")]).stdout.strip()
        deployed.serve()
        deployed.until(lambda: "listening" in deployed.said(), 90)
        deployed.attend(one, "--root", tmp_path / "certs" / "ca.crt", "--invitation", code)
        deployed.until(lambda: "1 of 2 people have enrolled" in deployed.said(), 90)
        session = deployed.finish()
        assert list(session.enrolment.members) == [one]
        assert [path.name for path in (tmp_path / "certs").glob("*.pub")] == [f"{one}.pub"]
