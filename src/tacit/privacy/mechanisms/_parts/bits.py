"""Randomised response on bits: one random bit for every position; what mechanisms that send bits share."""

import itertools
import math
from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp
import numpy as np

from tacit.core.settings import setting
from tacit.core.sparse_rows import dense_tree
from tacit.privacy.accounting.events import Event, Pure, Unbounded
from tacit.privacy.claim import Claim, Unit
from tacit.privacy.mechanism import PayloadView, Spread
from tacit.privacy.mechanisms._parts.local_dp import Local
from tacit.privacy.sampler import Exposure

ODDS_SCALE = 2**32  # random bits come from 32-bit integers, so that the probabilities are exactly what is claimed
Form = Literal["symmetric", "unary", "asymmetric"]
Thresholds = tuple[int, int]  # p and q as multiples of 2⁻³²
_TURNS = ((13, 15, 26, 6), (17, 29, 16, 24))
_ZERO_PROVES = "a reported 0 proves that the item is absent"
_CERTAIN = "an answer that only one of two neighbours can give"


class Bits(Local):
    """Position by position, P(report 1 | 1) = p and P(report 1 | 0) = q. Any number above 0 is a 1.

    Probabilities are multiples of 2⁻³², rounded to the private side: p down and q up, towards each other.
    """

    unit: ClassVar[Unit] = "interaction"
    payload_view: ClassVar[PayloadView] = "bits"
    form: Form = setting("symmetric")

    @property
    def kind(self) -> Form:
        """Which of the forms these odds are; it decides which relation is promised."""
        return self.form

    @property
    def per_position(self) -> float:
        """ε of the relation that the form promises, for one position."""
        return self.share

    @property
    def thresholds(self) -> Thresholds:
        """p and q as multiples of 2⁻³²."""
        p, q = thresholds_of(*odds_of(self.form, self.per_position))
        return p, max(1, q)

    @property
    def odds(self) -> tuple[float, float]:
        """(p, q) exactly as they are drawn."""
        p, q = self.thresholds
        return p / ODDS_SCALE, q / ODDS_SCALE

    def encode(self, key: jax.Array, update: dict, public_state: dict) -> Any:
        """One random bit a position; eight positions a byte."""
        del public_state
        leaves, tree = jax.tree.flatten(dense_tree(update))
        keys = jax.random.split(key, len(leaves))
        return jax.tree.unflatten(tree, [self._randomise(k, leaf) for k, leaf in zip(keys, leaves)])

    def _randomise(self, key: jax.Array, leaf: jax.Array) -> jax.Array:
        return jnp.packbits(randomised(uniform_words(key, leaf.size), leaf.reshape(-1) > 0, self.thresholds))

    def law(self, update: dict) -> dict[bytes, float]:
        """The probability of every message an update can become, for a handful of positions."""
        leaves = [np.asarray(leaf).reshape(-1) > 0 for leaf in jax.tree.leaves(dense_tree(update))]
        return self.law_of(np.concatenate(leaves), np.cumsum([leaf.size for leaf in leaves])[:-1])

    def law_of(self, truth: np.ndarray, ends: np.ndarray) -> dict[bytes, float]:
        """The same for the positions of all leaves in a row, cut into leaves at `ends`."""
        p, q = self.odds
        says_one = np.where(truth, p, q)
        law = {}
        for said in itertools.product((False, True), repeat=truth.size):
            message = b"".join(np.packbits(part).tobytes() for part in np.split(np.array(said), ends))
            law[message] = float(np.prod(np.where(said, says_one, 1 - says_one)))
        return law

    def epsilons(self) -> tuple[float, float, float]:
        """ε of one interaction more or less, of one swapped for another, and one-sided, by the exact odds."""
        p, q = self.odds
        ones = math.inf if q == 0 else math.log(p / q)
        zeros = math.inf if p == 1 else math.log((1 - q) / (1 - p))
        return max(ones, zeros), ones + zeros, ones

    def event(self, exposure: Exposure) -> tuple[Event, int]:
        """What the promise is about: one interaction, or one swapped for another; one-sided is no event at all."""
        del exposure
        presence, swap, _ = self.epsilons()
        if self.kind == "asymmetric":
            return Unbounded(_ZERO_PROVES), 1
        return bounded(swap) if self.kind == "unary" else bounded(presence, relation="add_remove"), 1

    def claim(self, exposure: Exposure) -> tuple[Claim, ...]:
        """The promise first; then the other relations."""
        presence, swap, one_sided = self.epsilons()
        words = ("for two histories that differ in h positions, ε is h times as large", *self.conditions())
        two = {
            "add_remove": self.claims(exposure, bounded(presence), "add_remove", words),
            "replace_one": self.claims(exposure, bounded(swap), "replace_one", words),
        }
        if self.kind == "asymmetric":
            deniable = (f"only a reported 1 is deniable; {_ZERO_PROVES}", *self.conditions())
            one = self.claims(exposure, bounded(one_sided), "one_sided_1_to_0", deniable)
            return (*one, *two["add_remove"])
        order = ("replace_one", "add_remove") if self.kind == "unary" else ("add_remove", "replace_one")
        return tuple(claim for relation in order for claim in two[relation])

    def conditions(self) -> tuple[str, ...]:
        """None: the random bits are exact integers."""
        return ()

    def spread(self, numbers: int, reports: float) -> Spread:
        """At best all have the item; a position that no one has is estimated with variance q(1 − q)/(p − q)² a report."""
        del numbers
        p, q = self.odds
        return Spread(1.0, math.sqrt(q * (1 - q) / reports) / (p - q))

    def floor(self, reports: float) -> float | None:
        """√(M·q(1 − q))/(p − q): the noise of the count of a position whose true count is 0."""
        return self.spread(1, reports).noise * reports

    def describe(self) -> dict[str, Any]:
        """p and q."""
        p, q = self.odds
        return {**super().describe(), "p": p, "q": q}


