"""Masked-item pre-training: self-supervised item vectors from sequences with one item or one segment replaced.

A view is a sequence with one item replaced by a random one, and the same sequence with a segment replaced by another of
its own. The encoder Σ, a gated recurrent unit, encodes either; Ψ, one dense layer, projects an item.

L_IM = −ln softmax of Σ(X̂)·Ψ(v) among Σ(X̂)·Ψ(v̂),  L_SM the same of Σ(X̄)·Σ(s) among Σ(X̄)·Σ(s̄)

The positive is in the denominator, so both losses are at least 0.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from tacit.nets.neural.layers import new_dense
from tacit.nets.neural.losses import info_nce
from tacit.nets.sequence.gru import gru_last_state, new_gru

READER = ("reader_input", "reader_state", "reader_item")  # Σ, Σ, Ψ
SHORTEST = 2  # of segments


class ViewShape(NamedTuple):
    """The size of a view."""

    length: int  # of the sequence
    rivals: int  # negatives for an item, and for a segment
    longest: int  # of segments

    @property
    def size(self) -> int:
        """The number of entries of a view."""
        return 2 * self.length + (1 + self.rivals) * (1 + self.longest)


class MaskedView(NamedTuple):
    """The parts of a view: item numbers, their vectors, or whether they are real."""

    masked: jax.Array  # [L, ...]: one item is replaced
    items: jax.Array  # [1 + K, ...]: the positive first
    cut: jax.Array  # [L, ...]: a segment is replaced
    segments: jax.Array  # [1 + K, S, ...]: the positive first


def new_reader(key: jax.Array, dim: int) -> dict[str, jax.Array]:
    """Σ and Ψ before training."""
    one, other = jax.random.split(key)
    return dict(zip(READER, (*new_gru(one, dim, dim), new_dense(other, dim, dim, 1.0))))


@partial(jax.jit, static_argnums=(2, 3, 4))
def masked_views(
    key: jax.Array, sequence: jax.Array, count: int, shape: ViewShape, n_items: int
) -> tuple[jax.Array, jax.Array]:
    """`count` views of one sequence int32[L], padded at its end with -1: item numbers [count, size], -1 where not real.

    The second array marks the real entries. A sequence too short for a view has none, and contributes no loss. The random
    draws depend on the key and the real events alone, not on padding.
    """
    keys = jax.random.split(key, count)
    numbers = jax.vmap(lambda k: _flat(_view(k, sequence, shape, n_items)))(keys)
    return numbers, numbers >= 0


@partial(jax.jit, static_argnums=1)
def contrastive_losses(theta: dict, shape: ViewShape, x: jax.Array, real: jax.Array) -> tuple[jax.Array, jax.Array]:
    """(L_IM, L_SM), the means over the views that have each loss: vectors [views, size, d], real bool[views, size]."""
    items, segments, asks = jax.vmap(lambda x, real: _contrast(theta, view_parts(x, shape), view_parts(real, shape)))(
        x, real
    )
    mean = jnp.stack([items, segments]) / jnp.maximum(asks.sum(0), 1.0)[:, None]
    item, segment = mean.sum(1)
    return item, segment


def encode_sequence(theta: dict, x: jax.Array, real: jax.Array) -> jax.Array:
    """Σ of sequences of vectors [..., L, d]."""
    return gru_last_state((theta["reader_input"], theta["reader_state"]), x, real)


def project_items(theta: dict, x: jax.Array) -> jax.Array:
    """Ψ of item vectors [n, d]."""
    return x @ theta["reader_item"][:-1] + theta["reader_item"][-1]


def view_parts(flat: jax.Array, shape: ViewShape) -> MaskedView:
    """A view's parts, out of their concatenation."""
    length, several = shape.length, 1 + shape.rivals
    masked, items, cut, segments = jnp.split(flat, [length, length + several, 2 * length + several])
    return MaskedView(masked, items, cut, segments.reshape(several, shape.longest, *flat.shape[1:]))


def _flat(view: MaskedView) -> jax.Array:
    return jnp.concatenate([part.ravel() for part in view])


def _contrast(theta: dict, x: MaskedView, real: MaskedView) -> tuple[jax.Array, jax.Array, jax.Array]:
    """L_IM, L_SM, and whether the view has each."""
    # sequences of one length are encoded together: half as many steps
    masked, cut = encode_sequence(theta, jnp.stack([x.masked, x.cut]), jnp.stack([real.masked, real.cut]))
    item = info_nce(masked, project_items(theta, x.items), real.items)
    segment = info_nce(cut, encode_sequence(theta, x.segments, real.segments), real.segments.any(axis=1))
    return item, segment, jnp.stack([real.items[0], real.segments[0].any()]).astype(jnp.float32)


def _view(key: jax.Array, sequence: jax.Array, shape: ViewShape, n_items: int) -> MaskedView:
    """One item masked, one segment replaced; a negative that equals the positive, or is in the sequence, does not count."""
    item, segment = jax.random.split(key)
    count = (sequence >= 0).sum()
    masked, items = _mask_item(item, sequence, count, shape, n_items)
    cut, segments = _mask_segment(segment, sequence, count, shape)
    return MaskedView(masked, items, cut, segments)


def _mask_item(key: jax.Array, sequence: jax.Array, count: jax.Array, shape: ViewShape, n_items: int) -> tuple:
    """X̂ and [v, v̂ …]; a sequence of one item has no such view."""
    u = jax.random.uniform(key, (2 + shape.rivals,))
    at = (count * u[0]).astype(jnp.int32)
    drawn = (n_items * u[1:]).astype(jnp.int32)
    right = sequence[at]
    rivals = jnp.where((drawn[1:, None] == sequence).any(axis=1), -1, drawn[1:])
    asks = count >= 2
    return sequence.at[at].set(drawn[0]), jnp.where(asks, jnp.append(right, rivals), -1)


def _mask_segment(key: jax.Array, sequence: jax.Array, count: jax.Array, shape: ViewShape) -> tuple:
    """X̄ and [s, s̄ …], the first s̄ being the segment put in s's place; it is drawn from another position of the sequence."""
    u = jax.random.uniform(key, (2 + shape.rivals,))
    longest = jnp.minimum(shape.longest, count - 1)
    long = SHORTEST + ((longest - SHORTEST + 1) * u[0]).astype(jnp.int32)
    starts = count - long + 1
    at = (starts * u[1]).astype(jnp.int32)
    others = (at + 1 + ((starts - 1) * u[2:]).astype(jnp.int32)) % jnp.maximum(starts, 1)  # any start but this one
    step = jnp.arange(shape.longest)
    segments = jnp.where(step < long, sequence[jnp.append(at, others)[:, None] + step], -1)
    same = (segments == segments[0]).all(axis=1).at[0].set(False)
    inside = jnp.arange(sequence.shape[0]) - at
    replaced = segments[1, jnp.clip(inside, 0, shape.longest - 1)]
    cut = jnp.where((inside >= 0) & (inside < long), replaced, sequence)
    rivals = jnp.where(same[:, None], -1, segments)
    return cut, jnp.where(longest >= SHORTEST, rivals, -1)
