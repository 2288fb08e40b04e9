"""Download: a log from its owner's address, resumed where it stopped, checked, unpacked, put in place whole."""

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
from tacit.lab.data.datasets import Dataset, Source, about_dataset
from tacit.lab.data.sources.places import data_folder

BLOCK = 1 << 18
PATIENCE = 30.0  # seconds without a byte
Progress = Callable[[int, int | None], None]  # bytes there, bytes in all


def get(name: str, folder: Path | None = None, progress: Progress | None = None) -> Path:
    """Download a dataset into the data folder and say where it lies; what is there already stays."""
    entry = about_dataset(name)
    target = (folder or data_folder()) / name
    if entry.built_in:
        raise DataError(f"Dataset {name!r} is made by this package; there is nothing to download.")
    if target.exists() and any(target.iterdir()):
        return target
    if not entry.sources:
        raise DataError(_by_hand(entry, target))
    target.parent.mkdir(parents=True, exist_ok=True)
    files = [fetch(source, target.parent / f".{name}.downloads", progress, entry.page) for source in entry.sources]
    _place(files, target)
    shutil.rmtree(target.parent / f".{name}.downloads", ignore_errors=True)
    return target


def _by_hand(entry: Dataset, target: Path) -> str:
    if entry.needs:
        return f"Dataset {entry.name!r} is made of {' and '.join(entry.needs)}; get those."
    return (
        f"Dataset {entry.name!r} has no automatic download ({entry.terms}); get it from {entry.page} and put its files "
        f"into {str(target)!r}."
    )


def fetch(source: Source, folder: Path, progress: Progress | None = None, page: str = "") -> Path:
    """One file, checked; a part left by an interrupted attempt is gone on with."""
    folder.mkdir(parents=True, exist_ok=True)
    done = folder / Path(urlparse(source.url).path).name
    part = done.with_name(done.name + ".part")
    if not done.exists():
        try:
            _receive(source, part, progress)
        except (OSError, http.client.HTTPException) as problem:
            raise DataError(_what_happened(source, part, problem, page)) from problem
        _check(source, part)
        os.replace(part, done)
        _stamp(part).unlink(missing_ok=True)
    return done


def _stamp(part: Path) -> Path:
    """Where the owner's mark of the file's edition is kept, so that two editions are never joined."""
    return part.with_name(part.name + ".etag")


def _receive(source: Source, part: Path, progress: Progress | None) -> None:
    have = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(source.url, headers={"User-Agent": "tacit"})
    if have:
        request.add_header("Range", f"bytes={have}-")
        if _stamp(part).exists():
            request.add_header("If-Range", _stamp(part).read_text())
    try:
        answer = urllib.request.urlopen(request, timeout=PATIENCE)
    except urllib.error.HTTPError as problem:
        with problem:
            if problem.code == 416 and have == _total(problem.headers):  # nothing is missing
                return
        if problem.code != 416:
            raise
        part.unlink()
        return _receive(source, part, progress)
    with answer:
        _write(answer, part, have if answer.status == 206 else 0, progress)


def _write(answer: http.client.HTTPResponse, part: Path, have: int, progress: Progress | None) -> None:
    if answer.headers.get("ETag"):
        _stamp(part).write_text(answer.headers["ETag"])
    length = answer.headers.get("Content-Length")
    total = have + int(length) if length else None
    with part.open("ab" if have else "wb") as file:
        while block := answer.read(BLOCK):
            file.write(block)
            have += len(block)
            if progress:
                progress(have, total)
    if total is not None and have < total:
        raise http.client.IncompleteRead(b"", total - have)


def _total(headers: object) -> int:
    written = str(getattr(headers, "get", lambda *_: "")("Content-Range", "")).rpartition("/")[2]
    return int(written) if written.isdigit() else -1


def _what_happened(source: Source, part: Path, problem: Exception, page: str) -> str:
    host = urlparse(source.url).netloc
    aside = f", or take it from {page} by hand" if page else ""
    if isinstance(problem, urllib.error.HTTPError):
        return f"{host} answered {problem.code} {problem.reason} for {source.url}; try later{aside}."
    have = part.stat().st_size if part.exists() else 0
    if have:
        return f"The download from {host} stopped after {have:,} bytes; the same command goes on from there."
    reason = getattr(problem, "reason", problem)
    return f"{host} could not be reached ({reason}); check the network and ask again{aside}."


def _check(source: Source, part: Path) -> None:
    size = part.stat().st_size
    with part.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    wrong = ""
    if source.sha256 is not None and found != source.sha256:
        wrong = f"the checksum {source.sha256[:16]}…, got {found[:16]}…"
    elif source.sha256 is None and source.size is not None and size != source.size:
        wrong = f"{source.size:,} bytes, got {size:,}"
    if wrong:
        part.unlink()
        _stamp(part).unlink(missing_ok=True)
        raise DataError(f"{source.url} must have {wrong}; the file was removed, ask again or tell its owner.")


def _place(files: list[Path], target: Path) -> None:
    """Unpack beside the target, then move it there in one step: the folder is whole or absent."""
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}.") as room:
        inside = Path(room) / "unpacked"
        inside.mkdir()
        for file in files:
            unpack(file, inside)
        entries = [entry for entry in inside.iterdir() if entry.name != "__MACOSX"]
        if len(entries) == 1 and entries[0].is_dir():
            inside = entries[0]
        if target.exists():
            target.rmdir()
        os.replace(inside, target)


def unpack(file: Path, folder: Path) -> None:
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
        raise DataError(f"{file.name} could not be unpacked ({problem}); it was removed, ask again.") from problem
