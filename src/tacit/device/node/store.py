"""Store: what a node keeps on disk. Every file is replaced whole or not at all.

name            the node's own, drawn once; the server knows it by that
consent.json    whether it takes part, and who volunteers for more: off until somebody says otherwise
choices.json    what each person lets be seen; the server is never told
settings.json   where its log is, and the budget of each of its people
ledger          what was sent; the only thing that outlives an erasure
plans/DIGEST/   plan folders it obeys
runs/RUN/       run.json, secrets.npz, broadcast.npz, state/: homes and the report of the newest round (the outbox)
"""

import json
import math
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tacit.core.run_folder import Folder, plain, private, read_arrays, write_arrays, write_json, write_text
from tacit.deploy.bundle import Kit, read_kit
from tacit.device.ledger.node_ledger import Purse, open_purse
from tacit.device.node.sharing import EVERYBODY, Choice, choice_of
from tacit.errors import DeviceError
from tacit.privacy.budget import Budget


class Sent(NamedTuple):
    """The outbox: the newest report, as it left or was about to leave."""

    stage: int
    round: int
    asked: np.ndarray  # int32: who was asked
    who: np.ndarray  # int32: who of them is in it
    report: bytes


class Store:
    """The folder of one node."""

    def __init__(self, path: str | Path):
        self.path = Path(path).absolute()

    def create(self) -> "Store":
        """A new home, or the one that is there."""
        try:
            (self.path / "plans").mkdir(parents=True, exist_ok=True)
            (self.path / "runs").mkdir(exist_ok=True)
        except OSError as problem:
            raise DeviceError(
                f"{self.path} cannot be a device's home ({problem.strerror}); name another folder."
            ) from None
        if not self.exists:
            os.chmod(self.path, 0o700)
            write_text(self.path / "name", os.urandom(16).hex())
        return self

    @property
    def exists(self) -> bool:
        """Whether somebody lives here; not before it is created, nor after it was erased."""
        return (self.path / "name").exists()

    @property
    def name(self) -> str:
        """The node's own name."""
        try:
            return (self.path / "name").read_text(encoding="utf-8")
        except FileNotFoundError:
            raise DeviceError(f"{self.path} is no device's home; `tacit device --home DIR` makes one.") from None

    # ---- consent and settings ----

    @property
    def takes_part(self) -> bool:
        """Whether somebody agreed, and nobody paused it since. Read anew each time: a pause counts at once."""
        return self._read("consent.json", {"takes_part": False})["takes_part"] is True

    def agree(self, takes_part: bool) -> None:
        """Take part from now on, or no longer."""
        self._consent(takes_part=takes_part)

    @property
    def volunteering(self) -> list[str]:
        """The names of those who agreed to stages that ask volunteers alone; nobody, until somebody says otherwise."""
        return list(self._read("consent.json", {}).get("volunteers", []))

    def volunteers(self, users: Sequence[Any]) -> np.ndarray:
        """Who of these people volunteers, by place: int32, ascending. Read anew each time: a withdrawal counts at once."""
        agreed = {*self.volunteering}
        return np.array([place for place, user in enumerate(users) if str(user) in agreed], np.int32)

    def volunteer(self, users: Sequence[Any], agreed: bool) -> None:
        """These people volunteer from now on, or no longer."""
        named = {str(user) for user in users}
        kept = {*self.volunteering} | named if agreed else {*self.volunteering} - named
        self._consent(volunteers=sorted(kept))

    def _consent(self, **words: Any) -> None:
        write_json(self.path / "consent.json", {**self._read("consent.json", {"takes_part": False}), **words})

    @property
    def choices(self) -> dict[str, Choice]:
        """What each person lets be seen, by name; read anew each time: a change counts from the next message on."""
        return {user: choice_of(words) for user, words in self._read("choices.json", {}).items()}

    def choose(self, change: Callable[[Choice], Choice], users: Sequence[Any] = ()) -> None:
        """Change what these people let be seen; without a name, what holds for everybody here."""
        choices = self.choices
        made = {user: change(choices.get(user, Choice())) for user in map(str, users or [EVERYBODY])}
        private(self.path / "choices.json.partial")  # what somebody hides is for nobody else to read
        write_json(self.path / "choices.json", {user: one.to_dict() for user, one in {**choices, **made}.items()})

    @property
    def settings(self) -> dict[str, Any]:
        """Where the log is, and the budget."""
        return self._read("settings.json", {})

    def set(self, **values: Any) -> None:
        """Change some settings."""
        write_json(self.path / "settings.json", {**self.settings, **values})

    @property
    def budget(self) -> Budget | None:
        """What each person will spend over all runs; None: they set no limit."""
        found = self.settings.get("budget")
        return None if found is None else Budget(**{**found, "epsilon": float(found["epsilon"])})

    def limit(self, budget: Budget) -> None:
        """Set what each person will spend."""
        self.set(budget=plain(asdict(budget)))

    def purse(self, users: Sequence[Any] | None = None) -> Purse:
        """The ledger of these people; of nobody named, the one that is there."""
        return open_purse(self.path / "ledger", users, self.budget or Budget(math.inf))

    # ---- plan folders ----

    def install(self, folder: str | Path) -> Kit:
        """Keep a copy of a plan folder, and obey it."""
        kit = read_kit(folder)
        target = self.path / "plans" / kit.digest
        if not target.exists():
            partial = target.with_name(target.name + ".partial")
            shutil.rmtree(partial, ignore_errors=True)
            shutil.copytree(folder, partial, ignore=shutil.ignore_patterns("*.key"))
            os.replace(partial, target)
        return read_kit(target)

    def digests(self) -> list[str]:
        """The plan folders it obeys."""
        return sorted(one.name for one in (self.path / "plans").glob("*") if one.suffix != ".partial")

    def kit(self, digest: str) -> Kit:
        """A plan folder by its digest."""
        return read_kit(self.path / "plans" / digest)

    def kits(self) -> list[Kit]:
        """Every plan folder it obeys."""
        return [self.kit(digest) for digest in self.digests()]

    # ---- runs ----

    def run(self, run: str) -> "RunStore":
        """What is kept of a run."""
        if not run.isalnum() or len(run) > 64:
            raise DeviceError(f"A run's name must be letters and digits, at most 64 of them, got {run[:80]!r}.")
        return RunStore(self.path / "runs" / run)

    def newest(self) -> "RunStore":
        """The run that was broadcast last."""
        found = [one for one in (self.path / "runs").glob("*/broadcast.npz")]
        if not found:
            raise DeviceError(f"{self.path} has had no broadcast yet; take part in a round, and ask again.")
        return RunStore(max(found, key=lambda one: one.stat().st_mtime).parent)

    def erase(self) -> int:
        """Delete everything but the ledger, which says so from now on; how many files went."""
        purse = self.purse()
        try:
            return purse.erase(self.path)
        finally:
            purse.close()

    def _read(self, name: str, default: dict[str, Any]) -> dict[str, Any]:
        path = self.path / name
        return json.loads(path.read_text(encoding="utf-8")) if path.exists() else default


