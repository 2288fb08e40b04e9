"""Catalog: the public item attributes, and the schema of item, person and event fields.

The server and every device hold the same catalog. It contains no data about a person.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeVar

import equinox as eqx
import jax

from tacit.errors import DataError

CatalogT = TypeVar("CatalogT", bound="Catalog")
_FIELDS = ("item_fields", "person_fields", "event_fields")


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


def catalog_to_dict(catalog: Catalog) -> dict[str, Any]:
    """A catalog without its attributes as plain values: what JSON can hold of it. The attributes are saved as arrays."""
    fields = {name: [asdict(field) for field in getattr(catalog, name)] for name in _FIELDS}
    return {"n_items": catalog.n_items, **fields}


def catalog_from_dict(
    values: Mapping[str, Any], attributes: Mapping[str, Any], kind: type[CatalogT] = Catalog, **arrays: Any
) -> CatalogT:
    """The catalog that `catalog_to_dict` wrote, with its attributes; other keys of `values` are left alone.

    `kind` and `arrays` are for a subclass of Catalog that holds further arrays.

    >>> genre = Field("genre", "categorical", 2, ("Drama", "Horror"))
    >>> catalog_from_dict(catalog_to_dict(Catalog(3, item_fields=(genre,))), {}).item_fields == (genre,)
    True
    """
    fields = {name: tuple(Field(**{**one, "values": tuple(one["values"])}) for one in values[name]) for name in _FIELDS}
    return kind(values["n_items"], attributes, **fields, **arrays)
