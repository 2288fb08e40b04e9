"""Run folder: the files of a run, with its checkpoints. Every file is replaced completely or not at all.

plan.toml           the plan
environment.json    the format of the folder, versions, machine, seed, population
rounds.jsonl        one line for each round
claims.json         the privacy claims
metrics.json        the results of the evaluation (when the run has ended)
card.json, card.md   the guarantees, for a public registry
dossier.json        the data that a report shows
ledgers.json, .npz  what every device has sent, in this run and those before it
state/LATEST        the name of the newest complete checkpoint
state/000120/       arrays after 120 rounds: params.npz, rule.npz, homes.npz; rows.npz, where messages differ in size; and
                    sums.json, their checksums
"""

import hashlib
import json
import math
import os
import re
import shutil
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from tacit.errors import RunError

RUN_FORMAT = 2  # of a run folder; 1: a folder without a number, whose plan may have names of that time
_SUMS = "sums.json"
_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
_KEYS = re.compile(r"""\[(['"])(.*?)\1\]""")  # the names of saved arrays are paths: ['columns']['items']


def write_text(path: Path, text: str) -> None:
    """Replace a file atomically: a reader sees the old text or the new, never a part."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, data: bytes) -> None:
    """Replace a file atomically, as `write_text` does."""
    temporary = path.with_name(path.name + ".partial")
    with open(temporary, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


def private(path: Path) -> Path:
    """Create an empty file that only its owner can read, to be written into."""
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600))
    return path


def plain(value: Any) -> Any:
    """Values as JSON can carry them; infinity is written as the string "inf", never as a large number."""
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if isinstance(value, (np.generic, np.ndarray, jax.Array)):
        return plain(np.asarray(value).tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def write_json(path: Path, value: Any) -> None:
    """Replace a JSON file atomically."""
    write_text(path, json.dumps(plain(value), indent=2, allow_nan=False) + "\n")


def write_checked(path: Path, value: Any) -> None:
    """Replace a JSON file atomically, with a checksum beside the value."""
    content = plain(value)
    write_json(path, {"sha256": _sha256(json.dumps(content).encode()), "value": content})


def read_checked(path: Path) -> Any:
    """The value that `write_checked` wrote; refuse a file that was altered or damaged since."""
    found = read_json(path)
    whole = isinstance(found, dict) and found.get("sha256") == _sha256(json.dumps(found.get("value")).encode())
    if not whole:
        raise RunError(f"{path} does not match its checksum: it was altered or damaged; restore it from a backup.")
    return found["value"]


def read_json(path: Path) -> Any:
    """The value in a JSON file; a file that is missing, no JSON, or nested too deeply is refused with a sentence."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise RunError(f"{path} does not exist; restore it from a backup.") from None
    except (ValueError, RecursionError, OSError) as problem:
        raise RunError(f"{path} is damaged ({type(problem).__name__}); restore it from a backup.") from None


