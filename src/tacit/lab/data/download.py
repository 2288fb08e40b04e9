"""Downloads of public logs from their owners: resumable, checked, unpacked, and moved into place at once."""

import gzip
import hashlib
import http.client
import os
import shutil
import tarfile
import tempfile
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlparse

from tacit.errors import DataError
from tacit.lab.data.datasets import Dataset, RemoteFile, about_dataset, data_folder

BLOCK = 1 << 18
TIMEOUT = 30.0  # seconds without a byte
Progress = Callable[[int, int | None], None]  # bytes there, bytes in all


def download(name: str, folder: Path | None = None, progress: Progress | None = None) -> Path:
    """Download a dataset into the data folder and return its folder; an existing one stays."""
    entry = about_dataset(name)
    name = entry.name
    target = (folder or data_folder()) / name
    if entry.built_in:
        raise DataError(f"Dataset {name!r} is made by this package; there is nothing to download.")
    if target.exists() and any(target.iterdir()):
        return target
    if not entry.files:
        raise DataError(_by_hand(entry, target))
    target.parent.mkdir(parents=True, exist_ok=True)
    files = [fetch(file, target.parent / f".{name}.downloads", progress, entry.page) for file in entry.files]
    _move_into_place(files, target)
    shutil.rmtree(target.parent / f".{name}.downloads", ignore_errors=True)
    return target


def _by_hand(entry: Dataset, target: Path) -> str:
    if entry.needs:
        return f"Dataset {entry.name!r} is made of {' and '.join(entry.needs)}; get those."
    return (
        f"Dataset {entry.name!r} has no automatic download ({entry.terms}); get it from {entry.page} and put its files "
        f"into {str(target)!r}."
    )


def fetch(remote: RemoteFile, folder: Path, progress: Progress | None = None, page: str = "") -> Path:
    """Download and check one file; an interrupted download is resumed."""
    folder.mkdir(parents=True, exist_ok=True)
    done = folder / Path(urlparse(remote.url).path).name
    part = done.with_name(done.name + ".part")
    if not done.exists():
        try:
            _receive(remote, part, progress)
        except (OSError, http.client.HTTPException) as problem:
            raise DataError(_what_happened(remote, part, problem, page)) from problem
        _check(remote, part)
        os.replace(part, done)
        _etag_file(part).unlink(missing_ok=True)
    return done


def _etag_file(part: Path) -> Path:
    """The file that keeps the ETag, so that parts of two editions are never joined."""
    return part.with_name(part.name + ".etag")


def _receive(remote: RemoteFile, part: Path, progress: Progress | None) -> None:
    have = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(remote.url, headers={"User-Agent": "tacit"})
    if have:
        request.add_header("Range", f"bytes={have}-")
        if _etag_file(part).exists():
            request.add_header("If-Range", _etag_file(part).read_text())
    try:
        response = urllib.request.urlopen(request, timeout=TIMEOUT)
    except urllib.error.HTTPError as problem:
        with problem:
            if problem.code == 416 and have == _total(problem.headers):  # nothing is missing
                return
        if problem.code != 416:
            raise
        part.unlink()
        return _receive(remote, part, progress)
    with response:
        _write(response, part, have if response.status == 206 else 0, progress)


def _write(response: http.client.HTTPResponse, part: Path, have: int, progress: Progress | None) -> None:
    if response.headers.get("ETag"):
        _etag_file(part).write_text(response.headers["ETag"])
    length = response.headers.get("Content-Length")
    total = have + int(length) if length else None
    with part.open("ab" if have else "wb") as file:
        while block := response.read(BLOCK):
            file.write(block)
            have += len(block)
            if progress:
                progress(have, total)
    if total is not None and have < total:
        raise http.client.IncompleteRead(b"", total - have)


def _total(headers: object) -> int:
    written = str(getattr(headers, "get", lambda *_: "")("Content-Range", "")).rpartition("/")[2]
    return int(written) if written.isdigit() else -1


def _what_happened(remote: RemoteFile, part: Path, problem: Exception, page: str) -> str:
    host = urlparse(remote.url).netloc
    aside = f", or take it from {page} by hand" if page else ""
    if isinstance(problem, urllib.error.HTTPError):
        return f"{host} returned {problem.code} {problem.reason} for {remote.url}; try later{aside}."
    have = part.stat().st_size if part.exists() else 0
    if have:
        return f"The download from {host} stopped after {have:,} bytes; the same command resumes it."
    reason = getattr(problem, "reason", problem)
    return f"{host} could not be reached ({reason}); check the network and try again{aside}."


def _check(remote: RemoteFile, part: Path) -> None:
    size = part.stat().st_size
    with part.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    wrong = ""
    if remote.sha256 is not None and found != remote.sha256:
        wrong = f"the checksum {remote.sha256[:16]}…, got {found[:16]}…"
    elif remote.sha256 is None and remote.size is not None and size != remote.size:
        wrong = f"{remote.size:,} bytes, got {size:,}"
    if wrong:
        part.unlink()
        _etag_file(part).unlink(missing_ok=True)
        raise DataError(f"{remote.url} must have {wrong}; the file was removed; try again or tell its owner.")


def _move_into_place(files: list[Path], target: Path) -> None:
    """Unpack beside the target, then move it there in one step: the folder is complete or absent."""
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}.") as temporary:
        inside = Path(temporary) / "unpacked"
        inside.mkdir()
        for file in files:
            unpack_file(file, inside)
        entries = [entry for entry in inside.iterdir() if entry.name != "__MACOSX"]
        if len(entries) == 1 and entries[0].is_dir():
            inside = entries[0]
        if target.exists():
            target.rmdir()
        os.replace(inside, target)


def unpack_file(file: Path, folder: Path) -> None:
    """A zip, tar or gzip file into a folder; any other file is copied. Nothing lands outside the folder."""
    try:
        if zipfile.is_zipfile(file):
            with zipfile.ZipFile(file) as archive:
                archive.extractall(folder)  # drops drive letters and .. by itself
        elif tarfile.is_tarfile(file):
            with tarfile.open(file) as archive:
                archive.extractall(folder, filter="data")
        elif file.suffix == ".gz":
            with gzip.open(file) as packed, (folder / file.stem).open("wb") as plain:
                shutil.copyfileobj(packed, plain)
        else:
            shutil.copy(file, folder / file.name)
    except (zipfile.BadZipFile, tarfile.TarError, OSError, EOFError) as problem:
        file.unlink(missing_ok=True)
        raise DataError(f"{file.name} could not be unpacked ({problem}); it was removed; try again.") from problem
