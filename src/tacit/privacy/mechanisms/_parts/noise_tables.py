"""The tables that discrete noise is drawn from: rounded Gaussian and discrete Laplace, with 96-bit thresholds.

What is exact:

- The laws that are aimed at. The rounded Gaussian is X = round(N(0, σ²)). As an integer query x has x + X = round(x + N), it
  post-processes the continuous Gaussian mechanism, whose prices (analytic, PLD, sampled) hold for it as they are. The
  discrete Laplace with P(k) ∝ e^(−|k|/s) has pure ε = Δ/s at L1 sensitivity Δ.
- The tables, built in integer arithmetic of 256 bits, the same on every machine (`sha256`).

What is not: a table's weights are multiples of 2⁻⁹⁵ (Gaussian) or 2⁻⁹⁶ (Laplace), and its tail ends where they become 0. The
total variation distance of one draw from its law is at most `tau`: computed for each table, not measured, below n·2⁻⁹⁶ for
n entries. σ > 256 is X₀ + K·X₁ of one table: the law is that of round(N(0, σ²) + K·U) with an independent uniform U,
which post-processes the Gaussian mechanism as well, up to a relative error of 4·exp(−2π²σ₀²/(1 + K²)), part of `tau`. The
`gap` of an event has it for a whole message, and the accountant takes it off δ.
"""

import hashlib
import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tacit.errors import PlanError

_BITS = 256  # fractional bits of the arithmetic that builds a table
_ONE = 1 << _BITS
UNIT = 65536  # σ₀²: the variance of the table that larger deviations are composed of
MAX_SCALE = 2**24  # a discrete Laplace of a larger scale would not fit 32 bits
_FACTOR = 128  # the largest K


@dataclass(frozen=True, eq=False)
class AliasTable:
    """A law on 0 … 2^width − 1 (Walker 1977): entry i is kept below its threshold, and replaced by its alias above.

    A word's low bits choose the entry, the bits above them are compared with the first bits of the threshold. Where they
    are equal, two more words are compared with the rest.
    """

    words: np.ndarray  # uint32[3, 2^width]: first bits of the threshold above the alias; the next 32 bits; the last 32
    width: int
    signed: bool  # whether the bit above the entry's is a sign
    tau: float  # total variation distance from the law
    reach: int  # the largest entry of positive weight

    @cached_property
    def sha256(self) -> str:
        """The digest of the words, little-endian."""
        return hashlib.sha256(self.words.astype("<u4").tobytes()).hexdigest()


@dataclass(frozen=True, eq=False)
class GaussianTable:
    """The rounded Gaussian: Σ factor·X over one table's draws X."""

    table: AliasTable
    factors: tuple[int, ...]
    variance: Fraction  # σ²: of the Gaussian that is rounded

    @property
    def deviation(self) -> float:
        """σ, in units of the grid."""
        return math.sqrt(self.variance)

    @property
    def tables(self) -> tuple[AliasTable, ...]:
        """The table of each word of a draw."""
        return (self.table,) * len(self.factors)

    @property
    def tau(self) -> float:
        """Total variation distance of one draw from its law: that of each term, and of composing them."""
        factor = self.factors[1] if len(self.factors) > 1 else 0
        part = float(self.variance) / sum(factor**2 for factor in self.factors)
        composed = 4 * math.exp(-2 * math.pi**2 * part / (1 + factor**2))
        return _up(len(self.factors) * self.table.tau + (len(self.factors) - 1) * composed)

    @property
    def reach(self) -> int:
        """The largest size of a draw."""
        return self.table.reach * sum(self.factors)

    def combine(self, entries: list[jax.Array], words: Any) -> jax.Array:
        """The draws of chosen entries: their signs are in the words, above the bits that chose them."""
        draws = jnp.zeros(entries[0].shape, jnp.int32)
        for factor, entry, word in zip(self.factors, entries, words):
            size = entry.astype(jnp.int32)
            draws = draws + factor * jnp.where((word >> self.table.width) & 1, -size, size)
        return draws


@dataclass(frozen=True, eq=False)
class LaplaceTable:
    """The discrete Laplace: a sign and the binary digits of a geometric number, in groups that are one table each."""

    tables: tuple[AliasTable, ...]  # the first has the lowest digits, and the sign above them
    scale: Fraction  # s, in units of the grid

    @property
    def digits(self) -> int:
        """How many digits the geometric number has."""
        return sum(table.width for table in self.tables) - 1

    @property
    def tau(self) -> float:
        """Total variation distance of one draw from its law: of the tables, and of the digits that are left out."""
        left_out = math.exp(-float(2**self.digits / self.scale))
        return _up(sum(table.tau for table in self.tables) + left_out)

    @property
    def reach(self) -> int:
        """The largest size of a draw."""
        return 2**self.digits

    def combine(self, entries: list[jax.Array], words: Any) -> jax.Array:
        """The draws of chosen entries: G, or −1 − G."""
        del words
        shift = self.tables[0].width - 1
        negative, size = entries[0] >> shift, entries[0] & (2**shift - 1)
        for table, digits in zip(self.tables[1:], entries[1:]):
            size, shift = size | digits << shift, shift + table.width
        size = size.astype(jnp.int32)
        return jnp.where(negative, -1 - size, size)


