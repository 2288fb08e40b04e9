"""Ledger: the privacy spending of one device, recorded before anything is sent; enforced across runs and crashes.

`reserve` enters a message and returns once the entry is on disk; only then may the report be sent. Wherever the process is
killed, the ledger never shows less than was sent; at worst it shows one message that was not sent. A message that the
budget does not cover is refused, and the device sends nothing.

Time comes from the device's clock. Setting the clock back does not renew a budget, because no entry is older than the one
before it. Setting it forward looks like time passing, and renews a budget with a window. A lifetime budget needs no clock.
An entry that is more than a year ahead was made while the clock was wrong: it goes on counting, and holds nothing else up.
"""

import math
import os
import threading
import time
from bisect import bisect_right, insort
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from tacit.device.ledger.journal import Journal, flush_folder
from tacit.errors import DeviceError
from tacit.privacy.accounting.events import CorrelatedGaussian, Event, Unbounded, event_from_dict, event_to_dict
from tacit.privacy.budget import DAY, Budget, BudgetTally, Entry
from tacit.privacy.claim import Relation, Unit

_HEAD = {"kind": "ledger", "version": 1}
_YEAR = 365 * DAY
_PLAUSIBLE = 1_767_225_600.0  # 2026-01-01: a clock that shows less was never set


