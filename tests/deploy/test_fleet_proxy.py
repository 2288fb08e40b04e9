"""The proxy, request by request and over sockets; the SuperLink behind it is a port where nobody listens."""

import asyncio
import base64
import contextlib
import socket
import time

import pytest

pytest.importorskip("flwr")

from typer.testing import CliRunner

from tacit.cli import device
from tacit.deploy.certificates import make_certificates, renew_certificates
from tacit.deploy.signing import NodeKey, new_node_key
from tacit.deploy.supervisor import free_port
from tacit.device.node.store import Store
from tacit.server.session import fleet_proxy
from tacit.server.session.admission import Admission
from tacit.server.session.fleet_proxy import OPEN, PATHS, SLACK, FleetProxy, listening

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


# ---- over a real socket ----

REQUEST = b"POST /v1/control/list-nodes HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\n"


@pytest.fixture
def door(admission, monkeypatch):
    """The address of a proxy that listens, with short times."""
    monkeypatch.setattr(fleet_proxy, "HEADERS", 0.4)
    address = ("127.0.0.1", free_port())
    with listening(FleetProxy(free_port(), 100, admission), address, None, per_address=3):
        until = time.monotonic() + 10
        while time.monotonic() < until:
            try:
                socket.create_connection(address, 1).close()
                break
            except OSError:
                time.sleep(0.02)
        yield address


def dripped(address: tuple[str, int], first: bytes, drop: bytes) -> float:
    """Seconds until the proxy closes a connection that sends this, and then a byte now and then; 5, where it does not."""
    began = time.monotonic()
    with socket.create_connection(address, 1) as slow:
        slow.sendall(first)
        slow.settimeout(0.05)
        while time.monotonic() - began < 5:
            try:
                if not slow.recv(1000):
                    break
            except TimeoutError:
                pass
            except OSError:
                break
            with contextlib.suppress(OSError):
                slow.sendall(drop)
    return time.monotonic() - began


@pytest.mark.parametrize(
    ("first", "drop"),
    [
        (b"", b""),
        (b"POST / HTTP/1.1\r\nx: ", b"a"),
        (b"\r\n", b"\r\n"),
        (REQUEST, b"x"),  # refused, and its body goes on
        (REQUEST + b"123456789", b"POST"),  # a second request on the same connection
    ],
    ids=["silent", "headers", "empty lines", "body", "second"],
)
def test_a_slow_connection_is_closed(door, first, drop):
    assert dripped(door, first, drop) < 3


def test_a_slow_answer_is_no_slow_connection(admission, key, monkeypatch):
    """The time for headers does not run while the SuperLink works."""
    monkeypatch.setattr(fleet_proxy, "HEADERS", 0.2)

    class Slow(FleetProxy):
        async def _pass_on(self, path, headers, body):
            await asyncio.sleep(0.6)
            return 200, b"done", []

    address, (name, value) = ("127.0.0.1", free_port()), header(key)
    with listening(Slow(free_port(), 100, admission), address, None):
        for _ in range(100):
            with contextlib.suppress(OSError), socket.create_connection(address, 5) as asked:
                asked.sendall(b"POST %b HTTP/1.1\r\nhost: x\r\n%b: %b\r\n" % (PULL.encode(), name, value))
                asked.sendall(b"content-length: 1\r\nconnection: close\r\n\r\nx")
                assert b"".join(iter(lambda: asked.recv(1000), b"")).endswith(b"done")
                return
            time.sleep(0.02)
    raise AssertionError("the proxy does not listen")


def test_one_address_has_so_many_connections(door, monkeypatch):
    monkeypatch.setattr(fleet_proxy, "HEADERS", 30.0)
    answer = b"HTTP/1.1 404"

    def asked(one: socket.socket) -> bytes:
        try:
            one.sendall(REQUEST + b"123456789")
            return one.recv(12)
        except OSError:
            return b""

    time.sleep(0.1)
    held = [socket.create_connection(door, 2) for _ in range(3)]
    assert [asked(one) for one in held] == [answer] * 3
    with socket.create_connection(door, 2) as one_more:
        assert asked(one_more) == b""
    held.pop().close()
    for _ in range(100):  # its place is free, as soon as the proxy has noticed
        with socket.create_connection(door, 2) as one_more:
            if asked(one_more) == answer:
                break
        time.sleep(0.02)
    else:
        raise AssertionError("the place is not free")
    for one in held:
        one.close()


def test_a_key_changes_by_one_command_and_certificates_are_renewed(tmp_path):
    """Over TLS; the device's command, and the old ca.crt after the server has renewed its certificates."""
    certs, old_root = tmp_path / "certs", tmp_path / "ca.crt"
    make_certificates(certs, ["127.0.0.1", "example.org"], 0)
    old_root.write_bytes((certs / "ca.crt").read_bytes())
    store, admission = Store(tmp_path / "home").create(), Admission(certs)
    before = admission.add(store.key.line, "node")
    renew_certificates(certs)
    assert (certs / "ca.crt").read_bytes() != old_root.read_bytes()
    assert (certs / "server.key").stat().st_mode & 0o777 == 0o600
    assert not [*certs.glob("*.partial")]
    address = ("127.0.0.1", free_port())
    command = ["rotate", "--home", store.path, "--server", f"127.0.0.1:{address[1]}"]

    def tacit(*options):
        return CliRunner().invoke(device.app, [str(one) for one in (*command, *options)])

    with listening(FleetProxy(free_port(), 100, admission), address, certs):
        until = time.monotonic() + 10
        while tacit("--root", old_root).exit_code and time.monotonic() < until:
            time.sleep(0.05)
        assert store.name != before
        assert {*admission.nodes} == {store.name}
        stranger = Store(tmp_path / "stranger").create()
        refused = CliRunner().invoke(
            device.app, [str(one) for one in ("rotate", "--home", stranger.path, *command[3:], "--root", old_root)]
        )
        assert "it does not admit this node's key; the old key stays in use" in str(refused.exception)
    assert "needs --root" in str(tacit().exception)
    assert "does not answer" in str(tacit("--root", old_root).exception)
