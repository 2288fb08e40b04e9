"""within_organisation: an organisation's sum over its own people, each bounded by it, with normal noise added before it leaves."""

import math
from dataclasses import replace
from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp

from tacit.core.integer_grid import (
    PEOPLE,
    PERSON_STEPS,
    as_float,
    from_grid,
    from_vector,
    person_on_grid,
    to_people_grid,
    to_vector,
)
from tacit.core.settings import setting
from tacit.core.sparse_rows import dense_tree
from tacit.errors import PlanError
from tacit.privacy.accounting.events import Event, Gaussian
from tacit.privacy.claim import Claim, Per
from tacit.privacy.mechanism import Spread, delta_setting, epsilon_setting, messages_setting, wire_setting
from tacit.privacy.mechanisms._parts.local_dp import ASKED
from tacit.privacy.mechanisms._parts.noise_grid import (
    GAP,
    NoiseGrid,
    check_headroom,
    draw_noise,
    unit_grid,
)
from tacit.privacy.mechanisms._parts.summed import IntegerSums, for_each_weight, size_of
from tacit.privacy.sampler import Exposure

_COUNT = 0.1  # how much of a person's length 1 the count takes; the rest is the update's
_PERSON = 16  # the integer that counts one person
_MOST_INTEGER = 2**24  # of a sum, before its noise
_INSIDE = "each person belongs to one organisation, which clips what each person contributes and adds the noise"


