"""harmony: a few randomly drawn numbers of the update, each sent as one random sign."""

import math
from dataclasses import replace
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp

from tacit.core.settings import setting
from tacit.errors import PlanError
from tacit.privacy.mechanism import PayloadView, Spread
from tacit.privacy.mechanisms._parts import sampled_signs
from tacit.privacy.mechanisms._parts.local_dp import ASKED, Local
from tacit.privacy.mechanisms._parts.sampled_signs import FlatTotal, layout_of
from tacit.privacy.sampler import Exposure


class Harmony(Local):
    """k-Harmony: k different positions of the D numbers, and at each a random sign, biased towards the number.

    t = clip(x, −B, B)/B and P[+1] = ½(1 + t·tanh(ε/2k)). The server scales a sign by B·(D/k)·coth(ε/2k). With `k = 1`
    it is Harmony; without `k`, the k of least variance is taken (about ε/2.18). The bound B is public: the setting
    `bound`, or the number of that name where the round has one. The odds are multiples of 2⁻³², rounded to the private
    side, and the estimate uses the rounded ones.

    Guarantee:
        ε-local differential privacy of one message between any two updates of one device (replace-one, unit user):
        positions do not depend on data, each sign has odds that differ by at most e^(ε/k), and there are k. Unbiased
        for the clipped update; variance of a number B²·((D/k)·coth²(ε/2k) − t²), so `spread` shows when the noise dominates.

    Paper: Nguyên et al., "Collecting and analyzing data from smart device users with local differential privacy"
    (2016); k > 1 as in Shin et al., "Privacy enhanced matrix factorization for recommendation with local differential
    privacy" (TKDE 2018).
    """

    k: int | None = setting(None, at_least=1)
    bound: float = setting(1.0, above=0.0)
    payload_view: ClassVar[PayloadView] = "signs"
    suggested: ClassVar[tuple[dict[str, Any], ...]] = (
        {"epsilon": 2.0, "k": 1},
        {"epsilon": 4.5, "bound": 0.5},
        {"epsilon_per_message": 3.0, "k": 3, "delta": 1e-6},
    )

    def settle(self, exposure: Exposure) -> Self:
        """Choose k, then as every local mechanism."""
        chosen = replace(self, k=self.k or sampled_signs.choose_count(self, exposure))
        settled = super(Harmony, chosen).settle(exposure)
        sampled_signs.check_coin_bias(settled.coin_bias, settled.share)
        return settled

    @property
    def parts(self) -> int:
        """k independent signs."""
        if self.k is None:
            raise PlanError("privacy.k is not chosen yet; settle the mechanism for a population.")
        return self.k

    @property
    def coin_bias(self) -> int:
        """tanh(ε/2k) in units of 2⁻³¹, as the coins have it."""
        return sampled_signs.coin_bias_of(self.share / self.parts)

    def magnitude(self, numbers: int) -> float:
        """c: the value of one sign among so many numbers, in units of the bound."""
        return sampled_signs.sign_value(numbers, self.parts, self.coin_bias)

    def encode(self, key: jax.Array, update: dict, public_state: dict) -> Any:
        """k positions and signs, packed."""
        return sampled_signs.encode_signs(
            key, update, public_state.get("bound", self.bound), self.parts, self.coin_bias
        )

    def law(self, update: dict) -> dict[bytes, float]:
        """The probability of every message an update can become, for a handful of numbers."""
        return sampled_signs.message_law(update, self.bound, self.parts, self.coin_bias)

    def zero(self, params: dict, weights: int) -> Any:
        """All zero."""
        layout = layout_of(params)
        return FlatTotal({"signs": jnp.zeros(layout.numbers, jnp.int32)}, jnp.zeros(weights, jnp.int32), layout)

    def add(self, total: Any, payloads: Any, weights: jax.Array, sent: jax.Array) -> Any:
        """Sum the signs: integers, exact in any order."""
        del weights  # each device counts once
        place, sign = sampled_signs.unpack_signs(payloads, self.parts, total.layout.numbers)
        signs = sampled_signs.add_at_positions(total.sums["signs"], place, jnp.where(sent[:, None], sign, 0))
        return replace(total, sums={"signs": signs}, heard=total.heard + sent.sum(dtype=jnp.int32))

    def merge(self, one: Any, other: Any) -> Any:
        """Sum of sums."""
        return jax.tree.map(jnp.add, one, other)

    def estimate(self, key: jax.Array, total: Any, n: jax.Array, public_state: dict) -> tuple[dict, jax.Array]:
        """B·c·Σ signs."""
        del key, n
        c = self.magnitude(total.layout.numbers)
        return total.estimate(public_state.get("bound", self.bound) * c * total.sums["signs"].astype(jnp.float32))

    def conditions(self) -> tuple[str, ...]:
        """None: the random bits are exact integers."""
        return ()

    def visible(self) -> tuple[str, ...]:
        """Participation; randomly drawn positions."""
        return (ASKED, f"{self.parts} position(s) drawn at random, and a random sign at each")

    def spread(self, numbers: int, reports: float) -> Spread:
        """At best B everywhere; √(D/k)·coth(ε/2k)·B of noise in each report."""
        noise = self.magnitude(numbers) / math.sqrt(numbers / self.parts)
        return Spread(self.bound, self.bound * noise / math.sqrt(reports))

    def describe(self) -> dict[str, Any]:
        """k, and what a sign stands for, as a multiple of the bound and of how many numbers there are."""
        return {**super().describe(), "k": self.parts, "bound": self.bound, "magnitude_over_numbers": self.magnitude(1)}


def chance(value: float, epsilon: float, count: int = 1) -> float:
    """P[+1] for a number in [−1, 1] when `count` signs share ε: ½(1 + t·tanh(ε/2k)).

    >>> chance(0.0, 1.0)
    0.5
    """
    if not -1 <= value <= 1:
        raise PlanError(
            f"a number must lie in [−1, 1] to become the odds of a sign, got {value:g}; divide by the largest absolute "
            "value or clip to a public bound."
        )
    return (1 + value * math.tanh(epsilon / (2 * count))) / 2


def magnitude(numbers: int, epsilon: float, count: int = 1) -> float:
    """c = (D/k)·coth(ε/2k): what one sign stands for."""
    return numbers / count / math.tanh(epsilon / (2 * count))


def variance(value: float, numbers: int, epsilon: float, count: int = 1) -> float:
    """Variance of one number's estimate from one message: (D/k)·coth²(ε/2k) − t²."""
    return numbers / count / math.tanh(epsilon / (2 * count)) ** 2 - value**2


def covariance(value: float, other: float, numbers: int, count: int) -> float:
    """Covariance of two numbers' estimates from one message: −t·t'·(D − k)/(k·(D − 1))."""
    return -value * other * (numbers - count) / (count * (numbers - 1))