class RunStore:
    """What a node keeps of one run."""

    def __init__(self, path: Path):
        self.path, self._folder = path, Folder(path)

    @property
    def run(self) -> str:
        """The run's name."""
        return self.path.name

    def begin(self, digest: str, users: Sequence[Any], limited: bool) -> dict[str, Any]:
        """What the run began with; where it is new, secrets come from the operating system, fresh for this run."""
        path = self.path / "run.json"
        if not path.exists():
            self.path.mkdir(parents=True, exist_ok=True)
            if not (self.path / "secrets.npz").exists():
                drawn = np.frombuffer(os.urandom(8 * len(users)), np.uint32).reshape(-1, 2)
                partial = private(self.path / "secrets.partial")
                write_arrays(partial, {"secrets": drawn})
                os.replace(partial, self.path / "secrets.npz")
            words = {"digest": digest, "users": [str(user) for user in users], "limited": limited}
            write_json(path, words)
        return json.loads(path.read_text(encoding="utf-8"))

    @property
    def digest(self) -> str:
        """The plan folder of the run."""
        return self._words["digest"]

    @property
    def users(self) -> list[str]:
        """The people of the run."""
        return self._words["users"]

    @property
    def _words(self) -> dict[str, Any]:
        return json.loads((self.path / "run.json").read_text(encoding="utf-8"))

    def secrets(self, people: int) -> np.ndarray:
        """The secrets that the people of this run have."""
        return read_arrays(self.path / "secrets.npz", {"secrets": np.zeros((people, 2), np.uint32)})["secrets"]

    @property
    def done(self) -> int:
        """How many rounds of the plan lie behind the homes; 0 before the first."""
        return self._folder.latest() or 0

    def homes(self, like: Any) -> Any:
        """The newest homes."""
        return self._folder.restore("homes", like)

    def keep(self, done: int, homes: Any, sent: Sent) -> None:
        """Homes and outbox after a round, as one act."""
        outbox = {name: np.asarray(getattr(sent, name)) for name in ("stage", "round", "asked", "who")}
        report = np.frombuffer(sent.report, np.uint8)
        self._folder.checkpoint(done, {"homes": homes, "outbox": {**outbox, "report": report}})

    def outbox(self) -> Sent | None:
        """The newest report."""
        if not self.done:
            return None
        with np.load(self.path / "state" / f"{self.done:09d}" / "outbox.npz", allow_pickle=False) as saved:
            found = {name[2:-2]: saved[name] for name in saved.files}
        stage, round = int(found["stage"]), int(found["round"])
        return Sent(stage, round, found["asked"], found["who"], found["report"].tobytes())

    def keep_broadcast(self, params: dict) -> None:
        """The newest parameters, to answer from."""
        partial = self.path / "broadcast.partial"
        write_arrays(partial, params)
        os.replace(partial, self.path / "broadcast.npz")

    def broadcast(self, like: dict) -> dict:
        """The newest parameters that arrived."""
        return read_arrays(self.path / "broadcast.npz", like)
