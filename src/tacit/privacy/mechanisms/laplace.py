"""laplace: clip the update and add Laplace noise, on the device to the message, or at the server to the sum."""

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any, ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from tacit.core.integer_grid import from_grid, from_vector, is_int64, round_to_grid, values_of, with_values
from tacit.core.settings import setting
from tacit.core.sparse_rows import dense_tree
from tacit.errors import PlanError
from tacit.privacy.accounting.events import Event, FixedPure
from tacit.privacy.claim import Claim, Per
from tacit.privacy.mechanism import Spread
from tacit.privacy.mechanisms._parts.local_dp import (
    NO_BOUND,
    NO_BOUND_EVENT,
    RELEASED,
    REPORTS,
    TOWARDS_SERVER,
    Local,
)
from tacit.privacy.mechanisms._parts.noise_grid import (
    GAP,
    NoiseGrid,
    add_noise,
    check_clip,
    check_headroom,
    draw_noise,
    laplace_grid,
)
from tacit.privacy.mechanisms._parts.summed import IntegerSums, for_each_weight, size_of
from tacit.privacy.sampler import DRAWN, Exposure

_NO_BOUND = 2**30  # steps
_FINE = 256  # steps of a scale


class Laplace(Local, IntegerSums):
    """Add discrete Laplace noise to every number, in integers of a public grid.

    - `place = "local"`: each device adds it to its own message. This is the default.
    - `place = "central"`: devices send bounded updates; the server adds the noise once, to the sum of the cohort, and
      divides by the planned size of the cohort, so that a device that does not answer counts as zero.

    How the update x of D numbers is bounded, by a public `bound`:

    - `elements`: every number to [−B, B]; noise of scale 2DB/ε.
    - `l1`: the whole update to ‖x‖₁ ≤ B; noise of scale 2B/ε.
    - `none`: not at all; noise of a given `scale`. For showing that such a message has no guarantee.

    Guarantee:
        `local`, with `elements` or `l1`: ε-local differential privacy of one message between any two updates of one device
        (replace-one, unit user), because two bounded updates differ by at most 2DB, or 2B, in L1 norm. Unbiased for
        the bounded update; variance 2·scale² a number. `none`: ε = ∞ at any scale. `central`: the same between any two
        sums in which one member is replaced, for what the server releases; the server sees every bounded report and
        must be trusted. A cohort of fixed size drawn in secret makes a round's ε smaller, ln(1 + q(e^ε − 1)) for the
        share q of devices that are drawn; other cohorts are counted as if all devices took part. Bounds hold for the
        integers themselves; the finite precision of the tables that the noise is drawn from is stated as δ.

    Paper: Dwork et al., "Calibrating noise to sensitivity in private data analysis" (TCC 2006).
    """

    clip: Literal["elements", "l1", "none"] = setting("l1")
    bound: float = setting(1.0, above=0.0)
    scale: float | None = setting(None, above=0.0)  # instead of an ε, where the bound turns it into one
    place: Literal["local", "central"] | None = setting(None)
    cohort: float | None = eqx.field(static=True, default=None)  # the planned size, once settled
    suggested: ClassVar[tuple[dict[str, Any], ...]] = (
        {"epsilon": 2.0},
        {"epsilon": 2.0, "clip": "elements", "bound": 0.5},
        {"scale": 0.5, "bound": 2.0},
        {"scale": 0.5, "clip": "none"},
        {"epsilon": 2.0, "place": "central"},
        {"scale": 4.0, "bound": 2.0, "place": "central"},
    )

    def check_settings(self) -> None:
        """The noise is given in one way, from which an ε follows."""
        promised = self.epsilon is not None or self.epsilon_per_message is not None
        if self.clip == "none" and promised:
            raise PlanError(
                "privacy.epsilon is a promise that clip = 'none' cannot keep: an update without a bound has no finite "
                "ε. Give scale instead, or clip = 'l1'."
            )
        if self.clip == "none" and self.central:
            raise PlanError(
                "privacy.place = 'central' needs updates with a bound, got clip = 'none': noise at the server would protect "
                "no one. Give clip = 'l1'."
            )
        if self.clip == "elements" and self.scale is not None:
            raise PlanError(
                f"privacy.scale = {self.scale:g} does not determine an ε under clip = 'elements', where ε depends on how "
                "many numbers there are; give epsilon instead."
            )
        if self.scale is not None and self.epsilon_per_message is not None:
            raise PlanError(
                f"privacy must give scale or epsilon_per_message, not both; got {self.scale:g} and "
                f"{self.epsilon_per_message:g}."
            )
        if self.scale is None and not promised:
            raise PlanError("privacy of laplace must give epsilon, epsilon_per_message or scale, got none of them.")

    @property
    def central(self) -> bool:
        """Whether the server adds the noise."""
        return self.place == "central"

    @property
    def share(self) -> float:
        """ε of one message, or of one sum for those who are in it: 2B/scale where the scale was given."""
        if self.clip == "none":
            return math.inf
        return super().share if self.scale is None else 2 * self.bound / self.scale

    def settle(self, exposure: Exposure) -> "Laplace":
        """As every local mechanism; a given scale is the noise already, and sums may be amplified by sampling."""
        if self.scale is None and not self.central:
            self._check_noise()
            return super().settle(exposure)
        self.check_delta(exposure)
        self._check_noise()
        exposure = exposure.at_most(self.messages)
        if self.central:
            exposure = exposure.at_most(exposure.answers(self.delta or 0.0, self._expected(exposure)))
        settled = replace(self, messages=exposure.messages, cohort=exposure.cohort if self.central else None)
        if self.scale is None and self.epsilon_per_message is None:
            settled = replace(settled, epsilon_per_message=self._of_a_sum(exposure))
        settled.check_promise(exposure)
        return settled

    def _expected(self, exposure: Exposure) -> float:
        """About the ε of the run, before it is known after how many sums a device falls silent."""
        if self.scale is None and self.epsilon_per_message is None:
            return self.epsilon or 0.0
        return next(claim.epsilon for claim in self.claim(exposure) if claim.per == "run")

    def _check_noise(self) -> None:
        """Refuse a bound or a scale that no grid is for."""
        check_clip("privacy.bound", self.bound)
        if self.scale is not None:
            check_clip("privacy.scale", self.scale)

    def _of_a_sum(self, exposure: Exposure) -> float:
        """The largest ε of one sum such that all of them together cost at most what is promised."""
        from tacit.privacy.accounting import accountant

        event, count = exposure.pure(1.0, self.delta or 0.0, GAP)
        assert self.epsilon is not None
        share = accountant.per_message(self.epsilon, count, self.left_of_delta(count))
        return accountant.unamplified(share, event.cohort / event.devices) if isinstance(event, FixedPure) else share

    def grid(self, numbers: int) -> NoiseGrid:
        """The grid of an update of so many numbers, and the noise on it."""
        people = self._planned if self.central else 1
        if self.clip == "none":  # a bound of so many steps that it is none, each a 256th of the scale
            grid = laplace_grid(Fraction(_FINE, _NO_BOUND), "elements", numbers, 1, _NO_BOUND)
        else:
            grid = laplace_grid(self.ratio(numbers), self.clip, numbers, people)
        check_headroom(grid, "central" if self.central else "local")
        return grid

    @property
    def _unit(self) -> float:
        """The bound that the grid is in units of."""
        return self.bound if self.clip != "none" or self.scale is None else self.scale / _FINE * _NO_BOUND

    def encode(self, key: jax.Array, update: dict, public_state: dict) -> Any:
        """The integers of clip(x), dense, with noise unless the server adds it."""
        del public_state
        numbers = size_of(update)
        grid, (rounding, noise) = self.grid(numbers), jax.random.split(key)
        x, rest = values_of(update)
        payload = dense_tree(
            with_values(round_to_grid(jax.random.bits(rounding, (), jnp.uint32), x, self._unit, grid), rest)
        )
        if self.central:
            return payload
        return jax.tree.map(jnp.add, payload, from_vector(draw_noise(noise, grid, (numbers,)), payload))

    def largest(self, numbers: int) -> int:
        """R, and on a device the reach of the noise."""
        grid = self.grid(numbers)
        return grid.largest + (0 if self.central else grid.reach)

    def estimate(self, key: jax.Array, total: Any, n: jax.Array, public_state: dict) -> tuple[dict, jax.Array]:
        """The sums; where the server adds the noise, with it, and with the planned size of the cohort."""
        del n
        sums, reports = total
        weight = jnp.full(reports.shape, self._planned) if self.central else reports.astype(jnp.float32)
        noised = add_noise(key, self.grid(size_of(sums)), sums) if self.central else sums
        return for_each_weight(self.to_numbers(noised, public_state), reports), weight

    def to_numbers(self, payload: Any, public_state: dict) -> Any:
        """The numbers that integers stand for."""
        del public_state
        grid = self.grid(size_of(payload))
        return jax.tree.map(lambda leaf: from_grid(leaf, self._unit, grid), payload, is_leaf=is_int64)

    def check_payload(self, payload: Any) -> str:
        """Whether the integers are within the bound, exactly, or with noise within its reach."""
        reason = super().check_payload(payload)
        if reason or not self.central or self.clip != "l1":
            return reason
        bound = self.grid(size_of(payload)).bound
        norm = sum(int(np.abs(np.asarray(leaf, np.int64)).sum()) for leaf in jax.tree.leaves(payload))
        return "" if norm <= bound else f"its sizes must sum to at most {bound}, got {norm}"

    @property
    def gap(self) -> float:
        """That of the tables of discrete Laplace noise."""
        return GAP

    @property
    def _planned(self) -> float:
        if self.cohort is None:
            raise PlanError("privacy of laplace has no cohort yet; settle the mechanism for a population.")
        return self.cohort

    def noise_scale(self, numbers: int) -> float:
        """b: 2DB/ε for elements, 2B/ε for the whole."""
        return self.scale if self.scale is not None else float(self.ratio(numbers)) * self.bound

    def ratio(self, numbers: int) -> Fraction:
        """b/B, exactly."""
        if self.scale is not None:
            return Fraction(self.scale) / Fraction(self.bound)
        return 2 * (numbers if self.clip == "elements" else 1) / Fraction(self.share)

    def event(self, exposure: Exposure) -> tuple[Event, int]:
        """Pure ε, or nothing finite without a bound."""
        if self.clip == "none":
            return NO_BOUND_EVENT, 1
        if not self.central:
            return super().event(exposure)
        event, count = exposure.at_most(self.messages).pure(self.share, self.delta or 0.0, GAP)
        return event, count if isinstance(event, FixedPure) else 1

    def claim(self, exposure: Exposure) -> tuple[Claim, ...]:
        """ε of a message, or of a round, and of the run."""
        if self.central:
            return self._central(exposure)
        words = (NO_BOUND,) if self.clip == "none" else self.conditions()
        return self.claims(exposure, self.event(exposure)[0], "replace_one", words)

    def _central(self, exposure: Exposure) -> tuple[Claim, ...]:
        event, count = exposure.at_most(self.messages).pure(self.share, self.delta or 0.0, GAP)
        words = (RELEASED, *((DRAWN,) if isinstance(event, FixedPure) else ()))

        def one(count: int, delta: float, per: Per) -> Claim:
            epsilon, delta = self.cost(event, count, delta)
            return Claim("central", self.unit, "replace_one", epsilon, delta, per, self.fidelity, "server", words)

        return TOWARDS_SERVER, one(1, 0.0, "round"), one(count, self.delta or 0.0, "run")

    @property
    def always_releases(self) -> bool:
        """At the server: a round without noise would reveal that its cohort was empty."""
        return self.central

    def visible(self) -> tuple[str, ...]:
        """Participation; at the server, everything but what is released."""
        return (*super().visible(), REPORTS) if self.central else super().visible()

    def spread(self, numbers: int, reports: float) -> Spread:
        """At best B everywhere (elements), or ‖x‖₂ = ‖x‖₁ = B (l1); √2·b of noise in each report, or in the sum."""
        largest = {"elements": self.bound, "l1": self.bound / math.sqrt(numbers), "none": math.inf}[self.clip]
        counted = reports if self.central else math.sqrt(reports)
        return Spread(largest, math.sqrt(2) * self.noise_scale(numbers) / counted)

    def describe(self) -> dict[str, Any]:
        """The scale, where it does not depend on how many numbers there are."""
        known = {} if self.clip == "elements" else {"scale": self.noise_scale(1)}
        where = {"place": self.place} if self.place else {}
        return {**super().describe(), **where, "clip": self.clip, "bound": self.bound, **known}
