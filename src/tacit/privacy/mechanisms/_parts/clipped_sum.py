"""Sums of updates clipped in L2 norm, in integers with rounded Gaussian noise; the bound may follow a quantile of norms.

An update x clipped to the bound C is sent as integers q ≈ x/(C·step), ‖q‖₂² ≤ R². Their sum, and the noise added to it, are
integers too; the noise is at least z_sum·R. The step is in units of the bound, so that a bound that moves changes no integer.

Beside its update x, at most C long, a device sends whether it was within the round's bound C: b = +½ where it was, −½ where
it was not. b is sent in sixteenths. The server adds noise to both sums and moves the bound by the share of those who were within:

    share = ½ + (Σ b + N(0, s²)) / M          M: the planned size of the cohort; a device that does not report counts as ½
    C ← C · exp(−rate · (share − quantile))

What it costs. With noise z_sum·C on each number of Σ x and s on Σ b, and each in units of its noise, a device adds the one
vector (x / (z_sum·C), b / s) to a joint sum whose noise is 1. It is never longer than 1/z, where

    1/z² = 1/z_sum² + 1/(2s)².

Neighbours that add or remove a device differ by that vector: by 1/z at most. Neighbours that replace a device by another
differ by the difference of two: by 2/z at most, and just that from (C·u, +½) to (−C·u, −½); there b alone may differ by 1, and
not by ½. So z is to the pair what the noise is to a sum alone, under both relations, and it is what the accountant is given.
C has cancelled out: the noise grows with the bound, so that any bound costs the same, however it was found.

Where the rounds of a stage share the bound, a round has a part p of its square, which the server's rule asks for after it has
seen the sums before. A device sends q with ‖q‖₂² ≤ p·R², checked in integers; the noise is the same in each round, and the
server divides by √p. Parts are 1/1024 or whole multiples of it, and never sum to more than 1, so all rounds together are one Gaussian
mechanism of noise z, although the parts were chosen on the way: fully adaptive composition holds for Gaussian differential
privacy with a bound on Σ 1/z_r² that is kept in every case (Smith and Thakurta, "Fully adaptive composition for Gaussian
differential privacy", 2022; Koskela, Tobaben and Honkela, "Individual privacy accounting with Gaussian differential privacy",
ICLR 2023).

Paper: Andrew, Thakkar, McMahan and Ramaswamy, "Differentially private learning with adaptive clipping" (NeurIPS 2021). There,
neighbours differ by one device's presence, and s is a twentieth of the cohort.
"""

import math
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from tacit.core.integer_grid import (
    PARTS,
    as_float,
    from_grid,
    from_vector,
    round_to_grid,
    to_numpy,
    values_of,
    with_values,
)
from tacit.core.sparse_rows import dense, dense_tree, is_rows
from tacit.errors import PlanError
from tacit.privacy.mechanisms._parts.correlated_noise import (
    Correlated,
    check_buffers,
    correlate,
    empty_buffers,
    least_steps,
)
from tacit.privacy.mechanisms._parts.noise_grid import (
    MAX_DEVIATION,
    MAX_STEPS,
    NoiseGrid,
    add_integers,
    add_noise,
    check_headroom,
    draw_noise,
    gaussian_grid,
    unit_grid,
)
from tacit.privacy.mechanisms._parts.noise_tables import GaussianTable
from tacit.privacy.mechanisms._parts.outer_products import round_outer_products, steps_for
from tacit.privacy.mechanisms._parts.summed import IntegerSums, for_each_weight, size_of

WITHIN = "within the clip"  # the count's place beside the leaves of an update; no leaf has a name of three words
PART, GRANTED = "part", "granted"  # of the bound, in PARTS: of this round, and in all but one for each round before
RATE = 0.2  # of the geometric step, as in the paper
_FAR = 1e6  # the bound stays within so many times its start, both ways: what is always within must not shrink it to nothing
FEW = 16  # as many times more rows in a table than in an update, and its sums skip those that are not there
_PERSON = 16  # the integer that counts one person
_HALF = _PERSON // 2


