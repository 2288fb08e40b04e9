"""Signing: the server signs every request, and each node every reply.

The server's public key is in the plan folder. A node's name follows from its public key, so nobody else can answer under
it. Needs the `flower` extra, which brings `cryptography`; in a plan folder without a key, requests are not signed.
"""

import hashlib
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from tacit.deploy.messages import Reply, Request
from tacit.errors import DeviceError, PlanError, WireError

Sign = Callable[[Request], Request]
_CHANGE = b"tacit: the second key replaces the first\n"


def new_key(path: str | Path) -> str:
    """Generate a private key, write it to a file that only its owner can read, and return the public key as hexadecimal."""
    made = _ed25519().Ed25519PrivateKey.generate()
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(made.private_bytes_raw())
    return made.public_key().public_bytes_raw().hex()


class Signer:
    """Signs requests with the private key in a file."""

    def __init__(self, path: str | Path):
        try:
            self._key = _ed25519().Ed25519PrivateKey.from_private_bytes(Path(path).read_bytes())
        except FileNotFoundError:
            raise PlanError(
                f"{path} does not exist: it is the private key of the plan folder's server and stays on that machine; "
                "name it with --key."
            ) from None
        except ValueError:
            raise PlanError(
                f"{path} is not a private key of a plan folder's server: it must hold 32 bytes; restore it."
            ) from None

    @property
    def public(self) -> str:
        """The public key, as the plan folder holds it."""
        return self._key.public_key().public_bytes_raw().hex()

    def __call__(self, request: Request) -> Request:
        """The request with its signature."""
        return replace(request, signature=self._key.sign(request.signed_bytes()))


def signer_of(public: str, path: str | Path) -> Sign:
    """A function that signs requests for this public key; without a key, requests are sent unsigned."""
    if not public:
        return lambda request: request
    signer = Signer(path)
    if signer.public != public:
        raise PlanError(f"{path} is not the private key of the plan folder's public key; name that one with --key.")
    return signer


def has_valid_signature(public: str, request: Request) -> bool:
    """Whether a request is signed with this key."""
    from cryptography.exceptions import InvalidSignature

    try:
        _ed25519().Ed25519PublicKey.from_public_bytes(bytes.fromhex(public)).verify(
            request.signature, request.signed_bytes()
        )
    except InvalidSignature:
        return False
    return True


class NodeKey:
    """A node's private key, which Flower identifies the node by, too; its public half as replies and as files have it."""

    def __init__(self, path: str | Path):
        try:
            self._key: Any = _serialization().load_ssh_private_key(Path(path).read_bytes(), None)
            forms, public = _serialization(), self._key.public_key()
            self.public = _der(public)
            self.line = public.public_bytes(forms.Encoding.OpenSSH, forms.PublicFormat.OpenSSH) + b"\n"
        except FileNotFoundError:
            raise DeviceError(f"{path} does not exist; name the private key of this node.") from None
        except Exception:  # damaged in any way
            raise DeviceError(
                f"{path} is not a node's private key, or is damaged; restore it, or make another with `tacit certs`."
            ) from None

    @property
    def name(self) -> str:
        """The node's name."""
        return node_name(self.public)

    def __call__(self, reply: Reply) -> Reply:
        """The reply with the node's name, key and signature."""
        named = replace(reply, name=self.name, key=self.public)
        return replace(named, signature=self.sign(named.signed_bytes()))

    def sign(self, data: bytes) -> bytes:
        """The signature of these bytes."""
        return self._key.sign(data, _ecdsa())


def new_node_key(path: str | Path) -> bytes:
    """Generate a node's private key in a new file that only its owner can read; the public key as a line of text."""
    from cryptography.hazmat.primitives.asymmetric import ec

    forms = _serialization()
    made = ec.generate_private_key(ec.SECP384R1())
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(made.private_bytes(forms.Encoding.PEM, forms.PrivateFormat.OpenSSH, forms.NoEncryption()))
        file.flush()
        os.fsync(file.fileno())
    return made.public_key().public_bytes(forms.Encoding.OpenSSH, forms.PublicFormat.OpenSSH) + b"\n"


def read_public_key(data: bytes) -> bytes:
    """A node's public key as replies carry it, from a line of text (OpenSSH) or from PEM, as Flower carries it."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric import ec

    forms = _serialization()
    load = forms.load_pem_public_key if data.startswith(b"-----") else forms.load_ssh_public_key
    try:
        key = load(data)
    except (UnsupportedAlgorithm, NotImplementedError, TypeError, AttributeError, IndexError) as problem:
        raise ValueError(str(problem)) from None
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise ValueError("a node's key is of an elliptic curve")
    return _der(key)


def change_of_key(old: NodeKey, new: NodeKey) -> bytes:
    """A node's statement that another key replaces its own, as four lines: both keys, and the signature of each."""
    said = _CHANGE + old.public + new.public
    return old.line + new.line + b"\n".join(key.sign(said).hex().encode() for key in (old, new))


def read_change_of_key(data: bytes) -> tuple[str, bytes]:
    """The name of the node whose key is replaced, and the line of its new key; refuse what is not signed with both."""
    from cryptography.exceptions import InvalidSignature

    try:
        old_line, new_line, *signatures = data.split(b"\n")
        old, new = read_public_key(old_line), read_public_key(new_line)
        for public, signature in zip((old, new), signatures, strict=True):
            _verify(public, bytes.fromhex(signature.decode()), _CHANGE + old + new)
    except (InvalidSignature, ValueError, TypeError, AttributeError, IndexError):
        raise WireError("A change of a key is not signed with the old key and the new one; it is ignored.") from None
    return node_name(old), new_line + b"\n"


def node_name(public: bytes) -> str:
    """The name that follows from a node's public key: 32 hexadecimal digits.

    >>> node_name(b"a key")
    '8fa3aab2faa9b79e0a0398da5b5abd07'
    """
    return hashlib.sha256(public).hexdigest()[:32]


def check_signature_of_reply(reply: Reply) -> None:
    """Refuse a reply that is not signed with the key that its name follows from."""
    from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm

    problem = WireError("A reply is not signed by the node whose name it has; it is ignored.")
    if len(reply.key) > 1000 or reply.name != node_name(reply.key):
        raise problem
    try:
        _verify(reply.key, reply.signature, reply.signed_bytes())
    except (InvalidSignature, UnsupportedAlgorithm, NotImplementedError, ValueError, TypeError, AttributeError):
        raise problem from None


def _verify(public: bytes, signature: bytes, data: bytes) -> None:
    key: Any = _serialization().load_der_public_key(public)
    key.verify(signature, data, _ecdsa())


def _der(public: Any) -> bytes:
    forms = _serialization()
    return public.public_bytes(forms.Encoding.DER, forms.PublicFormat.SubjectPublicKeyInfo)


def _serialization() -> Any:
    try:
        from cryptography.hazmat.primitives import serialization
    except ImportError:
        raise PlanError("A node's key needs the extra 'flower'; install tacit[flower].") from None
    return serialization


def _ecdsa() -> Any:
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.hashes import SHA384

    return ec.ECDSA(SHA384(), deterministic_signing=True)  # the same reply again has the same bytes


def _ed25519() -> Any:
    try:
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError:
        raise PlanError("Signed requests need the extra 'flower'; install tacit[flower].") from None
    return ed25519
