"""Sampled signs: messages of a few positions of an update, drawn at random, and a random sign at each.

The positions are drawn from all numbers of the update, touched or not, so they reveal nothing. The signs are drawn with
32-bit integers, so that their probabilities are exactly what is claimed, rounded to the private side.
"""

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tacit.core.sparse_rows import Rows, dense_tree, is_rows
from tacit.errors import PlanError
from tacit.privacy.mechanisms._parts.local_dp import Local
from tacit.privacy.sampler import Exposure

MOST = 2**31 - 1  # a position is a 32-bit whole number
_HALF = 2**31

# ---- an update as one row of numbers ----


@dataclass(frozen=True)
class Layout:
    """How the leaves of an update are laid out in one row: one after another, in sorted path order."""

    tree: Any
    shapes: tuple[tuple[int, ...], ...]

    @property
    def sizes(self) -> tuple[int, ...]:
        """How many numbers each leaf has."""
        return tuple(math.prod(shape) for shape in self.shapes)

    @property
    def numbers(self) -> int:
        """D: how many numbers there are."""
        return sum(self.sizes)

    def split(self, flat: jax.Array) -> Any:
        """The leaves of a row, or of several rows with leading axes."""
        ends = list(itertools.accumulate(self.sizes))[:-1]
        parts = jnp.split(flat, ends, axis=-1)
        leaves = [part.reshape(*flat.shape[:-1], *shape) for part, shape in zip(parts, self.shapes)]
        return jax.tree.unflatten(self.tree, leaves)


def layout_of(update: Any) -> Layout:
    """The layout of an update; the same whether its tables are dense or row-sparse."""
    leaves, tree = jax.tree.flatten(update, is_leaf=is_rows)
    layout = Layout(tree, tuple(_shape(leaf) for leaf in leaves))
    if not 1 <= layout.numbers <= MOST:
        raise PlanError(
            f"an update must have at least 1 number and at most 2³¹ − 1 for its positions to be sent, got "
            f"{layout.numbers}; train fewer leaves in this stage."
        )
    return layout


@partial(jax.tree_util.register_dataclass, data_fields=["sums", "heard"], meta_fields=["layout"])
@dataclass(frozen=True)
class FlatTotal:
    """Sums over messages, each a row of numbers; the number of messages; and the layout of the leaves."""

    sums: dict[str, jax.Array]
    heard: jax.Array  # int32[weights]: how many messages; the name is in the schema of totals
    layout: Layout

    def estimate(self, row: jax.Array) -> tuple[Any, jax.Array]:
        """(sum, weight) of a row: each device counts once, so it is the same for every weight."""
        rows = jnp.broadcast_to(row, (*self.heard.shape, self.layout.numbers))
        return self.layout.split(rows), self.heard.astype(jnp.float32)


def flatten(update: Any) -> jax.Array:
    """All numbers of an update, float32[D]; builds the dense tables."""
    return jnp.concatenate([leaf.astype(jnp.float32).reshape(-1) for leaf in jax.tree.leaves(dense_tree(update))])


def numbers_at(update: Any, positions: jax.Array) -> jax.Array:
    """The numbers at some positions, float32[k]; a row-sparse table is searched, not built."""
    value, start = jnp.zeros(positions.shape, jnp.float32), 0
    for leaf in jax.tree.leaves(update, is_leaf=is_rows):
        size = math.prod(_shape(leaf))
        here = (positions >= start) & (positions < start + size)
        found = _at(leaf, jnp.where(here, positions - start, 0))
        value, start = jnp.where(here, found.astype(jnp.float32), value), start + size
    return value


def _shape(leaf: Any) -> tuple[int, ...]:
    return (leaf.rows, *leaf.value.shape[1:]) if isinstance(leaf, Rows) else tuple(leaf.shape)


