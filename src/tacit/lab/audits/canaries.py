"""Canaries: artificial devices that send one of two updates that are easy to distinguish, chosen by a random bit.

Their updates are far beyond every bound, so that missing clipping is noticed, and pass the same gate, the same mechanism
and the same server as all others.
"""

import math
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from tacit.core.catalog import Catalog
from tacit.core.integer_grid import PEOPLE, from_people_grid, person_on_grid
from tacit.core.messages import Report, Schema
from tacit.device.history import History
from tacit.device.method import AtHome
from tacit.nets.neural.chunked import clipped_to_unit, sum_in_chunks
from tacit.privacy.mechanism import Mechanism
from tacit.privacy.mechanisms._parts.pair_counts import Cooccurrence

LARGE = 1e6  # how large an update is: beyond any bound
SMALL = 1e-3  # the size in leaves that canaries must share; still beyond any bound
_TRIED = 256  # canaries by which a shape is chosen
_GROUP = 64  # patterns held at a time
Shape = Literal["spots", "signs", "pairs", "diagonal"]


_SHAPES: dict[str | None, tuple[Shape, ...]] = {
    None: ("spots", "signs"),
    "nonnegative": ("pairs",),
    "outer_products": ("diagonal",),
}


class Canary(AtHome):
    """A device whose update is its own pattern, with the sign of its random bit.

    `signs` is ±1 on every number. `spots` is one number of every leaf; in leaves that are large enough no two canaries share a
    number, so that a sum shows each canary separately. `pairs` are two numbers of every leaf with opposite signs, so that
    the pattern and its opposite are different updates also where a mechanism clamps what is negative; `diagonal` are two
    on the diagonal of every matrix, for mechanisms that send outer products.
    """

    catalog: Catalog
    update: Schema = eqx.field(static=True)
    weights: int = eqx.field(static=True)
    canaries: int = eqx.field(static=True)
    shape: Shape = eqx.field(static=True, default="spots")
    apart: bool = eqx.field(static=True, default=False)  # whether each canary's report is seen separately

    def prepare(self, history: History) -> Any:
        """No history is read."""
        del history

    def score(self, params: dict, local: Any, own: Any, recent: jax.Array, candidates: jax.Array) -> jax.Array:
        """A canary recommends nothing."""
        del params, local, own, recent
        return jnp.zeros(candidates.shape)

    def local(self, key: jax.Array, params: dict, local: Any, own: dict) -> tuple[Any, dict, jax.Array]:
        """The pattern or its opposite."""
        del key, params
        return local, self._tree(own["sign"] * self.pattern(own["number"])), jnp.ones(self.weights)

    def owns(self, coins: np.ndarray) -> dict:
        """What each canary device holds, stacked."""
        return {"number": jnp.arange(coins.size), "sign": jnp.where(jnp.asarray(coins), 1.0, -1.0)}

    def pattern(self, number: jax.Array) -> jax.Array:
        """A canary's update when its bit is 1, leaf after leaf, float[D]."""
        if self.shape == "signs":
            key = jax.random.fold_in(jax.random.key(0), number)
            return LARGE * jax.random.rademacher(key, (sum(self._sizes),), jnp.float32) * self._counted
        return jnp.concatenate([self._spots(number, leaf.shape) for leaf in self.update.leaves]) * self._counted

    def scores(self, received: jax.Array) -> jax.Array:
        """How similar the received numbers are to each pattern: of float[D], the sum of all, or float[m, D], one by one."""
        mask = self._counted * np.repeat([self._clear(leaf.shape) for leaf in self.update.leaves], self._sizes)

        def one(number: jax.Array, mine: jax.Array) -> jax.Array:
            return (self.pattern(number) / LARGE * mask) @ mine

        numbers = jnp.arange(self.canaries)
        if received.ndim == 1:
            return jax.lax.map(lambda number: one(number, received), numbers, batch_size=_GROUP)
        return jax.lax.map(lambda pair: one(*pair), (numbers, received), batch_size=_GROUP)

    @property
    def _sizes(self) -> list[int]:
        return [math.prod(leaf.shape) for leaf in self.update.leaves]

    @property
    def _counted(self) -> np.ndarray:
        """0 where a number is the count of people, which no canary changes; else 1."""
        return np.repeat([0.0 if PEOPLE in leaf.path else 1.0 for leaf in self.update.leaves], self._sizes)

    def _spots(self, number: jax.Array, shape: tuple[int, ...]) -> jax.Array:
        """A canary's numbers in a leaf of this shape."""
        size, height = math.prod(shape), LARGE * (1.0 if self._clear(shape) else SMALL)
        if self.shape == "spots":
            return jnp.zeros(size).at[number % size].set(height)
        room, step = (size, 1) if self.shape == "pairs" else (shape[-1], shape[-1] + 1)  # or along the first diagonal
        one, other = ((2 * number + k) % room * step for k in (0, 1))
        return jnp.zeros(size).at[one].add(height).at[other].add(-height)

    def _clear(self, shape: tuple[int, ...]) -> bool:
        """Whether no two canaries meet in a leaf of this shape, or it does not matter."""
        return self.apart or _places(shape, self.shape) >= self.canaries

    def _tree(self, flat: jax.Array) -> dict:
        parts = jnp.split(flat, np.cumsum(self._sizes)[:-1])
        shaped = [part.reshape(leaf.shape) for part, leaf in zip(parts, self.update.leaves)]
        return jax.tree.unflatten(self.update.tree, shaped)


