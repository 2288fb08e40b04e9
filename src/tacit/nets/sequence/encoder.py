"""Sequence encoder: item vectors from their words, a user vector from the items in order.

An item is its words, through a dense layer (or a convolution), self-attention and additive attention. A user vector fuses a
long-term part (low-rank tensor projections of the whole sequence, or self-attention) and a short-term part (a gated recurrent
unit on the newest items) by additive attention. ŷ = user · item.

Tensor projections: ⟨ℓ₁ ⊗ … ⊗ ℓ_k, Φ_k(x)⟩ = Σ_{i₁ < … < i_k} Π_j ⟨ℓ_j, x_{i_j}⟩, by k running sums instead of L^k products (Toth,
Bonnier and Oberhauser 2021).
"""

from functools import cache, partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp

from tacit.nets.neural.chunked import Make, map_in_blocks
from tacit.nets.neural.layers import dropout, new_dense
from tacit.nets.sequence.attention import additive_attention, new_additive_attention, new_attention, self_attention
from tacit.nets.sequence.gru import GruForm, gru_last_state, new_gru

# ---- tensor projections ----


def new_tensor(key: jax.Array, levels: int, inputs: int, rank: int) -> jax.Array:
    """Random functionals [levels, inputs + 1, rank]; the last row of each level is its bias, 0.

    Uniform in ±√(3 v_k), v₁ = 2/(d + r), v_{k+1} = (d^k + r)/(d^{k+1} + r): every level starts with equal variance.
    """
    variances = [2.0 / (inputs + rank)]
    for level in range(1, levels):
        variances.append((inputs**level + rank) / (inputs ** (level + 1) + rank))
    reach = jnp.sqrt(3.0 * jnp.asarray(variances))[:, None, None]
    kernel = reach * jax.random.uniform(key, (levels, inputs, rank), minval=-1.0, maxval=1.0)
    return jnp.concatenate([kernel, jnp.zeros((levels, 1, rank))], axis=1)


def tensor_projection(tensor: jax.Array, steps: jax.Array, real: jax.Array) -> jax.Array:
    """Y [levels, rank] of a sequence [L, inputs]; level k reuses the functionals of the levels below it.

    Steps that are not `real` take part in no pair. O(L · levels · inputs · rank).

    >>> steps = jnp.eye(3)[jnp.array([0, 0, 1])]  # the word "aab", letter by letter
    >>> a_then_b = jnp.array([[[1.0], [0], [0], [0]], [[0.0], [1], [0], [0]]])
    >>> tensor_projection(a_then_b, steps, jnp.ones(3, bool))[:, 0].tolist()  # how often a; how often a, later b
    [2.0, 2.0]
    """
    # M_k = X ℓ_k + b_k
    m = jnp.einsum("ld,kdr->klr", steps, tensor[:, :-1]) + tensor[:, -1:]
    m = jnp.where(real[:, None], m, 0.0)
    # R₁ = M₁,  R_k[t] = M_k[t] ∘ Σ_{s<t} R_{k−1}[s],  Y_k = Σ_t R_k[t]
    r, sums = m[0], [m[0].sum(axis=0)]
    for level in m[1:]:
        r = level * _before(r)
        sums.append(r.sum(axis=0))
    return jnp.stack(sums)


def _before(x: jax.Array) -> jax.Array:
    """Σ_{s<t} x[s] along the first axis."""
    return jnp.concatenate([jnp.zeros_like(x[:1]), jnp.cumsum(x[:-1], axis=0)])


def with_time(x: jax.Array, real: jax.Array) -> jax.Array:
    """[L, 1 + d]: each step's time, evenly from −1 to 1 over the real steps, then the step; 0 where not real."""
    place, count = jnp.cumsum(real) - 1, real.sum()
    time = 2.0 * place / jnp.maximum(count - 1, 1) - 1.0
    return jnp.where(real[:, None], jnp.concatenate([time[:, None], x], axis=1), 0.0)


def differences(x: jax.Array) -> jax.Array:
    """x_i − x_{i−1}, and x₀ itself."""
    return x - jnp.concatenate([jnp.zeros_like(x[:1]), x[:-1]])


