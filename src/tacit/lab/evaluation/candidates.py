"""Candidate sets: the items among which the target of a test case is ranked. The target is always first in its row."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal

import numpy as np

from tacit.errors import DataError
from tacit.lab.data.selection import owners
from tacit.lab.evaluation.splits import Split


class Candidates(ABC):
    """Candidate sets of test cases; `sampled` ones are labelled wherever they are printed."""

    label: str
    sampled: bool = False

    def width(self, items: int) -> int:
        """The approximate number of candidates of a case."""
        return items

    @abstractmethod
    def rows(self, cases: np.ndarray) -> np.ndarray | None:
        """int32[c, w] for some cases: the target first, -1 is padding; None means every item."""


@dataclass(frozen=True)
class AllItems(Candidates):
    """The whole catalogue, without the items of the user in the `history` they may use, or in the whole `log`."""

    without: Literal["nothing", "history", "log"] = "history"

    @property
    def label(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The name in tables."""
        words = {"nothing": "", "history": " not yet seen", "log": " never seen but the target"}
        return "all items" + words[self.without]

    @classmethod
    def of(cls, split: Split, without: Literal["history", "log"] = "history") -> "AllItems":
        """The candidates that fit the split's treatment of repeats: nothing is left out where repeats are allowed."""
        return cls("nothing" if split.repeats == "all" else without)

    def rows(self, cases: np.ndarray) -> None:
        """Every item."""
        del cases


class Sampled(Candidates):
    """The target and so many items that the user never had, drawn once by the seed; any items where repeats are allowed.

    Ranks among sampled items favour weak methods; tables say how many were drawn.
    """

    sampled = True

    def __init__(self, split: Split, negatives: int = 99, seed: int = 0):
        n, self.negatives = split.log.catalog.n_items, negatives
        self.label = f"1 + {negatives} sampled items"
        rng, target = np.random.default_rng(seed), split.test.target
        if split.repeats == "all":
            self._enough(n - 1, "items beside the target; the catalogue")
            case = np.arange(target.size)
            self._target, self._negatives = target, _draw(rng, case * n + target, case, n, negatives)
            return
        touched = np.unique(owners(split.log) * n + split.log.items)
        free = n - np.diff(np.searchsorted(touched, np.arange(len(split.log) + 1) * n))
        self._enough(int(free[split.test.device].min()), "items that a user never had; some user")
        self._target = np.where(split.seen, -1, target)  # items of the user are no candidates
        self._negatives = _draw(rng, touched, split.test.device, n, negatives)

    def _enough(self, free: int, what: str) -> None:
        if free < self.negatives:
            raise DataError(f"{self.negatives} negatives need as many {what} has fewer.")

    def rows(self, cases: np.ndarray) -> np.ndarray:
        """The target, then the negatives."""
        return np.concatenate([self._target[cases, None], self._negatives[cases]], axis=1).astype(np.int32)


class SeenBefore(Candidates):
    """The items that the user had before the test case; with `in_training`, only those in the training data.

    With `plus_target` the target is a candidate even if it is new; otherwise a new target is a miss.
    """

    def __init__(self, split: Split, plus_target: bool = False, in_training: bool = False):
        self.plus_target = plus_target
        self.label = "items seen " + ("in training" if in_training else "before") + " and the target" * plus_target
        log, events = split.log, split.test.event
        if in_training:  # training events of a user come first in the log
            device = split.test.device
            events = np.minimum(events, log.offsets[device] + split.train.lengths[device])
        pair = owners(log) * log.catalog.n_items + log.items
        first = np.sort(np.unique(pair, return_index=True)[1])  # where each item first occurs, in order of time
        self._items, self._start = log.items[first], np.searchsorted(first, log.offsets[:-1])[split.test.device]
        self._count = np.searchsorted(first, events) - self._start
        self._target = split.test.target

    def rows(self, cases: np.ndarray) -> np.ndarray:
        """The target, then the other items in order of their first use."""
        count = self._count[cases]
        made = _target_first(self._items, self._start[cases], count, self._target[cases])
        known = (made[:, 1:] >= 0).sum(axis=1) < count  # its position among the others is empty: it was seen
        made[~(known | self.plus_target), 0] = -1
        return made


class Installed(Candidates):
    """All items that a user ever has, as a telephone knows its installed apps before any is used.

    The whole log stands in for the list of installed apps, and so leaks what will be used: it is for new users without
    a history only; for others it would favour the items that they have not used yet.
    """

    label = "items the user has"

    def __init__(self, split: Split):
        n = split.log.catalog.n_items
        own = np.unique(owners(split.log) * n + split.log.items)
        start = np.searchsorted(own, np.arange(len(split.log) + 1) * n)
        self._items, self._start = own % n, start[:-1][split.test.device]
        self._count = np.diff(start)[split.test.device]
        self._target = split.test.target

    def rows(self, cases: np.ndarray) -> np.ndarray:
        """The target, then the others."""
        return _target_first(self._items, self._start[cases], self._count[cases], self._target[cases])


def _target_first(items: np.ndarray, start: np.ndarray, count: np.ndarray, target: np.ndarray) -> np.ndarray:
    """The target, then the items of each range; -1 in place of a second target, and after the end."""
    place = np.arange(max(1, int(count.max(initial=1))))
    at = np.minimum(start[:, None] + place, items.size - 1)
    others = np.where((place < count[:, None]) & (items[at] != target[:, None]), items[at], -1)
    return np.concatenate([target[:, None], others], axis=1).astype(np.int32)


def _draw(rng: np.random.Generator, touched: np.ndarray, device: np.ndarray, n: int, count: int) -> np.ndarray:
    """`count` distinct items for each case that its user never had, by rejection sampling.

    `touched` holds device·n + item of what users had, in order.
    """
    drawn = rng.integers(n, size=(device.size, count))
    while True:
        key = device[:, None] * n + drawn
        place = np.minimum(np.searchsorted(touched, key), touched.size - 1)
        bad = touched[place] == key
        order = np.argsort(drawn, axis=1, kind="stable")
        ordered = np.take_along_axis(drawn, order, 1)
        again = np.zeros_like(bad)
        np.put_along_axis(again, order[:, 1:], ordered[:, 1:] == ordered[:, :-1], 1)
        bad |= again
        if not bad.any():
            return drawn
        drawn[bad] = rng.integers(n, size=int(bad.sum()))