class Ledger:
    """A device's ledger, open and locked: one writer at a time.

    >>> import tempfile
    >>> from tacit.privacy.accounting.events import Pure
    >>> with tempfile.TemporaryDirectory() as folder, Ledger.open(folder + "/ledger", Budget(2.0)) as ledger:
    ...     message = dict(unit="user", relation="replace_one", event=Pure(0.5), epsilon=0.5, delta=0.0, bytes=1200)
    ...     entry = ledger.reserve(plan="5f0c", run="a", stage=0, round=7, **message)
    ...     ledger.spent(), ledger.left(), ledger.allowance(Pure(0.5), most=10)
    (0.5, 1.5, 3)
    """

    def __init__(self, journal: Journal, budget: Budget, clock: Callable[[], float]):
        self.path, self.budget = journal.path, budget
        self._journal, self._clock, self._mutex = journal, clock, threading.Lock()
        self._entries: list[Entry] = []
        self._places: dict[tuple[str, int, int], int] = {}  # message -> its place among the entries
        self._tally = BudgetTally(budget)
        self._first = 0  # the tally counts the entries from here on; those before have renewed
        self._times: list[float] = []  # of all lines, sorted
        self._by_time: list[Entry] = []  # the entries, sorted by time
        self._erased = 0  # how many entries the last erasure found
        self._lost = 0  # messages that a copy of this ledger entered, beyond those with an entry here
        self._silent: set[tuple[str, int, int]] = set()  # rounds in which the device was asked and sent nothing
        found, journal.found = journal.found, []
        self._replay(found)

    @classmethod
    def open(cls, path: str | Path, budget: Budget, clock: Callable[[], float] = time.time) -> "Ledger":
        """The ledger in this file; a new one where there is none."""
        journal = Journal(path, _HEAD)
        try:
            return cls(journal, budget, clock)
        except BaseException:
            journal.close()
            raise

    def close(self) -> None:
        """Let another process open it."""
        self._journal.close()

    def __enter__(self) -> "Ledger":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def entries(self) -> tuple[Entry, ...]:
        """Every message ever entered, oldest first."""
        return tuple(self._entries)

    def spent(self) -> float:
        """The composed ε of what still counts."""
        with self._mutex:
            return self._current()[0].epsilon

    def left(self) -> float:
        """How much ε is left. For the number of messages, which depends on their event, see `allowance`."""
        return math.inf if math.isinf(self.budget.epsilon) else max(0.0, self.budget.epsilon - self.spent())

    def allowance(
        self,
        event: Event,
        most: int,
        rounds: int = 1,
        *,
        unit: Unit = "user",
        relation: Relation = "replace_one",
        run: str = "",
        stage: int = 0,
    ) -> int:
        """How many more messages with this event the budget covers now, at most `most`; see `budget.allowance`."""
        with self._mutex:
            tally, now = self._current()
            message = Entry(now, "", run, stage, 0, unit, relation, event, 0.0, 0.0, 0, rounds)
            return tally.room(message, most)

    def reserve(
        self,
        *,
        plan: str,
        run: str,
        stage: int,
        round: int,
        unit: Unit,
        relation: Relation,
        event: Event,
        epsilon: float,
        delta: float,
        bytes: int,
        rounds: int = 1,
        digest: str = "",
    ) -> Entry:
        """Enter a message; when this returns, it may be sent. Refuse one that the budget does not cover.

        The same message again (whether it was sent before a crash or not) is not charged again. Another message for the
        same run, stage and round is refused, because both together reveal more than either. Pass the digest of the bytes;
        without it, messages of equal size count as the same.
        """
        if not run:
            raise DeviceError("Ledger: run must be a word that no other run of the plan has, got ''.")
        with self._mutex:
            self._journal.check()
            tally, now = self._current()
            entry = Entry(now, plan, run, stage, round, unit, relation, event, epsilon, delta, bytes, rounds, digest)
            if (run, stage, round) in self._places:
                return self._again(entry)
            self.check(entry)
            total = tally.epsilon_with(entry)
            if not self.budget.covers(total):
                raise DeviceError(
                    f"Ledger: this message would bring ε to {_number(total)} of {self._limit(now)}; nothing is sent."
                )
            self._journal.append(_to_line(entry))
            self._enter(entry)
            return entry

    def check(self, entry: Entry) -> None:
        """Refuse a message that comes sooner or more often than the price of correlated noise allows; nothing is entered."""
        if isinstance(entry.event, CorrelatedGaussian):
            here = [round for run, stage, round in list(self._places) if (run, stage) == (entry.run, entry.stage)]
            check_participation(entry, [round for round in here if round != entry.round])

    def note_silence(self, run: str, stage: int, round: int) -> None:
        """Record a round in which the device was asked for a report and sent none; it costs nothing."""
        with self._mutex:
            if (run, stage, round) not in self._silent:
                self._journal.append({"kind": "silent", "run": run, "stage": stage, "round": round})
                self._silent.add((run, stage, round))

    @property
    def messages(self) -> int:
        """How many messages were ever entered."""
        return len(self._entries) + self._lost

    def enter_lost(self, pages: Sequence[Entry], lost: int) -> None:
        """Enter so many messages that a copy of this ledger entered, whatever the budget says; see `lost_entries`."""
        with self._mutex:
            for entry in lost_entries(pages, lost, self._places, self._current()[1]):
                self._journal.append(_to_line(entry))
                self._enter(entry)
                lost -= 1
            if lost:
                self._journal.append({"kind": "lost", "messages": lost})
                self._lost += lost

    def erase(self, folder: str | Path, own: Collection[str] | None = None) -> int:
        """Delete these entries of a folder, or all, but this ledger, then record the erasure; the number of deleted files.

        Amounts stay, since what was sent stays sent. Earlier messages cannot be sent again: their noise is lost, and with
        fresh noise they would be new messages. The files are unlinked; the disk may keep their content.
        """
        with self._mutex:
            self._journal.check()
            now = self._current()[1]
            gone = clear(Path(folder), self.path, own)
            self._journal.append({"kind": "erased", "time": now})
            insort(self._times, now)
            self._erased = len(self._entries)
            return gone

    def to_dict(self) -> dict[str, Any]:
        """A summary in plain values; infinity is a float."""
        spent, left = self.spent(), self.left()
        oldest = self._by_time[self._first].time if self._first < len(self._by_time) else math.inf
        return {
            "entries": dict(Counter(entry.plan for entry in self._entries)),
            "bytes": sum(entry.bytes for entry in self._entries),
            "silent": len(self._silent),  # rounds in which it was asked and sent nothing
            "unit": self.budget.unit,
            "delta": self.budget.delta,
            "spent": spent,
            "left": left,
            "days": self.budget.days,
            "renews": self.budget.renewal(oldest),  # when the oldest entry that counts stops counting
        }

    def _replay(self, lines: list[dict[str, Any]]) -> None:
        events: dict[tuple, Event] = {}  # few events make many lines
        for line in lines:
            if line["kind"] == "erased":
                insort(self._times, line["time"])
                self._erased = len(self._entries)
            elif line["kind"] == "lost":
                self._lost += line["messages"]
            elif line["kind"] == "silent":
                self._silent.add((line["run"], line["stage"], line["round"]))
            else:
                self._enter(_from_line(line, events))

    def _enter(self, entry: Entry) -> None:
        self._places[entry.run, entry.stage, entry.round] = len(self._entries)
        self._entries.append(entry)
        self._tally.add(entry)
        insort(self._times, entry.time)
        insort(self._by_time, entry, key=lambda one: one.time)

    def _current(self) -> tuple[BudgetTally, float]:
        """The tally of entries that count now, and the time."""
        now = current_time(self._clock(), self._times)
        first = bisect_right(self._by_time, now, key=lambda entry: self.budget.renewal(entry.time))
        for entry in self._by_time[self._first : first]:
            self._tally.add(entry, -1)
        for entry in self._by_time[first : self._first]:  # the clock was set back since the last call
            self._tally.add(entry)
        self._first = first
        return self._tally, now

    def _again(self, entry: Entry) -> Entry:
        place = self._places[entry.run, entry.stage, entry.round]
        before = self._entries[place]
        if place < self._erased or replace(entry, time=before.time) != before:
            what = "erased" if place < self._erased else "different"
            raise DeviceError(
                f"Ledger: run {entry.run!r}, stage {entry.stage}, round {entry.round} was entered for a message that is "
                f"now {what}; a second one would have fresh noise, so nothing is sent."
            )
        return before

    def _limit(self, now: float) -> str:
        budget = f"a budget of {_number(self.budget.epsilon)} for unit {self.budget.unit} at δ = {self.budget.delta:g}"
        if self._first >= len(self._entries) or self.budget.days is None:
            return budget
        wait = (self.budget.renewal(self._by_time[self._first].time) - now) / DAY
        return f"{budget}, which begins to renew in {wait:.3g} days"