def standardised_levels(levels: jax.Array, affine: jax.Array, mean: jax.Array, variance: jax.Array) -> jax.Array:
    """Levels [..., m, r] as scale · (y − mean)/deviation + shift; `affine` [m, 2], the statistics [..., m]."""
    y = (levels - mean[..., None]) / jnp.sqrt(variance[..., None] + 1e-3)
    return affine[:, :1] * y + affine[:, 1:]


# ---- the encoder ----


_BLOCK = 64  # items encoded at a time, at least


class Sizes(NamedTuple):
    """The hyper-parameters of an encoder that fix shapes and arithmetic."""

    width: int = 300  # of a word vector
    dim: int = 400  # of item and user vectors
    heads: int = 20
    hidden: int = 200  # of additive attention
    levels: int = 2  # order of the tensors; the rank is dim / levels
    short: int = 20  # newest items the recurrent unit sees
    encoder: Literal["dense", "convolution"] = "dense"
    long: Literal["tensor", "attention", "none"] = "tensor"
    gru: GruForm = "reset_after"
    norm: Literal["example", "batch"] = "example"
    drop: float = 0.0


class Words(NamedTuple):
    """The tokens of each item, padded at the end with -1, and a frozen vector for each word."""

    tokens: jax.Array  # int32[n_items, T]
    vectors: jax.Array  # float32[V, width]
    brief: int  # most items have no more tokens


class LevelStatistics(NamedTuple):
    """Mean and variance of each level, float32[m]: kept on the device, never sent."""

    mean: jax.Array
    variance: jax.Array


