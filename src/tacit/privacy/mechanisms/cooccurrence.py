"""cooccurrence: randomised response for every position, with counts of single positions and of pairs."""

import itertools
import math
from dataclasses import replace
from typing import Any, ClassVar, Literal, Self

import jax
import jax.numpy as jnp
import numpy as np

from tacit.core.settings import setting
from tacit.core.sparse_rows import dense_tree
from tacit.errors import PlanError
from tacit.privacy.accounting.events import Event
from tacit.privacy.claim import Claim
from tacit.privacy.mechanisms._parts.bits import (
    ODDS_SCALE,
    Bits,
    Form,
    Thresholds,
    bounded,
    thresholds_of,
    uniform_words,
)
from tacit.privacy.mechanisms._parts.pair_counts import Cooccurrence, cooccurrence_counts, debiased
from tacit.privacy.sampler import Exposure

MOST = 30_000  # positions: the counts of their pairs fill 3.6 GB
_LEAST = 1e-6  # ε of a position, or p − q, below which the noise is lost in its own rounding


class RandomizedCooccurrence(Bits):
    """Randomised response whose total also counts, for every two positions, how many reported 1 for both.

    `form`, `epsilon` and rounding are those of `randomized_response`; `p` and `q` choose any other odds instead, and the claims
    are computed from them. With `unit = "user"` a person's whole history is protected: at most `cap` of the items,
    drawn at random on the device, are reported, and ε is divided over the 2·cap answers in which two people can differ.
    `memoised` answers are drawn once: the device repeats the same answers. `debias = false` returns the counts
    as if all reports were true.

    Guarantee:
        Unit interaction: as `randomized_response`, for any odds: max(ln p/q, ln (1 − q)/(1 − p)) for one interaction more or less,
        the sum of the two for a swap. Unit user: cap times a swap between any two people (replace-one), because the reports of
        two people differ in at most cap answers each way, whatever was drawn. It holds against any reader of the message. The counts
        of pairs are computed from the messages and cost nothing more. All estimates are unbiased, but of the reported items.

    Paper: Gao et al., "DPLCF: differentially private local collaborative filtering" (SIGIR 2020), with the inverse of
    its Eq. 11 corrected; Erlingsson et al., "RAPPOR" (CCS 2014) for `memoised`.
    """

    former_names: ClassVar[tuple[str, ...]] = ("pairs",)
    p: float | None = setting(None, above=0.0, at_most=1.0)
    q: float | None = setting(None, at_least=0.0)
    unit: Literal["interaction", "user"] = setting("interaction")  # pyright: ignore[reportIncompatibleVariableOverride]
    cap: int | None = setting(None, at_least=1)
    memoised: bool = setting(False)  # pyright: ignore[reportIncompatibleVariableOverride]
    debias: bool = setting(True)
    counts_pairs: ClassVar[bool] = True
    suggested: ClassVar[tuple[dict[str, Any], ...]] = (
        {"epsilon": 1.0},
        {"epsilon": 1.0, "form": "unary"},
        {"epsilon": 1.0, "form": "asymmetric"},
        {"p": 0.9, "q": 0.2},
        {"epsilon": 4.0, "unit": "user", "cap": 2},
    )

    def check_settings(self) -> None:
        """Refuse odds from which nothing can be estimated, and a unit that is not kept."""
        if self.p is None and self.q is None:
            super().check_settings()
        else:
            self._check_odds()
        if (self.unit == "user") != (self.cap is not None):
            raise PlanError(
                f"privacy.unit = 'user' and privacy.cap, the most items reported, belong together, got unit = {self.unit!r} "
                f"and cap = {self.cap!r}; set both or neither."
            )
        if self.unit == "user" and self.kind == "asymmetric":
            raise PlanError(
                "privacy.unit = 'user' cannot be kept with p = 1: a reported 0 proves that the item is absent; use form 'symmetric'."
            )

    def _check_odds(self) -> None:
        if self.epsilon is not None or self.epsilon_per_message is not None:
            raise PlanError("privacy takes p and q, or an epsilon, not both; leave one of the two out.")
        if self.p is None or self.q is None or self.p - self.q < _LEAST:
            raise PlanError(
                f"privacy.p and privacy.q must both be given, with q at least {_LEAST:g} below p, got p = {self.p} and "
                f"q = {self.q}."
            )

    def settle(self, exposure: Exposure) -> Self:
        """Split ε over messages and positions, and check that something is left and that a draw for life is one."""
        if self.memoised and exposure.rounds != 1:
            raise PlanError(
                f"privacy.memoised answers are drawn once, so there must be one round, got "
                f"{exposure.rounds} rounds; set rounds = 1."
            )
        if self.p is None:
            settled = super().settle(exposure)
            if settled.per_position < _LEAST:
                raise PlanError(
                    f"privacy leaves ε = {settled.per_position:.2g} for one position, and below {_LEAST:g} the noise is lost "
                    "in its own rounding; give a larger epsilon, a smaller cap or fewer messages."
                )
            return settled
        return replace(self, messages=exposure.at_most(self.messages).messages)

    # ---- odds ----

    @property
    def kind(self) -> Form:
        """The form, or the one that given odds are most like."""
        if self.p is None:
            return self.form
        return "asymmetric" if self.p == 1 and self.q else "symmetric"

    @property
    def parts(self) -> int:
        """The answers in which two people can differ."""
        return 2 * self.cap if self.cap is not None and self.kind == "symmetric" and self.p is None else 1

    @property
    def per_position(self) -> float:
        """ε of one position: a person's is shared out over cap swaps, each two positions of the symmetric form."""
        return self.share if self.cap is None else self.share / (self.cap * (2 if self.form == "symmetric" else 1))

    @property
    def thresholds(self) -> Thresholds:
        """p and q as multiples of 2⁻³², given or found; rounding makes no answer certain that a form leaves open."""
        if self.p is not None and self.q is not None:
            return thresholds_of(self.p, self.q)
        p, q = super().thresholds
        return p if self.form == "asymmetric" else min(p, ODDS_SCALE - 1), q

    # ---- device ----

    def encode(self, key: jax.Array, update: dict, public_state: dict) -> Any:
        """One coin a position, for at most `cap` items where there is a cap."""
        if self.cap is None:
            return super().encode(key, update, public_state)
        pick, key = jax.random.split(key)
        return super().encode(key, _sampled(pick, dense_tree(update), self.cap), public_state)

    def law_of(self, truth: np.ndarray, ends: np.ndarray) -> dict[bytes, float]:
        """The mean of the laws of all samples of `cap` items."""
        ones = np.flatnonzero(truth)
        if self.cap is None or ones.size <= self.cap:
            return super().law_of(truth, ends)
        samples = [np.isin(np.arange(truth.size), some) for some in itertools.combinations(ones, self.cap)]
        laws = [super(RandomizedCooccurrence, self).law_of(sample, ends) for sample in samples]
        return {said: math.fsum(law[said] for law in laws) / len(laws) for said in laws[0]}

    # ---- server ----

    def zero(self, params: dict, weights: int) -> Any:
        """All zero."""
        counts = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, jnp.int32), params)
        size = sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(counts))
        if size > MOST:
            raise PlanError(
                f"privacy.mechanism 'cooccurrence' holds {size:,} × {size:,} counts, and more than {MOST:,} positions do not fit "
                "into memory; tacit.lab.simulation.cooccurrence.learn computes the same table piece by piece."
            )
        return counts, jnp.zeros((size, size), jnp.int32), jnp.zeros(weights, jnp.int32)

    def add(self, total: Any, payloads: Any, weights: jax.Array, sent: jax.Array) -> Any:
        """Count the reported ones, and pairs of them: integers, exact in any order."""
        del weights  # each device counts once
        counts, together, heard = total
        leaves, tree = jax.tree.flatten(counts)
        said = [
            jnp.unpackbits(part, axis=1, count=leaf.size) for leaf, part in zip(leaves, tree.flatten_up_to(payloads))
        ]
        said = [jnp.where(sent[:, None], part, 0) for part in said]
        leaves = [leaf + part.sum(0, dtype=jnp.int32).reshape(leaf.shape) for leaf, part in zip(leaves, said)]
        together = together + cooccurrence_counts(jnp.concatenate(said, axis=1))
        return jax.tree.unflatten(tree, leaves), together, heard + sent.sum(dtype=jnp.int32)

    def merge(self, one: Any, other: Any) -> Any:
        """Sum of counts."""
        return jax.tree.map(jnp.add, one, other)

    def estimate(self, key: jax.Array, total: Any, n: jax.Array, public_state: dict) -> tuple[dict, jax.Array]:
        """How many have each position, and under `pairs` how many have every two."""
        del key, n, public_state
        counts, together, heard = total
        believed = self.thresholds if self.debias else (ODDS_SCALE, 0)
        each = heard.reshape(-1)

        def debias(count: jax.Array) -> jax.Array:
            return debiased(count, each.reshape((-1,) + (1,) * count.ndim), believed)

        sums = jax.tree.map(debias, counts)
        return {**sums, "pairs": Cooccurrence(together, heard[0], believed)}, heard.astype(jnp.float32)

    @property
    def biased(self) -> str:
        """In which way the estimate is not of the sum; empty where it is."""
        if not self.debias:
            return "flipped bits are counted as true ones"
        return "" if self.cap is None else f"of a person with more than {self.cap} items, a sample is counted"

    def floor(self, reports: float) -> float | None:
        """As `randomized_response`; None without debiasing, and without noise."""
        return super().floor(reports) if self.debias and self.odds[1] else None

    # ---- claims ----

    def event(self, exposure: Exposure) -> tuple[Event, int]:
        """One interaction, or a whole person: cap swaps."""
        if self.cap is None:
            return super().event(exposure)
        return bounded(self.cap * self.epsilons()[1], self.parts), 1

    def claim(self, exposure: Exposure) -> tuple[Claim, ...]:
        """By the unit."""
        if self.cap is None:
            return super().claim(exposure)
        words = (
            f"at most {self.cap} items of a person are reported, drawn at random on the device",
            *self.conditions(),
        )
        return self.claims(exposure, self.event(exposure)[0], "replace_one", words)

    def conditions(self) -> tuple[str, ...]:
        """What answers that are drawn once depend on; or that there is no noise."""
        p, q = self.odds
        plain = ("no noise: every answer is true",) if (p, q) == (1, 0) else ()
        lasting = (
            "answers are drawn once: the device repeats them as long as it keeps its secret and its history does not change; "
            f"a change becomes visible with probability {p - q:.2f}"
        )
        return (*plain, lasting) if self.memoised else plain

    def describe(self) -> dict[str, Any]:
        """p and q, and the cap."""
        p, q = self.odds
        share = {} if self.epsilon_per_message is None else {"epsilon_per_message": self.epsilon_per_message}
        return {**share, "messages": self.messages, "p": p, "q": q, **({} if self.cap is None else {"cap": self.cap})}


def _sampled(key: jax.Array, update: dict, cap: int) -> dict:
    """The update with at most `cap` of its ones, each as likely to stay; a one more never changes how others rank."""
    leaves, tree = jax.tree.flatten(update)
    ones = jnp.concatenate([leaf.reshape(-1) > 0 for leaf in leaves])
    rank = jnp.where(ones, uniform_words(key, ones.size) | np.uint32(1 << 31), 0)
    kept = jax.lax.top_k(rank, min(cap, ones.size))[1]
    ones = jnp.zeros_like(ones).at[kept].set(ones[kept])
    parts = jnp.split(ones, np.cumsum([leaf.size for leaf in leaves])[:-1])
    return jax.tree.unflatten(tree, [part.reshape(leaf.shape) for part, leaf in zip(parts, leaves)])
