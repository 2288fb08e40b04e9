"""Fields: columns of any kind as vectors, one table of value vectors for all of them.

Row 0 of the table stands for what is not known; every field has its own rows after it: one for each category, value or
word, and one that a number scales.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp

from tacit.core.catalog import Catalog, Field


def chosen(fields: Sequence[Field], kinds: Sequence[str]) -> tuple[Field, ...]:
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
    """What the catalog says about every item, float32[N, width] a field; numbers have mean 0 and deviation 1."""
    columns = []
    for field in fields:
        column = jnp.asarray(catalog.attributes[field.name], jnp.float32).reshape(catalog.n_items, -1)
        if field.kind == "numeric":
            column = (column - column.mean()) / jnp.maximum(column.std(), 1e-6)
        columns.append(column)
    return columns


def person_columns(every: Sequence[Field], fields: Sequence[Field], person: jax.Array) -> list[jax.Array]:
    """A person's own numbers, float32[1, width] a field, out of all of them side by side.

    Numbers are taken as sign(x)·ln(1 + |x|): how people's numbers spread is nobody's to know. Of a person without any
    numbers, nothing is known.
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
    """The vectors of all fields side by side, [n, fields·d]; of no field, the vector of what is not known, [1, d]."""
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
