"""The run folder: what was planned, what happened, and where to go on. Every file is replaced whole or not at all.

plan.toml           what was planned
environment.json    versions, machine, seed, population
rounds.jsonl        one line a round
claims.json         what it costs
metrics.json        how well it answers (when the run has ended)
card.json, card.md   what it guarantees, for a public registry
dossier.json        what a report shows of it
ledgers.json, .npz  what every device has sent, over this run and those before it
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

_KEYS = re.compile(r"""\[(['"])(.*?)\1\]""")  # the names of saved arrays are paths: ['columns']['items']


def write_text(path: Path, text: str) -> None:
    """Replace a file as one act: a reader sees the old text or the new, never half."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, data: bytes) -> None:
    """As `write_text`, for bytes."""
    temporary = path.with_name(path.name + ".partial")
    with open(temporary, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


def private(path: Path) -> Path:
    """An empty file that its owner alone can read, to be written into."""
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
    """Replace a JSON file as one act."""
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
    """The tree saved in a file, in the shape of `like`; refuse another shape."""
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
        """Whether a run lives here."""
        return (self.path / "plan.toml").exists()

    def refuse_another(self) -> None:
        """Refuse to start a run where one lives."""
        if self.exists:
            raise RunError(f"{self.path} holds a run already; resume it, or choose another folder.")

    def begin(self, plan_toml: str, environment: Mapping[str, Any], claims: Iterable[Mapping[str, Any]]) -> None:
        """Start a run in an empty or new folder."""
        self.refuse_another()
        self.path.mkdir(parents=True, exist_ok=True)
        (self.path / "state").mkdir(exist_ok=True)
        write_json(self.path / "environment.json", environment)
        write_json(self.path / "claims.json", list(claims))
        write_text(self.path / "rounds.jsonl", "")
        write_text(self.path / "plan.toml", plan_toml)  # last: its presence says that a run lives here

    def read(self, name: str) -> str:
        """The text of a file in the folder."""
        try:
            return (self.path / name).read_text(encoding="utf-8")
        except FileNotFoundError:
            raise RunError(f"{self.path} has no {name}: it is not a run folder.") from None

    def rows(self) -> list[dict[str, Any]]:
        """The rounds so far; a half-written last line (the process was killed) is passed over."""
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
        """Save arrays after so many rounds. LATEST moves only once all of them are on disk."""
        name = f"{rounds_done:09d}"
        if self.latest() == rounds_done:
            return  # the same rounds end in the same arrays; never take a complete checkpoint away
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
        """After how many rounds the newest complete checkpoint was taken."""
        pointer = self.path / "state" / "LATEST"
        return int(pointer.read_text()) if pointer.exists() else None

    def restore(self, part: str, like: Any) -> Any:
        """Arrays of the newest checkpoint, in the shape of `like`."""
        path = self.path / "state" / f"{self.latest():09d}" / f"{part}.npz"
        if not path.exists():
            raise RunError(f"{self.path} cannot be resumed: its state has no {path.name}; run the plan again.")
        return read_arrays(path, like)

    def rewind(self, rounds_done: int) -> None:
        """Forget rounds after a checkpoint: they will be run again, to the same end."""
        kept = [row for row in self.rows() if row["done"] <= rounds_done]
        write_text(self.path / "rounds.jsonl", "".join(json.dumps(row) + "\n" for row in kept))
