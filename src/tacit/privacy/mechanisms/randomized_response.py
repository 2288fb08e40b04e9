"""randomized_response: one bit for every position, each flipped independently at random."""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from tacit.privacy.mechanisms._parts.bits import Bits


class RandomizedResponse(Bits):
    """Randomised response: position by position, P(report 1 | 1) = p and P(report 1 | 0) = q. Any number above 0 is a 1.

    - `symmetric`: p = e^ε/(1 + e^ε), q = 1 − p. The best two-sided choice for one position.
    - `unary`: p = 1/2, q = 1/(1 + e^ε). The better one where a neighbour swaps one item for another.
    - `asymmetric`: p = 1, q = e^−ε. A 0 is always true, so it protects only those who have the item.

    Probabilities are multiples of 2⁻³², rounded to the private side, and the estimate uses the rounded ones.

    Guarantee:
        Unit interaction, against any reader of the message. `symmetric`: ε for one interaction more or less (add/remove), 2ε
        for one swapped for another (replace-one). `unary`: ε for a swap. `asymmetric`: ε one-sided only (a reported 1 is
        deniable); two-sided ε = ∞, because a reported 0 proves that the item is absent. Two people whose histories differ in h
        positions: h times as much. The estimated counts are unbiased.

    Paper: Warner, "Randomized response" (1965); Wang et al., "Locally differentially private protocols for frequency
    estimation" (USENIX Security 2017) for `unary`.
    """

    former_names: ClassVar[tuple[str, ...]] = ("response",)
    suggested: ClassVar[tuple[dict[str, Any], ...]] = (
        {"epsilon": 1.0},
        {"epsilon": 1.0, "form": "unary"},
        {"epsilon": 1.0, "form": "asymmetric"},
    )

    def zero(self, params: dict, weights: int) -> Any:
        """All zero."""
        counts = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, jnp.int32), params)
        return counts, jnp.zeros(weights, jnp.int32)

    def add(self, total: Any, payloads: Any, weights: jax.Array, sent: jax.Array) -> Any:
        """Count the reported ones: integers, exact in any order."""
        del weights  # each device counts once
        counts, heard = total

        def count(leaf: jax.Array, packed: jax.Array) -> jax.Array:
            said = jnp.unpackbits(packed, axis=1, count=leaf.size).astype(jnp.int32)
            return leaf + jnp.where(sent[:, None], said, 0).sum(0).reshape(leaf.shape)

        return jax.tree.map(count, counts, payloads), heard + sent.sum(dtype=jnp.int32)

    def merge(self, one: Any, other: Any) -> Any:
        """Sum of counts."""
        return jax.tree.map(jnp.add, one, other)

    def estimate(self, key: jax.Array, total: Any, n: jax.Array, public_state: dict) -> tuple[dict, jax.Array]:
        """(count − n·q) / (p − q): how many have a 1, without bias."""
        del key, n, public_state
        counts, heard = total
        p, q = self.odds
        n = heard.astype(jnp.float32)

        def debias(count: jax.Array) -> jax.Array:
            said = count.astype(jnp.float32) - n.reshape((-1,) + (1,) * count.ndim) * q
            return said / (p - q)

        return jax.tree.map(debias, counts), n
