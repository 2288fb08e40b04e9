"""Splits: what a method may see, and what it is asked for."""

from dataclasses import dataclass, replace

import numpy as np

from tacit.errors import DataError
from tacit.lab.data import Population

RECENT = 10  # events of the current session a case shows


@dataclass(frozen=True)
class Cases:
    """Questions: on this device, after these events, which item came next?"""

    device: np.ndarray  # int64[m]
    recent: np.ndarray  # int32[m, r], newest last, -1 is padding in front
    target: np.ndarray  # int32[m]

    def __len__(self) -> int:
        return self.device.size


def leave_last_out(population: Population, recent: int = RECENT) -> tuple[Population, Cases]:
    """Everybody's last event is the question; a device with a single event keeps it and is not asked."""
    lengths = population.lengths
    asked = np.flatnonzero(lengths >= 2)
    if asked.size == 0:
        raise DataError("leave_last_out needs a device with at least 2 events, got none.")
    keep = np.ones(population.items.size, bool)
    keep[population.offsets[asked + 1] - 1] = False
    shorter = lengths - np.isin(np.arange(lengths.size), asked)

    def column(values):
        return None if values is None else values[keep]

    train = replace(
        population,
        offsets=np.concatenate([[0], np.cumsum(shorter)]),
        items=population.items[keep],
        times=column(population.times),
        labels=column(population.labels),
        context=column(population.context),
    )
    return train, Cases(asked, latest(train, asked, recent), population.items[population.offsets[asked + 1] - 1])


def latest(population: Population, devices: np.ndarray, count: int) -> np.ndarray:
    """The newest events of some devices, newest last, padded in front."""
    end = population.offsets[devices + 1]
    at = end[:, None] - count + np.arange(count)
    real = at >= population.offsets[devices][:, None]
    return np.where(real, population.items[np.where(real, at, 0)], -1).astype(np.int32)
