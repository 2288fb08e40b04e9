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
state/000120/       arrays after 120 rounds: params.npz, rule.npz, homes.npz; rows.npz, where messages differ in size
"""

import json
import math
import os
import re
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from tacit.errors import RunError

RUN_FORMAT = 2  # of a run folder; 1: a folder without a number, whose plan may have names of that time
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
    with np.load(path, allow_pickle=False) as saved:
        leaves = []
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
    with np.load(path, allow_pickle=False) as saved:
        for name in saved.files:
            *outer, last = (key for _, key in _KEYS.findall(name))
            inner = tree
            for key in outer:
                inner = inner.setdefault(key, {})
            inner[last] = saved[name]
    return tree


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
        number = json.loads(path.read_text(encoding="utf-8")).get("format", 1) if path.exists() else RUN_FORMAT
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

    def rows(self) -> list[dict[str, Any]]:
        """The rounds so far, without a last line that is incomplete because the process was killed."""
        rows = []
        for line in self.read("rounds.jsonl").splitlines():
            try:
                rows.append(json.loads(line))
            except json.JSONDecodeError:
                break
        return rows

    def append(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Add rounds."""
        with open(self.path / "rounds.jsonl", "a", encoding="utf-8") as file:
            file.writelines(json.dumps(plain(row)) + "\n" for row in rows)

    def checkpoint(self, rounds_done: int, arrays: Mapping[str, Any]) -> None:
        """Save arrays after so many rounds. LATEST changes only once all of them are on disk."""
        name = f"{rounds_done:09d}"
        if self.latest() == rounds_done:
            return  # the same rounds give the same arrays; never delete a complete checkpoint
        target, partial = self.path / "state" / name, self.path / "state" / f"{name}.partial"
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        for part, tree in arrays.items():
            write_arrays(partial / f"{part}.npz", tree)
        shutil.rmtree(target, ignore_errors=True)
        os.replace(partial, target)
        write_text(self.path / "state" / "LATEST", name)
        for old in (self.path / "state").iterdir():
            if old.is_dir() and old.name != name:
                shutil.rmtree(old, ignore_errors=True)

    def latest(self) -> int | None:
        """The number of rounds of the newest complete checkpoint."""
        pointer = self.path / "state" / "LATEST"
        return int(pointer.read_text()) if pointer.exists() else None

    def restore(self, part: str, like: Any) -> Any:
        """Arrays of the newest checkpoint, with the shapes of `like`."""
        path = self.path / "state" / f"{self.latest():09d}" / f"{part}.npz"
        if not path.exists():
            raise RunError(f"{self.path} cannot be resumed: its state has no {path.name}; run the plan again.")
        return read_arrays(path, like)

    def rewind(self, rounds_done: int) -> None:
        """Drop the rounds after a checkpoint: they are run again, with the same result."""
        kept = [row for row in self.rows() if row["done"] <= rounds_done]
        write_text(self.path / "rounds.jsonl", "".join(json.dumps(row) + "\n" for row in kept))
