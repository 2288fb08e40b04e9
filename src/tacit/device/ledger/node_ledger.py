"""Node ledgers: the privacy ledger of a node, for one person or for several.

Both kinds write an entry to disk before its message may leave, and both accept the same message again without charging it
again.
"""

import json
import time
from bisect import insort
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from tacit.core.run_folder import plain
from tacit.device.ledger.journal import Journal
from tacit.device.ledger.ledger import Ledger, check_participation, clear, current_time, lost_entries
from tacit.device.ledger.population_ledger import Ledgers, page_from_dict
from tacit.errors import DeviceError
from tacit.privacy.accounting.events import CorrelatedGaussian, event_to_dict
from tacit.privacy.budget import Budget, Entry

_HEAD = {"kind": "ledger of a shard", "version": 1}


class NodeLedger(Protocol):
    """The ledger of a node, checked before anything is sent."""

    def allowances(self, page: Entry, most: int) -> np.ndarray:
        """How many more messages like this one each person's budget covers, at most `most`: int32[n]."""
        ...

    def check(self, page: Entry, who: np.ndarray) -> None:
        """Refuse a message that comes too soon after another of one of these people; nothing is entered."""
        ...

    def reserve(self, page: Entry, who: np.ndarray, digest: str) -> None:
        """Enter a message of these people; it may be sent once this has returned."""
        ...

    def note_silence(self, page: Entry, who: np.ndarray) -> None:
        """Record that these people were asked for this message and sent none."""
        ...

    @property
    def messages(self) -> int:
        """How many messages were ever entered."""
        ...

    @property
    def newest(self) -> float | None:
        """When the last message was entered; None: none was."""
        ...

    def lines(self) -> list[dict[str, Any]]:
        """Every message that was entered, oldest first, in plain values."""
        ...

    def enter_lost(self, pages: Sequence[Entry], lost: int) -> None:
        """Charge everyone for so many messages that a copy of this ledger entered: `pages`, newest first, may be among them."""
        ...

    def summary(self) -> dict[str, Any]:
        """The spending so far, in plain values."""
        ...

    def erase(self, folder: Path, own: Collection[str]) -> int:
        """Delete these entries of a folder, and return the number of files; earlier messages cannot be sent again."""
        ...

    def close(self) -> None:
        """Close the file."""
        ...


class PersonLedger:
    """The ledger of a node with one person."""

    def __init__(self, ledger: Ledger):
        self.ledger = ledger

    def allowances(self, page: Entry, most: int) -> np.ndarray:
        """As in `NodeLedger`, for one person."""
        where = {"unit": page.unit, "relation": page.relation, "run": page.run, "stage": page.stage}
        return np.array([self.ledger.allowance(page.event, most, page.rounds, **where)], np.int32)

    def check(self, page: Entry, who: np.ndarray) -> None:
        """As in `NodeLedger`, for one person."""
        del who
        self.ledger.check(page)

    def reserve(self, page: Entry, who: np.ndarray, digest: str) -> None:
        """Write an entry, where the person sends a message."""
        if not who.size:
            return
        values = {name: getattr(page, name) for name in Entry.__slots__ if name != "time"}
        self.ledger.reserve(**{**values, "digest": digest})

    def note_silence(self, page: Entry, who: np.ndarray) -> None:
        """Record it, where the person sends nothing."""
        if who.size:
            self.ledger.note_silence(page.run, page.stage, page.round)

    @property
    def messages(self) -> int:
        """As in `NodeLedger`."""
        return self.ledger.messages

    @property
    def newest(self) -> float | None:
        """As in `NodeLedger`."""
        return self.ledger.entries[-1].time if self.ledger.entries else None

    def lines(self) -> list[dict[str, Any]]:
        """As in `NodeLedger`."""
        return [_line_of(entry, 1) for entry in self.ledger.entries]

    def enter_lost(self, pages: Sequence[Entry], lost: int) -> None:
        """As in `NodeLedger`, for one person."""
        self.ledger.enter_lost(pages, lost)

    def summary(self) -> dict[str, Any]:
        """The summary of the ledger."""
        return self.ledger.to_dict()

    def erase(self, folder: Path, own: Collection[str]) -> int:
        """Delete these entries, which the ledger records."""
        return self.ledger.erase(folder, own)

    def close(self) -> None:
        """Close the ledger."""
        self.ledger.close()