@lru_cache(maxsize=32)
def gaussian_table(variance: Fraction | int, factors: tuple[int, ...] = (1,)) -> GaussianTable:
    """The table of round(N(0, variance)), variance ≤ 65536, or of a sum of `factors` times as many draws."""
    variance = Fraction(variance)
    if not 0 < variance <= UNIT:
        raise ValueError(f"The variance of one table must be above 0 and at most {UNIT}, got {float(variance):g}.")
    entries = math.isqrt(math.ceil(variance * Fraction(13456, 100))) + 2  # 11.6 σ
    width = max(5, entries.bit_length())
    inside = [0, *(_inside(2 * k - 1, variance) for k in range(1, entries + 1))]  # P(0 < N < k − ½)
    masses = [2 * (above - below) for below, above in pairwise(inside)]
    table = _alias_table(masses, width, signed=True)
    return GaussianTable(table, factors, variance * sum(factor**2 for factor in factors))


def gaussian_table_above(deviation: float) -> GaussianTable:
    """The rounded Gaussian whose σ is at least so many units of the grid, and at most a millionth more."""
    if not 0 < deviation < math.inf:
        raise ValueError(f"A standard deviation must be positive and finite, got {deviation:g}.")
    square = Fraction(deviation) ** 2
    factors = gaussian_factors(square)
    part = square / sum(factor**2 for factor in factors)
    fine = max(0, 24 - math.ceil(math.log2(part)))
    return gaussian_table(Fraction(math.ceil(part * 2**fine), 2**fine), factors)


def gaussian_factors(variance: Fraction) -> tuple[int, ...]:
    """1, K, K², as few as possible, such that draws of one table with these factors have the variance."""
    ratio = variance / UNIT
    if ratio <= 1:
        return (1,)
    for powers in (1, 2):
        # The guess is rounded down, and mended upwards in integers.
        guess = float(ratio) - 1 if powers == 1 else math.sqrt(float(ratio) - 0.75) - 0.5
        factor = max(1, math.floor(math.sqrt(guess) * (1 - 1e-12)))
        while sum(factor ** (2 * power) for power in range(powers + 1)) < ratio:
            factor += 1
        if factor <= _FACTOR:
            return tuple(factor**power for power in range(powers + 1))
    most = math.sqrt(UNIT * (1 + _FACTOR**2 + _FACTOR**4))
    raise PlanError(
        f"privacy.noise must be at most {most:.3g} units of its grid of whole numbers, got {math.sqrt(variance):.3g}; "
        "give a smaller noise, or train fewer numbers."
    )


