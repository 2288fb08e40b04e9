"""Field towers: two towers over the fields of a person and of items, and layers on both; every item has a vector too.

u = tower of [fields of the person],  v = tower of [item vector, fields of the item],  ln(ŷ/(1 − ŷ)) = layers of [u, v]
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from tacit.core.catalog import Catalog, Field
from tacit.nets.factor.mf import gather
from tacit.nets.neural.fields import chosen, embed, item_columns, person_columns, table_rows
from tacit.nets.neural.two_tower import dense, log_odds, new_head, tower

TOWERS = ("items", "item_values", "person_values", "item_tower", "person_tower", "head")  # the leaves


class FieldTowers(NamedTuple):
    """How large the network is, and which kinds of fields it looks at."""

    catalog: Catalog
    dim: int  # of every embedding and of both towers
    hidden: tuple[int, ...]  # sizes of the layers on both towers
    kinds: tuple[str, ...]

    @property
    def item_fields(self) -> tuple[Field, ...]:
        """The item fields that are looked at."""
        return chosen(self.catalog.item_fields, self.kinds)

    @property
    def person_fields(self) -> tuple[Field, ...]:
        """The person fields that are looked at."""
        return chosen(self.catalog.person_fields, self.kinds)

    @property
    def sizes(self) -> tuple[int, ...]:
        """The sizes of the head's layers, from both towers to the log-odds."""
        return (2 * self.dim, *self.hidden, 1)

    def new(self, key: jax.Array, item_spread: float, spread: float, last: float) -> dict[str, jax.Array]:
        """θ₀: random vectors of items and of fields' values, so wide; random layers, the last with such a gain."""
        d, keys = self.dim, jax.random.split(key, 6)
        rows = (self.catalog.n_items, table_rows(self.item_fields), table_rows(self.person_fields))
        wide = (item_spread, spread, spread)
        tables = [size * jax.random.normal(k, (count, d)) for k, count, size in zip(keys, rows, wide)]
        of_items = dense(keys[3], (1 + len(self.item_fields)) * d, d)
        of_people = dense(keys[4], max(1, len(self.person_fields)) * d, d)
        return dict(zip(TOWERS, (*tables, of_items, of_people, new_head(keys[5], self.sizes, last))))

    def about(self, items: jax.Array) -> list[jax.Array]:
        """What the catalog says about some items, field by field."""
        return [gather(column, items) for column in item_columns(self.catalog, self.item_fields)]

    def odds(self, theta: dict, columns: list[jax.Array], person: jax.Array) -> jax.Array:
        """ln(ŷ/(1 − ŷ)) of some items, whose vectors stand in θ and whose fields are `columns`."""
        about = [embed(self.item_fields, columns, theta["item_values"])] if columns else []
        v = tower(theta["item_tower"], jnp.concatenate([theta["items"], *about], axis=1))
        fields = person_columns(self.catalog.person_fields, self.person_fields, person)
        u = tower(theta["person_tower"], embed(self.person_fields, fields, theta["person_values"]))
        return log_odds(theta["head"], self.sizes, u, v)
