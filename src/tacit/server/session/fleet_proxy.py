"""Fleet proxy: the only door of a deployment. It passes what nodes need to Flower's SuperLink, and nothing else.

Flower serves three interfaces at one address: the fleet's, its own control interface, by which anyone may list and remove
nodes and start and stop runs, and that of its workers. So the SuperLink listens on the loopback interface, and this proxy
in front of it, with TLS. It passes requests of the fleet's interface, by their exact path, up to the size of a message and,
where keys are required, from admitted keys; the SuperLink checks their signatures. It holds no state but connections,
whose number and patience have limits.
"""

import asyncio
import base64
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import uvicorn

from tacit.deploy.signing import node_name, read_change_of_key, read_public_key
from tacit.errors import RunError, WireError
from tacit.server.session.admission import Admission
from tacit.server.session.connections import LimitedSocket, protocol

PATHS = frozenset(
    f"/v1/fleet/{name}"
    for name in (
        "activate-node",
        "deactivate-node",
        "send-node-heartbeat",
        "pull-messages",
        "push-messages",
        "get-run",
        "get-fab",
        "push-object",
        "pull-object",
        "confirm-message-received",
    )
)
OPEN = frozenset({"/v1/fleet/register-node", "/v1/fleet/unregister-node"})  # only where no key is required
JOIN = "/v1/tacit/join"  # the proxy's own: a node shows an invitation
ROTATE = "/v1/tacit/rotate"  # and here that another key replaces its own
OWN = {JOIN: 1000, ROTATE: 2000}  # path -> the most bytes of a request
KEY_HEADER = b"flwr-public-key"
HEADERS = 15.0  # seconds for the headers of a request
PATIENCE = 60.0  # seconds for a request to arrive, and for the SuperLink to respond
SLACK = 1 << 16  # bytes of a request beside the message
_HOP = {b"host", b"connection", b"content-length", b"transfer-encoding", b"accept-encoding", b"keep-alive", b"upgrade"}
_Answer = tuple[int, bytes, list[tuple[bytes, bytes]]]


class FleetProxy:
    """The proxy as an ASGI application."""

    def __init__(
        self,
        port: int,
        largest: int,
        admission: Admission | None = None,
        register: Callable[[bytes], None] = lambda key: None,
    ):
        self.largest, self.admission, self._register = largest + SLACK, admission, register
        self._paths = PATHS if admission is not None else PATHS | OPEN
        self._names: dict[bytes, str] = {}  # header with a public key -> name of its node
        self._base = f"http://127.0.0.1:{port}"
        self._client: httpx.AsyncClient | None = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        status, body, headers = await self._answer(scope, receive)
        sized = [*headers, (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": status, "headers": sized})
        await send({"type": "http.response.body", "body": body})

    async def _answer(self, scope: Mapping[str, Any], receive: Any) -> _Answer:
        path, headers = scope["path"], list(scope["headers"])
        known = path in self._paths or (path in OWN and self.admission is not None)
        if not known or scope["method"] != "POST" or scope["query_string"] or scope["raw_path"] != path.encode():
            return _refusal(404)
        if path not in OWN and self.admission is not None and self._name(headers) not in self.admission.nodes:
            return _refusal(401)
        size = dict(headers).get(b"content-length", b"")
        if not size.isdigit():
            return _refusal(411)
        if int(size) > OWN.get(path, self.largest):
            return _refusal(413)
        try:
            body = await asyncio.wait_for(_body(receive, int(size)), PATIENCE)
        except (TimeoutError, ConnectionError):
            return _refusal(408)
        if path in OWN:
            return await asyncio.to_thread(self._join if path == JOIN else self._rotate, body)
        if path.endswith("/activate-node") and self.admission is not None:
            try:  # a SuperLink that was restarted has forgotten it
                await asyncio.to_thread(self._register, base64.b64decode(dict(headers)[KEY_HEADER]))
            except Exception:
                return _refusal(503)
        return await self._pass_on(path, headers, body)

    async def _pass_on(self, path: str, headers: list[tuple[bytes, bytes]], body: bytes) -> _Answer:
        if self._client is None:  # here: in the event loop that it belongs to
            limits = httpx.Limits(max_connections=256, max_keepalive_connections=32)
            self._client = httpx.AsyncClient(timeout=PATIENCE, limits=limits, trust_env=False)
        sent = [(name, value) for name, value in headers if name not in _HOP]
        try:
            found = await self._client.post(
                self._base + path, content=body, headers=[*sent, (b"accept-encoding", b"identity")]
            )
        except httpx.HTTPError:
            return _refusal(503)
        back = [(name.lower(), value) for name, value in found.headers.raw if name.lower() not in _HOP]
        return found.status_code, found.content, back

    def _name(self, headers: list[tuple[bytes, bytes]]) -> str:
        """The name of the node whose key a request shows; empty where it shows none."""
        shown = [value for name, value in headers if name == KEY_HEADER]
        if len(shown) != 1 or len(shown[0]) > 1000:
            return ""
        if shown[0] not in self._names:
            try:
                name = node_name(read_public_key(base64.b64decode(shown[0], validate=True)))
            except Exception:  # whatever a stranger sends
                return ""
            if len(self._names) > 100_000:
                self._names.clear()
            self._names[shown[0]] = name
        return self._names[shown[0]]

    def _join(self, body: bytes) -> _Answer:
        """Admit a node that shows an invitation: the code, a line end, its public key."""
        code, _, line = body.partition(b"\n")
        try:
            name = self.admission.accept(code.decode(), line) if self.admission is not None else None
        except (RunError, ValueError, OSError):
            return _refusal(400)
        return _refusal(403) if name is None else (200, name.encode(), [(b"content-type", b"text/plain")])

    def _rotate(self, body: bytes) -> _Answer:
        """Replace the key of a node that says so, signed with both keys."""
        try:
            name = self.admission.rotate(*read_change_of_key(body)) if self.admission is not None else None
        except (RunError, WireError, OSError):
            return _refusal(400)
        return _refusal(403) if name is None else (200, name.encode(), [(b"content-type", b"text/plain")])


@contextmanager
def listening(
    proxy: FleetProxy, address: tuple[str, int], certs: Path | None, per_address: int = 256
) -> Iterator[None]:
    """Serve the proxy at this address for as long as this lasts."""
    host, port = address
    bound = LimitedSocket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    bound.limit(per_address)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, port))
    except OSError as problem:
        bound.close()
        raise RunError(
            f"The server cannot listen on {host}:{port} ({problem.strerror}); stop the program that listens there, or choose "
            "another address with --address."
        ) from None
    files = {} if certs is None else {"ssl_certfile": certs / "server.crt", "ssl_keyfile": certs / "server.key"}
    options: Any = {name: str(path) for name, path in files.items()}
    quiet: Any = {"lifespan": "off", "ws": None, "log_config": None, "access_log": False, "server_header": False}
    server = uvicorn.Server(
        uvicorn.Config(proxy, http=protocol(HEADERS), loop="asyncio", timeout_keep_alive=75, **quiet, **options)
    )
    thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]}, daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.should_exit = server.force_exit = True
        thread.join(10)
        bound.close()


async def _body(receive: Any, size: int) -> bytes:
    """The body of a request, of exactly the size that it announced."""
    parts, got = [], 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ConnectionError
        parts.append(message.get("body", b""))
        got += len(parts[-1])
        if got > size:
            raise ConnectionError
        if not message.get("more_body", False):
            return b"".join(parts)


def _refusal(status: int) -> _Answer:
    return status, b"", []
