"""Journal: an append-only file of checked lines that survives being killed at any moment.

A line is a JSON object that ends in a checksum of itself and of all lines before it, so a line that was changed,
removed, repeated or moved is detected. The checksum is a CRC-32: it detects accidents, not manipulation by the owner of
the device, who can write a new file; nor does it detect that the newest lines were removed.

`append` returns once the line is on disk. A last line without its end was being written when the process or the power
failed: `append` had not returned, so no message was sent for it, and the next append overwrites it.
"""

import json
import os
import zlib
from collections.abc import Mapping
from io import FileIO
from pathlib import Path
from typing import Any

from tacit.errors import DeviceError

try:
    import fcntl
except ImportError:  # no such lock on this system: there, the caller must see to it that there is one process
    fcntl = None

_TAIL = len(b',"crc":"00000000"}')


class BusyError(DeviceError):
    """Another process has the journal open."""


class Journal:
    """An open journal. `head`, its first line, identifies the file; a file with another first line is refused."""

    found: list[dict[str, Any]]  # what it held when it was opened, without its head

    def __init__(self, path: str | Path, head: Mapping[str, Any]):
        self.path = Path(path).absolute()
        self._owner = os.getpid()
        try:
            file = os.open(self.path, os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o600)
            self._file = FileIO(file, "r+")
        except OSError as problem:
            raise DeviceError(f"{self.path} cannot be opened ({problem.strerror}); name a file in a folder.") from None
        try:
            self._lock()
            self._begin(head)
        except BaseException as problem:
            self.close()
            if isinstance(problem, OSError):
                raise DeviceError(f"{self.path} cannot be read ({problem.strerror}); nothing may be sent.") from None
            raise

    def _begin(self, head: Mapping[str, Any]) -> None:
        data, (start, crc) = self._file.readall(), _line(head, 0)
        end = data.rfind(b"\n") + 1  # what follows the last whole line is torn
        # Another file is never overwritten: a torn first line may hold no more than a piece of the head.
        if not (data.startswith(start) if end else start.startswith(data.rstrip(b"\0"))):
            raise DeviceError(f"{self.path} must begin with {start.decode().strip()}, and does not; name another file.")
        self._size, self._end = len(data), end
        self.found, self._crc = _parse(self.path, data[len(start) : end], crc)
        # The last process may have died between write and flush: what was read must be as durable as it looks.
        _flush(self._file)
        flush_folder(self.path.parent)
        if not end:
            self._crc = 0
            self.append(head)

    def append(self, record: Mapping[str, Any]) -> None:
        """Write a line and wait until it is on disk. If that fails, the journal is closed, because its end is unknown."""
        self.check()
        line, crc = _line(record, self._crc)
        try:
            self._check_untouched()
            if self._size > self._end:
                self._file.truncate(self._end)
            _write(self._file, line, self._end)
            _flush(self._file)
        except OSError as problem:
            self.close()
            raise DeviceError(
                f"{self.path} cannot be written ({problem.strerror}); nothing may be sent until it is opened again."
            ) from None
        self._end += len(line)
        self._size, self._crc = self._end, crc

    def close(self) -> None:
        """Close the file and release its lock."""
        self._file.close()

    def _lock(self) -> None:
        if fcntl is None:
            return
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise BusyError(
                f"{self.path} is open already, here or in another process; it has one writer at a time, "
                "so close that first."
            ) from None

    def check(self) -> None:
        """Refuse a journal that is closed, or was inherited by a forked process."""
        if self._file.closed:
            raise DeviceError(f"{self.path} is closed; open it again before anything is sent.")
        if self._owner != os.getpid():  # a fork shares the lock, but not the memory of what was written
            raise DeviceError(f"{self.path} was opened by another process; open it again in this one.")

    def _check_untouched(self) -> None:
        here = os.fstat(self._file.fileno())
        if not os.path.samestat(here, os.stat(self.path)) or here.st_size != self._size:
            self.close()
            raise DeviceError(f"{self.path} was replaced or altered while in use; open it again.")


def _line(record: Mapping[str, Any], before: int) -> tuple[bytes, int]:
    """The bytes of a line, and the checksum up to and with it."""
    body = json.dumps(record, separators=(",", ":"), allow_nan=False).encode()[:-1]
    crc = zlib.crc32(body, before)
    return body + b',"crc":"%08x"}\n' % crc, crc


def _parse(path: Path, data: bytes, crc: int) -> tuple[list[dict[str, Any]], int]:
    """The records of whole lines, and the checksum of all of them."""
    bodies = []
    for number, line in enumerate(data.splitlines(), 2):
        body = line[:-_TAIL]
        crc = zlib.crc32(body, crc)
        if line[-_TAIL:] != b',"crc":"%08x"}' % crc:
            raise DeviceError(
                f"{path}: line {number} does not match its checksum, so the file was altered or damaged; "
                "nothing may be sent until it is restored."
            )
        bodies.append(body)
    # One document for all lines takes half the time of a document each.
    return json.loads(b"[" + b"},".join(bodies) + (b"}]" if bodies else b"]")), crc


def _write(file: FileIO, data: bytes, at: int) -> None:
    file.seek(at)
    while data:
        data = data[file.write(data) :]


def _flush(file: FileIO) -> None:
    """Wait until a file is on disk."""
    if hasattr(fcntl, "F_FULLFSYNC"):  # macOS, where fsync stops at the drive's own memory
        fcntl.fcntl(file, fcntl.F_FULLFSYNC)  # pyright: ignore
    else:
        os.fsync(file.fileno())


def flush_folder(folder: Path) -> None:
    """Wait until a folder's list of files is on disk; before that, a new file may be lost."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
