"""Candidates: what a question may be answered with. The target always stands first in its row."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal

import numpy as np

from tacit.errors import DataError
from tacit.lab.data.selection import owners
from tacit.lab.evaluation.splits import Split


class Candidates(ABC):
    """Rows of candidates for cases; `sampled` ones are labelled wherever they are printed."""

    label: str
    sampled: bool = False

    def width(self, items: int) -> int:
        """About how many candidates a case has."""
        return items

    @abstractmethod
    def rows(self, cases: np.ndarray) -> np.ndarray | None:
        """int32[c, w] for some cases: the target first, -1 is padding; None stands for every item."""


@dataclass(frozen=True)
class Everything(Candidates):
    """The whole catalogue, without what the person has in the `history` they may use, or ever in the `log`."""

    without: Literal["nothing", "history", "log"] = "history"

    @property
    def label(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        """How tables name it."""
        words = {"nothing": "", "history": " not yet seen", "log": " never seen but the target"}
        return "all items" + words[self.without]

    @classmethod
    def of(cls, split: Split, without: Literal["history", "log"] = "history") -> "Everything":
        """What fits the split's treatment of repeats: nothing is left out where repeats are allowed."""
        return cls("nothing" if split.repeats == "all" else without)

    def rows(self, cases: np.ndarray) -> None:
        """Every item."""
        del cases


class Sampled(Candidates):
    """The target and so many items the person never touched, drawn once by the seed; any others where repeats are allowed.

    Ranks among sampled items flatter weak methods; tables say how many were drawn.
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
        self._enough(int(free[split.test.device].min()), "items a person never touched; somebody")
        self._target = np.where(split.seen, -1, target)  # what the person has is no candidate
        self._negatives = _draw(rng, touched, split.test.device, n, negatives)

    def _enough(self, free: int, what: str) -> None:
        if free < self.negatives:
            raise DataError(f"{self.negatives} negatives need as many {what} has fewer.")

    def rows(self, cases: np.ndarray) -> np.ndarray:
        """The target, then the negatives."""
        return np.concatenate([self._target[cases, None], self._negatives[cases]], axis=1).astype(np.int32)


class SeenBefore(Candidates):
    """What the person had used before the moment of the question; or only what training saw, if `in_training`.

    With `plus_target` the target is a candidate even if it is new; otherwise a question for a new item is a miss.
    """

    def __init__(self, split: Split, plus_target: bool = False, in_training: bool = False):
        self.plus_target = plus_target
        self.label = "items seen " + ("in training" if in_training else "before") + " and the target" * plus_target
        log, events = split.log, split.test.event
        if in_training:  # a person's training events come first in the log
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
        known = (made[:, 1:] >= 0).sum(axis=1) < count  # its place among the others is empty: it was seen
        made[~(known | self.plus_target), 0] = -1
        return made


class Installed(Candidates):
    """Everything a person ever uses: what a telephone knows of its owner before anything has been used.

    The log stands in for a list of installed apps. It tells what will be used, so it is for people who are new, of
    whom nothing could be seen before; for others it would favour whatever they have not used yet.
    """

    label = "items the person has"

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
    """The target, then the items of each stretch; -1 where the target would stand again, and after the end."""
    place = np.arange(max(1, int(count.max(initial=1))))
    at = np.minimum(start[:, None] + place, items.size - 1)
    others = np.where((place < count[:, None]) & (items[at] != target[:, None]), items[at], -1)
    return np.concatenate([target[:, None], others], axis=1).astype(np.int32)


def _draw(rng: np.random.Generator, touched: np.ndarray, device: np.ndarray, n: int, count: int) -> np.ndarray:
    """`count` distinct untouched items for each case: draw, reject what is touched or repeated, draw again.

    `touched` holds device·n + item, in order.
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
