"""BPR: sampling of one owned and one unowned item, and the gradients of one step of pairwise ranking."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

BRANCHES = 16  # of the tree of gaps: as many numbers as one cache line holds


class Penalties(NamedTuple):
    """λ of the user vector, of the owned item, of the negative, and of their biases."""

    person: float
    had: float
    rival: float
    bias: float = 0.0


class BprGradients(NamedTuple):
    """The gradient of ln σ(x_ui − x_uj), less the penalties."""

    g: jax.Array  # σ(x_uj − x_ui), float[]
    person: jax.Array  # Δp, float[d]
    had: jax.Array  # Δq_i, float[d]
    rival: jax.Array  # Δq_j, float[d]
    bias_had: jax.Array  # Δb_i, float[]
    bias_rival: jax.Array  # Δb_j, float[]


def bpr_gradients(
    p: jax.Array, q_i: jax.Array, q_j: jax.Array, b_i: jax.Array, b_j: jax.Array, penalties: Penalties
) -> BprGradients:
    """One step of BPR, with x_ui = b_i + p·q_i and g = σ(x_uj − x_ui).

    >>> made = bpr_gradients(jnp.ones(1), jnp.zeros(1), jnp.zeros(1), jnp.zeros(()), jnp.zeros(()), Penalties(0, 0, 0))
    >>> float(made.had[0]), float(made.rival[0]), float(made.bias_had)
    (0.5, -0.5, 0.5)
    """
    g = jax.nn.sigmoid(b_j - b_i + _sum(p * (q_j - q_i)))
    return BprGradients(
        g,
        g * (q_i - q_j) - penalties.person * p,
        g * p - penalties.had * q_i,
        -g * p - penalties.rival * q_j,
        g - penalties.bias * b_i,
        -g - penalties.bias * b_j,
    )


def _sum(v: jax.Array) -> jax.Array:
    """The sum of a short vector, by halves: under vmap the compiler fuses it into one loop, a plain sum into three."""
    while v.shape[0] > 1:
        v = jnp.concatenate([v, jnp.zeros_like(v[:1])]) if v.shape[0] % 2 else v
        v = v[: v.shape[0] // 2] + v[v.shape[0] // 2 :]
    return v[0]


class OwnedItems(NamedTuple):
    """The items a user has, stored by the gaps between them, so that unowned items are counted quickly.

    The m-th owned item is gaps[m] + m: that many items stand before it, m owned and gaps[m] unowned. Above the gaps stand
    every 16th of them, every 256th, and so on: a tree whose every lookup reads adjacent memory.
    """

    levels: tuple[jax.Array, ...]  # int32[L / 16^l], the gaps first; never falling, padded with the number of items
    size: jax.Array  # int32[], how many items are owned

    @property
    def gaps(self) -> jax.Array:
        """How many unowned items stand before each owned one, int32[L]."""
        return self.levels[0]


def owned_items(items: jax.Array, size: jax.Array, n_items: int) -> OwnedItems:
    """The owned items, from items that strictly increase in their first `size` places.

    >>> owned_items(jnp.array([1, 3, 4, 9]), jnp.array(3), 9).gaps.tolist()
    [1, 2, 2, 9]
    """
    place = jnp.arange(items.shape[0], dtype=jnp.int32)
    levels = [jnp.where(place < size, items - place, n_items).astype(jnp.int32)]
    while levels[-1].shape[0] > BRANCHES:
        levels.append(levels[-1][::BRANCHES])
    return OwnedItems(tuple(levels), size)


def kth_unowned(k: jax.Array, had: OwnedItems) -> jax.Array:
    """The k-th unowned item, from 0: k plus the number of owned items before it.

    >>> had = owned_items(jnp.array([1, 3, 4, 9]), jnp.array(3), 9)
    >>> [int(kth_unowned(k, had)) for k in range(4)]
    [0, 2, 5, 6]
    """
    before = jnp.ones((), jnp.int32)
    for gaps in reversed(had.levels):  # the last entry not above k is where to look on the level below
        width = min(BRANCHES, gaps.shape[0])
        start = jnp.minimum(BRANCHES * jnp.maximum(before - 1, 0), gaps.shape[0] - width)
        before = start + (jax.lax.dynamic_slice_in_dim(gaps, start, width) <= k).sum(dtype=jnp.int32)
    return k + before


def draw_bpr_pair(key: jax.Array, had: OwnedItems, n_items: int) -> tuple[jax.Array, jax.Array, jax.Array]:
    """An owned item and an unowned one, each uniformly; and a third number for a coin, uniform in [0, 1).

    No rejection sampling: the negative is the k-th unowned item. Remainders of 32 random bits are uniform to one part in
    2³² / n. With no item owned, or all of them, there is no pair, and the result is meaningless.
    """
    bits = jax.random.bits(key, (3,))
    m = _remainder(bits[0], had.size)
    k = _remainder(bits[1], n_items - had.size)
    coin = (bits[2] >> 8).astype(jnp.float32) * 2.0**-24
    return had.gaps[m] + m, kth_unowned(k, had), coin


def _remainder(bits: jax.Array, size: jax.Array) -> jax.Array:
    return (bits % jnp.maximum(size, 1).astype(jnp.uint32)).astype(jnp.int32)
