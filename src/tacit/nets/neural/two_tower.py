"""Two-tower network over the fields of a user and of items, with an MLP head; every item also has a vector of its own.

u = relu(W_p · fields of the user),  v = relu(W_i · [item vector, fields of the item]),  ln(ŷ/(1 − ŷ)) = MLP of [u, v]

All fields share one table of value vectors. Its row 0 stands for unknown values; each field has its own rows after it: one
for each category, value or word, and one that a number scales.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp

from tacit.core.catalog import Catalog, Field
from tacit.nets.factor.least_squares import gather
from tacit.nets.neural.layers import head_log_odds, new_dense, new_head, relu_layer

# ---- fields as vectors ----


def fields_of_kinds(fields: Sequence[Field], kinds: Sequence[str]) -> tuple[Field, ...]:
    """The fields of some kinds, in their order."""
    return tuple(field for field in fields if field.kind in kinds)


def table_rows(fields: Sequence[Field]) -> int:
    """How many rows a table for these fields has.

    >>> table_rows([Field("sex", "categorical", 2), Field("year", "numeric")])
    4
    """
    return 1 + sum(_rows(field) for field in fields)


def _rows(field: Field) -> int:
    return {"numeric": 1, "words": len(field.values)}.get(field.kind, field.size)


def item_columns(catalog: Catalog, fields: Sequence[Field]) -> list[jax.Array]:
    """The fields of every item, float32[N, width] each; numbers have mean 0 and standard deviation 1."""
    columns = []
    for field in fields:
        column = jnp.asarray(catalog.attributes[field.name], jnp.float32).reshape(catalog.n_items, -1)
        if field.kind == "numeric":
            column = (column - column.mean()) / jnp.maximum(column.std(), 1e-6)
        columns.append(column)
    return columns


def person_columns(every: Sequence[Field], fields: Sequence[Field], person: jax.Array) -> list[jax.Array]:
    """A user's fields, float32[1, width] each, out of the concatenation of all of them.

    Numbers become sign(x)·ln(1 + |x|): the distribution over users that standardising needs is private. Without any
    numbers every field is unknown.
    """
    columns, at = [], 0
    for field in every:
        column = person[at : at + field.width] if person.shape[0] else jnp.full(field.width, _NOTHING[field.kind])
        at += field.width
        if field in fields:
            column = jnp.sign(column) * jnp.log1p(jnp.abs(column)) if field.kind == "numeric" else column
            columns.append(column[None])
    return columns


_NOTHING = {"categorical": -1.0, "words": -1.0, "multi": 0.0, "numeric": 0.0}


def embed(fields: Sequence[Field], columns: Sequence[jax.Array], table: jax.Array) -> jax.Array:
    """The concatenated vectors of all fields, [n, fields·d]; without fields, the vector of unknown values, [1, d]."""
    vectors, at = [], 1
    for field, column in zip(fields, columns):
        own = table[at : at + _rows(field)]
        vectors.append(_vector(field, column, own, table[0]))
        at += _rows(field)
    return jnp.concatenate(vectors, axis=1) if vectors else table[:1]


def _vector(field: Field, column: jax.Array, own: jax.Array, nothing: jax.Array) -> jax.Array:
    if field.kind == "numeric":
        return column * own
    if field.kind == "multi":
        weight, total = column, column.sum(axis=1, keepdims=True)
        return jnp.where(total > 0, (weight @ own) / jnp.maximum(total, 1.0), nothing)
    place = column.astype(jnp.int32)
    known = (place >= 0)[..., None]
    total = known.sum(axis=1)
    mean = jnp.where(known, own[jnp.maximum(place, 0)], 0.0).sum(axis=1) / jnp.maximum(total, 1)
    return jnp.where(total > 0, mean, nothing)


# ---- the network ----


TOWERS = ("items", "item_values", "person_values", "item_tower", "person_tower", "head")  # the leaves


class FieldTowers(NamedTuple):
    """The size of the network, and the kinds of fields it uses."""

    catalog: Catalog
    dim: int  # of every embedding and of both towers
    hidden: tuple[int, ...]  # sizes of the layers on both towers
    kinds: tuple[str, ...]

    @property
    def item_fields(self) -> tuple[Field, ...]:
        """The item fields in use."""
        return fields_of_kinds(self.catalog.item_fields, self.kinds)

    @property
    def person_fields(self) -> tuple[Field, ...]:
        """The user fields in use."""
        return fields_of_kinds(self.catalog.person_fields, self.kinds)

    @property
    def sizes(self) -> tuple[int, ...]:
        """The sizes of the head's layers, from both towers to the log-odds."""
        return (2 * self.dim, *self.hidden, 1)

    def new(self, key: jax.Array, item_spread: float, spread: float, last: float) -> dict[str, jax.Array]:
        """θ₀: random vectors of items and of field values, with these standard deviations; random layers, the last with gain `last`."""
        d, keys = self.dim, jax.random.split(key, 6)
        rows = (self.catalog.n_items, table_rows(self.item_fields), table_rows(self.person_fields))
        wide = (item_spread, spread, spread)
        tables = [size * jax.random.normal(k, (count, d)) for k, count, size in zip(keys, rows, wide)]
        of_items = new_dense(keys[3], (1 + len(self.item_fields)) * d, d)
        of_people = new_dense(keys[4], max(1, len(self.person_fields)) * d, d)
        return dict(zip(TOWERS, (*tables, of_items, of_people, new_head(keys[5], self.sizes, last))))

    def about(self, items: jax.Array) -> list[jax.Array]:
        """The fields of some items, one array each."""
        return [gather(column, items) for column in item_columns(self.catalog, self.item_fields)]

    def odds(self, theta: dict, columns: list[jax.Array], person: jax.Array) -> jax.Array:
        """ln(ŷ/(1 − ŷ)) of some items, with their vectors in θ and their fields in `columns`."""
        about = [embed(self.item_fields, columns, theta["item_values"])] if columns else []
        v = relu_layer(theta["item_tower"], jnp.concatenate([theta["items"], *about], axis=1))
        fields = person_columns(self.catalog.person_fields, self.person_fields, person)
        u = relu_layer(theta["person_tower"], embed(self.person_fields, fields, theta["person_values"]))
        return head_log_odds(theta["head"], self.sizes, u, v)