def _at(leaf: Any, place: jax.Array) -> jax.Array:
    """The numbers of one leaf."""
    if not isinstance(leaf, Rows):
        return leaf.reshape(-1)[place]
    touched = leaf.index.shape[0]
    if not touched:
        return jnp.zeros(place.shape, leaf.value.dtype)
    table = leaf.value.reshape(touched, -1)
    row, column = jnp.divmod(place, table.shape[1])
    nearest = jnp.minimum(jnp.searchsorted(leaf.index, row), touched - 1)
    return jnp.where(leaf.index[nearest] == row, table[nearest, column], 0)


def distinct_positions(key: jax.Array, count: int, numbers: int) -> jax.Array:
    """`count` different positions out of `numbers`, every set equally likely, ascending (Floyd's algorithm).

    >>> distinct_positions(jax.random.key(0), 3, 3).tolist()
    [0, 1, 2]
    """
    top = jnp.arange(numbers - count, numbers, dtype=jnp.int32)
    draws = jax.random.randint(key, (count,), 0, top + 1, jnp.int32)

    def take(i: jax.Array, chosen: jax.Array) -> jax.Array:
        taken = (chosen == draws[i]).any()  # then the newest position is still free, and is taken instead
        return chosen.at[i].set(jnp.where(taken, top[i], draws[i]))

    return jnp.sort(jax.lax.fori_loop(0, count, take, jnp.full(count, -1, jnp.int32)))


def add_at_positions(row: jax.Array, positions: jax.Array, values: jax.Array) -> jax.Array:
    """The row with values added at positions, both [c, k]; positions out of range are dropped."""
    return row.at[positions.reshape(-1)].add(values.reshape(-1).astype(row.dtype), mode="drop")


# ---- bits ----


def width(numbers: int) -> int:
    """Bits of one position and its sign: ⌈log₂ D⌉ + 1.

    >>> width(2000 * 64)
    18
    """
    return (numbers - 1).bit_length() + 1


def pack_signs(positions: jax.Array, plus: jax.Array, numbers: int) -> jax.Array:
    """Positions [k] and whether their signs are plus [k], as ⌈k·width/8⌉ bytes."""
    shifts = jnp.arange(width(numbers) - 1, dtype=jnp.int32)
    bits = (positions[:, None] >> shifts) & 1
    return jnp.packbits(jnp.concatenate([plus[:, None].astype(jnp.int32), bits], 1).reshape(-1).astype(bool))


def unpack_signs(packed: jax.Array, count: int, numbers: int) -> tuple[jax.Array, jax.Array]:
    """Positions and signs (+1 or −1), int32[..., k], of messages uint8[..., bytes]."""
    wide = width(numbers)
    bits = jnp.unpackbits(packed, axis=-1, count=count * wide).reshape(*packed.shape[:-1], count, wide)
    bits = bits.astype(jnp.int32)
    return (bits[..., 1:] << jnp.arange(wide - 1)).sum(-1, dtype=jnp.int32), 2 * bits[..., 0] - 1


# ---- coins ----


def best_count(epsilon_of_sign: Callable[[int], float]) -> int:
    """The k with the least variance, coth²(ε/2k)/k, when each of k signs is given `epsilon_of_sign(k)`.

    >>> best_count(lambda k: 4.5 / k)
    2
    """

    def error(k: int) -> float:
        return _coth(epsilon_of_sign(k) / 2) ** 2 / k

    k = 1
    while error(k + 1) < error(k):
        k += 1
    return k


def choose_count(mechanism: Local, exposure: Exposure) -> int:
    """The best k for a mechanism whose ε is still to be split over its messages."""
    from tacit.privacy.accounting import accountant

    messages = exposure.at_most(mechanism.messages).messages

    def of_sign(k: int) -> float:
        if mechanism.epsilon_per_message is not None:
            return mechanism.epsilon_per_message / k
        assert mechanism.epsilon is not None
        return accountant.per_message(mechanism.epsilon, messages, mechanism.delta or 0.0, k) / k

    return best_count(of_sign)


def _coth(x: float) -> float:
    return 1 / math.tanh(x) if x > 0 else math.inf