def bounded(epsilon: float, parts: int = 1, relation: Literal["replace_one", "add_remove"] = "replace_one") -> Event:
    """A message of this ε, which may be infinite."""
    return Unbounded(_CERTAIN) if math.isinf(epsilon) else Pure(epsilon, parts, relation)


def odds_of(form: Form, epsilon: float) -> tuple[float, float]:
    """(p, q) of a form, before rounding.

    >>> odds_of("asymmetric", 0.0)
    (1.0, 1.0)
    """
    small = math.exp(-epsilon)  # never overflows
    return {
        "symmetric": (1 / (1 + small), small / (1 + small)),
        "unary": (0.5, small / (1 + small)),
        "asymmetric": (1.0, small),
    }[form]


def thresholds_of(p: float, q: float) -> Thresholds:
    """Odds as multiples of 2⁻³², rounded to the private side.

    >>> thresholds_of(1.0, 0.0)
    (4294967296, 0)
    """
    return math.floor(p * ODDS_SCALE), math.ceil(q * ODDS_SCALE)


def uniform_words(key: jax.Array, count: int) -> jax.Array:
    """So many independent 32-bit integers, from a key of any generator: of threefry in a simulation, of ChaCha20 on a device.

    For threefry-2x32, in counter mode and two a block, `jax.random.bits` written out in one piece takes a fraction of the
    time.
    """
    data = jax.random.key_data(key)
    if data.shape != (2,):
        return jax.random.bits(key, (count,), jnp.uint32)
    key0, key1 = data
    half = -(-count // 2)
    counter = jnp.arange(half, dtype=jnp.uint32)
    return jnp.concatenate(threefry(key0, key1, counter, counter + np.uint32(half)))[:count]


def threefry(key0: jax.Array, key1: jax.Array, x: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The threefry-2x32 block function of 20 rounds (Salmon et al. 2011)."""
    keys = (key0, key1, key0 ^ key1 ^ np.uint32(0x1BD11BDA))
    x, y = x + keys[0], y + keys[1]
    for block in range(5):
        for turn in _TURNS[block % 2]:
            x = x + y
            y = x ^ ((y << turn) | (y >> (32 - turn)))
        x, y = x + keys[(block + 1) % 3], y + keys[(block + 2) % 3] + np.uint32(block + 1)
    return x, y


def randomised(coin: jax.Array, truth: jax.Array, thresholds: Thresholds) -> jax.Array:
    """The reported bit of every position; the dense sampler: one random integer each."""
    # `coin <= threshold - 1` rather than `coin < threshold`: a threshold of 2³² does not fit, and one of 0 never falls.
    p, q = (np.uint32(max(threshold, 1) - 1) for threshold in thresholds)
    said = coin <= jnp.where(truth, p, q)
    return said if thresholds[1] else said & truth


def randomised_sparsely(rng: np.random.Generator, ones: np.ndarray, count: int, thresholds: Thresholds) -> np.ndarray:
    """The positions reported as 1, of `count`, given the true `ones` (ascending): as many draws as reported ones.

    The same law as `randomised`. It is faster where few bits are flipped, q below about 1/20.
    """
    p, q = thresholds
    kept = ones[rng.integers(ODDS_SCALE, size=ones.size, dtype=np.uint64) < p]
    zeros = count - ones.size
    lies = rng.choice(zeros, rng.binomial(zeros, q / ODDS_SCALE), replace=False, shuffle=False)
    lies = lies + np.searchsorted(ones - np.arange(ones.size), lies, side="right")  # the k-th zero's own position
    return np.sort(np.concatenate([kept, lies]))