@lru_cache(maxsize=32)
def laplace_table(scale: Fraction | int) -> LaplaceTable:
    """The table of P(k) ∝ e^(−|k|/scale)."""
    scale = Fraction(scale)
    if not 0 < scale <= MAX_SCALE:
        raise ValueError(f"The scale of a discrete Laplace must be above 0 and at most 2^24, got {float(scale):g}.")
    count = max(1, (math.ceil(64 * scale) - 1).bit_length())  # 2^count ≥ 64·scale
    groups = -(-count // 10)
    tables, at = [], 0
    for group in range(groups):
        size = -(-(count - at) // (groups - group))
        coins = [laplace_coin(scale, digit, _BITS) for digit in range(at, at + size)]
        if group == 0:
            coins.append(laplace_coin(scale, 0, _BITS))  # the sign: 1 is −1 − G
        masses = [_ONE]
        for coin in coins:
            masses = [mass * (_ONE - coin) >> _BITS for mass in masses] + [mass * coin >> _BITS for mass in masses]
        tables.append(_alias_table(masses, len(coins), signed=False))
        at += size
    return LaplaceTable(tuple(tables), scale)


def laplace_coin(scale: Fraction, digit: int, bits: int) -> int:
    """2^bits/(1 + e^(2^digit/scale)), to the nearest integer: how likely that digit is 1; digit 0 has the sign's coin.

    A geometric number of ratio e^(−1/s) has independent digits, and the sign that makes it symmetric is a coin too.
    """
    fine = max(_BITS, bits) + 32
    weight = exp_neg(2**digit * scale.denominator, scale.numerator, fine)
    doubled = (weight << (bits + 1)) // ((1 << fine) + weight)
    return (doubled + 1) >> 1


def exp_neg(numerator: int, denominator: int, bits: int) -> int:
    """⌊2^bits·e^(−numerator/denominator)⌋, in integers.

    >>> exp_neg(1, 1, 10), int(1024 / 2.718281828)
    (376, 376)
    """
    if numerator == 0:
        return 1 << bits
    if numerator >= denominator * (bits + 1):
        return 0
    halvings = max(0, (numerator // denominator).bit_length()) + 8
    guard = 64
    while True:
        fine = bits + guard + halvings
        reduced = (numerator << fine) // (denominator << halvings)
        total = term = 1 << fine
        n = 0
        while term:
            n += 1
            term = -(term * reduced >> fine) // n if n % 2 else (-term * reduced >> fine) // n
            total += term
        for _ in range(halvings):
            total = total * total >> fine
        slack = 1 << (halvings + n.bit_length() + 8)  # each step is wrong by a unit, which each squaring doubles
        if (total - slack) >> (fine - bits) == (total + slack) >> (fine - bits):
            return total >> (fine - bits)
        guard *= 2


def _inside(doubled: int, variance: Fraction) -> int:
    """2²⁵⁶·P(0 < N < doubled/2) for N of this variance: x·φ(x)·Σ x²ⁿ/(2n + 1)!! with x = doubled/(2σ)."""
    top, bottom = doubled**2 * variance.denominator, 4 * variance.numerator  # x²
    if top >= 400 * bottom:
        return _ONE >> 1  # beyond 20 σ, where 10⁻⁸⁸ is left
    total, term, n = 0, _ONE, 1
    while term:
        total += term
        n += 2
        term = term * top // (bottom * n)
    more = 3 * top // (4 * bottom)  # bits, for the sum is as large as e^(x²/2)
    density = exp_neg(top, 2 * bottom, _BITS + more)
    root = math.isqrt((_two_pi() * variance.numerator << _BITS) // variance.denominator)  # 2²⁵⁶·√(2πσ²)
    return (total * density * doubled >> more) // (2 * root)


@lru_cache(maxsize=1)
def _two_pi() -> int:
    """2²⁵⁶·2π, by Machin's formula."""
    fine = 1 << (_BITS + 32)

    def arctan(inverse: int) -> int:
        total, power, n = 0, fine // inverse, 1
        while power:
            total += power // n if n % 4 == 1 else -(power // n)
            power, n = power // inverse**2, n + 2
        return total

    return 8 * (4 * arctan(5) - arctan(239)) >> 32


def _alias_table(masses: list[int], width: int, signed: bool) -> AliasTable:
    """The table of a law in units of 2⁻²⁵⁶. Weights go to the nearest; what is left goes to the heaviest entry."""
    bits = 95 if signed else 96
    down = _BITS - bits
    weights = [(mass + (1 << (down - 1))) >> down for mass in masses]
    heaviest = max(range(len(weights)), key=weights.__getitem__)
    weights[heaviest] += (1 << bits) - sum(weights)
    apart = sum(abs((weight << down) - mass) for weight, mass in zip(weights, masses)) + _ONE - sum(masses)
    tau = _up((apart / _ONE) / 2 + len(masses) * 2.0**-150)  # the masses themselves are right to 2⁻¹⁶⁰
    reach = max(k for k, weight in enumerate(weights) if weight)
    return AliasTable(_thresholds(weights, width, bits), width, signed, tau, reach)


def _thresholds(weights: list[int], width: int, bits: int) -> np.ndarray:
    """Thresholds and aliases (Vose 1991): stacks are filled upwards and popped from the end."""
    entries, share = 1 << width, 1 << (bits - width)
    left = weights + [0] * (entries - len(weights))
    small = [i for i in range(entries) if left[i] < share]
    large = [i for i in range(entries) if left[i] >= share]
    words = np.zeros((3, entries), np.uint32)

    def put(i: int, threshold: int, alias: int) -> None:
        words[:, i] = (threshold >> 64) << width | alias, threshold >> 32 & 0xFFFFFFFF, threshold & 0xFFFFFFFF

    while small and large:
        i, other = small.pop(), large.pop()
        put(i, left[i], other)
        left[other] -= share - left[i]
        (small if left[other] < share else large).append(other)
    for i in small + large:
        put(i, share - 1, i)  # its own alias, so that all of its share is its own
    return words


def _up(number: float) -> float:
    """A little more, so that floating point does not state less than it is."""
    return number * (1 + 2.0**-40)
