"""Sequence encoder: items from the words about them, a person's taste from the items in order.

An item is its words, through a layer (or a convolution), self-attention and a vote. A taste is a long-term part (tensor
projections of the whole sequence, or self-attention) and a short-term part (a gated recurrent unit on the newest items);
a vote fuses them. ŷ = taste · item.
"""

from functools import cache, partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp

from tacit.nets.neural.dropout import dropped
from tacit.nets.neural.row_blocks import Make, in_blocks
from tacit.nets.neural.two_tower import dense
from tacit.nets.sequence.attention import new_attention, new_vote, pooled, self_attention
from tacit.nets.sequence.gru import Form, last_state, new_gru
from tacit.nets.sequence.tensor_projection import changes, new_tensor, project, standardised, with_time

_BLOCK = 64  # items made at a time, at least


class Sizes(NamedTuple):
    """What fixes the shapes and the arithmetic of an encoder."""

    width: int = 300  # of a word vector
    dim: int = 400  # of items and tastes
    heads: int = 20
    hidden: int = 200  # of a vote
    levels: int = 2  # order of the tensors; the rank is dim / levels
    short: int = 20  # newest items the recurrent unit sees
    encoder: Literal["dense", "convolution"] = "dense"
    long: Literal["tensor", "attention", "none"] = "tensor"
    gru: Form = "reset_after"
    norm: Literal["example", "batch"] = "example"
    drop: float = 0.0


class Words(NamedTuple):
    """What a catalog says: the words of each item, padded at the end with -1, and a frozen vector for each word."""

    tokens: jax.Array  # int32[n_items, T]
    vectors: jax.Array  # float32[V, width]
    brief: int  # most items have no more words


class Statistics(NamedTuple):
    """Mean and variance of each level, float32[m]: kept at home, never sent."""

    mean: jax.Array
    variance: jax.Array


