"""Sharing choices: what each person of a node discloses. Made on the device, read again for each message, never sent.

`share` is the share π of their items that a person discloses, for methods that support it (`Method.withholds`). Items, and
whole categories of items, can be excluded from sharing: no method sees these events, so a report is the same as if they
had never happened.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from tacit.core.catalog import Catalog
from tacit.deploy.bundle import Bundle
from tacit.device.node.history_file import NodeHistories
from tacit.errors import DeviceError

ALL_USERS = ""  # the key of the choice that holds for all people of a node, now and later


@dataclass(frozen=True)
class SharingChoice:
    """The choice of one person, or of all people of a node."""

    share: float | None = None  # None: the plan's
    items: tuple[str, ...] = ()  # never shared, by name
    categories: tuple[str, ...] = ()  # never shared, as FIELD=VALUE of the public catalog

    def __post_init__(self):
        if self.share is not None and not 0 <= self.share <= 1:
            raise DeviceError(f"The share to disclose must be a number between 0 and 1, got {self.share:g}.")

    def combined_with(self, default: "SharingChoice") -> "SharingChoice":
        """A person's choice with the default of the node: their own share has precedence, exclusions add up."""
        items, categories = {*self.items, *default.items}, {*self.categories, *default.categories}
        share = default.share if self.share is None else self.share
        return SharingChoice(share, tuple(sorted(items)), tuple(sorted(categories)))

    def without(self, names: Sequence[str]) -> "SharingChoice":
        """The choice without the exclusion of these items and categories."""
        kept = [tuple(one for one in listed if one not in names) for listed in (self.items, self.categories)]
        return replace(self, items=kept[0], categories=kept[1])

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}


def choice_from_dict(values: Mapping[str, Any]) -> SharingChoice:
    """A choice from plain values, as `to_dict` returns them."""
    return SharingChoice(values["share"], tuple(values["items"]), tuple(values["categories"]))


def item_names(bundle: Bundle) -> list[str]:
    """The names of the items of a plan folder; their numbers, where they have no names."""
    return [str(name) for name in (range(bundle.catalog.n_items) if bundle.names is None else bundle.names)]


def items_in_category(catalog: Catalog, category: str) -> np.ndarray | None:
    """The items for which FIELD=VALUE holds, bool[n_items]; None where the catalog has no such field or value.

    >>> from tacit.core.catalog import Field
    >>> genres = Catalog(2, {"genre": np.array([1, 0])}, (Field("genre", "categorical", 2, ("Drama", "Horror")),))
    >>> items_in_category(genres, "genre=Horror").tolist(), items_in_category(genres, "genre=Comedy")
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


def excluded_items(choice: SharingChoice, bundle: Bundle) -> np.ndarray:
    """The items of a plan folder that are never shared, bool[n_items]; names that its catalog lacks are ignored."""
    found = np.isin(item_names(bundle), choice.items)
    for category in choice.categories:
        inside = items_in_category(bundle.catalog, category)
        found = found if inside is None else found | inside
    return found


def apply_choices(people: NodeHistories, choices: Mapping[str, SharingChoice], bundle: Bundle) -> NodeHistories:
    """The histories of a node as its people's choices let methods see them."""
    if not choices:
        return people
    default = choices.get(ALL_USERS, SharingChoice())
    each = [choices.get(str(user), SharingChoice()).combined_with(default) for user in people.users]
    share = np.array([np.nan if one.share is None else one.share for one in each], np.float32)
    never = np.zeros(people.items.size, bool)
    for person, one in enumerate(each):
        if one.items or one.categories:
            events = slice(people.offsets[person], people.offsets[person + 1])
            never[events] = excluded_items(one, bundle)[people.items[events]]
    return replace(people, share=share, never=never)
