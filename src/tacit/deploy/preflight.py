"""Preflight checks before a deployment starts: addresses, files and folders, with one sentence for each problem."""

import http.client
import socket
import ssl
from pathlib import Path
from typing import Any

from tacit.errors import RunError

try:
    import fcntl
except ImportError:  # no such lock on this system: there, the caller must see to it that there is one process
    fcntl = None

CERTIFICATES = ("ca.crt", "server.crt", "server.key")


def split_address(address: str) -> tuple[str, int]:
    """Host and port.

    >>> split_address("127.0.0.1:8000")
    ('127.0.0.1', 8000)
    """
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise RunError(f"An address must be host:port with a port from 1 to 65535, got {address!r}.")
    return host, int(port)


def can_listen(address: str) -> None:
    """Refuse an address that is in use or does not belong to this machine."""
    host, port = split_address(address)
    with socket.socket() as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind((host, port))
        except OSError as problem:
            raise RunError(
                f"The server cannot listen on {address} ({problem.strerror}); stop the program that listens there, or choose "
                "another address with --address."
            ) from None


def reach(server: str, root: Path) -> None:
    """Refuse a server whose certificate is not valid; one that does not answer is waited for later."""
    try:
        with (
            socket.create_connection(split_address(server), timeout=5.0) as plain,
            _trusting(root).wrap_socket(plain, server_hostname=split_address(server)[0]),
        ):
            return
    except ssl.SSLCertVerificationError as problem:
        raise RunError(
            f"The certificate of {server} is not valid ({problem.verify_message}); its operator must renew it, or --root must "
            "name the authority that made it."
        ) from None
    except OSError:
        return


def show_invitation(server: str, root: Path, code: str, line: bytes) -> None:
    """Show an invitation to the server, with the public key that it is to admit."""
    status = _post(server, root, "/v1/tacit/join", code.encode() + b"\n" + line)
    if status != 200:
        raise RunError(f"{server} refused the invitation (status {status}): it was used, or is wrong; ask for another.")


def show_change_of_key(server: str, root: Path, statement: bytes) -> None:
    """Show a server a node's statement that another key replaces its own."""
    status = _post(server, root, "/v1/tacit/rotate", statement)
    if status != 200:
        raise RunError(
            f"{server} refused the new key (status {status}): it does not admit this node's key; the old key stays in use."
        )


def _post(server: str, root: Path, path: str, body: bytes) -> int:
    host, port = split_address(server)
    request = http.client.HTTPSConnection(host, port, timeout=30.0, context=_trusting(root))
    try:
        request.request("POST", path, body)
        return request.getresponse().status
    except (OSError, http.client.HTTPException) as problem:
        raise RunError(f"{server} does not answer ({problem}); try again when the server runs.") from None
    finally:
        request.close()


def _trusting(root: Path) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=str(root))
    except (ssl.SSLError, OSError):
        raise RunError(f"--root {root} is not a certificate; name the file ca.crt that `tacit certs` made.") from None


def file_at(path: Path | None, option: str) -> None:
    """Refuse a path without a file."""
    if path is not None and not path.is_file():
        raise RunError(f"{option} {path} does not exist; name a file that `tacit certs` made.")


def certificates_at(folder: Path | None) -> None:
    """Refuse a folder that `tacit certs` did not make."""
    for name in CERTIFICATES:
        if folder is not None and not (folder / name).is_file():
            raise RunError(f"--certs {folder} has no {name}; `tacit certs DIR` makes such a folder.")


def alone_in(folder: Path) -> Any:
    """Lock a folder against other processes for as long as the returned file is open."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = open(folder / "lock", "ab")  # noqa: SIM115 - a process that is killed releases it
    except OSError as problem:
        raise RunError(f"{folder.parent} cannot be used ({problem.strerror}); name another folder.") from None
    try:
        if fcntl is not None:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        handle.close()
        raise RunError(f"{folder.parent} is in use by another process; stop that process first.") from None
    return handle