def new_encoder(key: jax.Array, sizes: Sizes) -> dict[str, jax.Array]:
    """Every trainable leaf, by name.

    >>> leaves = new_encoder(jax.random.key(0), Sizes())
    >>> sum(leaf.size for leaf in leaves.values())
    1884406
    """
    d, keys = sizes.dim, jax.random.split(key, 8)
    seen = sizes.width * (3 if sizes.encoder == "convolution" else 1)
    leaves: dict[str, Any] = {"word_layer": dense(keys[0], seen, d), "item_attention": new_attention(keys[1], d)}
    leaves["item_vote"], leaves["item_voice"] = new_vote(keys[2], d, sizes.hidden)
    if sizes.long == "tensor":
        leaves["long_tensor"] = new_tensor(keys[3], sizes.levels, d + 1, d // sizes.levels)
        leaves["long_levels"] = jnp.tile(jnp.array([1.0, 0.0]), (sizes.levels, 1))
    if sizes.long == "attention":
        leaves["long_attention"] = new_attention(keys[4], d)
        leaves["long_vote"], leaves["long_voice"] = new_vote(keys[5], d, sizes.hidden)
    leaves["short_input"], leaves["short_state"] = new_gru(keys[6], d, d)
    leaves["fuse_vote"], leaves["fuse_voice"] = new_vote(keys[7], d, sizes.hidden)
    return leaves


def item_vectors(theta: dict, sizes: Sizes, words: jax.Array, real: jax.Array, key: Any = None) -> jax.Array:
    """[n, d] of items given by their words' vectors [n, T, width]; with a key, some of what is passed on is dropped."""
    keys = [None] * 4 if key is None else list(jax.random.split(key, 4))
    x = dropped(keys[0], jnp.where(real[..., None], words, 0.0), sizes.drop)
    if sizes.encoder == "convolution":
        edge = jnp.zeros_like(x[:, :1])
        x = jnp.concatenate([jnp.concatenate([edge, x[:, :-1]], 1), x, jnp.concatenate([x[:, 1:], edge], 1)], axis=-1)
    x = dropped(keys[1], jax.nn.relu(x @ theta["word_layer"][:-1] + theta["word_layer"][-1]), sizes.drop)
    x = jax.vmap(lambda one, exists: self_attention(theta["item_attention"], one, exists, sizes.heads))(x, real)
    x = dropped(keys[3], dropped(keys[2], x, sizes.drop), sizes.drop)
    return jax.vmap(lambda one, exists: pooled((theta["item_vote"], theta["item_voice"]), one, exists))(x, real)


def distinct_vectors(theta: dict, sizes: Sizes, words: Words, items: jax.Array, key: Any = None) -> jax.Array:
    """[..., d] of some items [...], 0 for padding (-1): each is made once, and one of few words without room for more.

    Most of a batch is padding, the same items again, and places for words that most items do not have.
    """
    n = words.tokens.shape[0]
    rows = min(items.size, n + 1)  # at most every item, and padding
    wordy = (words.tokens[:, words.brief :] >= 0).any(axis=1)
    code = jnp.where(items >= 0, items + n * wordy[jnp.maximum(items, 0)], 2 * n)  # few words, many words, padding
    codes, place = jnp.unique(code.ravel(), return_inverse=True, size=rows, fill_value=2 * n)
    tokens = jnp.where((codes < 2 * n)[:, None], words.tokens[codes % n], -1)
    none, few, some = ((codes < most).sum() for most in (0, n, 2 * n))
    make = partial(in_blocks, _encoder(sizes), max(_BLOCK, rows // 8), theta, words.vectors)
    short, long = make(tokens[:, : words.brief], (none, few), key), make(tokens, (few, some), key)
    made = jnp.where((jnp.arange(rows) < few)[:, None], short, long)
    return jnp.where((items >= 0)[..., None], made[place.reshape(items.shape)], 0.0)


@cache
def _encoder(sizes: Sizes) -> Make:
    """`item_vectors` from tokens: one function for each sizes."""

    def make(theta: dict, vectors: jax.Array, tokens: jax.Array, key: Any) -> jax.Array:
        return item_vectors(theta, sizes, vectors[jnp.maximum(tokens, 0)], tokens >= 0, key)

    return make


def tastes(
    theta: dict, sizes: Sizes, items: jax.Array, real: jax.Array, known: Statistics | None = None
) -> tuple[jax.Array, Statistics]:
    """[b, d] of sequences of item vectors [b, L, d], newest last; and the statistics of their levels.

    Under `batch`, levels are standardised by the statistics `known`, or else by the batch's own.
    """
    last = min(sizes.short, items.shape[1])
    layers = (theta["short_input"], theta["short_state"])
    short = last_state(layers, items[:, -last:], real[:, -last:], sizes.gru)
    long, seen = _long(theta, sizes, items, real, known)
    if long is None:
        return short, seen
    both = jnp.stack([long, short], axis=1)
    fuse = (theta["fuse_vote"], theta["fuse_voice"])
    return jax.vmap(lambda x: pooled(fuse, x, jnp.ones(2, bool)))(both), seen


def _long(theta: dict, sizes: Sizes, items: jax.Array, real: jax.Array, known: Statistics | None) -> tuple:
    """The long-term part [b, d], None where there is none."""
    nothing = new_statistics(sizes)
    if sizes.long == "none":
        return None, nothing
    if sizes.long == "attention":
        vote = (theta["long_vote"], theta["long_voice"])

        def attend(x: jax.Array, exists: jax.Array) -> jax.Array:
            return pooled(vote, self_attention(theta["long_attention"], x, exists, sizes.heads), exists)

        return jax.vmap(attend)(items, real), nothing
    levels = jax.vmap(lambda x, exists: project(theta["long_tensor"], changes(with_time(x, exists)), exists))(
        items, real
    )
    each = (2,) if sizes.norm == "example" else (0, 2)
    seen = Statistics(levels.mean(axis=each), levels.var(axis=each))
    by = known if known is not None and sizes.norm == "batch" else seen
    return standardised(levels, theta["long_levels"], *by).reshape(items.shape[0], -1), seen


def new_statistics(sizes: Sizes) -> Statistics:
    """Before anything was seen."""
    return Statistics(jnp.zeros(sizes.levels), jnp.ones(sizes.levels))


def sampled_loss(scores: jax.Array, real: jax.Array) -> jax.Array:
    """−ln softmax of the first of [b, 1 + K] scores among those that are real, [b].

    >>> scores = jnp.array([[1.2, 0.3, -0.5, 0.8, 0.0]])
    >>> round(float(sampled_loss(scores, jnp.ones((1, 5), bool))[0]), 6)
    0.940307
    """
    return jax.nn.logsumexp(jnp.where(real, scores, -1e30), axis=1) - scores[:, 0]
