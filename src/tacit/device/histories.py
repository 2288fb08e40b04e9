"""Histories as columns, never one Python object per user: of one device, of a node, or of a whole log."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np

from tacit.core.catalog import Catalog
from tacit.core.plan import Stage
from tacit.device.history import History
from tacit.device.method import PersonField, person_fields
from tacit.errors import DataError, PlanError, unknown


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
    never: np.ndarray | None = None  # bool[events], of an item that its user never shares: no method sees the event
    users: Sequence[Any] | None = None  # what the log called each device
    missing: tuple[str, ...] = ()  # person fields that some users have no value of

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

    @cached_property
    def shared(self) -> Self:
        """The same users without the events they never share."""
        if self.never is None:
            return self
        kept = ~self.never
        left = np.concatenate([[0], np.cumsum(kept)])

        def column(values: np.ndarray | None) -> np.ndarray | None:
            return None if values is None else values[kept]

        columns = {name: column(getattr(self, name)) for name in ("items", "times", "labels", "context")}
        return replace(self, offsets=left[self.offsets], never=None, **columns)

    @property
    def began(self) -> float:
        """The time of the first event."""
        return float("inf") if self.times is None else self.times.min(initial=np.inf)

    @cached_property
    def _clock(self) -> np.ndarray | None:
        """Seconds since the log began: small enough for float32."""
        return None if self.times is None else self.times - self.began

    def histories(self, devices: np.ndarray, length: int) -> History:
        """The stacked histories of some devices, padded to `length`; where longer, the latest events.

        This is all that a method learns from, so what is never shared is not in it.
        """
        if self.never is not None:
            return self.shared.histories(devices, length)
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


def check_people(stage: Stage, people: People) -> None:
    """Refuse users whose fields a stage cannot use."""
    for wanted in person_fields(stage):
        values = _values(wanted, people)
        if wanted.name in people.missing:
            raise DataError(f"{_must(wanted)}, and some users have none; give each one, or leave them out of the log.")
        bad = np.flatnonzero(~((values >= wanted.low) & (values <= wanted.high)))
        if bad.size:
            who, value = bad[0] if people.users is None else people.users[bad[0]], values[bad[0]]
            got = "nothing" if np.isnan(value) else f"{value:g}"
            raise DataError(f"{_must(wanted)}, got {got} for user {str(who)!r}; mend that column.")


def _must(wanted: PersonField) -> str:
    return (
        f"{wanted.setting} = {wanted.name!r}: every user must have a number between {wanted.low:g} and {wanted.high:g}"
    )


def _values(wanted: PersonField, people: People) -> np.ndarray:
    """The value of a field for all users, float32[n]."""
    at = 0
    for field in people.catalog.person_fields:
        if field.name == wanted.name:
            if field.kind != "numeric":
                way_out = f"say kinds={{{field.name!r}: 'numeric'}}"
                raise DataError(f"{_must(wanted)}, got a field of kind {field.kind}; {way_out}.")
            if people.person is None:
                raise DataError(f"{_must(wanted)}, and this log has no fields of people.")
            return people.person[:, at]
        at += field.width
    names = [field.name for field in people.catalog.person_fields]
    raise PlanError(
        f"{unknown(wanted.setting, wanted.name, names, 'field of a person')} "
        f"A column of a log becomes one by interactions(..., person=[{wanted.name!r}])."
    )