def _sum_of(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def write_arrays(path: Path, tree: Any) -> None:
    """The leaves of a tree, by path, as one npz file."""
    flat, _ = jax.tree_util.tree_flatten_with_path(tree)
    named = {jax.tree_util.keystr(p): np.asarray(leaf) for p, leaf in flat}
    with open(path, "wb") as file:
        np.savez(file, allow_pickle=False, **named)
        file.flush()
        os.fsync(file.fileno())


def read_arrays(path: Path, like: Any) -> Any:
    """The tree saved in a file, with the shapes of `like`; refuse other shapes."""
    flat, tree = jax.tree_util.tree_flatten_with_path(like)
    saved, leaves = _read_npz(path), []
    for p, leaf in flat:
        name = jax.tree_util.keystr(p)
        if name not in saved or saved[name].shape != leaf.shape:
            found = saved[name].shape if name in saved else "nothing"
            raise RunError(
                f"{path.name}: {name} must have shape {leaf.shape}, found {found}; the run is another plan's."
            )
        leaves.append(saved[name].astype(leaf.dtype))
    return jax.tree.unflatten(tree, leaves)


def read_arrays_by_name(path: Path) -> dict[str, Any]:
    """The arrays that `write_arrays` saved from a dictionary, by name; nested dictionaries come back nested."""
    tree: dict[str, Any] = {}
    for name, array in _read_npz(path).items():
        *outer, last = (key for _, key in _KEYS.findall(name))
        inner = tree
        for key in outer:
            inner = inner.setdefault(key, {})
        inner[last] = array
    return tree


def _read_npz(path: Path) -> dict[str, np.ndarray]:
    """The arrays of a file that `np.savez` wrote, by name.

    Before memory is used, it is checked that nothing is compressed and that each array is as large as it says, so that a
    small file stays small.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            return {one.filename.removesuffix(".npy"): _read_npy(archive, one) for one in archive.infolist()}
    except FileNotFoundError:
        raise
    except (zipfile.BadZipFile, ValueError, OSError, EOFError, KeyError, NotImplementedError, RuntimeError) as problem:
        if isinstance(problem, RunError):
            raise
        raise RunError(
            f"{path} is damaged or was not written by Tacit ({type(problem).__name__}); restore it from a backup."
        ) from None


def _read_npy(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> np.ndarray:
    if member.compress_type != zipfile.ZIP_STORED or member.file_size != member.compress_size:
        raise ValueError
    with archive.open(member) as file:
        version = np.lib.format.read_magic(file)
        if version not in _HEADERS:
            raise ValueError
        shape, _, dtype = _HEADERS[version](file)
        size = math.prod(shape) * dtype.itemsize
        if dtype.hasobject or min(shape, default=0) < 0 or size != member.file_size - file.tell():
            raise ValueError
    with archive.open(member) as file:
        return np.lib.format.read_array(file, allow_pickle=False)


class Folder:
    """A run folder on disk."""

    def __init__(self, path: str | Path):
        self.path = Path(path)

    @property
    def exists(self) -> bool:
        """Whether the folder holds a run."""
        return (self.path / "plan.toml").exists()

    def refuse_another(self) -> None:
        """Refuse to start a run in a folder that holds one."""
        if self.exists:
            raise RunError(f"{self.path} holds a run already; resume it, or choose another folder.")

    def begin(self, plan_toml: str, environment: Mapping[str, Any], claims: Iterable[Mapping[str, Any]]) -> None:
        """Start a run in an empty or new folder."""
        self.refuse_another()
        self.path.mkdir(parents=True, exist_ok=True)
        (self.path / "state").mkdir(exist_ok=True)
        write_json(self.path / "environment.json", {"format": RUN_FORMAT, **environment})
        write_json(self.path / "claims.json", list(claims))
        write_text(self.path / "rounds.jsonl", "")
        write_text(self.path / "plan.toml", plan_toml)  # last: a folder with this file holds a run

    @property
    def format(self) -> int:
        """The format number of the folder; refuse a newer one than this version can read."""
        path = self.path / "environment.json"
        found = read_json(path) if path.exists() else {"format": RUN_FORMAT}
        number = found.get("format", 1) if isinstance(found, dict) else None
        if type(number) is not int:
            raise RunError(f"{path} is damaged: it must state the format of the folder; restore it from a backup.")
        if number > RUN_FORMAT:
            raise RunError(
                f"{self.path} is a run folder of format {number}, this Tacit reads up to {RUN_FORMAT}; update Tacit to use it."
            )
        return number

    def read(self, name: str) -> str:
        """The text of a file in the folder."""
        _ = self.format
        try:
            return (self.path / name).read_text(encoding="utf-8")
        except FileNotFoundError:
            raise RunError(f"{self.path} has no {name}: it is not a run folder.") from None
        except (UnicodeDecodeError, OSError) as problem:
            raise RunError(
                f"{self.path / name} is damaged ({type(problem).__name__}); restore it from a backup."
            ) from None

    def rows(self) -> list[dict[str, Any]]:
        """The rounds so far, without a last line that is incomplete because the process was killed."""
        rows, lines = [], self.read("rounds.jsonl").split("\n")
        for number, line in enumerate(lines, 1):
            try:
                row = json.loads(line)
            except (ValueError, RecursionError):
                if number == len(lines):
                    break
                row = None
            if not isinstance(row, dict) or type(row.get("done")) is not int:
                raise RunError(
                    f"{self.path / 'rounds.jsonl'} is damaged in line {number}: it must be a round; restore it from a backup."
                )
            rows.append(_today(row))
        return rows

    def append(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Add rounds."""
        with open(self.path / "rounds.jsonl", "a", encoding="utf-8") as file:
            file.writelines(json.dumps(plain(row)) + "\n" for row in rows)

    def checkpoint(self, rounds_done: int, arrays: Mapping[str, Any], keep: int = 1) -> None:
        """Save arrays after so many rounds. LATEST changes only once all of them are on disk; the newest `keep` stay."""
        name = f"{rounds_done:09d}"
        if self.latest() == rounds_done:
            return  # the same rounds give the same arrays; never delete a complete checkpoint
        target, partial = self.path / "state" / name, self.path / "state" / f"{name}.partial"
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        for part, tree in arrays.items():
            write_arrays(partial / f"{part}.npz", tree)
        write_json(partial / _SUMS, {f"{part}.npz": _sum_of(partial / f"{part}.npz") for part in arrays})
        shutil.rmtree(target, ignore_errors=True)
        os.replace(partial, target)
        write_text(self.path / "state" / "LATEST", name)
        kept = sorted(one for one in self.checkpoints() if one <= rounds_done)[-keep:]
        for old in (self.path / "state").iterdir():
            if old.is_dir() and not (old.name.isdecimal() and int(old.name) in kept):
                shutil.rmtree(old, ignore_errors=True)

    def latest(self) -> int | None:
        """The number of rounds of the newest complete checkpoint."""
        pointer = self.path / "state" / "LATEST"
        if not pointer.exists():
            return None
        text = pointer.read_text(errors="replace")
        if not text.isdecimal() or int(text) not in self.checkpoints():
            raise RunError(f"{pointer} is damaged: it must name a checkpoint, got {text[:20]!r}.{self._way_out()}")
        return int(text)

    def checkpoints(self) -> list[int]:
        """After how many rounds there is a checkpoint, oldest first."""
        state = self.path / "state"
        found = [one.name for one in state.iterdir() if one.is_dir()] if state.is_dir() else []
        return sorted(int(name) for name in found if name.isdecimal() and len(name) == 9)

    def sound(self) -> list[int]:
        """The checkpoints whose files match their checksums, oldest first."""
        return [one for one in self.checkpoints() if not self._damaged(one)]

    def _damaged(self, rounds_done: int) -> str:
        """The file of a checkpoint that does not match its checksum; empty where all do."""
        folder = self.path / "state" / f"{rounds_done:09d}"
        if not (folder / _SUMS).exists():
            return ""  # of an earlier version
        try:
            sums = read_json(folder / _SUMS)
            return next((name for name, sum in sums.items() if _sum_of(folder / name) != sum), "")
        except (RunError, OSError, AttributeError):
            return _SUMS

    def _way_out(self) -> str:
        sound = self.sound()
        if not sound:
            return " No sound checkpoint is left; restore the folder from a backup."
        return f" The newest sound checkpoint is that after round {sound[-1]}; restore the rest from a backup."

    def restore(self, part: str, like: Any, at: int | None = None) -> Any:
        """Arrays of a checkpoint, by default the newest, with the shapes of `like`; damaged ones are refused."""
        done = self.latest() if at is None else at
        path = self.path / "state" / f"{done:09d}" / f"{part}.npz"
        if not path.exists():
            raise RunError(f"{self.path} cannot be resumed: its state has no {path.name}; run the plan again.")
        if damaged := self._damaged(done or 0):
            raise RunError(
                f"{path.with_name(damaged)} does not match its checksum: it was altered or damaged.{self._way_out()}"
            )
        return read_arrays(path, like)

    def take_up(self, at: int, rounds_done: int) -> None:
        """Make the arrays of a checkpoint those after `rounds_done` rounds, too."""
        target = self.path / "state" / f"{rounds_done:09d}"
        if at != rounds_done:
            partial = target.with_name(f"{target.name}.partial")
            shutil.rmtree(partial, ignore_errors=True)
            shutil.copytree(target.with_name(f"{at:09d}"), partial)
            shutil.rmtree(target, ignore_errors=True)
            os.replace(partial, target)
        write_text(self.path / "state" / "LATEST", target.name)

    def rewind(self, rounds_done: int) -> None:
        """Drop the rounds after a checkpoint: they are run again, with the same result."""
        kept = [row for row in self.rows() if row["done"] <= rounds_done]
        write_text(self.path / "rounds.jsonl", "".join(json.dumps(row) + "\n" for row in kept))


def _today(row: dict[str, Any]) -> dict[str, Any]:
    """A round's row with the names of today: format 1 wrote the public state as dials."""
    return {{"dials": "public_state"}.get(name, name): value for name, value in row.items()}
