"""Choices: what each person of a home lets be seen. Made at home, read anew at every message, never sent.

`share` is the share π of their items that a person discloses, to methods that heed it (`Method.withholds`). Items, and whole
categories of items, may never be shared: no method sees those events, so every report is that of somebody without them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from tacit.core.catalog import Catalog
from tacit.deploy.bundle import Kit
from tacit.device.node.history_file import Residents
from tacit.errors import DeviceError

EVERYBODY = ""  # under this name stands what holds for all people of a home, now and later


@dataclass(frozen=True)
class Choice:
    """What one person, or everybody in a home, has chosen."""

    share: float | None = None  # None: what the plan says
    items: tuple[str, ...] = ()  # never shared, by name
    categories: tuple[str, ...] = ()  # never shared, as FIELD=VALUE of the public catalog

    def __post_init__(self):
        if self.share is not None and not 0 <= self.share <= 1:
            raise DeviceError(f"The share to disclose must be a number between 0 and 1, got {self.share:g}.")

    def under(self, everybody: "Choice") -> "Choice":
        """A person's choice with everybody's: their own share goes first, and what either never shares is not shared."""
        items, categories = {*self.items, *everybody.items}, {*self.categories, *everybody.categories}
        share = everybody.share if self.share is None else self.share
        return Choice(share, tuple(sorted(items)), tuple(sorted(categories)))

    def without(self, names: Sequence[str]) -> "Choice":
        """The choice with these items and categories shared again."""
        kept = [tuple(one for one in listed if one not in names) for listed in (self.items, self.categories)]
        return replace(self, items=kept[0], categories=kept[1])

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}


def choice_of(words: Mapping[str, Any]) -> Choice:
    """A choice from plain values."""
    return Choice(words["share"], tuple(words["items"]), tuple(words["categories"]))


def item_names(kit: Kit) -> list[str]:
    """What the items of a plan folder are called; their numbers, where they have no names."""
    return [str(name) for name in (range(kit.catalog.n_items) if kit.names is None else kit.names)]


def members(catalog: Catalog, category: str) -> np.ndarray | None:
    """Which items FIELD=VALUE is true of, bool[n_items]; None where the catalog has no such field or value.

    >>> from tacit.core.catalog import Field
    >>> genres = Catalog(2, {"genre": np.array([1, 0])}, (Field("genre", "categorical", 2, ("Drama", "Horror")),))
    >>> members(genres, "genre=Horror").tolist(), members(genres, "genre=Comedy")
    ([True, False], None)
    """
    name, _, value = category.partition("=")
    for field in catalog.item_fields:
        if field.name == name and value in field.values:
            column, place = np.asarray(catalog.attributes[name]), field.values.index(value)
            if field.kind == "multi":
                return column[:, place] > 0
            return (column.reshape(catalog.n_items, -1) == place).any(1)
    return None


def hidden(choice: Choice, kit: Kit) -> np.ndarray:
    """Which items of a plan folder are never shared, bool[n_items]; what its catalog does not have, it cannot ask for."""
    found = np.isin(item_names(kit), choice.items)
    for category in choice.categories:
        inside = members(kit.catalog, category)
        found = found if inside is None else found | inside
    return found


def as_chosen(people: Residents, choices: Mapping[str, Choice], kit: Kit) -> Residents:
    """The people of a home as methods may see them."""
    if not choices:
        return people
    everybody = choices.get(EVERYBODY, Choice())
    mine = [choices.get(str(user), Choice()).under(everybody) for user in people.users]
    share = np.array([np.nan if one.share is None else one.share for one in mine], np.float32)
    never = np.zeros(people.items.size, bool)
    for person, one in enumerate(mine):
        if one.items or one.categories:
            events = slice(people.offsets[person], people.offsets[person + 1])
            never[events] = hidden(one, kit)[people.items[events]]
    return replace(people, share=share, never=never)
