"""Store: the files of a node. Every file is replaced completely or not at all.

node.key        the node's private key; its name follows from it, and it signs every reply
node.key.next   the key that is to replace it, until the server has agreed
consent.json    whether the node takes part, in which plans, and who volunteers; off until its owner agrees
consents.json   what was agreed to, and when, in the terms of that time
choices.json    what each person discloses; never sent
settings.json   the path of the history file, the budget of each person, and names under former keys
lifetime        the secret of answers that are drawn once for life; made when first needed, never sent
ledger          what was sent; the only file that survives an erasure
plans/DIGEST/   the installed plan folders
runs/RUN/       run.json, secrets.npz, broadcast.npz, state/: homes and the report of the newest round (the outbox)
"""

import math
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tacit.core.run_folder import (
    Folder,
    plain,
    private,
    read_arrays,
    read_arrays_by_name,
    read_checked,
    read_json,
    write_arrays,
    write_bytes,
    write_checked,
    write_text,
)
from tacit.deploy.bundle import PARTS, Bundle, read_bundle
from tacit.deploy.signing import NodeKey, change_of_key, new_node_key
from tacit.device.batching import check_sizes
from tacit.device.ledger.node_ledger import NodeLedger, open_node_ledger
from tacit.device.node.schedule import Schedule, schedule_of
from tacit.device.node.sharing import ALL_USERS, SharingChoice, choice_from_dict
from tacit.errors import DeviceError
from tacit.privacy.budget import Budget


def _check_old_consent(found: dict[str, Any]) -> None:
    if type(found["takes_part"]) is not bool or not all(type(one) is str for one in found.get("volunteers", [])):
        raise ValueError
    found["plans"] = []  # the terms were not shown then: it needs a new consent


def _check_old_settings(found: dict[str, Any]) -> None:
    if type(found.get("history", "")) is not str or "schedule" in found:
        raise ValueError
    Budget(**{"epsilon": 1.0, **(found.get("budget") or {})})


def _check_old_choices(found: dict[str, Any]) -> None:
    for one in found.values():
        choice_from_dict(one)


_OLD = {  # file of version 0.1, which had no checksums -> refuses what no such file holds
    "consent.json": _check_old_consent,
    "settings.json": _check_old_settings,
    "choices.json": _check_old_choices,
}
FOLDERS = ("plans", "runs", "flower")
FILES = (
    "node.key",
    "node.key.next",
    "name",
    "consent.json",
    "consents.json",
    "choices.json",
    "settings.json",
    "lifetime",
)
OWN = {*FOLDERS, *FILES, *(f"{name}.partial" for name in FILES), "ledger"}  # all that a device's folder holds
RUNS = 8  # the number of runs that are kept


class Sent(NamedTuple):
    """The outbox: the newest report, sent or about to be sent."""

    stage: int
    round: int
    asked: np.ndarray  # int32: the people in the cohort
    who: np.ndarray  # int32: those of them whose report was sent
    report: bytes


