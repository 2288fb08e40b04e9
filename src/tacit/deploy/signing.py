"""Signing: a plan folder holds the public key of its server, and the server signs every request.

Needs the `flower` extra, which brings `cryptography`; a plan folder without a key needs nothing.
"""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from tacit.deploy.messages import Request
from tacit.errors import PlanError

Sign = Callable[[Request], Request]


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


def _ed25519() -> Any:
    try:
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError:
        raise PlanError("Signed requests need the extra 'flower'; install tacit[flower].") from None
    return ed25519
