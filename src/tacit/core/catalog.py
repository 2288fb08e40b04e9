"""Catalog: what is public about the items, and the shape of what is private about people.

Every device and the server hold the same catalog. It names no person.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import equinox as eqx
import jax

from tacit.errors import DataError


@dataclass(frozen=True)
class Field:
    """One column of an item, a person or an event: its name, kind, and what it can hold.

    How a value is written: `categorical` is one number, its place in `values` (-1 is unknown); `multi` is `size` numbers,
    1 where the value holds; `numeric` is one number; `words` is `size` numbers, places in `values`, -1 is padding.
    """

    name: str
    kind: Literal["categorical", "multi", "numeric", "words"]
    size: int = 0  # categories, or the most words of one value; 0 for numeric
    values: tuple[str, ...] = ()  # what the categories, or the words, are called

    @property
    def width(self) -> int:
        """How many numbers one value takes."""
        return self.size if self.kind in ("multi", "words") else 1

    def __post_init__(self):
        kinds = ("categorical", "multi", "numeric", "words")
        if self.kind not in kinds:
            raise DataError(f"Field {self.name!r}: kind must be one of {', '.join(kinds)}, got {self.kind!r}.")


class Catalog(eqx.Module):
    """Public: number of items, item attributes, and the schema of item, person and event fields."""

    n_items: int = eqx.field(static=True)
    attributes: Mapping[str, jax.Array] = eqx.field(default_factory=dict)  # field name -> [n_items, ...]
    item_fields: tuple[Field, ...] = eqx.field(static=True, default=())
    person_fields: tuple[Field, ...] = eqx.field(static=True, default=())
    event_fields: tuple[Field, ...] = eqx.field(static=True, default=())

    def __check_init__(self):
        if self.n_items < 1:
            raise DataError(f"Catalog.n_items must be at least 1, got {self.n_items}.")
        for name, column in self.attributes.items():
            if column.shape[0] != self.n_items:
                raise DataError(
                    f"Catalog attribute {name!r} must have one row for each of {self.n_items} items, got {column.shape[0]}."
                )

    @property
    def person_width(self) -> int:
        """How many numbers the fields of a person take."""
        return sum(field.width for field in self.person_fields)

    @property
    def event_width(self) -> int:
        """How many numbers the fields of an event take."""
        return sum(field.width for field in self.event_fields)
