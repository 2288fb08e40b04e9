"""What the rules of steps share: the head of frequent items and its weights, the largest cells, what public attributes predict."""

from statistics import NormalDist
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tacit.core.catalog import Catalog

YEARS = (
    16.0  # a numeric attribute is put on the scale of years: its standard deviation, as that of films of all decades
)


def frequent(counts: jax.Array, least: Any, fewest: int, room: int) -> jax.Array:
    """int32[room]: the items whose counts reach `least`, most frequent first, at least so many of them; padding is n.

    >>> frequent(jnp.array([3.0, 9.0, 1.0, 5.0]), 4.0, 0, 3).tolist()
    [1, 3, 4]
    """
    best = jax.lax.top_k(counts, room)[1]
    size = jnp.clip((counts >= least).sum(), min(fewest, room), room)
    return jnp.where(jnp.arange(room) < size, best, counts.shape[0]).astype(jnp.int32)


def head_counts(counts: jax.Array, head: jax.Array, noise: Any) -> jax.Array:
    """max(ĉ, 1, σ_c) of the head's items, float32[room]; 0 on padding."""
    shown = jnp.maximum(counts.at[head].get(mode="clip"), jnp.maximum(1.0, noise))
    return jnp.where(head < counts.shape[0], shown, 0.0)


def item_weights(counts: jax.Array, head: jax.Array, noise: Any, power: float) -> jax.Array:
    """g = (max(ĉ, 1, σ_c) / mean)^(−power) of the head's items, float32[room]; 1 on padding."""
    real, count = head < counts.shape[0], head_counts(counts, head, noise)
    mean = count.sum() / jnp.maximum(real.sum(), 1)
    return jnp.where(real, (count / jnp.maximum(mean, 1e-12)) ** -power, 1.0)


def cells_of(head: jax.Array, n: int) -> jax.Array:
    """bool[room, room]: the cells between two different items of the head."""
    real = head < n
    return real[:, None] & real & ~jnp.eye(head.shape[0], dtype=bool)


def largest(values: jax.Array, among: jax.Array, share: Any) -> jax.Array:
    """bool, like the values: the largest of those `among` which are real, as many as this share of them.

    >>> largest(jnp.array([3.0, 9.0, 1.0, 5.0]), jnp.array([True, False, True, True]), 0.7).tolist()
    [True, False, False, True]
    """
    descending = jnp.sort(jnp.where(among, -values, jnp.inf).reshape(-1))
    many = jnp.round(share * among.sum()).astype(jnp.int32)
    least = -descending[jnp.clip(many - 1, 0, values.size - 1)]
    return among & (values >= least) & (many > 0)


def above_noise(n: int, expected: float) -> float:
    """How many standard deviations so few of n counts of nobody exceed, on average: Φ⁻¹(1 − expected/n)."""
    return NormalDist().inv_cdf(1 - min(expected / n, 0.5))


def compared(y: jax.Array, x: jax.Array, z: jax.Array, among: jax.Array, noise: Any) -> tuple[jax.Array, jax.Array]:
    """The t-values of x and z where noisy y is explained by both: 0 ± 1 for a column that adds nothing to the other.

    >>> y, x, z = jnp.array([6.0, 0, 2]), jnp.array([1.0, 0, 1]), jnp.array([0.0, 1, 0])
    >>> [round(float(t), 1) for t in compared(y, x, z, jnp.ones(3, bool), 2.0)]
    [2.8, 0.0]
    """
    y, x, z = (jnp.where(among, column, 0.0) for column in (y, x, z))
    xx, zz, xz, xy, zy = (x * x).sum(), (z * z).sum(), (x * z).sum(), (x * y).sum(), (z * y).sum()
    rest = jnp.maximum(xx * zz - xz**2, 1e-5 * xx * zz)
    scale = jnp.sqrt(jnp.maximum(rest, 1e-30)) * jnp.maximum(noise, 1e-6)
    length_x, length_z = jnp.sqrt(jnp.maximum(xx, 1e-30)), jnp.sqrt(jnp.maximum(zz, 1e-30))
    return (zz * xy - xz * zy) / (length_z * scale), (xx * zy - xz * xy) / (length_x * scale)


# ---- what is public about the items ----


class Attributes(NamedTuple):
    """Public attributes of all items: kinds float32[n, d] with rows of norm 1, and a number float32[n] on the scale of years."""

    kinds: Any
    number: Any

    @classmethod
    def of(cls, catalog: Catalog) -> "Attributes | None":
        """Those of a catalog: its categories, and its first numeric field; None where it has neither."""
        n, columns, number = catalog.n_items, [], None
        for field in catalog.item_fields:
            values = np.asarray(catalog.attributes[field.name], np.float32).reshape(n, -1)
            if field.kind == "multi":
                columns.append(values)
            elif field.kind == "categorical":
                columns.append((values == np.arange(field.size)).astype(np.float32))
            elif field.kind == "numeric" and number is None:
                number = values[:, 0]
        if not columns and number is None:
            return None
        kinds = np.concatenate(columns, axis=1) if columns else np.zeros((n, 1), np.float32)
        kinds = kinds / np.maximum(np.linalg.norm(kinds, axis=1, keepdims=True), 1e-9)
        return cls(kinds, np.full(n, np.nan, np.float32) if number is None else _on_years(number))

    def features(self, head: jax.Array) -> list[jax.Array]:
        """What two items of the head have in common, a list of float32[room, room]: 1, g, g³, e^(−Δ/1, 4, 15), g·e^(−Δ/4)."""
        kinds, number = (jnp.asarray(column).at[head].get(mode="clip") for column in self)
        g, gap = kinds @ kinds.T, jnp.abs(number[:, None] - number)
        near = [jnp.where(jnp.isnan(gap), 0.0, jnp.exp(-gap / width)) for width in (1.0, 4.0, 15.0)]
        return [jnp.ones_like(g), g, g**3, *near, g * near[1]]


def _on_years(number: np.ndarray) -> np.ndarray:
    spread = np.nanstd(number) if np.isfinite(number).any() else 0.0
    return (number / spread * YEARS if spread > 0 else np.full_like(number, np.nan)).astype(np.float32)


def predicted(table: jax.Array, expected: jax.Array, features: list[jax.Array], among: jax.Array) -> jax.Array:
    """F = max(0, the least squares of the table on expected·features) on the cells `among`, float32[room, room]."""
    columns = [jnp.where(among, expected * feature, 0.0) for feature in features]
    scale = jnp.sqrt(jnp.asarray([(column**2).sum() for column in columns])) + 1e-12
    gram = jnp.asarray([[(one * other).sum() for one in columns] for other in columns]) / scale / scale[:, None]
    target = jnp.asarray([(column * table).sum() for column in columns]) / scale
    factor = jnp.linalg.solve(gram + 1e-5 * jnp.eye(len(columns)), target) / scale
    return jnp.maximum(sum(b * column for b, column in zip(factor, columns)), 0.0)
