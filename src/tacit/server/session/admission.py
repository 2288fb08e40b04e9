"""Admission: the keys of the nodes that may take part, and how many people each may enrol.

It is a folder that `tacit certs` makes. A file NAME.pub in it admits the node whose key it holds; NAME.pub.removed is one
that was struck off. places.json says how many people a node may enrol, where the operator has said so; invitations.json
holds the digests of invitations that were not used yet; counters.json the highest counter of each node in any run;
rotations.json which name followed which, when a node changed its key.
"""

import contextlib
import hashlib
import hmac
import os
import secrets
import threading
from collections.abc import Iterable
from pathlib import Path

from tacit.core.run_folder import read_checked, write_bytes, write_checked
from tacit.deploy.signing import node_name, read_public_key
from tacit.errors import RunError, unknown

REMOVED = ".removed"


class Admission:
    """The nodes that are admitted. The folder is read again when it changes, so that a change takes effect at once."""

    def __init__(self, folder: Path):
        self.folder = folder
        self._read: tuple[object, dict[str, Path]] = (None, {})
        self._mutex = threading.Lock()

    @property
    def nodes(self) -> dict[str, Path]:
        """Admitted node -> the file with its key."""
        state = tuple(sorted((path.name, path.stat().st_mtime_ns) for path in self.folder.glob("*.pub")))
        if self._read[0] != state:
            self._read = (state, {_name_in(path): path for path in sorted(self.folder.glob("*.pub"))})
        return self._read[1]

    @property
    def removed(self) -> dict[str, Path]:
        """Node that was struck off -> the file with its key."""
        return {_name_in(path): path for path in sorted(self.folder.glob(f"*.pub{REMOVED}"))}

    @property
    def places(self) -> dict[str, int]:
        """Node -> how many people it may enrol, where the operator has said so."""
        return self._values("places.json")

    def admit(self, node: str, places: int | None = None) -> str:
        """Admit a node by its name or file name, also one that was struck off, or by a file with its public key."""
        if places is not None and places < 1:
            raise RunError(f"--places must be at least 1, got {places}.")
        found = self._find(node, {**self.removed, **self.nodes}, must=not node.endswith(".pub"))
        if found is None:
            name = self.add(_line(Path(node)), Path(node).stem)
        else:
            name, path = found
            if path.suffix == REMOVED:
                os.replace(path, path.with_suffix(""))
        if places is not None:
            self._write("places.json", self.places | {name: places})
        return name

    def add(self, line: bytes, stem: str) -> str:
        """Admit a node by its public key."""
        name = _named(line, stem)
        if name not in self.nodes:
            write_bytes(self.folder / f"{name}.pub", line)
        return name

    def remove(self, node: str) -> str:
        """Strike a node off: from now on, nothing from it is read."""
        found = self._find(node, self.nodes)
        assert found is not None
        name, path = found
        os.replace(path, path.with_name(path.name + REMOVED))
        return name

    def _find(self, node: str, among: dict[str, Path], must: bool = True) -> tuple[str, Path] | None:
        """A node by its name, by the first digits of it, or by the name of its file."""
        fits = [(n, p) for n, p in among.items() if p.name.split(".")[0] == node or (node and n.startswith(node))]
        if len(fits) == 1:
            return fits[0]
        if must or fits:
            raise RunError(unknown(str(self.folder), node, [p.name.split(".")[0] for p in among.values()], "node"))
        return None

    # ---- invitations ----

    def invite(self) -> str:
        """A new invitation; whoever shows it first is admitted."""
        code = secrets.token_urlsafe(24)
        with self._mutex:
            self._write("invitations.json", [*self._invitations, _digest(code)])
        return code

    def accept(self, code: str, line: bytes) -> str | None:
        """Admit the key of a node that shows an invitation, which is used up; None where there is no such invitation."""
        with self._mutex:
            open_ones = self._invitations
            used = [one for one in open_ones if hmac.compare_digest(one, _digest(code))]
            if not used:
                return None
            name = self.add(line, "invited")
            self._write("invitations.json", [one for one in open_ones if one not in used])
            return name

    @property
    def _invitations(self) -> list[str]:
        return list(self._values("invitations.json"))

    # ---- keys that change ----

    def rotate(self, old: str, line: bytes) -> str | None:
        """Let a node that proved both keys go on under the new one; its name then, or None where it is not admitted.

        Its file stays, with the new key. Repeated, it finishes what was begun, and admits no key that was struck off since.
        """
        new = _named(line, "The new key")
        with self._mutex:
            if old not in self.nodes:
                return new if self._rotations.get(old) == new and new in self.nodes else None
            if new in {**self.nodes, **self.removed, **self._rotations}:
                return None
            path = self.nodes[old]
            self._write("rotations.json", self._rotations | {old: new})
            for name, values in (("places.json", self.places), ("counters.json", self.counters)):
                if old in values:
                    self._write(name, values | {new: values[old]})
            write_bytes(self.folder / f"{old}.pub{REMOVED}", path.read_bytes())
            write_bytes(path, line)  # last: from here on, the new key is admitted and the old one is not
            return new

    def renamed(self, nodes: Iterable[str]) -> dict[str, str]:
        """Those of these nodes that have changed their key -> their name after all changes."""
        rotations, found = self._rotations, {}
        for node in nodes:
            name = node
            while name in rotations:
                name = rotations[name]
            if name != node and name in self.nodes:  # where the change was interrupted, the old key holds
                found[node] = name
        return found

    @property
    def _rotations(self) -> dict[str, str]:
        return self._values("rotations.json")

    # ---- counters ----

    @property
    def counters(self) -> dict[str, int]:
        """Node -> the highest counter of its replies in any run."""
        return self._values("counters.json")

    def note(self, counters: dict[str, int]) -> None:
        """Keep the counters of a run."""
        known = self.counters
        newer = {name: count for name, count in counters.items() if count > known.get(name, 0)}
        if newer:
            self._write("counters.json", known | newer)

    def _values(self, name: str) -> dict:
        path = self.folder / name
        return read_checked(path) if path.exists() else {}

    def _write(self, name: str, value: object) -> None:
        write_checked(self.folder / name, value)


def _digest(code: str) -> str:
    return hashlib.sha256(code.encode(errors="replace")).hexdigest()


def _line(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as problem:
        raise RunError(
            f"{path} cannot be read ({problem.strerror}); name the file with the node's public key."
        ) from None


def _name_in(path: Path) -> str:
    return _named(_line(path), str(path))


def _named(line: bytes, where: str) -> str:
    with contextlib.suppress(ValueError, TypeError, AttributeError, IndexError):
        return node_name(read_public_key(line))
    raise RunError(f"{where} does not hold a node's public key; `tacit certs` makes one, with its private key.")
