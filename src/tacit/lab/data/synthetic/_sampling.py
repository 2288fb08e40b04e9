"""Sampling shared by the synthetic logs: weighted choice, and users generated in batches."""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np


def weighted_choice(rng: np.random.Generator, weight: np.ndarray) -> np.ndarray:
    """One column for each row, in proportion to its weight.

    >>> weighted_choice(np.random.default_rng(0), np.array([[0.0, 1.0, 0.0], [0.0, 0.0, 2.0]], np.float32)).tolist()
    [1, 2]
    """
    total = np.cumsum(weight, axis=1)
    return (total > rng.random((total.shape[0], 1), np.float32) * total[:, -1:]).argmax(axis=1)


def in_batches(
    draw: Callable[[np.random.Generator, np.ndarray], tuple[np.ndarray, ...]], users: int, batch: int, seed: int
) -> list[np.ndarray]:
    """The columns of all users: batches drawn on every core, each from its own seed, so that no order matters."""

    def one(start: int) -> tuple[np.ndarray, ...]:
        rng = np.random.default_rng([seed, 1 + start // batch])
        return draw(rng, np.arange(start, min(start + batch, users)))

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        drawn = pool.map(one, range(0, users, batch))
        columns = [GrowingColumn(part) for part in next(drawn)]
        for parts in drawn:
            for column, part in zip(columns, parts):
                column.append(part)
    return [column.finish() for column in columns]


class GrowingColumn:
    """A column that grows in place, so that a long log is never held twice.

    >>> column = GrowingColumn(np.array([1, 2]))
    >>> column.append(np.array([3]))
    >>> column.finish().tolist()
    [1, 2, 3]
    """

    def __init__(self, first: np.ndarray):
        self._values, self._used = first.copy(), len(first)

    def append(self, part: np.ndarray) -> None:
        """Add the rows of a part."""
        end = self._used + len(part)
        if end > len(self._values):
            self._resize(max(end, int(1.2 * len(self._values))))
        self._values[self._used : end] = part
        self._used = end

    def finish(self) -> np.ndarray:
        """The whole column, without the room to grow."""
        self._resize(self._used)
        return self._values

    def _resize(self, rows: int) -> None:
        self._values.resize((rows, *self._values.shape[1:]), refcheck=False)
