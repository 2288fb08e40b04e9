"""Text: the words a catalog has about each item as tokens, and a frozen vector for each word.

Vectors come from a file that the lab has read (`CatalogWithText`), or from a hash of the word: nothing to ship, equal words have
equal vectors, and different words have different ones.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import fields

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from tacit.core.catalog import Catalog, Field

LENGTH = 32**0.5  # norm of a hashed vector, about that of published ones: a layer's gradients grow with its input


class CatalogWithText(Catalog):
    """A catalog with tokens and word vectors: public, shipped once, never trained."""

    tokens: jax.Array = None  # pyright: ignore[reportAssignmentType]  # int32[n_items, T], -1 is padding
    vectors: jax.Array = None  # pyright: ignore[reportAssignmentType]  # float32[words, width]

    @classmethod
    def of(cls, catalog: Catalog, tokens: np.ndarray, vectors: ArrayLike) -> "CatalogWithText":
        """The same catalog with tokens and word vectors."""
        same = {field.name: getattr(catalog, field.name) for field in fields(Catalog)}
        return cls(**same, tokens=jnp.asarray(tokens), vectors=jnp.asarray(vectors))


def tokens_of(catalog: Catalog, most: int) -> tuple[np.ndarray, list[str]]:
    """The tokens of every item, int32[n_items, T] with T ≤ most, -1 is padding at the end, and the vocabulary.

    Values of every kind of field are words, numbers too; without any field, an item's only word is its own number.

    >>> tokens, words = tokens_of(Catalog(2), 30)
    >>> tokens.tolist(), words
    ([[0], [1]], ['item 0', 'item 1'])
    """
    columns, words = [], []
    for field in catalog.item_fields:
        places, values = _places(field, np.asarray(catalog.attributes[field.name]).reshape(catalog.n_items, -1))
        columns.append(np.where(places >= 0, places + len(words), -1))
        words += values
    if not columns:
        columns, words = [np.arange(catalog.n_items)[:, None]], [f"item {i}" for i in range(catalog.n_items)]
    tokens = np.concatenate(columns, axis=1)
    tokens = np.take_along_axis(tokens, np.argsort(tokens < 0, axis=1, kind="stable"), axis=1)
    used = max(1, int((tokens >= 0).sum(axis=1).max()))
    return tokens[:, : min(most, used)].astype(np.int32), words


def _places(field: Field, column: np.ndarray) -> tuple[np.ndarray, list[str]]:
    """Which of a field's words each item has, -1 is none; and the words."""
    if field.kind == "numeric":
        values, place = np.unique(np.rint(column[:, 0]), return_inverse=True)
        return place.reshape(-1, 1), [f"{value:.0f}" for value in values]
    words = list(field.values) or [f"{field.name} {number}" for number in range(field.size)]
    if field.kind == "multi":
        return np.where(column > 0, np.arange(field.size), -1), words
    return column.astype(np.int64), words


def hashed_vectors(words: Sequence[str], width: int, length: float = LENGTH) -> jax.Array:
    """A random vector for each word, float32[words, width], a function of the word alone; its norm does not depend on the width.

    >>> one, other, again = hashed_vectors(["star", "war", "star"], 4)
    >>> bool((one == again).all()), bool((one == other).any())
    (True, False)
    """
    digests = [hashlib.blake2b(word.encode(), digest_size=8).digest() for word in words]
    seeds = jnp.asarray(np.frombuffer(b"".join(digests), "<u4").reshape(-1, 2))
    return length / width**0.5 * _normals(seeds, width)


def _normals(seeds: jax.Array, width: int) -> jax.Array:
    root = jax.random.key(0, impl="threefry2x32")

    def one(seed: jax.Array) -> jax.Array:
        return jax.random.normal(jax.random.fold_in(jax.random.fold_in(root, seed[0]), seed[1]), (width,))

    return jax.vmap(one)(seeds)


def text_of(catalog: Catalog, most: int, width: int) -> tuple[jax.Array, jax.Array]:
    """Tokens and word vectors: the catalog's own where it has them, else hashed ones of this width."""
    if isinstance(catalog, CatalogWithText):
        return catalog.tokens[:, :most], catalog.vectors
    tokens, words = tokens_of(catalog, most)
    return jnp.asarray(tokens), hashed_vectors(words, width)


def usual_token_count(tokens: jax.Array) -> int:
    """The number of tokens that three of four items do not exceed."""
    return int(np.ceil(np.quantile((np.asarray(tokens) >= 0).sum(axis=1), 0.75)))


def word_counts(tokens: jax.Array, items: jax.Array, vocabulary: int, weight: jax.Array | float = 1.0) -> jax.Array:
    """Word counts over some items, [V]; an item's words share its weight, in whole numbers where weights are. -1 is no item."""
    words = jnp.where((items >= 0)[:, None], tokens[jnp.maximum(items, 0)], -1)
    real = words >= 0
    many = jnp.maximum(real.sum(axis=1, keepdims=True), 1)
    weight = jnp.broadcast_to(jnp.asarray(weight), items.shape)[:, None]
    if jnp.issubdtype(weight.dtype, jnp.integer):
        share = weight // many + (jnp.cumsum(real, axis=1) <= weight % many)
    else:
        share = weight / many
    at = jnp.where(real, words, vocabulary)
    return jnp.zeros(vocabulary, weight.dtype).at[at].add(share.astype(weight.dtype), mode="drop")
