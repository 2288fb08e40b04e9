"""Population ledger: the spending of all devices over all runs, as columns; one row is what one device's ledger holds."""

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tacit.core.run_folder import read_arrays_by_name, write_arrays, write_json
from tacit.errors import RunError
from tacit.privacy.accounting.events import RawData, event_from_dict, event_to_dict
from tacit.privacy.budget import WHOLE_STAGE, Budget, BudgetTally, Entry


@dataclass(frozen=True)
class Ledgers:
    """One page for each stage of each run: its message, and how many of them each device has sent.

    A stage with random cohorts is charged to all devices that could have been drawn. Where messages differ in size, a page
    has the mean size, and `bytes` what each device really sent. A stage that needed raw data is entered once for each
    device whose history was used; it has no bytes.
    """

    users: Sequence[Any]
    pages: tuple[Entry, ...] = ()
    counts: np.ndarray | None = None  # int64[devices, pages]; -1: the device was not there
    sizes: np.ndarray | None = None  # int64[devices, pages], bytes; None: as many as the pages say for each message

    @property
    def bytes(self) -> np.ndarray:
        """Bytes sent, device by device and page by page."""
        if self.sizes is not None:
            return self.sizes
        return self.sent * np.array([page.bytes for page in self.pages], np.int64)

    @property
    def sent(self) -> np.ndarray:
        """Messages sent, device by device and page by page."""
        return np.maximum(self._counts, 0)

    @property
    def _counts(self) -> np.ndarray:
        return np.zeros((len(self.users), 0), np.int64) if self.counts is None else self.counts

    def follow(self, users: Sequence[Any]) -> "Ledgers":
        """The ledgers of these users, in this order; a new user has spent nothing.

        Users are matched by their names in the log, as text.
        """
        row = {str(user): place for place, user in enumerate(self.users)}
        counts = np.full((len(users), len(self.pages)), -1, np.int64)
        sizes = np.zeros(counts.shape, np.int64)
        known = [(place, row[str(user)]) for place, user in enumerate(users) if str(user) in row]
        if known:
            new, old = map(np.array, zip(*known))
            counts[new], sizes[new] = self._counts[old], self.bytes[old]
        return Ledgers(users, self.pages, counts, sizes)

    def write(self, page: Entry, messages: np.ndarray, sizes: np.ndarray | None = None) -> "Ledgers":
        """With one more page: how many messages each device sent, and how many bytes they had in all."""
        messages = np.asarray(messages, np.int64)
        sizes = np.maximum(messages, 0) * page.bytes if sizes is None else np.asarray(sizes, np.int64)
        both = zip((self._counts, self.bytes), (messages, sizes))
        counts, sizes = (np.concatenate([before, new[:, None]], axis=1) for before, new in both)
        return Ledgers(self.users, (*self.pages, page), counts, sizes)

    def spent(self, budget: Budget, now: float) -> np.ndarray:
        """The composed ε of every device, at the budget's δ and in its window."""
        return self._each(budget, now, lambda tally: tally.epsilon)

    def allowances(self, page: Entry, most: int, budget: Budget) -> np.ndarray:
        """How many more messages of this page each device's budget covers, at most `most`."""
        return self._each(budget, page.time, lambda tally: tally.room(page, most)).astype(np.int32)

    def _each(self, budget: Budget, now: float, value: Any) -> np.ndarray:
        """Compute a value once for each distinct row, since many devices have equal rows."""
        current = [place for place, page in enumerate(self.pages) if budget.renewal(page.time) > now]
        whole_stage = np.array([isinstance(self.pages[place].event, WHOLE_STAGE) for place in current], bool)
        charged = np.where(whole_stage, np.minimum(self._counts[:, current] + 1, 1), self._counts[:, current])
        rows, which = np.unique(np.maximum(charged, 0), axis=0, return_inverse=True)
        values = []
        for row in rows:
            tally = BudgetTally(budget)
            for place, count in zip(current, row.tolist()):
                if count:
                    tally.add(self.pages[place], count)
            values.append(value(tally))
        return np.asarray(values, float)[which.reshape(-1)]

    def summary(self, budget: Budget, now: float | None = None) -> dict[str, Any]:
        """The median and the worst device: ε, messages, bytes, and whether it gave raw data.

        Raw data is not a message and its bytes are not counted: for a device that gave some, both are None.
        """
        epsilon = self.spent(budget, time.time() if now is None else now)
        given = np.array([isinstance(page.event, RawData) for page in self.pages], bool)
        raw = self.sent[:, given].sum(1) > 0
        messages, size = (np.where(raw, np.inf, values.sum(1)) for values in (self.sent, self.bytes))

        def both(values: np.ndarray) -> dict[str, Any]:
            # np.median of infinities is not a number; the middle one of the sorted values always is.
            ordered = np.sort(values)
            return {"median": ordered[ordered.size // 2].item(), "worst": ordered[-1].item()}

        def counted(values: np.ndarray) -> dict[str, Any]:
            return {which: None if value == np.inf else value for which, value in both(values).items()}

        limits = {"epsilon": budget.epsilon, "delta": budget.delta, "days": budget.days, "unit": budget.unit}
        numbers = {"epsilon": both(epsilon), "messages": counted(messages), "bytes": counted(size)}
        return {**numbers, "raw_data": both(raw), "budget": limits}

    def save(self, folder: Path) -> None:
        """Write two files of a run folder: the pages, and what each device sent."""
        pages = [{**asdict(page), "event": event_to_dict(page.event)} for page in self.pages]
        write_arrays(folder / "ledgers.npz", {"counts": self._counts, "bytes": self.bytes})
        write_json(folder / "ledgers.json", {"pages": pages, "users": [str(user) for user in self.users]})

    @classmethod
    def load(cls, folder: Path, users: Sequence[Any]) -> "Ledgers":
        """The ledgers in a run folder, for these users, matched by their names in the log."""
        try:
            saved = json.loads((folder / "ledgers.json").read_text(encoding="utf-8"))
            found = read_arrays_by_name(folder / "ledgers.npz")
        except FileNotFoundError:
            raise RunError(f"{folder} has no ledgers: it is not the folder of a completed run.") from None
        pages = tuple(page_from_dict(values) for values in saved["pages"])
        return Ledgers(saved["users"], pages, found["counts"], found.get("bytes")).follow(users)


def page_from_dict(values: dict[str, Any]) -> Entry:
    """An entry from plain values, as `save` writes them."""
    numbers = {name: float(values[name]) for name in ("time", "epsilon", "delta")}  # "inf" is written as a word
    return Entry(**{**values, **numbers, "event": event_from_dict(values["event"], values["relation"])})
