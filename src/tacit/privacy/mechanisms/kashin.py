"""kashin: a few coefficients of the update in a Kashin frame as bits, sent by randomised response."""

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar, Literal, Self

import jax
import jax.numpy as jnp
import numpy as np

from tacit.core.settings import setting
from tacit.errors import PlanError
from tacit.privacy.mechanism import Spread
from tacit.privacy.mechanisms._parts.local_dp import ASKED, Local
from tacit.privacy.mechanisms._parts.sampled_signs import (
    FlatTotal,
    add_at_positions,
    check_coin_bias,
    flatten,
    layout_of,
)
from tacit.privacy.sampler import Exposure

_KEYS = "threefry2x32"  # a seed in a message must mean the same coefficients on every machine
SHRINK = 0.5  # η: what is left of the vector after each step
SPARE = 0.7  # δ: with η, the uncertainty principle that the frame is taken to have
_RADIX = 16  # a transform of this size is one small product


# ---- the frame: a vector written with more numbers than it has, all of them small ----
# Uᵀ·a = x, where U has N rows and D < N orthonormal columns, and |a_i| ≤ K·‖x‖/√N: a Kashin representation. U consists of
# D random columns of a Walsh–Hadamard matrix with random signs, so that a product with it is a fast transform.


@dataclass(frozen=True, eq=False)
class Frame:
    """U: `size` rows, one column for each number of the vector."""

    size: int
    columns: np.ndarray  # int32[D], ascending: which columns of the Hadamard matrix
    signs: np.ndarray  # float32[D]
    source: np.ndarray  # int32[size]: the other way round; D where a column is not taken

    def expand(self, x: jax.Array) -> jax.Array:
        """U·x."""
        return hadamard(jnp.append(x * self.signs, 0.0)[self.source])  # a gather, quicker than a scatter

    def collect(self, a: jax.Array) -> jax.Array:
        """Uᵀ·a, over the last axis."""
        return hadamard(a)[..., self.columns] * self.signs


@lru_cache(maxsize=8)
def frame_of(numbers: int, seed: int, columns: Literal["random", "first"] = "random") -> Frame:
    """The frame for so many numbers; the same for every device with the seed.

    Its size is the least power of two of at least 2D. The columns must be random: rows of the first D columns come in
    equal pairs, which gains nothing. `first` is there to show that.
    """
    size = frame_size(numbers)
    generator = np.random.Generator(np.random.Philox(np.random.SeedSequence([seed, numbers])))
    chosen = np.sort(generator.permutation(size)[:numbers]) if columns == "random" else np.arange(numbers)
    signs = generator.choice(np.array([-1, 1], np.float32), numbers)
    source = np.full(size, numbers, np.int32)
    source[chosen] = np.arange(numbers)
    return Frame(size, chosen.astype(np.int32), signs, source)


def frame_size(numbers: int) -> int:
    """N = 2^(⌈log₂ D⌉ + 1).

    >>> frame_size(100)
    256
    """
    return 2 << (numbers - 1).bit_length()


def level(shrink: float = SHRINK, spare: float = SPARE) -> float:
    """K = 1/((1 − η)·√δ): no coefficient should exceed K·‖x‖/√N.

    >>> round(level(), 3)
    2.39
    """
    return 1 / ((1 - shrink) * math.sqrt(spare))