class Store:
    """The folder of one node."""

    def __init__(self, path: str | Path):
        self.path = Path(path).absolute()

    def create(self) -> "Store":
        """Create the folder, unless it exists already; refuse one that holds anything else."""
        try:
            if not self.exists and self.path.exists() and (strange := {one.name for one in self.path.iterdir()} - OWN):
                raise DeviceError(
                    f"{self.path} holds {sorted(strange)[0]!r}, which is not a device's; name a new or an empty folder."
                )
            (self.path / "plans").mkdir(parents=True, exist_ok=True)
            (self.path / "runs").mkdir(exist_ok=True)
            if not self.exists:
                os.chmod(self.path, 0o700)
                self._take_key(new_node_key)
        except OSError as problem:
            raise DeviceError(
                f"{self.path} cannot be a device's folder ({problem.strerror}); name another folder."
            ) from None
        return self

    @property
    def exists(self) -> bool:
        """Whether the node exists: it was created and has not been erased."""
        return (self.path / "node.key").exists()

    @property
    def key(self) -> NodeKey:
        """The node's key."""
        if not self.exists:
            raise DeviceError(f"{self.path} is not a device's folder; `tacit device --home DIR` makes one.")
        return NodeKey(self.path / "node.key")

    @property
    def name(self) -> str:
        """The node's name."""
        return self.key.name

    def use_key(self, path: str | Path) -> None:
        """Answer under this key from now on; it is copied into the folder."""
        if NodeKey(path).name in self.settings.get("former_names", []):  # refuses a file that is none, too
            raise DeviceError(
                f"{path} was replaced by `tacit device rotate`; leave --key out, the device has its new key."
            )
        self._take_key(lambda target: private(target).write_bytes(Path(path).read_bytes()))

    def rotate_key(self, show: Callable[[bytes], None]) -> str:
        """Replace the key by a new one, where `show` does not raise: it gives the server a statement that both keys signed.

        Where it is interrupted, the same call again goes on with the same new key. The new name.
        """
        path, old = self.path / "node.key.next", self.key
        if not path.exists():
            (partial := path.with_name(path.name + ".partial")).unlink(missing_ok=True)
            new_node_key(partial)
            os.replace(partial, path)
        new = NodeKey(path)
        show(change_of_key(old, new))
        self.set(former_names=[*self.settings.get("former_names", []), old.name])
        os.replace(path, self.path / "node.key")
        return new.name

    def _take_key(self, write: Callable[[Path], Any]) -> None:
        partial = self.path / "node.key.partial"
        partial.unlink(missing_ok=True)
        write(partial)
        os.replace(partial, self.path / "node.key")

    @property
    def lifetime_secret(self) -> bytes:
        """The secret of answers that are drawn once for life; the operating system draws it once for all runs."""
        path = self.path / "lifetime"
        if not path.exists():
            private(path.with_name("lifetime.partial"))
            write_bytes(path, os.urandom(32))
        return path.read_bytes()

    # ---- consent and settings ----

    @property
    def takes_part(self) -> bool:
        """Whether the owner has agreed and has not paused since. Read again each time, so that a pause takes effect at once."""
        return self._read("consent.json", {"takes_part": False})["takes_part"] is True

    def agree(self, takes_part: bool) -> None:
        """Agree to take part in the installed plans from now on, or no longer."""
        self._consent(takes_part=takes_part, plans=self.digests() if takes_part else [])

    def agreed_to(self, digest: str) -> bool:
        """Whether the owner has agreed to this plan folder; one that was installed later needs a new consent."""
        return digest in self._read("consent.json", {}).get("plans", self.digests())

    def record_consent(self, record: dict[str, Any]) -> None:
        """Add to the record of what was agreed to."""
        write_checked(self.path / "consents.json", [*self.consents(), record])

    def consents(self) -> list[dict[str, Any]]:
        """What was agreed to, oldest first."""
        path = self.path / "consents.json"
        return read_checked(path) if path.exists() else []

    @property
    def schedule(self) -> Schedule:
        """When the device may take part. Read again each time."""
        return schedule_of(self.settings.get("schedule", {}))

    @property
    def volunteering(self) -> list[str]:
        """The names of the volunteers: people who agreed to stages for volunteers only. None by default."""
        return list(self._read("consent.json", {}).get("volunteers", []))

    def volunteers(self, users: Sequence[Any]) -> np.ndarray:
        """The indices of volunteers among these people, int32, ascending. Read again each time: a withdrawal takes effect at once."""
        agreed = {*self.volunteering}
        return np.array([place for place, user in enumerate(users) if str(user) in agreed], np.int32)

    def volunteer(self, users: Sequence[Any], agreed: bool) -> None:
        """Record that these people volunteer from now on, or no longer."""
        named = {str(user) for user in users}
        kept = {*self.volunteering} | named if agreed else {*self.volunteering} - named
        self._consent(volunteers=sorted(kept))

    def _consent(self, **values: Any) -> None:
        write_checked(self.path / "consent.json", {**self._read("consent.json", {"takes_part": False}), **values})

    @property
    def choices(self) -> dict[str, SharingChoice]:
        """What each person discloses, by name. Read again each time: a change takes effect with the next message."""
        return {user: choice_from_dict(values) for user, values in self._read("choices.json", {}).items()}

    def choose(self, change: Callable[[SharingChoice], SharingChoice], users: Sequence[Any] = ()) -> None:
        """Change what these people disclose; without a name, the default for all people of the node."""
        choices = self.choices
        made = {user: change(choices.get(user, SharingChoice())) for user in map(str, users or [ALL_USERS])}
        private(self.path / "choices.json.partial")  # only its owner can read which items are excluded
        write_checked(self.path / "choices.json", {user: one.to_dict() for user, one in {**choices, **made}.items()})

    @property
    def settings(self) -> dict[str, Any]:
        """The path of the history file, and the budget."""
        return self._read("settings.json", {})

    def set(self, **values: Any) -> None:
        """Change some settings."""
        write_checked(self.path / "settings.json", {**self.settings, **values})

    @property
    def budget(self) -> Budget | None:
        """The privacy budget of each person over all runs; None: no limit."""
        found = self.settings.get("budget")
        return None if found is None else Budget(**{**found, "epsilon": float(found["epsilon"])})

    def limit(self, budget: Budget) -> None:
        """Set the privacy budget of each person."""
        self.set(budget=plain(asdict(budget)))

    def ledger(self, users: Sequence[Any] | None = None) -> NodeLedger:
        """The ledger of these people; without names, the existing one."""
        return open_node_ledger(self.path / "ledger", users, self.budget or Budget(math.inf))

    # ---- plan folders ----

    def install(self, folder: str | Path) -> Bundle:
        """Copy a plan folder, and take part in its rounds from now on."""
        bundle = read_bundle(folder)
        _checked(bundle)
        _ = bundle.price  # refuses settings that no noise is for, before anything is kept
        target = self.path / "plans" / bundle.digest
        if not target.exists():
            partial = target.with_name(target.name + ".partial")
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir()
            for name in PARTS:  # and nothing else: not the server's key, no link to elsewhere
                shutil.copyfile(Path(folder) / name, partial / name)
            os.replace(partial, target)
        return read_bundle(target)

    def digests(self) -> list[str]:
        """The digests of the installed plan folders."""
        return sorted(one.name for one in (self.path / "plans").glob("*") if one.suffix != ".partial")

    def bundle(self, digest: str) -> Bundle:
        """A plan folder by its digest."""
        return _checked(read_bundle(self.path / "plans" / digest))

    def bundles(self) -> list[Bundle]:
        """All installed plan folders."""
        return [self.bundle(digest) for digest in self.digests()]

    # ---- runs ----

    def run(self, run: str) -> "RunStore":
        """The files of a run."""
        if not run.isalnum() or len(run) > 64:
            raise DeviceError(f"A run's name must be letters and digits, at most 64 of them, got {run[:80]!r}.")
        return RunStore(self.path / "runs" / run)

    def prune(self, newest: "RunStore") -> None:
        """Delete all runs but this one and the others that were used last."""
        others = [one for one in (self.path / "runs").iterdir() if one.is_dir() and one != newest.path]
        for old in sorted(others, key=lambda one: one.stat().st_mtime, reverse=True)[RUNS - 1 :]:
            shutil.rmtree(old, ignore_errors=True)

    def newest(self) -> "RunStore":
        """The run with the newest broadcast."""
        found = [one for one in (self.path / "runs").glob("*/broadcast.npz")]
        if not found:
            raise DeviceError(f"{self.path} has received no broadcast yet; take part in a round first.")
        return RunStore(max(found, key=lambda one: one.stat().st_mtime).parent)

    def erase(self) -> int:
        """Delete what Tacit made but the ledger, which records the erasure; the number of deleted files."""
        node_ledger = self.ledger()
        try:
            return node_ledger.erase(self.path, OWN)
        finally:
            node_ledger.close()

    def _read(self, name: str, default: dict[str, Any]) -> dict[str, Any]:
        path = self.path / name
        if not path.exists():
            return default
        found = read_json(path)
        if isinstance(found, dict) and "sha256" not in found:  # of version 0.1
            try:
                _OLD[name](found)
                return found
            except (TypeError, KeyError, AttributeError, ValueError):
                raise DeviceError(
                    f"{path} is damaged; restore it from a backup, or delete it and choose anew."
                ) from None
        return read_checked(path)


