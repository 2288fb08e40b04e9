"""qharmony: a few numbers of the update as random signs, with a scale for them; as printed, and corrected."""

import math
from dataclasses import replace
from typing import Any, ClassVar, Literal, Self

import jax
import jax.numpy as jnp
import numpy as np

from tacit.core.settings import setting
from tacit.core.sparse_rows import Rows, is_rows
from tacit.errors import PlanError
from tacit.privacy.accounting.events import Event, Pure, Unbounded
from tacit.privacy.claim import Claim
from tacit.privacy.mechanism import PayloadView, Spread
from tacit.privacy.mechanisms._parts import sampled_signs
from tacit.privacy.mechanisms._parts.local_dp import ASKED, Local
from tacit.privacy.mechanisms._parts.sampled_signs import FlatTotal, layout_of
from tacit.privacy.sampler import Exposure

_CLEAR = "the scale of the update, a number computed from private data, is sent without noise"
_SIGNS = "covers the signs only, not the scale that is sent with them"


class QHarmony(Local):
    """Signs at k positions, as in Harmony, and a scale for them. What the scale is, is the `form`:

    - `clip`: a public `bound` (or the number of that name); nothing but signs is sent.
    - `paper`: the update's own maximum, sent without noise, as printed. By the `normaliser` it is max|f|, or, as the
      notation reads, the signed max f: then numbers below −max f are cut, and where it is not above 0 the signs are
      fair coins.

    How the `server` estimates:

    - `unbiased`: each sign times its scale and (D/k)·coth(ε/2k): the sum of the updates, as clipped on the device.
    - `paper`: F̄ = (scale/z)·Σ signs, where z is the most +1 at any position, at least 1, and the scale is the largest
      one sent, or the bound. F̄ estimates neither the sum nor the mean: z is an extreme of the noise, so F̄ is a
      direction with a step size of its own. It is returned as (n·F̄, n): a rule that takes the mean steps by F̄.

    Guarantee:
        `clip`: ε-local differential privacy of one message between any two updates of one device (replace-one, unit
        user), as for Harmony, of which it is the same message. `paper`: ε = ∞, because the scale is a function of
        private data; its signs alone keep `epsilon_of_signs`, which is a claim of its own.

    Paper: Saiapin et al., "Federated privacy-preserving collaborative filtering for on-device next app prediction"
    (UMUAI 2024), algorithms 1 and 2, whose swapped indices and negative probability are taken for misprints; `clip`
    and `unbiased` are corrections.
    """

    k: int | None = setting(None, at_least=1)
    bound: float = setting(1.0, above=0.0)
    form: Literal["clip", "paper"] = setting("clip")
    server: Literal["unbiased", "paper"] = setting("unbiased")
    normaliser: Literal["maxabs", "fmax"] = setting("maxabs")
    epsilon_of_signs: float | None = setting(None, at_least=0.0)  # of a message of the form `paper`
    payload_view: ClassVar[PayloadView] = "signs"
    suggested: ClassVar[tuple[dict[str, Any], ...]] = (
        {"epsilon": 4.5},
        {"epsilon": 4.5, "k": 3, "server": "paper", "bound": 0.5},
        {"form": "paper", "epsilon_of_signs": 4.5, "k": 2},
        {"form": "paper", "epsilon_of_signs": 4.5, "k": 2, "server": "paper", "normaliser": "fmax"},
    )

    def check_settings(self) -> None:
        """An ε for the message; as printed, for its signs alone."""
        if self.form == "clip":
            super().check_settings()
            if self.epsilon_of_signs is not None:
                raise PlanError(
                    f"privacy.epsilon_of_signs = {self.epsilon_of_signs:g} belongs to form = 'paper'; give epsilon or "
                    "epsilon_per_message for form = 'clip'."
                )
        elif self.epsilon is not None or self.epsilon_per_message is not None:
            raise PlanError(
                "privacy.epsilon is a promise that form = 'paper' cannot keep: it sends a scale without noise. Give "
                "epsilon_of_signs instead, or form = 'clip'."
            )
        elif self.epsilon_of_signs is None or (self.server == "unbiased" and self.epsilon_of_signs == 0):
            raise PlanError(
                "privacy.epsilon_of_signs must be given for form = 'paper', and above 0 unless server = 'paper', got "
                f"{self.epsilon_of_signs!r}."
            )

    # ---- what it costs ----

    def settle(self, exposure: Exposure) -> Self:
        """Choose k, then as every local mechanism; as printed, there is no promise to split."""
        if self.form == "clip":
            chosen = replace(self, k=self.k or sampled_signs.choose_count(self, exposure))
            settled = super(QHarmony, chosen).settle(exposure)
            sampled_signs.check_coin_bias(settled.coin_bias, settled.share)
            return settled
        from tacit.privacy.accounting import accountant

        if self.delta is not None:
            accountant.check_delta(self.delta, exposure.devices, "privacy.delta")
        k = self.k or sampled_signs.best_count(lambda k: self.budget / k)
        return replace(self, k=k, messages=exposure.at_most(self.messages).messages)

    @property
    def parts(self) -> int:
        """k independent signs."""
        if self.k is None:
            raise PlanError("privacy.k is not chosen yet; settle the mechanism for a population.")
        return self.k

    @property
    def share(self) -> float:
        """ε of one message; ∞ as printed."""
        return math.inf if self.form == "paper" else super().share

    @property
    def budget(self) -> float:
        """ε of the signs of one message."""
        return (self.epsilon_of_signs or 0.0) if self.form == "paper" else self.share

    def event(self, exposure: Exposure) -> tuple[Event, int]:
        """Pure ε, or nothing finite as printed."""
        return (Unbounded(_CLEAR), 1) if self.form == "paper" else super().event(exposure)

    def claim(self, exposure: Exposure) -> tuple[Claim, ...]:
        """The whole message; as printed, then also what holds for the signs alone."""
        whole = super().claim(exposure)
        if self.form == "clip":
            return whole
        return (*whole, *self.claims(exposure, Pure(self.budget, self.parts), "replace_one", (_SIGNS,)))

    @property
    def fidelity(self) -> Literal["paper", "corrected"]:
        """Whether the message is as printed."""
        return "paper" if self.form == "paper" else "corrected"

    def conditions(self) -> tuple[str, ...]:
        """Why ε = ∞, as printed; else none: the random bits are exact integers."""
        return (_CLEAR,) if self.form == "paper" else ()

    def visible(self) -> tuple[str, ...]:
        """Participation; randomly drawn positions; as printed, the scale."""
        signs = f"{self.parts} position(s) drawn at random, and a random sign at each"
        return (ASKED, signs, _CLEAR) if self.form == "paper" else (ASKED, signs)

    # ---- device ----

    @property
    def coin_bias(self) -> int:
        """tanh(ε/2k) in units of 2⁻³¹, as the coins have it."""
        return sampled_signs.coin_bias_of(self.budget / self.parts)

    def encode(self, key: jax.Array, update: dict, public_state: dict) -> Any:
        """k positions and signs, packed; as printed, with the scale."""
        if self.form == "clip":
            return sampled_signs.encode_signs(
                key, update, public_state.get("bound", self.bound), self.parts, self.coin_bias
            )
        scale, divisor = scale_of(update, self.normaliser)
        return {"scale": scale, "signs": sampled_signs.encode_signs(key, update, divisor, self.parts, self.coin_bias)}

    def law(self, update: dict) -> dict[bytes, float]:
        """The probability of every message an update can become, for a handful of numbers."""
        if self.form == "clip":
            return sampled_signs.message_law(update, self.bound, self.parts, self.coin_bias)
        scale, divisor = scale_of(update, self.normaliser)
        signs = sampled_signs.message_law(update, divisor, self.parts, self.coin_bias)
        return {np.asarray(scale).tobytes() + said: chance for said, chance in signs.items()}

    # ---- server ----

    def zero(self, params: dict, weights: int) -> Any:
        """All zero."""
        layout = layout_of(params)
        exact = self.server == "paper" or self.form == "clip"
        sums = {"signs": jnp.zeros(layout.numbers, jnp.int32 if exact else jnp.float32)}
        if self.server == "paper":
            sums |= {"plus": jnp.zeros(layout.numbers, jnp.int32), "loudest": jnp.zeros(())}
        return FlatTotal(sums, jnp.zeros(weights, jnp.int32), layout)

    def add(self, total: Any, payloads: Any, weights: jax.Array, sent: jax.Array) -> Any:
        """Sum the signs: times their scales, or, for the printed rule, with the count of +1 and the largest scale."""
        del weights  # each device counts once
        packed, scale = (payloads, None) if self.form == "clip" else (payloads["signs"], payloads["scale"])
        place, sign = sampled_signs.unpack_signs(packed, self.parts, total.layout.numbers)
        sign, sums = jnp.where(sent[:, None], sign, 0), dict(total.sums)
        if self.server == "paper":
            sums["plus"] = sampled_signs.add_at_positions(sums["plus"], place, sign > 0)
            if scale is not None:
                sums["loudest"] = jnp.maximum(sums["loudest"], jnp.where(sent, scale, 0.0).max(initial=0.0))
        elif scale is not None:
            sign = sign * scale[:, None]
        sums["signs"] = sampled_signs.add_at_positions(sums["signs"], place, sign)
        return replace(total, sums=sums, heard=total.heard + sent.sum(dtype=jnp.int32))

    def merge(self, one: Any, other: Any) -> Any:
        """Sum of sums, and the larger scale."""
        both = jax.tree.map(jnp.add, one, other)
        if self.server == "unbiased":
            return both
        loudest = jnp.maximum(one.sums["loudest"], other.sums["loudest"])
        return replace(both, sums={**both.sums, "loudest": loudest})

    def estimate(self, key: jax.Array, total: Any, n: jax.Array, public_state: dict) -> tuple[dict, jax.Array]:
        """scale·c·Σ signs; or n·F̄."""
        del key, n
        sums, signs = total.sums, total.sums["signs"].astype(jnp.float32)
        bound = 1.0 if self.form == "paper" else public_state.get("bound", self.bound)
        if self.server == "unbiased":
            return total.estimate(bound * self.magnitude(total.layout.numbers) * signs)
        scale = sums["loudest"] if self.form == "paper" else bound
        step = scale / jnp.maximum(sums["plus"].max(), 1)  # F̄ = (scale/z_max)·S
        return total.estimate(total.heard.max() * step * signs)

    def magnitude(self, numbers: int) -> float:
        """c: the value of one sign among so many numbers, in units of the scale; ∞ for fair coins."""
        return sampled_signs.sign_value(numbers, self.parts, self.coin_bias)

    def spread(self, numbers: int, reports: float) -> Spread:
        """As for Harmony; in units of the scale, as printed. The printed server keeps the ratio of the two, not the size."""
        scale = 1.0 if self.form == "paper" else self.bound
        noise = self.magnitude(numbers) / math.sqrt(numbers / self.parts)
        return Spread(scale, scale * noise / math.sqrt(reports))

    @property
    def biased(self) -> str:
        """In which way the estimate is not of the sum; empty where it is."""
        return "the printed server estimates a direction, not a size" if self.server == "paper" else ""

    def describe(self) -> dict[str, Any]:
        """The form, the server, k, and what a sign stands for."""
        known = {"bound": self.bound}
        if self.form == "paper":
            known = {"epsilon_of_signs": self.budget, "normaliser": self.normaliser}
        made = {"form": self.form, "server": self.server, "k": self.parts, **known}
        return {**super().describe(), **made, "magnitude_over_numbers": self.magnitude(1)}


def scale_of(update: Any, normaliser: str) -> tuple[jax.Array, jax.Array]:
    """The scale that is sent and what the numbers are divided by, float32[] each; ∞ divides where there is no scale."""
    leaves = jax.tree.leaves(update, is_leaf=is_rows)
    pick = _largest if normaliser == "fmax" else lambda leaf: jnp.abs(_values(leaf)).max(initial=0.0)
    scale = jnp.stack([pick(leaf) for leaf in leaves]).max()
    return scale, jnp.where(scale > 0, scale, jnp.inf)


def _values(leaf: Any) -> jax.Array:
    return (leaf.value if isinstance(leaf, Rows) else leaf).astype(jnp.float32)


def _largest(leaf: Any) -> jax.Array:
    """The signed maximum of the table a leaf stands for, the rows it does not hold included."""
    if not isinstance(leaf, Rows):
        return _values(leaf).max()
    real = leaf.index < leaf.rows
    held = jnp.where(real.reshape(-1, *(1,) * (leaf.value.ndim - 1)), _values(leaf), -jnp.inf)
    held = held.max(initial=-jnp.inf)
    return jnp.where(real.sum() < leaf.rows, jnp.maximum(held, 0.0), held)
