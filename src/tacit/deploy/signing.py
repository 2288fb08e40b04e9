"""Signing: a plan folder names the server whose word counts, and that server signs every letter it sends.

Needs the `flower` extra, which brings `cryptography`; a plan folder that names no server needs nothing.
"""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from tacit.deploy.messages import Ask
from tacit.errors import PlanError

Sign = Callable[[Ask], Ask]


def new_key(path: str | Path) -> str:
    """Draw a key, keep it in a file that its owner alone can read, and return its public half as hexadecimal."""
    made = _ed25519().Ed25519PrivateKey.generate()
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(made.private_bytes_raw())
    return made.public_key().public_bytes_raw().hex()


class Signer:
    """Signs letters with the key in a file."""

    def __init__(self, path: str | Path):
        try:
            self._key = _ed25519().Ed25519PrivateKey.from_private_bytes(Path(path).read_bytes())
        except FileNotFoundError:
            raise PlanError(
                f"{path} does not exist: it is the key that the plan folder's devices trust, and stays with the server; "
                "name it with --key."
            ) from None
        except ValueError:
            raise PlanError(f"{path} is no key of a plan folder's server: it must hold 32 bytes; restore it.") from None

    @property
    def public(self) -> str:
        """What a plan folder says of it."""
        return self._key.public_key().public_bytes_raw().hex()

    def __call__(self, ask: Ask) -> Ask:
        """The letter, signed."""
        return replace(ask, signature=self._key.sign(ask.signed_words()))


def signer_of(public: str, path: str | Path) -> Sign:
    """What signs for the server that a plan folder names; where it names none, letters go as they are."""
    if not public:
        return lambda ask: ask
    signer = Signer(path)
    if signer.public != public:
        raise PlanError(f"{path} is not the key that the plan folder's devices trust; name that one with --key.")
    return signer


def signed(public: str, ask: Ask) -> bool:
    """Whether a letter is signed by this key."""
    from cryptography.exceptions import InvalidSignature

    try:
        _ed25519().Ed25519PublicKey.from_public_bytes(bytes.fromhex(public)).verify(ask.signature, ask.signed_words())
    except InvalidSignature:
        return False
    return True


def _ed25519() -> Any:
    try:
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError:
        raise PlanError("Signed letters need the extra 'flower'; install tacit[flower].") from None
    return ed25519