class WithinOrganisation(IntegerSums):
    """Noise for a sum over people, drawn inside the organisation: N(0, noise²) on every number, where each person adds a
    vector of length at most 1.

    An update with a leaf `people` is such a sum, and has how many people are in it; the method has put each person's part
    on the integer grid, within its bound, so that the sum and its noise are integers. The server divides by the number of
    people with its noise: `people` shares each person's length 1 with the rest of the update. An update without it is one
    person's, and is put on the grid here. Give `epsilon` for the run and the noise is found, or `noise` and the ε is computed.

    Guarantee:
        (ε, δ) for one person, replaced by any other in the same organisation, in all that the organisation sends,
        against any reader; the organisation itself sees its people's data and must be trusted. Organisations have
        different people, so all of them together cost a person no more than one does. noise = 0 is ε = ∞.

    Paper: McMahan et al., "Learning differentially private recurrent language models" (ICLR 2018), inside each
    organisation.
    """

    former_names: ClassVar[tuple[str, ...]] = ("members",)
    messages: int | None = messages_setting()
    wire: Literal["dense"] = wire_setting()
    noise: float | None = setting(None, at_least=0.0)
    epsilon: float | None = epsilon_setting()
    delta: float | None = delta_setting()
    crowd: int = setting(1, at_least=1)  # people expected in an organisation: for feasibility, not for the promise
    sums_people: ClassVar[bool] = True
    suggested: ClassVar[tuple[dict[str, Any], ...]] = ({"epsilon": 2.0}, {"noise": 3.0})

    def __check_init__(self):
        if self.noise is None and self.epsilon is None:
            raise PlanError("privacy of within_organisation must give epsilon (for the run) or noise, got neither.")

    def settle(self, exposure: Exposure) -> "WithinOrganisation":
        """Find the noise, and check that the promise is kept; δ is for people, of whom there are more than devices."""
        from tacit.privacy.accounting import accountant

        exposure = exposure.at_most(self.messages)
        delta = min(1e-6, accountant.default_delta(exposure.devices)) if self.delta is None else self.delta
        accountant.check_delta(delta, exposure.devices, "privacy.delta")
        settled = replace(self, delta=delta, messages=exposure.messages)
        if self.noise is None:
            assert self.epsilon is not None
            found = accountant.calibrate(
                lambda found: ((Gaussian(found, GAP), exposure.messages),),
                self.epsilon,
                delta,
                "replace_one",
            )
            settled = replace(settled, noise=found)
        settled.grids(2)  # refuses a noise that is too large
        cost = settled.claim(exposure)[1].epsilon
        if self.epsilon is not None and cost > self.epsilon * (1 + 1e-9):
            raise PlanError(
                f"privacy.epsilon = {self.epsilon:g} is a promise that noise = {settled.noise:g} does not keep: the run "
                f"costs {cost:.4g} at δ = {delta:g}. Leave one of the two out."
            )
        return settled

    @property
    def deviation(self) -> float:
        """σ of the noise on each number that is sent."""
        if self.noise is None:
            raise PlanError("privacy.epsilon is not turned into noise yet; settle the mechanism for a population.")
        return self.noise

    def grids(self, numbers: int) -> tuple[NoiseGrid, NoiseGrid]:
        """The grids of an update of so many numbers, and of its count of people, with the noise on each."""
        grids = (
            unit_grid(self.deviation / math.sqrt(1 - _COUNT**2), PERSON_STEPS, numbers, self.crowd),
            unit_grid(self.deviation / _COUNT, _PERSON, 1),
        )
        for grid in grids:
            check_headroom(grid, "local")
        return grids

    def encode(self, key: jax.Array, update: dict, public_state: dict) -> Any:
        """The integers of the sum and of the count, with noise on every one."""
        del public_state
        x = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), dense_tree(update))
        rounding, noise, of_count = jax.random.split(key, 3)
        alone = PEOPLE not in x
        rest = {name: leaf for name, leaf in x.items() if name != PEOPLE}
        mine = person_on_grid(rounding, rest) if alone else jax.tree.map(to_people_grid, rest)
        whole, count = self.grids(size_of(rest))
        vector = to_vector(mine)
        payload = from_vector(vector + draw_noise(noise, whole, vector.shape), mine)
        if alone:
            return payload
        people = jnp.clip(jnp.round(x[PEOPLE] * _PERSON), 0, _MOST_INTEGER).astype(jnp.int32)
        return {**payload, PEOPLE: people + draw_noise(of_count, count, people.shape)}

    def largest(self, numbers: int) -> int:
        """That of a sum over as many people as fit, and the reach of the noise."""
        return _MOST_INTEGER + max(grid.reach for grid in self.grids(numbers))

    def estimate(self, key: jax.Array, total: Any, n: jax.Array, public_state: dict) -> tuple[dict, jax.Array]:
        """The sums, and the noisy number of people; at least 1."""
        del key, n
        sums, reports = total
        numbers = for_each_weight(self.to_numbers(sums, public_state), reports)
        return numbers, jnp.maximum(numbers[PEOPLE], 1.0) if PEOPLE in sums else reports.astype(jnp.float32)

    def to_numbers(self, payload: Any, public_state: dict) -> Any:
        """The numbers that integers stand for, in units of what one person may add, and the number of people."""
        del public_state
        rest = {name: leaf for name, leaf in payload.items() if name != PEOPLE}
        whole, _ = self.grids(size_of(rest))
        numbers = {name: from_grid(leaf, 1.0, whole) for name, leaf in rest.items()}
        if PEOPLE not in payload:
            return numbers
        return {**numbers, PEOPLE: as_float(payload[PEOPLE]) / _PERSON}

    def event(self, exposure: Exposure) -> tuple[Event, int]:
        """One message."""
        del exposure
        return Gaussian(self.deviation, GAP), 1

    def claim(self, exposure: Exposure) -> tuple[Claim, ...]:
        """(ε, δ) of a message and of the run."""
        times = exposure.at_most(self.messages).messages
        return self._one(1, "message"), self._one(times, "run")

    def _one(self, count: int, per: Per) -> Claim:
        from tacit.privacy.accounting import accountant

        delta = self.delta or 0.0
        epsilon = accountant.compose(((Gaussian(self.deviation, GAP), count),), delta, "replace_one").epsilon
        return Claim("local", "user", "replace_one", epsilon, delta, per, "corrected", "organisation", (_INSIDE,))

    def spread(self, numbers: int, reports: float) -> Spread:
        """At best every person's 1/√D; σ in each report, over the people of an organisation."""
        return Spread(1 / math.sqrt(numbers), self.deviation / self.crowd / math.sqrt(reports))

    def visible(self) -> tuple[str, ...]:
        """Participation of organisations."""
        return (ASKED,)

    def describe(self) -> dict[str, Any]:
        """The noise, in units of what one person may add."""
        return {"clip": 1.0, "noise": self.noise, "messages": self.messages}