def coin_bias_of(epsilon: float) -> int:
    """tanh(ε/2) in units of 2⁻³¹, rounded down and below 1: then the odds of a sign differ by at most e^ε."""
    return min(math.floor(math.tanh(epsilon / 2) * _HALF), _HALF - 1)


def check_coin_bias(coin_bias: int, epsilon: float) -> None:
    """Refuse an ε so small that a coin of 32 bits cannot be biased by it."""
    if coin_bias < 1:
        raise PlanError(
            f"the ε of one message must be large enough to bias a coin of 32 bits, got {epsilon:.3g}; allow a larger epsilon, or "
            "fewer messages."
        )


def sign_value(numbers: int, count: int, coin_bias: int) -> float:
    """c by the coins' exact odds: the value of one sign in the estimate; ∞ for fair coins."""
    return numbers / count / (coin_bias / _HALF) if coin_bias else math.inf


def plus_below(value: jax.Array, coin_bias: int) -> jax.Array:
    """uint32: a 32-bit coin below it means plus. 2³¹·(1 + t·coin_bias/2³¹); at t = ±1 exactly 2³¹ ± coin_bias."""
    steep = np.float32(coin_bias)
    steep = steep if int(steep) >= coin_bias else np.nextafter(steep, np.float32(np.inf))
    tilt = jnp.minimum((jnp.abs(value) * steep).astype(jnp.uint32), jnp.uint32(coin_bias))
    return jnp.where(value > 0, jnp.uint32(_HALF) + tilt, jnp.uint32(_HALF) - tilt)


def encode_signs(key: jax.Array, update: Any, scale: Any, count: int, coin_bias: int) -> jax.Array:
    """The message: `count` positions drawn at random, and for each number/scale, clipped to [−1, 1], a random sign.

    Whatever the scale, and whatever the numbers, the odds of a sign stay between those of −1 and +1.
    """
    numbers = check_count(count, update)
    where, toss = jax.random.split(key)
    positions = distinct_positions(where, count, numbers)
    coins = jax.random.bits(toss, (count,), jnp.uint32)
    return pack_signs(positions, coins < plus_below(_unit(numbers_at(update, positions), scale), coin_bias), numbers)


def message_law(update: Any, scale: Any, count: int, coin_bias: int) -> dict[bytes, float]:
    """The probability of every message `encode_signs` can make of a handful of numbers, by the odds of its coins."""
    numbers = check_count(count, update)
    odds = np.asarray(_below(update, scale, coin_bias), np.float64) / 2**32
    sets = itertools.combinations(range(numbers), count)
    cases = list(itertools.product(sets, itertools.product((False, True), repeat=count)))
    chosen, plus = (np.array(part) for part in zip(*cases))
    messages = np.asarray(_pack_all(chosen, plus, numbers))
    p = np.where(plus, odds[chosen], 1 - odds[chosen]).prod(1) / math.comb(numbers, count)
    return {message.tobytes(): float(chance) for message, chance in zip(messages, p)}


@partial(jax.jit, static_argnames="coin_bias")
def _below(update: Any, scale: Any, coin_bias: int) -> jax.Array:
    return plus_below(_unit(flatten(update), scale), coin_bias)


@partial(jax.jit, static_argnames="numbers")
def _pack_all(chosen: Any, plus: Any, numbers: int) -> jax.Array:
    return jax.vmap(partial(pack_signs, numbers=numbers))(chosen, plus)


def check_count(count: int, update: Any) -> int:
    """D; refuses more signs than there are numbers."""
    numbers = layout_of(update).numbers
    if count > numbers:
        raise PlanError(
            f"privacy.k must be at most the {numbers} number(s) of an update, whose positions differ, got {count}; write a smaller k."
        )
    return numbers


def _unit(value: jax.Array, scale: Any) -> jax.Array:
    share = jnp.clip(value / scale, -1.0, 1.0)
    return jnp.where(jnp.isnan(share), 0.0, share)
