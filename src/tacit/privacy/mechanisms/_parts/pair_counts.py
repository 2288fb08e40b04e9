"""Pair counts: how many devices reported 1 for each position and for every two, exactly; and the debiased estimates."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tacit.privacy.mechanisms._parts.bits import ODDS_SCALE, Thresholds

_FIELD = 1 << 12  # two counts below this are exact side by side in the 24 bits of a float


def cooccurrence_counts(said: jax.Array) -> jax.Array:
    """How many rows have a 1 in both of every two columns, int32[D, D], for noughts and ones uint8[c, D]; exact.

    GPUs multiply bytes. CPUs multiply floats, and two columns share one: a sum of fewer than 2¹² rows leaves each
    count whole in its own half of the 24 bits.
    """
    rows, width = said.shape
    if jax.default_backend() != "cpu":
        # Whole blocks of 64: byte products are fast only there.
        whole = jnp.pad(said.astype(jnp.int8), ((0, -rows % 64), (0, -width % 64)))
        return _product(whole, whole, jnp.int32)[:width, :width]
    floats = jnp.pad(said.astype(jnp.float32), ((0, 0), (0, width % 2)))
    pairs = floats[:, ::2] + _FIELD * floats[:, 1::2]
    total = jnp.zeros((width, width), jnp.int32)
    for start in range(0, rows, _FIELD - 1):
        some = slice(start, start + _FIELD - 1)
        both = _product(floats[some, :width], pairs[some], jnp.float32).astype(jnp.int32)
        apart = jnp.stack([both % _FIELD, both // _FIELD], axis=-1)
        total = total + apart.reshape(width, -1)[:, :width]
    return total


def _product(one: jax.Array, other: jax.Array, kind: Any) -> jax.Array:
    """oneᵀ other, summed as this kind of number."""
    return jax.lax.dot_general(one, other, (((0,), (0,)), ((), ())), precision="highest", preferred_element_type=kind)


def noise_of(p: float, q: float) -> tuple[float, float]:
    """(v₀, v₁): the variance of one debiased answer where the true bit is 0, and where it is 1.

    >>> noise_of(1.0, 0.5)
    (1.0, 0.0)
    """
    return q * (1 - q) / (p - q) ** 2, p * (1 - p) / (p - q) ** 2


def debiased(count: jax.Array, reports: jax.Array, thresholds: Thresholds) -> jax.Array:
    """n̂_i = (c_i − Mq)/(p − q), float32."""
    p, q = (threshold / ODDS_SCALE for threshold in thresholds)
    whole, rest = _times(reports, thresholds[1])
    return ((count - whole).astype(jnp.float32) - rest) / (p - q)


def debiased_pairs(
    both: jax.Array, one: jax.Array, other: jax.Array, reports: jax.Array, thresholds: Thresholds
) -> jax.Array:
    """n̂_ij = (G_ij − q(c_i + c_j) + Mq²)/(p − q)², float32[b, D], from G, c of the rows and c of the columns.

    The expected part is taken off in whole numbers, so that the difference of large numbers is exact.
    """
    p, q = (threshold / ODDS_SCALE for threshold in thresholds)
    # Mq = a + α and aq = b + β: then G − q(c_i + c_j) + Mq² = (G − b) − β − αq − q(d_i + d_j) with d = c − Mq.
    a, alpha = _times(reports, thresholds[1])
    b, beta = _times(a, thresholds[1])
    one, other = ((count - a).astype(jnp.float32) - alpha for count in (one, other))
    left = (both - b).astype(jnp.float32) - beta - alpha * q
    return (left - q * (one[:, None] + other)) / (p - q) ** 2


def _times(count: jax.Array, threshold: int) -> tuple[jax.Array, jax.Array]:
    """count·threshold/2³² as a whole number and the rest: the 64-bit product, in halves of 16 bits."""
    count = count.astype(jnp.uint32)
    (high, low), (t_high, t_low) = ((number >> 16, number & 0xFFFF) for number in (count, threshold))
    t_high, t_low = np.uint32(t_high), np.uint32(t_low)
    middle = ((high * t_low) & 0xFFFF) + ((low * t_high) & 0xFFFF) + ((low * t_low) >> 16)
    whole = high * t_high + ((high * t_low) >> 16) + ((low * t_high) >> 16) + (middle >> 16)
    rest = ((middle & 0xFFFF) << 16) | ((low * t_low) & 0xFFFF)
    return whole.astype(jnp.int32), rest.astype(jnp.float32) / float(ODDS_SCALE)


@partial(jax.tree_util.register_dataclass, data_fields=["said", "reports"], meta_fields=["thresholds"])
@dataclass(frozen=True)
class Cooccurrence:
    """How many people have both of every two positions, estimated from the reported bits; computed row by row."""

    said: jax.Array  # int32[D, D]; the diagonal counts each position
    reports: jax.Array  # int32[]
    thresholds: Thresholds

    def counts(self) -> jax.Array:
        """n̂_i: how many have a position, float32[D]."""
        return debiased(jnp.diagonal(self.said), self.reports, self.thresholds)

    def rows(self, at: jax.Array) -> jax.Array:
        """n̂_ij of some positions i with all j, float32[b, D]; meaningless where i = j."""
        counts = jnp.diagonal(self.said)
        return debiased_pairs(self.said[at], counts[at], counts, self.reports, self.thresholds)

    @property
    def noise(self) -> tuple[float, float]:
        """Variance of one answer's estimate, where the true bit is 0 and where it is 1: q(1 − q)/(p − q)², p(1 − p)/…"""
        return noise_of(*(threshold / ODDS_SCALE for threshold in self.thresholds))