_CHECKED: set[str] = set()  # digests of plan folders whose sizes were looked at


def _checked(bundle: Bundle) -> Bundle:
    """A plan folder whose settings no device is too small for; the server, which knows no method, cannot look."""
    if bundle.digest not in _CHECKED:
        check_sizes(bundle.plan.stages, bundle.catalog, bundle.params)
        _CHECKED.add(bundle.digest)
    return bundle


class RunStore:
    """The files of one run on a node."""

    def __init__(self, path: Path):
        self.path, self._folder = path, Folder(path)

    @property
    def run(self) -> str:
        """The run's name."""
        return self.path.name

    @property
    def exists(self) -> bool:
        """Whether the node has begun the run."""
        return (self.path / "run.json").exists()

    @property
    def left(self) -> bool:
        """Whether the node has left the run, because another copy of its folder took part in it."""
        return (self.path / "left").exists()

    def leave(self) -> None:
        """Take no further part in the run."""
        self.path.mkdir(parents=True, exist_ok=True)
        write_text(self.path / "left", "")

    def begin(self, digest: str, users: Sequence[Any], limited: bool) -> dict[str, Any]:
        """The facts the run began with; a new run gets fresh secrets from the operating system."""
        path = self.path / "run.json"
        if not path.exists():
            self.path.mkdir(parents=True, exist_ok=True)
            if not (self.path / "secrets.npz").exists():
                drawn = np.frombuffer(os.urandom(8 * len(users)), np.uint32).reshape(-1, 2)
                partial = private(self.path / "secrets.partial")
                write_arrays(partial, {"secrets": drawn})
                os.replace(partial, self.path / "secrets.npz")
            facts = {"digest": digest, "users": [str(user) for user in users], "limited": limited}
            write_checked(path, facts)
        return read_checked(path)

    @property
    def digest(self) -> str:
        """The plan folder of the run."""
        return self._facts["digest"]

    @property
    def users(self) -> list[str]:
        """The people of the run."""
        return self._facts["users"]

    @property
    def _facts(self) -> dict[str, Any]:
        return read_checked(self.path / "run.json")

    def secrets(self, people: int) -> np.ndarray:
        """The secrets of the people of this run, uint32[people, 2]."""
        return read_arrays(self.path / "secrets.npz", {"secrets": np.zeros((people, 2), np.uint32)})["secrets"]

    @property
    def done(self) -> int:
        """After how many rounds of the plan the homes were saved; 0 before the first."""
        return self._folder.latest() or 0

    def homes(self, like: Any) -> Any:
        """The newest homes."""
        return self._folder.restore("homes", like)

    def keep(self, done: int, homes: Any, sent: Sent) -> None:
        """Save homes and outbox after a round, in one atomic step."""
        outbox = {name: np.asarray(getattr(sent, name)) for name in ("stage", "round", "asked", "who")}
        report = np.frombuffer(sent.report, np.uint8)
        self._folder.checkpoint(done, {"homes": homes, "outbox": {**outbox, "report": report}})

    def outbox(self) -> Sent | None:
        """The newest report."""
        if not self.done:
            return None
        found = read_arrays_by_name(self.path / "state" / f"{self.done:09d}" / "outbox.npz")
        stage, round = int(found["stage"]), int(found["round"])
        return Sent(stage, round, found["asked"], found["who"], found["report"].tobytes())

    def keep_broadcast(self, params: dict) -> None:
        """Save the newest parameters, from which the node recommends."""
        partial = self.path / "broadcast.partial"
        write_arrays(partial, params)
        os.replace(partial, self.path / "broadcast.npz")

    def broadcast(self, like: dict) -> dict:
        """The newest parameters that were received."""
        return read_arrays(self.path / "broadcast.npz", like)
