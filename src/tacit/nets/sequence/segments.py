"""Segments: the sequences inside one array of events, histograms of their lengths, and the KL divergence of two histograms."""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp

from tacit.core.catalog import Field


def field_column(fields: Sequence[Field], context: jax.Array, name: str) -> jax.Array | None:
    """The column of the event field of this name, float32[L]; None where events have no such field."""
    at = 0
    for field in fields:
        if field.name == name and at < context.shape[1]:
            return context[:, at]
        at += field.width
    return None


class Sequences(NamedTuple):
    """Events grouped by user: the items, each event's user number and its position in its sequence."""

    items: jax.Array  # int32[L], -1 where there is no event
    whose: jax.Array  # int32[L], from 0 in order of appearance; -1 where there is no event
    place: jax.Array  # int32[L], from 0; -1 where there is no event


def sequences(fields: Sequence[Field], items: jax.Array, context: jax.Array) -> Sequences:
    """The events of each user contiguous and in order, also where the log interleaves users.

    A log sorted by time interleaves users. Counting each run of a user's events as a user of its own would let one user
    contribute as much as many, and a bound on each user's contribution would not hold. Events without a user all
    belong to one.
    """
    person, sequence = (field_column(fields, context, name) for name in ("person", "sequence"))
    if person is not None:
        person = jnp.where(jnp.isnan(person), -jnp.inf, person)
        order = jnp.lexsort((person, items < 0))  # stable; padding stays last
        items, person = items[order], person[order]
        sequence = None if sequence is None else sequence[order]
    real = items >= 0
    return Sequences(items, run_numbers(real, person), run_positions(real, person, sequence))


def run_numbers(real: jax.Array, *names: jax.Array | None) -> jax.Array:
    """The number of the run of equal names that each event is in, int32[L], from 0; -1 where there is no event.

    >>> run_numbers(jnp.array([1, 1, 1, 1, 0], bool), jnp.array([7, 7, 8, 7, 0])).tolist()
    [0, 0, 1, 2, -1]
    """
    return jnp.where(real, jnp.cumsum(_begins(real, names)) - 1, -1).astype(jnp.int32)


def run_positions(real: jax.Array, *names: jax.Array | None) -> jax.Array:
    """Each event's position in its run of equal names, int32[L], from 0; -1 where there is no event.

    >>> run_positions(jnp.array([1, 1, 1, 1, 0], bool), jnp.array([7, 7, 8, 8, 0])).tolist()
    [0, 1, 0, 1, -1]
    """
    index = jnp.arange(real.shape[0])
    start = jax.lax.cummax(jnp.where(_begins(real, names), index, 0))
    return jnp.where(real, index - start, -1).astype(jnp.int32)


def _begins(real: jax.Array, names: Sequence[jax.Array | None]) -> jax.Array:
    """True where an event's names are not those of the event before it."""
    new = jnp.zeros(real.shape[0] - 1, bool)
    for name in names:
        new = new if name is None else new | (name[1:] != name[:-1])
    return jnp.append(True, new)


def ends(place: jax.Array) -> jax.Array:
    """True at the last event of each sequence of at least two events."""
    following = jnp.append(place[1:], -1)
    return (place >= 1) & (following <= 0)


def sequence_length_histogram(place: jax.Array, longest: int, weight: jax.Array | float = 1.0) -> jax.Array:
    """How many sequences have 2, 3, … `longest` or more events, [longest − 1]; whole numbers where weights are."""
    last = ends(place)
    bin = jnp.where(last, jnp.minimum(place, longest - 1) - 1, longest - 1)  # out of range is dropped
    return jnp.zeros(longest - 1, jnp.result_type(weight)).at[bin].add(jnp.where(last, weight, 0), mode="drop")


def kl_divergence(mine: jax.Array, everybody: jax.Array, smoothing: float = 0.0) -> jax.Array:
    """KL(p ‖ q) = Σ p ln(p/q) of two histograms of counts, `smoothing` added to each bin; 0 ln 0 = 0.

    Infinite where p has mass in an empty bin of q; never where q includes p.

    >>> round(float(kl_divergence(jnp.array([2.0, 1, 1, 0]), jnp.array([2.0, 4, 1, 3]))), 6)
    0.569717
    """
    p, q = (_shares(counts + smoothing) for counts in (mine, everybody))
    return jnp.where(p > 0, p * (jnp.log(jnp.where(p > 0, p, 1.0)) - jnp.log(q)), 0.0).sum()


def _shares(counts: jax.Array) -> jax.Array:
    return counts / jnp.maximum(counts.sum(), 1e-30)


def closeness(mine: jax.Array, everybody: jax.Array, total: jax.Array, smoothing: float = 0.0) -> jax.Array:
    """e^−KL(p ‖ q), divided by `total`, its sum over all devices, where that is known (above 0); never NaN."""
    g = jnp.exp(-kl_divergence(mine, jnp.maximum(everybody, 0.0), smoothing))
    return jnp.where(jnp.isfinite(g), g, 0.0) / jnp.where(total > 0, total, 1.0)