class CanaryOrganisation(Canary):
    """An organisation all of whose people are canaries, each put on the grid as methods do with their people."""

    def local(self, key: jax.Array, params: dict, local: Any, own: dict) -> tuple[Any, dict, jax.Array]:
        """Σ over people of a pattern at most 1 long, and how many they are."""
        del params

        def one(number: jax.Array) -> dict:
            mine = self._tree(own["sign"][number % self.canaries] * self.pattern(number))
            rest = {name: leaf for name, leaf in mine.items() if name != PEOPLE}
            return person_on_grid(jax.random.fold_in(key, number), clipped_to_unit(rest, 1.0))

        people = jnp.asarray(self.canaries)
        return local, from_people_grid(sum_in_chunks(one, people, _GROUP), people), jnp.ones(self.weights)

    def owns(self, coins: np.ndarray) -> dict:
        """One organisation."""
        return {"sign": jnp.where(jnp.asarray(coins), 1.0, -1.0)[None]}

    def scores(self, received: jax.Array) -> jax.Array:
        """Of what the one organisation sent, float[1, D]."""
        return super().scores(received[0])


class CanaryPositions(Canary):
    """A device with a random bit for every position: whether it has the item. For claims about one interaction."""

    def local(self, key: jax.Array, params: dict, local: Any, own: dict) -> tuple[Any, dict, jax.Array]:
        """1 where the bit is 1."""
        del key, params
        return local, self._tree(own["has"]), jnp.ones(self.weights)

    def owns(self, coins: np.ndarray) -> dict:
        """So many devices that every canary has its position; those left over are 0."""
        numbers = sum(self._sizes)
        padded = np.pad(coins, (0, -coins.size % numbers)).reshape(-1, numbers)
        return {"has": jnp.asarray(padded, jnp.float32)}

    def scores(self, received: jax.Array) -> jax.Array:
        """Each estimate of 0 or 1, float[devices, D], minus 0.5."""
        return received.reshape(-1)[: self.canaries] - 0.5


def in_one_sum(mechanism: Mechanism) -> bool:
    """Whether what is seen of all canaries is one sum."""
    return mechanism.sums_people or mechanism.always_releases


def canary_room(mechanism: Mechanism, leaves: Iterable[tuple[int, ...]], canaries: int) -> int:
    """The most canaries that can be distinguished in an update whose leaves have these shapes."""
    if not in_one_sum(mechanism):
        return canaries
    shape = _SHAPES[mechanism.update_form][0]
    return min(canaries, max(_places(leaf, shape) for leaf in leaves))


def _places(leaf: tuple[int, ...], shape: Shape) -> int:
    """How many canaries have numbers of their own in a leaf."""
    numbers = math.prod(leaf)
    return {"spots": numbers, "signs": 0, "pairs": numbers // 2, "diagonal": leaf[-1] // 2 if leaf else 0}[shape]


def canary_devices(mechanism: Mechanism | None, canaries: int, catalog: Catalog) -> int:
    """How many devices so many canaries are."""
    if mechanism is not None and mechanism.sums_people:
        return 1
    return -(-canaries // catalog.n_items) if _by_position(mechanism) else canaries


def design_canaries(mechanism: Mechanism, catalog: Catalog, update: Schema, weights: int, canaries: int) -> Canary:
    """The canaries that are easiest to distinguish under a mechanism."""
    if _by_position(mechanism):
        return CanaryPositions(catalog, update, weights, canaries)
    shapes = _SHAPES[mechanism.update_form]
    if in_one_sum(mechanism):
        kind = CanaryOrganisation if mechanism.sums_people else Canary
        return kind(catalog, update, weights, canaries, shapes[0])
    tried = (Canary(catalog, update, weights, canaries, shape, apart=True) for shape in shapes)
    return max(tried, key=partial(_distinguishability, mechanism))


def _by_position(mechanism: Mechanism | None) -> bool:
    return mechanism is not None and mechanism.unit == "interaction"


def _distinguishability(mechanism: Mechanism, canary: Canary) -> float:
    """How well some messages reveal their bits: the mean score with the right sign, over its standard deviation."""
    few = replace(canary, canaries=min(_TRIED, canary.canaries))
    sign = jnp.where(jnp.arange(few.canaries) % 2 == 0, 1.0, -1.0)

    def message(key: jax.Array, number: jax.Array, sign: jax.Array) -> Report:
        update = few.local(key, {}, {}, {"number": number, "sign": sign})[1]
        return Report(mechanism.encode(key, update, {}), jnp.ones(few.weights), jnp.asarray(True))

    keys = jax.random.split(jax.random.key(1), few.canaries)
    reports = jax.vmap(message)(keys, jnp.arange(few.canaries), sign)
    scores = np.asarray(few.scores(estimate_each(mechanism, few.update, reports)) * sign)
    return float(scores.mean() / max(scores.std(), 1e-30))


def estimate_each(mechanism: Mechanism, update: Schema, reports: Report) -> jax.Array:
    """The server's estimate from each single report, float[c, D]."""
    empty = mechanism.zero(update.like(), reports.weight.shape[1])

    def alone(report: Report) -> jax.Array:
        one = jax.tree.map(lambda leaf: leaf[None], report)
        total = mechanism.add(empty, one.payload, one.weight, one.sent)
        return flat_estimate(mechanism.estimate(jax.random.key(0), total, jnp.int32(1), {})[0])

    return jax.lax.map(alone, reports)


def flat_estimate(estimate: dict) -> jax.Array:
    """An estimated sum, leaf after leaf, float[D]; counts of pairs, which reveal nothing more about one person, are left out."""
    leaves = jax.tree.leaves(estimate, is_leaf=lambda leaf: isinstance(leaf, Cooccurrence))
    parts = [leaf[0].reshape(-1) for leaf in leaves if not isinstance(leaf, Cooccurrence)]
    return jnp.concatenate(parts).astype(jnp.float32)