class Clipped(IntegerSums):
    """What a device sends and a server releases, given `multiplier`, the noise that is priced in units of the bound."""

    place: eqx.AbstractVar[Literal["central", "local"]]
    clip: eqx.AbstractVar[float]
    noise: eqx.AbstractVar[float | None]
    after_step: eqx.AbstractVar[float | None]
    quantile: eqx.AbstractVar[float | None]
    quantile_rate: eqx.AbstractVar[float | None]
    quantile_noise: eqx.AbstractVar[float | None]
    cohort: eqx.AbstractVar[float | None]
    correlated: eqx.AbstractVar[Correlated | None]
    split: eqx.AbstractVar[Literal["equal", "released"]]
    rounds: eqx.AbstractVar[int | None]
    multiplier: eqx.AbstractVar[float]

    def check_quantile(self) -> None:
        """Refuse an adaptive bound where it makes no sense."""
        if self.quantile is None:
            for name in ("quantile_rate", "quantile_noise"):
                if (value := getattr(self, name)) is not None:
                    raise PlanError(
                        f"privacy.{name} = {value:g} is a part of privacy.quantile, and there is none; give it."
                    )
        elif self.place == "local":
            raise PlanError(
                f"privacy.quantile = {self.quantile:g} is for noise at the server, got place = 'local'; leave it out."
            )
        elif self.after_step is not None:
            raise PlanError(
                f"privacy.quantile = {self.quantile:g} moves the bound, and after_step = {self.after_step:g} is for one "
                "that stays; leave one of the two out."
            )

    @property
    def sum_multiplier(self) -> float:
        """The noise on the sum, in units of the clip bound; a count leaves it less of what is priced."""
        return self.multiplier if self.quantile is None else sum_noise(self.multiplier, self.count_deviation)

    @property
    def count_deviation(self) -> float:
        """The standard deviation of the noise on the count of updates within the bound, in people."""
        if self.quantile_noise is not None:
            return self.quantile_noise
        return count_noise(self.multiplier, self._planned)

    @property
    def deviation(self) -> float:
        """σ: the standard deviation of the noise on each number; where the bound moves, in the first round."""
        return self.sum_multiplier * self.clip

    @property
    def public_state(self) -> dict[str, float]:
        """The bound, where it moves; or the round's part of it and all parts so far, where rounds share it."""
        if self.split == "released":
            return {PART: float(self._equal), GRANTED: float(self._equal)}  # neither is ever 0: no round is silent
        return {} if self.quantile is None else {"clip": self.clip}

    def _part(self, public_state: dict) -> jax.Array | None:
        """The round's part of the bound, in PARTS; None: all of it."""
        if self.split != "released":
            return None
        return jnp.asarray(public_state.get(PART, PARTS)).astype(jnp.int32)

    @property
    def _equal(self) -> int:
        """A round's part where the rule asks for none."""
        return PARTS // self._rounds

    @property
    def _rounds(self) -> int:
        if self.rounds is not None and self.rounds > PARTS:
            raise PlanError(
                f"privacy.split = 'released' is for at most {PARTS} rounds, got {self.rounds}; train fewer."
            )
        return self.rounds or 1

    def grant(self, asked: dict[str, jax.Array], public_state: dict) -> dict:
        """The round's part of the bound: the `share` that is asked for, from 0 to 1, or what is left, if that is less.

        Parts are whole numbers that never sum to more than PARTS. One part is left for each round, those before included, so
        that every device answers in every round.
        """
        if self.split != "released" or "share" not in asked:
            return public_state
        before = public_state[GRANTED] - public_state[PART]  # all but one part of each round
        wanted = jnp.floor(jnp.nan_to_num(asked["share"]) * PARTS + 0.5)
        part = jnp.clip(wanted, 1, 1 + jnp.maximum(PARTS - self._rounds - before, 0))
        return {**public_state, PART: part, GRANTED: before + part}

    def _clip(self, public_state: dict) -> Any:
        """The round's bound."""
        return self.clip if self.quantile is None else public_state.get("clip", self.clip)

    def grid(self, numbers: int) -> NoiseGrid:
        """The grid of an update of so many numbers, and the noise on it."""
        people = self._planned if self.place == "central" else 1
        least = 0.0 if self.correlated is None else least_steps(*self.correlated, numbers)
        if self.split == "released" and self.sum_multiplier:  # a small part of the bound has enough steps too
            least = min(32 * math.sqrt(numbers), 0.9 * MAX_DEVIATION / self.sum_multiplier, 0.9 * MAX_STEPS)
        wanted = steps_for(self.sum_multiplier, people) if self.update_form == "outer_products" else 0.0
        grid = gaussian_grid(self.sum_multiplier, numbers, people, least, wanted)
        if self.correlated is not None and isinstance(grid.noise, GaussianTable):
            check_buffers(*self.correlated, grid.noise.deviation)
        check_headroom(grid, self.place)
        return grid

    def _count_grid(self) -> NoiseGrid:
        """The grid of the count, and the noise on it."""
        return unit_grid(self.count_deviation, _PERSON, 1, self._planned)

    def encode(self, key: jax.Array, update: dict, public_state: dict) -> Any:
        """The integers of x·min(1, C/‖x‖₂), with noise where the place is local, or with one more where the bound moves."""
        clip = self._clip(public_state)
        grid, (rounding, noise) = self.grid(size_of(update)), jax.random.split(key)
        x, rest = values_of(update)
        if self.update_form == "outer_products":
            payload = round_outer_products(rounding, dense_tree(update), clip, grid)
        else:
            q = round_to_grid(jax.random.bits(rounding, (), jnp.uint32), x, clip, grid, self._part(public_state))
            payload = jax.tree.map(_dense_unless_few, with_values(q, rest), is_leaf=is_rows)
        if self.place == "local":
            payload = dense_tree(payload)
            payload = jax.tree.map(jnp.add, payload, from_vector(draw_noise(noise, grid, (size_of(update),)), payload))
        return payload if self.quantile is None else {**payload, WITHIN: within_bit(norm_of(x), clip)}

    def largest(self, numbers: int) -> int:
        """R, and on a device the reach of the noise."""
        grid = self.grid(numbers - (self.quantile is not None))
        return max(grid.largest + (grid.reach if self.place == "local" else 0), _HALF)

    def zero(self, params: dict, weights: int) -> Any:
        """Zeros, and one more for the count where the bound moves."""
        counted = {} if self.quantile is None else {WITHIN: jax.ShapeDtypeStruct((), jnp.int32)}
        return super().zero({**params, **counted}, weights)

    def estimate(self, key: jax.Array, total: Any, n: jax.Array, public_state: dict) -> tuple[dict, jax.Array]:
        """The sum with its noise, and the planned size of the cohort; on devices' noise, the number of reports.

        Where noise is correlated, it is that of a first round.
        """
        del n
        return self._released(key, total, public_state, self.noise_state(_update_of(total[0])))[0]

    def noise_state(self, update: dict) -> Any:
        """The buffers, where noise is correlated."""
        return () if self.correlated is None else empty_buffers(self.correlated.correlation, size_of(update))

    def release(
        self, key: jax.Array, total: Any, n: jax.Array, public_state: dict, noise_state: Any
    ) -> tuple[tuple[dict, jax.Array], Any]:
        """As `estimate`; where noise is correlated, with the buffers of the rounds before, and those of the next round."""
        if self.correlated is None:
            return super().release(key, total, n, public_state, noise_state)
        return self._released(key, total, public_state, noise_state)

    def _released(
        self, key: jax.Array, total: Any, public_state: dict, noise_state: Any
    ) -> tuple[tuple[dict, jax.Array], Any]:
        sums, reports = total
        if self.place == "local":
            numbers = for_each_weight(self.to_numbers(sums, public_state), reports)
            return (numbers, reports.astype(jnp.float32)), noise_state
        leaves = _update_of(sums)
        grid = self.grid(size_of(leaves))
        noise = draw_noise(jax.random.fold_in(key, 0), grid, (size_of(leaves),))
        if self.correlated is not None:
            noise, noise_state = correlate(self.correlated.correlation, noise_state, noise)
        numbers = for_each_weight(self.to_numbers(add_integers(leaves, noise), public_state), reports)
        return (numbers, jnp.full(reports.shape, self._planned)), noise_state

    def to_numbers(self, payload: Any, public_state: dict) -> Any:
        """The numbers that integers stand for, in the round's bound; and what counts who was within, in people."""
        leaves = _update_of(payload)
        grid = self.grid(size_of(leaves))
        clip = self._clip(public_state) * self._lengthened(public_state)
        numbers = {name: from_grid(leaf, clip, grid) for name, leaf in leaves.items()}
        return {**numbers, WITHIN: as_float(payload[WITHIN]) / _PERSON} if WITHIN in payload else numbers

    def _lengthened(self, public_state: dict) -> Any:
        """How many times longer an update is than its part of the bound."""
        part = self._part(public_state)
        return 1.0 if part is None else jnp.sqrt(PARTS / jnp.maximum(part, 1))

    def precision(self, public_state: dict) -> Any:
        """The round's part of the bound."""
        return 1.0 / self._lengthened(public_state) ** 2

    def next_public_state(self, key: jax.Array, total: Any, public_state: dict) -> dict:
        """The bound moves towards the quantile, by the noisy count; a bound that rounds share has one more part in use."""
        if self.split == "released":
            before = public_state[GRANTED] - 1
            part = jnp.clip(self._equal, 1, 1 + jnp.maximum(PARTS - self._rounds - before, 0))
            return {**public_state, PART: part, GRANTED: before + part}
        if self.quantile is None:
            return public_state
        (counted,) = add_noise(jax.random.fold_in(key, 1), self._count_grid(), [total[0][WITHIN]])
        share = 0.5 + as_float(counted) / (_PERSON * self._planned)
        rate = RATE if self.quantile_rate is None else self.quantile_rate
        return {**public_state, "clip": next_bound(self._clip(public_state), share, self.quantile, rate, self.clip)}

    def check_payload(self, payload: Any) -> str:
        """Whether the integers are within the bound, exactly, or with noise within its reach; and the count is ±½."""
        if self.quantile is not None and abs(int(payload[WITHIN])) != _HALF:
            return f"whether an update was within the clip must be {_HALF} or -{_HALF}, got {int(payload[WITHIN])}"
        if self.place == "local":
            return super().check_payload(payload)
        parts = [np.asarray(leaf, np.int64).ravel() for name, leaf in payload.items() if name != WITHIN]
        grid = self.grid(sum(part.size for part in parts))
        if (largest := max(int(np.abs(part).max(initial=0)) for part in parts)) > grid.largest:
            return f"every number must be from -{grid.largest} to {grid.largest}, got one of size {largest}"
        squares = sum(int(np.square(part).sum()) for part in parts)
        return "" if squares <= grid.bound else f"its squares must sum to at most {grid.bound}, got {squares}"

    def check_total(self, total: Any, people: int) -> str:
        """Whether so many updates within the bound can add up to this."""
        reason = super().check_total(total, people)
        if reason or self.place == "local":
            return reason
        sums, count = total[0], int(np.asarray(total[1]).max(initial=0))
        grid = self.grid(size_of(sums) - (self.quantile is not None))
        parts = [to_numpy(leaf).astype(float) for name, leaf in sums.items() if name != WITHIN]
        length, most = math.sqrt(sum(float(np.square(part).sum()) for part in parts)), count * math.sqrt(grid.bound)
        if length > most * (1 + 1e-9):
            return f"a sum of {count} updates must be at most {most:.6g} long, got {length:.6g}"
        if self.quantile is not None and abs(int(to_numpy(sums[WITHIN]))) > count * _HALF:
            return f"{count} reports must count at most {count * _HALF}, got {int(to_numpy(sums[WITHIN]))}"
        return ""

    @property
    def _planned(self) -> float:
        if self.cohort is None:
            raise PlanError("privacy of gaussian has no cohort yet; settle the mechanism for a population.")
        return self.cohort

    def describe(self) -> dict[str, Any]:
        """The noise in units of the bound, and as a standard deviation."""
        sum_or_message = "sum" if self.place == "central" else "message"
        return {
            "place": self.place,
            "clip": self.clip,
            "noise": self.noise,
            f"deviation_of_{sum_or_message}": self.deviation,
            "messages": self.messages,
            **({} if self.quantile is None else self._split()),
        }

    def _split(self) -> dict[str, Any]:
        """How the noise is shared between sum and count; what is spent on the count is its part of 1/noise²."""
        s = self.count_deviation
        return {
            "quantile": self.quantile,
            "noise_of_sum": self.sum_multiplier,
            "deviation_of_count": s,
            "spent_on_count": (self.multiplier / (2 * s)) ** 2 if s else 0.0,
        }


