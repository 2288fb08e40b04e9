"""Certificates: a small certificate authority for one deployment, the server's certificate, and a key for each node.

ca.crt, ca.key           the authority
server.crt, server.key   the server's certificate, for the names and addresses it is reached by
node-1.key, .pub …       a key for each node: the public key stays with the server, the private key goes to the node
"""

import ipaddress
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tacit.deploy.signing import new_node_key
from tacit.errors import RunError

DAYS = 365
MONTH = timedelta(days=30)


def make_certificates(path: str | Path, hosts: list[str], nodes: int) -> list[Path]:
    """Write a folder of certificates and keys; private keys can be read only by their owner."""
    folder = Path(path)
    if (folder / "ca.crt").exists():
        raise RunError(f"{folder} holds certificates already; choose another folder.")
    folder.mkdir(parents=True, exist_ok=True)
    ec, x509 = _tools()
    authority, server = ec.generate_private_key(ec.SECP384R1()), ec.generate_private_key(ec.SECP384R1())
    root = _certificate(x509, "tacit authority", authority, None, [])
    written = [_write(folder / "ca.crt", root), _write(folder / "ca.key", authority)]
    issued = _certificate(x509, hosts[0], server, (root, authority), hosts)
    written += [_write(folder / "server.crt", issued), _write(folder / "server.key", server)]
    return written + [one for number in range(1, nodes + 1) for one in new_node(folder, f"node-{number}")]


def renew_certificates(path: str | Path) -> list[Path]:
    """Replace the server's key and certificate, and the certificate of the authority, whose key and nodes stay.

    Devices go on with the ca.crt that they have until it expires.
    """
    folder = Path(path)
    ec, x509 = _tools()
    from cryptography.hazmat.primitives import serialization as forms

    try:
        before = x509.load_pem_x509_certificate((folder / "server.crt").read_bytes())
        names = before.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        authority: Any = forms.load_pem_private_key((folder / "ca.key").read_bytes(), None)
        hosts = [str(one.value) for one in names]
    except (OSError, ValueError, TypeError, x509.ExtensionNotFound) as problem:
        raise RunError(
            f"{folder} has no sound ca.key and server.crt ({type(problem).__name__}); restore them, or make a new folder."
        ) from None
    server = ec.generate_private_key(ec.SECP384R1())
    root = _certificate(x509, "tacit authority", authority, None, [])
    made = {
        "ca.crt": root,
        "server.crt": _certificate(x509, hosts[0], server, (root, authority), hosts),
        "server.key": server,
    }
    for name, one in made.items():
        (folder / f"{name}.partial").unlink(missing_ok=True)
        _write(folder / f"{name}.partial", one)
    for name in made:
        os.replace(folder / f"{name}.partial", folder / name)
    return [folder / name for name in made]


def new_node(folder: Path, name: str) -> list[Path]:
    """Write a key for one more node."""
    return [folder / f"{name}.key", _put(folder / f"{name}.pub", new_node_key(folder / f"{name}.key"))]


def warn_of_expiry(paths: list[Path], log: Callable[[str], None]) -> None:
    """Refuse a certificate that has expired; announce one that will within a month."""
    for path in paths:
        left = _expires(path) - datetime.now(UTC)
        if left <= timedelta(0):
            raise RunError(f"{path} expired on {_expires(path):%Y-%m-%d}; make new certificates with `tacit certs`.")
        if left < MONTH:
            log(f"{path} expires on {_expires(path):%Y-%m-%d}, in {left.days} days; make new ones with `tacit certs`")


@contextmanager
def watched(paths: list[Path], log: Callable[[str], None], every: float = 86_400.0) -> Iterator[None]:
    """Announce certificates that will expire, now and once a day for as long as this lasts; refuse expired ones now."""
    warn_of_expiry(paths, log)
    over = threading.Event()

    def watch() -> None:
        while not over.wait(every):
            try:
                warn_of_expiry(paths, log)
            except RunError as problem:  # the server goes on: nodes refuse it from now on
                log(str(problem))

    threading.Thread(target=watch, daemon=True).start()
    try:
        yield
    finally:
        over.set()


def _expires(path: Path) -> datetime:
    _, x509 = _tools()
    try:
        return x509.load_pem_x509_certificate(path.read_bytes()).not_valid_after_utc
    except (OSError, ValueError):
        raise RunError(f"{path} is not a certificate, or is damaged; name one that `tacit certs` made.") from None


def _certificate(x509: Any, name: str, key: Any, issuer: tuple[Any, Any] | None, hosts: list[str]) -> Any:
    from cryptography.hazmat.primitives.hashes import SHA384

    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    made = x509.CertificateBuilder().subject_name(subject).public_key(key.public_key())
    made = made.issuer_name(subject if issuer is None else issuer[0].subject).serial_number(x509.random_serial_number())
    made = made.not_valid_before(now - timedelta(minutes=5)).not_valid_after(now + timedelta(days=DAYS))
    made = made.add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
    made = made.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    signer = key if issuer is None else issuer[1]
    authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())
    made = made.add_extension(authority, critical=False)
    if issuer is None:
        uses = dict.fromkeys(
            ("digital_signature", "content_commitment", "key_encipherment", "data_encipherment"), False
        )
        uses |= dict.fromkeys(("key_agreement", "encipher_only", "decipher_only"), False)
        made = made.add_extension(x509.KeyUsage(key_cert_sign=True, crl_sign=True, **uses), critical=True)
    else:
        made = made.add_extension(x509.SubjectAlternativeName([_host(x509, host) for host in hosts]), critical=False)
    return made.sign(signer, SHA384())


def _host(x509: Any, host: str) -> Any:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _write(path: Path, made: Any) -> Path:
    from cryptography.hazmat.primitives import serialization as forms

    if hasattr(made, "public_bytes"):
        return _put(path, made.public_bytes(forms.Encoding.PEM))
    pem = made.private_bytes(forms.Encoding.PEM, forms.PrivateFormat.PKCS8, forms.NoEncryption())
    return _put(path, pem)


def _put(path: Path, data: bytes) -> Path:
    mode = 0o600 if ".key" in path.suffixes else 0o644
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(handle, "wb") as file:
        file.write(data)
    return path


def _tools() -> tuple[Any, Any]:
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives.asymmetric import ec
    except ImportError:
        raise RunError("Certificates need the extra 'flower'; install tacit[flower].") from None
    return ec, x509