def current_time(clock: float, times: Sequence[float]) -> float:
    """The time: never before the newest of these sorted times, so that no budget is renewed by setting the clock back.

    Times more than a year ahead are left out, unless the clock was never set.

    >>> now = 2e9
    >>> current_time(now, [now - 5, now + 60]) - now, current_time(now, [now - 5, now + 50 * _YEAR]) - now
    (60.0, 0.0)
    """
    known = bisect_right(times, clock + _YEAR) if clock >= _PLAUSIBLE else len(times)
    return max(clock, times[known - 1]) if known else clock


def check_participation(entry: Entry, reported: Iterable[int]) -> None:
    """Refuse a message of a person who has reported in these rounds, where the stage's noise is not priced for both."""
    event = entry.event
    reason = event.refuses(entry.round, reported) if isinstance(event, CorrelatedGaussian) else ""
    if reason:
        raise DeviceError(
            f"Ledger: run {entry.run!r}, stage {entry.stage} has correlated noise, for which {reason}; nothing is sent in "
            f"round {entry.round}."
        )


def _number(epsilon: float) -> str:
    return "∞" if math.isinf(epsilon) else f"{epsilon:.6g}"


def _to_line(entry: Entry) -> dict[str, Any]:
    line = {"kind": "report", **asdict(entry), "event": _finite(event_to_dict(entry.event))}
    return _finite(line)


def _from_line(line: dict[str, Any], events: dict[tuple, Event]) -> Entry:
    kept = (line["relation"], *line["event"].items())
    if kept not in events:
        numbers = {name: float(line["event"][name]) for name in ("epsilon", "noise") if name in line["event"]}
        events[kept] = event_from_dict(line["event"] | numbers, line["relation"])
    del line["kind"]
    line["event"], line["epsilon"] = events[kept], float(line["epsilon"])
    return Entry(**line)


def _finite(values: dict[str, Any]) -> dict[str, Any]:
    """Infinity as JSON can represent it: the string "inf"."""
    return {name: "inf" if value == math.inf else value for name, value in values.items()}


def lost_entries(
    pages: Sequence[Entry], lost: int, known: Collection[tuple[str, int, int]], now: float
) -> Iterator[Entry]:
    """Entries for so many messages that another copy of a ledger has, and this one has not.

    They may be any of `pages` that is not entered. Where these are fewer, nobody knows what the others were: one entry
    without a bound stands for them.
    """
    unknown = [page for page in pages if (page.run, page.stage, page.round) not in known]
    for page in unknown[:lost]:
        yield replace(page, time=now, digest="lost")
    if lost > len(unknown):
        event, run = Unbounded("sent by a copy of this device"), f"lost-{len(known)}"
        yield replace(
            pages[0], time=now, run=run, stage=0, round=0, event=event, epsilon=math.inf, rounds=1, digest="lost"
        )


def clear(folder: Path, keep: Path, own: Collection[str] | None = None) -> int:
    """Delete these entries of a folder, or all, except one file and the folders that contain it; the number of deleted files."""
    if not folder.is_dir():
        raise DeviceError(f"{folder} must be the folder of a device, and is not a folder; nothing was erased.")
    try:
        if own is None:
            return _clear(folder, keep)
        return sum(_clear_entry(folder / name, keep) for name in sorted(own))
    except OSError as problem:
        raise DeviceError(
            f"{folder} was not erased completely ({problem.strerror}); fix the cause, then erase again."
        ) from None


def _clear_entry(path: Path, keep: Path) -> int:
    if path.is_dir() and not path.is_symlink():
        gone = _clear(path, keep)
        if not any(path.iterdir()):
            path.rmdir()
    else:
        gone = int((path.exists() or path.is_symlink()) and not (path.exists() and path.samefile(keep)))
        if gone:
            path.unlink()
    flush_folder(path.parent)
    return gone


def _clear(folder: Path, keep: Path) -> int:
    gone = 0
    for root, folders, files in os.walk(folder, topdown=False):
        for name in (*files, *folders):
            path = Path(root, name)
            if path.is_dir() and not path.is_symlink():
                if not any(path.iterdir()):
                    path.rmdir()
            elif not (path.exists() and path.samefile(keep)):
                path.unlink()
                gone += 1
        flush_folder(Path(root))  # on disk before the ledger records the erasure
    return gone