def _dense_unless_few(leaf: Any) -> Any:
    """A table whose rows are few in memory stays as it is: a message holds the whole table in any case, and a sum is faster."""
    return leaf if is_rows(leaf) and leaf.index.shape[0] * FEW <= leaf.rows else dense(leaf)


def _update_of(payload: dict) -> dict:
    """A payload, or a sum of them, without the count of who was within the bound."""
    return {name: leaf for name, leaf in payload.items() if name != WITHIN}


# ---- the bound that moves ----


def count_noise(noise: float, cohort: float) -> float:
    """s, where a plan does not set it: a twentieth of the cohort, or as much more as keeps its cost to 1/100 of 1/z².

    In a small cohort the bound is less accurate, rather than the update noisier.

    >>> count_noise(2.0, 1000), count_noise(2.0, 30)
    (50.0, 10.0)
    """
    return max(cohort / 20, 5 * noise) if noise else 0.0


def sum_noise(noise: float, count: float) -> float:
    """z_sum, in units of the bound: what is left for the sum when z prices both.

    >>> round(sum_noise(2.0, 10.0), 4)
    2.0101
    """
    if noise == 0:
        return 0.0
    left = noise**-2 - (2 * count) ** -2 if count else -math.inf
    if left <= 0:
        raise PlanError(
            f"privacy.quantile_noise = {count:g} is too little: a count with it would cost all that noise = {noise:.4g} "
            f"allows, or more; give more than {noise / 2:.4g}, or leave it out."
        )
    return left**-0.5


def norm_of(x: jax.Array) -> jax.Array:
    """‖x‖₂, infinite rather than wrong where squares would overflow."""
    largest = jnp.abs(x).max(initial=0.0)
    scale = jnp.where(largest > 0, largest, 1.0)
    return scale * jnp.sqrt(jnp.square(x / scale).sum())


def within_bit(norm: jax.Array, clip: jax.Array | float) -> jax.Array:
    """b: whether an update of this length is within the bound, as +½ or −½ of a person."""
    return jnp.where(norm <= clip, _HALF, -_HALF).astype(jnp.int32)


def next_bound(clip: jax.Array, share: jax.Array, quantile: float, rate: float, start: float) -> jax.Array:
    """The next bound: at most e^rate times the last, or as much smaller, however large the noise."""
    # C ← C · exp(−rate · (share − quantile)); cut evenly on both sides, so that noise pulls it to neither
    step = jnp.exp(-rate * jnp.clip(share - quantile, -1.0, 1.0))
    return jnp.clip(clip * step, start / _FAR, start * _FAR).astype(jnp.float32)
