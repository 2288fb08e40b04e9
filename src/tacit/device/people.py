"""People: some histories as columns, never one Python object per person; of one home, of a shard, or of a whole log."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from tacit.catalog import Catalog
from tacit.device.history import History
from tacit.errors import DataError


@dataclass(frozen=True)
class People:
    """Ragged histories: device u's events stand at offsets[u] : offsets[u + 1] of every column, in order."""

    catalog: Catalog
    offsets: np.ndarray  # int64[n + 1]
    items: np.ndarray  # int32[events]
    times: np.ndarray | None = None  # float64[events], seconds
    labels: np.ndarray | None = None  # float32[events]
    context: np.ndarray | None = None  # float32[events, Fe]
    person: np.ndarray | None = None  # float32[n, Fp], the widths of the catalog's person fields, side by side

    def __post_init__(self):
        if self.offsets.size < 2:
            raise DataError("A population must have at least one device, got an empty log.")
        if self.items.size and not 0 <= self.items.min() <= self.items.max() < self.catalog.n_items:
            raise DataError(
                f"Item numbers must lie between 0 and {self.catalog.n_items - 1}, "
                f"got {self.items.min()} to {self.items.max()}."
            )

    def __len__(self) -> int:
        return self.offsets.size - 1

    @property
    def lengths(self) -> np.ndarray:
        """How many events each device has."""
        return np.diff(self.offsets)

    @property
    def began(self) -> float:
        """When the log began."""
        return float("inf") if self.times is None else self.times.min(initial=np.inf)

    @cached_property
    def _clock(self) -> np.ndarray | None:
        """Seconds since the log began: small enough for float32."""
        return None if self.times is None else self.times - self.began

    def histories(self, devices: np.ndarray, length: int) -> History:
        """The stacked histories of some devices, padded to `length`; where longer, the latest events."""
        start, end = self.offsets[devices], self.offsets[devices + 1]
        start = np.maximum(start, end - length)
        at = start[:, None] + np.arange(length)
        real = at < end[:, None]
        at = np.where(real, at, 0)

        def column(values: np.ndarray | None, default: float) -> np.ndarray:
            if values is None or not values.size:
                return np.where(real, np.float32(default), np.float32(0))
            return np.where(real, values[at], 0).astype(np.float32)

        width = 0 if self.context is None else self.context.shape[1]
        context = np.zeros((*at.shape, width), np.float32)
        if self.context is not None and self.context.size:
            context = np.where(real[..., None], self.context[at], 0).astype(np.float32)
        person = np.zeros((devices.size, 0), np.float32) if self.person is None else self.person[devices]
        items = np.where(real, self.items[at] if self.items.size else 0, -1).astype(np.int32)
        columns: list[Any] = [items, column(self._clock, 0.0), column(self.labels, 1.0), context, person]
        return History(*columns)