def new_encoder(key: jax.Array, sizes: Sizes) -> dict[str, jax.Array]:
    """Every trainable parameter, by name.

    >>> leaves = new_encoder(jax.random.key(0), Sizes())
    >>> sum(leaf.size for leaf in leaves.values())
    1884406
    """
    d, keys = sizes.dim, jax.random.split(key, 8)
    seen = sizes.width * (3 if sizes.encoder == "convolution" else 1)
    leaves: dict[str, Any] = {"word_layer": new_dense(keys[0], seen, d), "item_attention": new_attention(keys[1], d)}
    leaves["item_vote"], leaves["item_voice"] = new_additive_attention(keys[2], d, sizes.hidden)
    if sizes.long == "tensor":
        leaves["long_tensor"] = new_tensor(keys[3], sizes.levels, d + 1, d // sizes.levels)
        leaves["long_levels"] = jnp.tile(jnp.array([1.0, 0.0]), (sizes.levels, 1))
    if sizes.long == "attention":
        leaves["long_attention"] = new_attention(keys[4], d)
        leaves["long_vote"], leaves["long_voice"] = new_additive_attention(keys[5], d, sizes.hidden)
    leaves["short_input"], leaves["short_state"] = new_gru(keys[6], d, d)
    leaves["fuse_vote"], leaves["fuse_voice"] = new_additive_attention(keys[7], d, sizes.hidden)
    return leaves


def item_vectors(theta: dict, sizes: Sizes, words: jax.Array, real: jax.Array, key: Any = None) -> jax.Array:
    """[n, d] of items from their word vectors [n, T, width]; with a key, with dropout."""
    keys = [None] * 4 if key is None else list(jax.random.split(key, 4))
    x = dropout(keys[0], jnp.where(real[..., None], words, 0.0), sizes.drop)
    if sizes.encoder == "convolution":
        edge = jnp.zeros_like(x[:, :1])
        x = jnp.concatenate([jnp.concatenate([edge, x[:, :-1]], 1), x, jnp.concatenate([x[:, 1:], edge], 1)], axis=-1)
    x = dropout(keys[1], jax.nn.relu(x @ theta["word_layer"][:-1] + theta["word_layer"][-1]), sizes.drop)
    x = jax.vmap(lambda one, exists: self_attention(theta["item_attention"], one, exists, sizes.heads))(x, real)
    x = dropout(keys[3], dropout(keys[2], x, sizes.drop), sizes.drop)
    return jax.vmap(lambda one, exists: additive_attention((theta["item_vote"], theta["item_voice"]), one, exists))(
        x, real
    )


def distinct_vectors(theta: dict, sizes: Sizes, words: Words, items: jax.Array, key: Any = None) -> jax.Array:
    """[..., d] of some items [...], 0 for padding (-1): each distinct item is encoded once, and items of few words without padding.

    Most of a batch is padding, repeated items, and room for words that most items do not have.
    """
    n = words.tokens.shape[0]
    rows = min(items.size, n + 1)  # at most every item, and padding
    wordy = (words.tokens[:, words.brief :] >= 0).any(axis=1)
    code = jnp.where(items >= 0, items + n * wordy[jnp.maximum(items, 0)], 2 * n)  # few words, many words, padding
    codes, place = jnp.unique(code.ravel(), return_inverse=True, size=rows, fill_value=2 * n)
    tokens = jnp.where((codes < 2 * n)[:, None], words.tokens[codes % n], -1)
    none, few, some = ((codes < most).sum() for most in (0, n, 2 * n))
    make = partial(map_in_blocks, _encoder(sizes), max(_BLOCK, rows // 8), theta, words.vectors)
    short, long = make(tokens[:, : words.brief], (none, few), key), make(tokens, (few, some), key)
    made = jnp.where((jnp.arange(rows) < few)[:, None], short, long)
    return jnp.where((items >= 0)[..., None], made[place.reshape(items.shape)], 0.0)


@cache
def _encoder(sizes: Sizes) -> Make:
    """`item_vectors` from tokens: one function object for each `sizes`."""

    def make(theta: dict, vectors: jax.Array, tokens: jax.Array, key: Any) -> jax.Array:
        return item_vectors(theta, sizes, vectors[jnp.maximum(tokens, 0)], tokens >= 0, key)

    return make


def user_vectors(
    theta: dict, sizes: Sizes, items: jax.Array, real: jax.Array, known: LevelStatistics | None = None
) -> tuple[jax.Array, LevelStatistics]:
    """[b, d] of sequences of item vectors [b, L, d], newest last; and the statistics of their levels.

    With norm `batch`, levels are standardised by the statistics `known`, or else by the batch's own.
    """
    last = min(sizes.short, items.shape[1])
    layers = (theta["short_input"], theta["short_state"])
    short = gru_last_state(layers, items[:, -last:], real[:, -last:], sizes.gru)
    long, seen = _long(theta, sizes, items, real, known)
    if long is None:
        return short, seen
    both = jnp.stack([long, short], axis=1)
    fuse = (theta["fuse_vote"], theta["fuse_voice"])
    return jax.vmap(lambda x: additive_attention(fuse, x, jnp.ones(2, bool)))(both), seen


def _long(theta: dict, sizes: Sizes, items: jax.Array, real: jax.Array, known: LevelStatistics | None) -> tuple:
    """The long-term part [b, d], None where there is none."""
    nothing = new_statistics(sizes)
    if sizes.long == "none":
        return None, nothing
    if sizes.long == "attention":
        vote = (theta["long_vote"], theta["long_voice"])

        def attend(x: jax.Array, exists: jax.Array) -> jax.Array:
            return additive_attention(vote, self_attention(theta["long_attention"], x, exists, sizes.heads), exists)

        return jax.vmap(attend)(items, real), nothing
    levels = jax.vmap(
        lambda x, exists: tensor_projection(theta["long_tensor"], differences(with_time(x, exists)), exists)
    )(items, real)
    each = (2,) if sizes.norm == "example" else (0, 2)
    seen = LevelStatistics(levels.mean(axis=each), levels.var(axis=each))
    by = known if known is not None and sizes.norm == "batch" else seen
    return standardised_levels(levels, theta["long_levels"], *by).reshape(items.shape[0], -1), seen


def new_statistics(sizes: Sizes) -> LevelStatistics:
    """Initial statistics: mean 0, variance 1."""
    return LevelStatistics(jnp.zeros(sizes.levels), jnp.ones(sizes.levels))
