"""The proxy, request by request; the SuperLink behind it is a port where nobody listens."""

import asyncio
import base64

import pytest

pytest.importorskip("flwr")

from tacit.deploy.signing import NodeKey, new_node_key
from tacit.deploy.supervisor import free_port
from tacit.server.session.admission import Admission
from tacit.server.session.fleet_proxy import OPEN, PATHS, SLACK, FleetProxy

PULL = "/v1/fleet/pull-messages"


@pytest.fixture
def key(tmp_path) -> NodeKey:
    new_node_key(tmp_path / "node.key")
    return NodeKey(tmp_path / "node.key")


@pytest.fixture
def admission(tmp_path, key) -> Admission:
    (tmp_path / "certs").mkdir()
    (tmp_path / "certs" / "node.pub").write_bytes(key.line)
    return Admission(tmp_path / "certs")


def header(key: NodeKey) -> tuple[bytes, bytes]:
    """The header by which Flower shows a node's key."""
    from cryptography.hazmat.primitives import serialization as forms

    public = forms.load_der_public_key(key.public)
    pem = public.public_bytes(forms.Encoding.PEM, forms.PublicFormat.SubjectPublicKeyInfo)
    return b"flwr-public-key", base64.b64encode(pem)


def status(proxy: FleetProxy, path: str = PULL, *headers, body: bytes = b"x", size: object = None, **changes) -> int:
    """The status that a request gets."""
    announced = [] if size == "none" else [(b"content-length", str(len(body) if size is None else size).encode())]
    scope = {
        "type": "http", "path": path, "raw_path": path.encode(), "method": "POST", "query_string": b"",
        "headers": [*announced, *headers], **changes,
    }  # fmt: skip
    sent: list[dict] = []

    async def receive():
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message):
        sent.append(message)

    asyncio.run(proxy(scope, receive, send))
    return sent[0]["status"]


def test_only_known_paths_are_passed(admission, key):
    proxy = FleetProxy(free_port(), 100, admission)
    for path in sorted(PATHS):
        assert status(proxy, path, header(key)) == 503  # passed: nobody listens there
    for path in (
        "/",
        "/v1/control/list-nodes",
        "/v1/runtime/acquire-task",
        "/v1/fleet/",
        "/V1/FLEET/pull-messages",
        *OPEN,
    ):
        assert status(proxy, path, header(key)) == 404
    for changes in ({"method": "GET"}, {"query_string": b"a"}, {"raw_path": b"/v1/fleet/%70ull-messages"}):
        assert status(proxy, PULL, header(key), **changes) == 404
    assert status(FleetProxy(free_port(), 100), sorted(OPEN)[0]) == 503  # where any node may connect


def test_only_admitted_keys_are_passed(tmp_path, admission, key):
    proxy = FleetProxy(free_port(), 100, admission)
    new_node_key(tmp_path / "other.key")
    stranger = header(NodeKey(tmp_path / "other.key"))
    for wrong in (
        [],
        [stranger],
        [header(key), stranger],
        [(b"flwr-public-key", b"%%%")],
        [(b"flwr-public-key", b"eA==")],
    ):
        assert status(proxy, PULL, *wrong) == 401
    assert status(proxy, PULL, header(key)) == 503
    admission.remove("node")
    assert status(proxy, PULL, header(key)) == 401  # at once
    admission.admit("node")
    assert status(proxy, PULL, header(key)) == 503


def test_sizes_are_refused_before_they_are_read(admission, key):
    proxy = FleetProxy(free_port(), 100, admission)
    assert status(proxy, PULL, header(key), size=100 + SLACK + 1) == 413
    assert status(proxy, PULL, header(key), size="none") == 411
    assert status(proxy, PULL, header(key), size="-1") == 411
    assert status(proxy, PULL, header(key), body=b"more than announced", size=3) == 408


def test_a_node_is_registered_when_it_connects(admission, key):
    seen: list[bytes] = []
    proxy = FleetProxy(free_port(), 100, admission, seen.append)
    assert status(proxy, "/v1/fleet/activate-node", header(key)) == 503
    assert seen[0].startswith(b"-----BEGIN PUBLIC KEY-----")


def test_an_invitation_is_taken_once(tmp_path, admission):
    proxy, join = FleetProxy(free_port(), 100, admission), "/v1/tacit/join"
    new_node_key(tmp_path / "new.key")
    line, code = NodeKey(tmp_path / "new.key").line, admission.invite()
    assert status(proxy, join, body=b"wrong\n" + line) == 403
    assert status(proxy, join, body=code.encode() + b"\nno key") == 400
    assert status(proxy, join, body=code.encode() + b"\n" + line, size=2000) == 413
    assert status(proxy, join, body=code.encode() + b"\n" + line) == 200
    assert status(proxy, join, body=code.encode() + b"\n" + line) == 403
    assert len(admission.nodes) == 2
    assert status(FleetProxy(free_port(), 100), join, body=b"x") == 404