def hadamard(x: jax.Array) -> jax.Array:
    """The orthonormal Walsh–Hadamard transform along the last axis, whose length is a power of two; its own inverse."""
    size, done, shape = x.shape[-1], 1, x.shape
    while done < size:
        radix = min(_RADIX, size // done)
        small = _sylvester(radix) / np.float32(math.sqrt(radix))
        x = x.reshape(*shape[:-1], size // (radix * done), radix, done)
        x = jnp.einsum("ij,...jb->...ib", small, x, precision=jax.lax.Precision.HIGHEST)
        done *= radix
    return x.reshape(shape)


@lru_cache(maxsize=8)
def _sylvester(size: int) -> np.ndarray:
    matrix = np.ones((1, 1), np.float32)
    while len(matrix) < size:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    return matrix


def represent(frame: Frame, x: jax.Array) -> jax.Array:
    """Coefficients a with Uᵀ·a = x, nearly level (Lyubarskii and Vershynin 2010).

    ⌊ln N⌋ times: cut U·y to ±M, subtract the cut part from y, halve M. What is left at the end is added uncut, so
    that the sum is x exactly.
    """

    def step(_: jax.Array, state: tuple[jax.Array, jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array, jax.Array]:
        y, a, M = state
        b = jnp.clip(frame.expand(y), -M, M)
        return y - frame.collect(b), a + b, SHRINK * M

    M = jnp.linalg.norm(x) / math.sqrt(SPARE * frame.size)
    start = (x, jnp.zeros(frame.size), M)
    y, a, _ = jax.lax.fori_loop(0, math.floor(math.log(frame.size)), step, start)
    return a + frame.expand(y)


# ---- the mechanism ----


class Kashin(Local):
    """SQKR: clip to ‖x‖₂ ≤ S, write x with N ≈ 2D to 4D small coefficients, send k of them as one word of k bits.

    Uᵀ·a = x/S with |a_i| ≤ K/√N. A coefficient becomes the bit + with probability ½(1 + a_i·√N/K). Which k, with
    replacement, is given by a seed that the device draws independently of its data and sends too. The word is sent as it
    is with probability γ = (e^ε − 1)/(e^ε + 2^k − 1), else any word is. The server averages ±(N/k)·(K/√N)/γ and transforms
    back once. Without `k`, the k of least variance is taken. The bound S is public: the setting `bound`, or the number
    of that name. All devices share the frame of `frame_seed`.

    A device writes out its whole update and transforms it some twenty times: O(D·log² D), whatever its history.

    Guarantee:
        ε-local differential privacy of one message between any two updates of one device (replace-one, unit user): the
        odds of a word are multiples of 2⁻³², rounded to the private side, and differ by at most e^ε; the seed reveals
        nothing. Unbiased for the clipped update as long as no coefficient exceeds K/√N, which `measure_clip_mass`
        measures; variance of a number about (S·K/γ)²/k.

    Paper: Chen, Kairouz and Özgür, "Breaking the communication-privacy-accuracy trilemma" (NeurIPS 2020); Lyubarskii
    and Vershynin, "Uncertainty principles and vector quantization" (2010).
    """

    k: int | None = setting(None, at_least=1, at_most=24)
    bound: float = setting(1.0, above=0.0)
    frame_seed: int = setting(0, at_least=0)
    suggested: ClassVar[tuple[dict[str, Any], ...]] = (
        {"epsilon": 2.0, "k": 1},
        {"epsilon": 4.5, "bound": 2.0},
        {"epsilon_per_message": 3.0, "k": 3, "delta": 1e-6, "frame_seed": 7},
    )

    def settle(self, exposure: Exposure) -> Self:
        """Split ε, then choose k for what one message has."""
        settled = super().settle(exposure)
        settled = replace(settled, k=self.k or best_word(settled.share))
        check_coin_bias(settled.truth_odds, settled.share)
        return settled

    @property
    def count(self) -> int:
        """k: bits in a word."""
        if self.k is None:
            raise PlanError("privacy.k is not chosen yet; settle the mechanism for a population.")
        return self.k

    @property
    def truth_odds(self) -> int:
        """γ in units of 2⁻³², rounded down."""
        return min(math.floor(2**32 / debias(self.share, self.count)), 2**32 - 1)

    def frame(self, numbers: int) -> Frame:
        """The frame that all devices share."""
        return frame_of(numbers, self.frame_seed)

    def encode(self, key: jax.Array, update: dict, public_state: dict) -> Any:
        """A seed, and the word of k bits its coefficients became."""
        seeds, rounds, answer = jax.random.split(key, 3)
        seed = jax.random.bits(seeds, (), jnp.uint32)
        a = self.coefficients(update, public_state)[
            coordinates(seed, self.count, frame_size(layout_of(update).numbers))
        ]
        bits = jax.random.uniform(rounds, a.shape) < (1 + a) / 2
        return {"seed": seed, "word": jnp.packbits(self._tell(answer, bits))}

    def coefficients(self, update: dict, public_state: dict) -> jax.Array:
        """a·√N/K, float32[N]: meant to lie in [−1, 1]."""
        x = flatten(update)
        bound = public_state.get("bound", self.bound)
        x = x / jnp.maximum(bound, jnp.linalg.norm(x))
        frame = self.frame(x.size)
        return represent(frame, x) * (math.sqrt(frame.size) / level())

    def _tell(self, key: jax.Array, bits: jax.Array) -> jax.Array:
        """The word with probability γ, else any word."""
        toss, other = jax.random.split(key)
        true = jax.random.bits(toss, (), jnp.uint32) < jnp.uint32(self.truth_odds)
        return jnp.where(true, bits, jax.random.bernoulli(other, 0.5, bits.shape))

    def measure_clip_mass(self, update: dict, public_state: dict | None = None) -> float:
        """The share of an update's coefficients, by absolute value, that lies beyond the bound and is cut: the bias."""
        a = jnp.abs(self.coefficients(update, public_state or {}))
        return float(jnp.maximum(a - 1, 0).sum() / jnp.maximum(a.sum(), 1e-30))

    def zero(self, params: dict, weights: int) -> Any:
        """All zero."""
        layout = layout_of(params)
        bits = jnp.zeros(frame_size(layout.numbers), jnp.int32)
        return FlatTotal({"bits": bits}, jnp.zeros(weights, jnp.int32), layout)

    def add(self, total: Any, payloads: Any, weights: jax.Array, sent: jax.Array) -> Any:
        """Sum the bits, as ±1, at the positions of their seeds: whole numbers, exact in any order."""
        del weights  # each device counts once
        bits = total.sums["bits"]
        place = jax.vmap(lambda seed: coordinates(seed, self.count, bits.size))(payloads["seed"])
        said = 2 * jnp.unpackbits(payloads["word"], axis=1, count=self.count).astype(jnp.int32) - 1
        bits = add_at_positions(bits, place, jnp.where(sent[:, None], said, 0))
        return replace(total, sums={"bits": bits}, heard=total.heard + sent.sum(dtype=jnp.int32))

    def merge(self, one: Any, other: Any) -> Any:
        """Sum of sums."""
        return jax.tree.map(jnp.add, one, other)

    def estimate(self, key: jax.Array, total: Any, n: jax.Array, public_state: dict) -> tuple[dict, jax.Array]:
        """S·Uᵀ·(N/k)·(K/√N)/γ·Σ bits."""
        del key, n
        frame = self.frame(total.layout.numbers)
        c = 2**32 / self.truth_odds
        a = (math.sqrt(frame.size) * level() * c / self.count) * total.sums["bits"].astype(jnp.float32)
        return total.estimate(public_state.get("bound", self.bound) * frame.collect(a))

    def conditions(self) -> tuple[str, ...]:
        """None: the random bits are exact integers."""
        return ()

    def visible(self) -> tuple[str, ...]:
        """Participation; randomly drawn coefficients."""
        return (ASKED, f"{self.count} coefficient(s) drawn at random, and a random bit of each")

    def spread(self, numbers: int, reports: float) -> Spread:
        """At best S/√D; S·K/(γ·√k) of noise in each report."""
        noise = self.bound * level() * 2**32 / self.truth_odds / math.sqrt(self.count)
        return Spread(self.bound / math.sqrt(numbers), noise / math.sqrt(reports))

    def describe(self) -> dict[str, Any]:
        """k, the bound, K, and the probability that a word is the true one."""
        made = {"k": self.count, "bound": self.bound, "level": level(), "frame_seed": self.frame_seed}
        return {**super().describe(), **made, "truth": truth(self.share, self.count)}


def truth(epsilon: float, count: int) -> float:
    """The probability that randomised response over 2^k words sends the true one: e^ε/(e^ε + 2^k − 1).

    >>> round(truth(4.5, 4), 4)
    0.8572
    """
    return 1 / (1 + (2**count - 1) * math.exp(-epsilon))


def debias(epsilon: float, count: int) -> float:
    """c = (e^ε + 2^k − 1)/(e^ε − 1): what a sent bit stands for."""
    if not epsilon > 0:
        raise PlanError(f"epsilon must be above 0 for an unbiased estimate, got {epsilon!r}.")
    return 1 + 2**count / math.expm1(epsilon) if epsilon < 700 else 1.0


def error_of_message(numbers: int, epsilon: float, count: int) -> float:
    """About the mean squared error ‖x̂ − x‖² of one message, for ‖x‖₂ ≤ 1: D·K²·c²/k."""
    return numbers * level() ** 2 * debias(epsilon, count) ** 2 / count


def best_word(epsilon: float) -> int:
    """The k of least variance, c²/k.

    >>> best_word(4.5)
    4
    """
    return min(range(1, 25), key=lambda k: debias(epsilon, k) ** 2 / k)


def coordinates(seed: jax.Array, count: int, size: int) -> jax.Array:
    """The coefficients a seed stands for, int32[k], uniform with replacement; the size is a power of two."""
    bits = jax.random.bits(jax.random.key(seed, impl=_KEYS), (count,), jnp.uint32)
    return (bits & jnp.uint32(size - 1)).astype(jnp.int32)
