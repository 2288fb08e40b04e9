"""response: a yes or no for every position, each told the truth or not by its own coin."""

import itertools
import math
from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp
import numpy as np

from tacit.privacy.claim import Claim, Unit
from tacit.privacy.events import Event, Pure, Unbounded
from tacit.privacy.local import Local
from tacit.privacy.mechanism import Spread
from tacit.privacy.sampler import Exposure
from tacit.rows import dense_tree
from tacit.settings import setting

_COIN = 2**32  # the coins are 32-bit whole numbers, so that the probabilities are exactly what is claimed


class Response(Local):
    """Randomised response: position by position, P(say 1 | 1) = p and P(say 1 | 0) = q. Whatever is above 0 is a 1.

    - `symmetric`: p = e^ε/(1 + e^ε), q = 1 − p. The best two-sided choice for one position.
    - `unary`: p = 1/2, q = 1/(1 + e^ε). The better one where a neighbour swaps one item for another.
    - `asymmetric`: p = 1, q = e^−ε. A 0 is always true, so it protects only those who have the item.

    Probabilities are multiples of 2⁻³², rounded to the private side, and the estimate uses the rounded ones.

    Guarantee:
        Unit interaction, whoever reads the message. `symmetric`: ε for one interaction more or less (add/remove), 2ε
        for one swapped for another (replace-one). `unary`: ε for a swap. `asymmetric`: ε one-sided only (a said 1 is
        deniable); two-sided ε = ∞, because a said 0 proves that there is none. Two people whose histories differ in h
        positions: h times as much. The estimated counts are unbiased.

    Paper: Warner, "Randomized response" (1965); Wang et al., "Locally differentially private protocols for frequency
    estimation" (USENIX Security 2017) for `unary`.
    """

    unit: ClassVar[Unit] = "interaction"
    form: Literal["symmetric", "unary", "asymmetric"] = setting("symmetric")
    suggested: ClassVar[tuple[dict[str, Any], ...]] = (
        {"epsilon": 1.0},
        {"epsilon": 1.0, "form": "unary"},
        {"epsilon": 1.0, "form": "asymmetric"},
    )

    @property
    def thresholds(self) -> tuple[int, int]:
        """p and q as multiples of 2⁻³²: p rounded down and q up, towards each other."""
        epsilon = self.share
        p, q = {
            "symmetric": (1 / (1 + math.exp(-epsilon)), 1 / (1 + math.exp(epsilon))),
            "unary": (0.5, 1 / (1 + math.exp(epsilon))),
            "asymmetric": (1.0, math.exp(-epsilon)),
        }[self.form]
        return math.floor(p * _COIN), max(1, math.ceil(q * _COIN))

    @property
    def odds(self) -> tuple[float, float]:
        """(p, q) as the coins have them."""
        p, q = self.thresholds
        return p / _COIN, q / _COIN

    def encode(self, key: jax.Array, update: dict, dials: dict) -> Any:
        """One coin a position; eight positions a byte."""
        del dials
        leaves, tree = jax.tree.flatten(dense_tree(update))
        keys = jax.random.split(key, len(leaves))
        return jax.tree.unflatten(tree, [self._say(k, leaf) for k, leaf in zip(keys, leaves)])

    def _say(self, key: jax.Array, leaf: jax.Array) -> jax.Array:
        # `coin <= threshold - 1` rather than `coin < threshold`: a threshold of 2³² does not fit.
        p, q = (jnp.uint32(threshold - 1) for threshold in self.thresholds)
        coin = jax.random.bits(key, (leaf.size,), jnp.uint32)
        return jnp.packbits(coin <= jnp.where(leaf.reshape(-1) > 0, p, q))

    def law(self, update: dict) -> dict[bytes, float]:
        """The probability of every message an update can become, for a handful of positions."""
        p, q = self.odds
        leaves = [np.asarray(leaf).reshape(-1) > 0 for leaf in jax.tree.leaves(dense_tree(update))]
        ends = np.cumsum([leaf.size for leaf in leaves])[:-1]
        says_one = np.where(np.concatenate(leaves), p, q)
        law = {}
        for said in itertools.product((False, True), repeat=says_one.size):
            message = b"".join(np.packbits(part).tobytes() for part in np.split(np.array(said), ends))
            law[message] = float(np.prod(np.where(said, says_one, 1 - says_one)))
        return law

    def zero(self, params: dict, weights: int) -> Any:
        """No count anywhere, and nobody heard."""
        counts = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, jnp.int32), params)
        return counts, jnp.zeros(weights, jnp.int32)

    def add(self, total: Any, payloads: Any, weights: jax.Array, sent: jax.Array) -> Any:
        """Count the ones said: whole numbers, exact in any order."""
        del weights  # everybody counts once
        counts, heard = total

        def count(leaf: jax.Array, packed: jax.Array) -> jax.Array:
            said = jnp.unpackbits(packed, axis=1, count=leaf.size).astype(jnp.int32)
            return leaf + jnp.where(sent[:, None], said, 0).sum(0).reshape(leaf.shape)

        return jax.tree.map(count, counts, payloads), heard + sent.sum(dtype=jnp.int32)

    def merge(self, one: Any, other: Any) -> Any:
        """Sum of counts."""
        return jax.tree.map(jnp.add, one, other)

    def estimate(self, key: jax.Array, total: Any, n: jax.Array, dials: dict) -> tuple[dict, jax.Array]:
        """(count − n·q) / (p − q): how many have a 1, without bias."""
        del key, n, dials
        counts, heard = total
        p, q = self.odds
        n = heard.astype(jnp.float32)

        def debias(count: jax.Array) -> jax.Array:
            said = count.astype(jnp.float32) - n.reshape((-1,) + (1,) * count.ndim) * q
            return said / (p - q)

        return jax.tree.map(debias, counts), n

    def epsilons(self) -> tuple[float, float, float]:
        """ε of one interaction more or less, of one swapped for another, and one-sided, by the coins' own odds."""
        p, q = self.odds
        ones, zeros = math.log(p / q), math.inf if p == 1 else math.log((1 - q) / (1 - p))
        return max(ones, zeros), ones + zeros, ones

    def event(self, exposure: Exposure) -> tuple[Event, int]:
        """What the promise is about: one interaction, or one swapped for another; one-sided is no event at all."""
        del exposure
        presence, swap, _ = self.epsilons()
        if self.form == "asymmetric":
            return Unbounded("a said 0 proves that there is none"), 1
        return Pure(presence if self.form == "symmetric" else swap), 1

    def claim(self, exposure: Exposure) -> tuple[Claim, ...]:
        """The promise first; then the other relations."""
        presence, swap, one_sided = self.epsilons()
        words = ("histories that differ in h positions: h times as much",)
        two = {
            "add_remove": self.claims(exposure, _pure(presence), "add_remove", words),
            "replace_one": self.claims(exposure, _pure(swap), "replace_one", words),
        }
        if self.form == "asymmetric":
            deniable = ("only a said 1 is deniable; a said 0 proves that there is none",)
            one = self.claims(exposure, _pure(one_sided), "one_sided_1_to_0", deniable)
            return (*one, *two["add_remove"])
        order = ("replace_one", "add_remove") if self.form == "unary" else ("add_remove", "replace_one")
        return tuple(claim for relation in order for claim in two[relation])

    def spread(self, numbers: int, reports: float) -> Spread:
        """At best everybody has the item; a position nobody has is estimated with variance q(1 − q)/(p − q)² a report."""
        del numbers
        p, q = self.odds
        return Spread(1.0, math.sqrt(q * (1 - q) / reports) / (p - q))

    def describe(self) -> dict[str, Any]:
        """p and q."""
        p, q = self.odds
        return {**super().describe(), "p": p, "q": q}


def _pure(epsilon: float) -> Event:
    return Unbounded("a said 0 proves that there is none") if math.isinf(epsilon) else Pure(epsilon)