class GroupLedger:
    """The ledger of a node with several people: a row for each person, a column for each stage of a run."""

    def __init__(self, path: Path, users: Sequence[Any], budget: Budget, clock: Callable[[], float] = time.time):
        self.budget, self._clock = budget, clock
        self._journal = Journal(path, _HEAD)
        self._names: list[str] = []
        self._sent: list[tuple[Entry, int]] = []  # every message, and how many people's reports it holds
        self._pages: dict[tuple[str, int], Entry] = {}
        self._counts: dict[tuple[str, int], dict[int, int]] = {}
        self._entered: dict[tuple[str, int, int], str] = {}
        self._rounds: dict[tuple[str, int, int], list[int]] = {}  # of a run, stage and row, where noise is correlated
        self._silent: dict[tuple[str, int, int], list[int]] = {}  # the rows of those who were asked and sent nothing
        self._times: list[float] = []  # of all lines, sorted
        self._lost = 0  # messages that a copy of this ledger entered, beyond those with an entry here
        try:
            for line in self._journal.found:
                self._take(line)
            self._rows = self._enrol([str(user) for user in users])
        except BaseException:
            self._journal.close()
            raise

    def allowances(self, page: Entry, most: int) -> np.ndarray:
        """As in `NodeLedger`, one number for each person."""
        return self._ledgers().allowances(replace(page, time=self._now()), most, self.budget)[self._rows]

    def check(self, page: Entry, who: np.ndarray) -> None:
        """As in `NodeLedger`; the same round again is no other message."""
        for row in self._rows[who].tolist():
            rounds = self._rounds.get((page.run, page.stage, row), [])
            check_participation(page, [round for round in rounds if round != page.round])

    def reserve(self, page: Entry, who: np.ndarray, digest: str) -> None:
        """Write one entry for all of them; the same one again is not charged again, a different one is refused."""
        key = (page.run, page.stage, page.round)
        if key in self._entered:
            if self._entered[key] != digest:
                raise DeviceError(
                    f"Ledger: run {page.run!r}, stage {page.stage}, round {page.round} was entered for another message; a "
                    "second one would have fresh noise, so nothing is sent."
                )
            return
        if not who.size:
            return
        self.check(page, who)
        room = self.allowances(page, 1)
        if (room[who] < 1).any():
            raise DeviceError(
                f"Ledger: this message is beyond the budget of {int((room[who] < 1).sum())} of its people."
            )
        self._write(replace(page, time=self._now(), digest=digest), self._rows[who].tolist())

    def _write(self, entry: Entry, rows: list[int]) -> None:
        values = {**asdict(entry), "event": event_to_dict(entry.event)}
        line = {"kind": "reports", "entry": plain(values), "who": rows}
        self._journal.append(line)
        self._take(line)

    @property
    def messages(self) -> int:
        """As in `NodeLedger`."""
        return len(self._entered) + self._lost

    @property
    def newest(self) -> float | None:
        """As in `NodeLedger`."""
        return self._sent[-1][0].time if self._sent else None

    def lines(self) -> list[dict[str, Any]]:
        """As in `NodeLedger`."""
        return [_line_of(entry, people) for entry, people in self._sent]

    def enter_lost(self, pages: Sequence[Entry], lost: int) -> None:
        """As in `NodeLedger`; every person is charged, whoever was asked."""
        known = {key for key in self._entered}
        for entry in lost_entries(pages, lost, known, self._now()):
            self._write(entry, self._rows.tolist())
            lost -= 1
        if lost:
            line = {"kind": "lost", "messages": lost}
            self._journal.append(line)
            self._take(line)

    def note_silence(self, page: Entry, who: np.ndarray) -> None:
        """Write one line for all of them."""
        if who.size and (page.run, page.stage, page.round) not in self._silent:
            line = {"kind": "silent", "run": page.run, "stage": page.stage, "round": page.round}
            line["who"] = self._rows[who].tolist()
            self._journal.append(line)
            self._take(line)

    def summary(self) -> dict[str, Any]:
        """The spending of the median and the worst person, and in how many rounds the most silent one sent nothing."""
        counts = np.bincount([row for rows in self._silent.values() for row in rows], minlength=1)
        return {**self._ledgers().summary(self.budget, self._now()), "silent": int(counts.max())}

    def close(self) -> None:
        """Let another process open it."""
        self._journal.close()

    def _now(self) -> float:
        """The time; see `current_time`."""
        return current_time(self._clock(), self._times)

    def _enrol(self, users: list[str]) -> np.ndarray:
        """The row of each person; a new person gets a permanent one."""
        known = {name: row for row, name in enumerate(self._names)}
        new = [user for user in users if user not in known]
        if new:
            line = {"kind": "people", "names": new}
            self._journal.append(line)
            self._take(line)
            known = {name: row for row, name in enumerate(self._names)}
        return np.array([known[user] for user in users], np.int64)

    def _take(self, line: dict[str, Any]) -> None:
        if line["kind"] == "people":
            self._names += line["names"]
            return
        if line["kind"] == "erased":
            insort(self._times, line["time"])
            self._entered = dict.fromkeys(self._entered, "erased")
            return
        if line["kind"] == "lost":
            self._lost += line["messages"]
            return
        if line["kind"] == "silent":
            self._silent[line["run"], line["stage"], line["round"]] = line["who"]
            return
        entry = page_from_dict(line["entry"])
        key = (entry.run, entry.stage)
        counts = self._counts.setdefault(key, {})
        for row in line["who"]:
            counts[row] = counts.get(row, 0) + 1
            if isinstance(entry.event, CorrelatedGaussian):
                self._rounds.setdefault((*key, row), []).append(entry.round)
        self._pages[key] = entry  # the newest: a budget with a window renews after the last message
        self._entered[(*key, entry.round)] = entry.digest
        self._sent.append((entry, len(line["who"])))
        insort(self._times, entry.time)

    def _ledgers(self) -> Ledgers:
        counts = np.full((len(self._names), len(self._pages)), -1, np.int64)
        for column, key in enumerate(self._pages):
            rows = self._counts[key]
            counts[list(rows), column] = list(rows.values())
        return Ledgers(self._names, tuple(self._pages.values()), counts)

    def erase(self, folder: Path, own: Collection[str]) -> int:
        """Delete these entries of a folder but the ledger, then record the erasure; amounts and names stay."""
        gone = clear(folder, self._journal.path, own)
        line = {"kind": "erased", "time": self._now()}
        self._journal.append(line)
        self._take(line)
        return gone


def _line_of(entry: Entry, people: int) -> dict[str, Any]:
    names = ("time", "plan", "run", "stage", "round", "bytes", "epsilon", "delta", "unit", "relation", "digest")
    when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(entry.time))
    values = {name: getattr(entry, name) for name in names}
    return {"when": when, **values, "people": people, "event": entry.event.kind}


def open_node_ledger(path: Path, users: Sequence[Any] | None, budget: Budget) -> NodeLedger:
    """The ledger of a node, for one person or several; an existing file decides which."""
    if _is_group(path) or (users is not None and len(users) > 1):
        return GroupLedger(path, users or (), budget)
    return PersonLedger(Ledger.open(path, budget))


def _is_group(path: Path) -> bool:
    try:
        with open(path, encoding="utf-8") as file:
            return json.loads(file.readline()).get("kind") == _HEAD["kind"]
    except (OSError, ValueError, AttributeError, RecursionError):  # another file, or a damaged one: opening it says so
        return False
