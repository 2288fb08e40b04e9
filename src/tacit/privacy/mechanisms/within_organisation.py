"""within_organisation: an organisation's sum over its own people, each bounded by it, with normal noise added before it leaves."""

import math
from dataclasses import replace
from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp

from tacit.core.settings import setting
from tacit.core.sparse_rows import dense_tree
from tacit.errors import PlanError
from tacit.privacy.accounting.events import Event, Gaussian
from tacit.privacy.claim import Claim, Per
from tacit.privacy.mechanism import PEOPLE, Spread, delta_setting, epsilon_setting, messages_setting, wire_setting
from tacit.privacy.mechanisms._parts import noise
from tacit.privacy.mechanisms._parts.local_dp import ASKED, FLOATS
from tacit.privacy.mechanisms._parts.summed import Summed
from tacit.privacy.sampler import Exposure

_COUNT = 0.1  # how much of a person's length 1 the count takes; the rest is the update's
_INSIDE = "each person belongs to one organisation, which clips what each person contributes and adds the noise"


class WithinOrganisation(Summed):
    """Noise for a sum over people, drawn inside the organisation: N(0, noise²) on every number, where each person adds a
    vector of length at most 1.

    An update with a leaf `people` is such a sum, and has how many people are in it; the method has clipped each. The
    server divides by that number with its noise: `people` shares each person's length 1 with the rest of the update. An update without it is one person's, and is shrunk to length 1 here. Give `epsilon` for the run and the noise
    is found, or `noise` and the ε is computed.

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
                lambda found: ((Gaussian(found), exposure.messages),), self.epsilon, delta, "replace_one"
            )
            settled = replace(settled, noise=found)
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

    def encode(self, key: jax.Array, update: dict, public_state: dict) -> Any:
        """The sum, its two parts sharing each person's length 1, with noise on every number."""
        del public_state
        x = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), dense_tree(update))
        x = self._shared(x, 1.0) if PEOPLE in x else _shrunk(x)
        return noise.add_normal(key, x, self.deviation)

    def estimate(self, key: jax.Array, total: Any, n: jax.Array, public_state: dict) -> tuple[dict, jax.Array]:
        """The sums, and the noisy number of people; at least 1."""
        del key, n, public_state
        if PEOPLE not in total[0]:
            return total
        sums = self._shared(total[0], -1.0)
        return sums, jnp.maximum(sums[PEOPLE], 1.0)

    def _shared(self, x: dict, power: float) -> dict:
        """The count times 0.1 and the rest times √(1 − 0.1²), or back."""
        rest = math.sqrt(1 - _COUNT**2)
        return {name: leaf * (_COUNT if name == PEOPLE else rest) ** power for name, leaf in x.items()}

    def event(self, exposure: Exposure) -> tuple[Event, int]:
        """One message."""
        del exposure
        return Gaussian(self.deviation), 1

    def claim(self, exposure: Exposure) -> tuple[Claim, ...]:
        """(ε, δ) of a message and of the run."""
        times = exposure.at_most(self.messages).messages
        return self._one(1, "message"), self._one(times, "run")

    def _one(self, count: int, per: Per) -> Claim:
        from tacit.privacy.accounting import accountant

        delta = self.delta or 0.0
        epsilon = accountant.compose(((Gaussian(self.deviation), count),), delta, "replace_one").epsilon
        words = (_INSIDE, FLOATS)
        return Claim("local", "user", "replace_one", epsilon, delta, per, "corrected", "organisation", words)

    def spread(self, numbers: int, reports: float) -> Spread:
        """At best every person's 1/√D; σ in each report, over the people of an organisation."""
        return Spread(1 / math.sqrt(numbers), self.deviation / self.crowd / math.sqrt(reports))

    def visible(self) -> tuple[str, ...]:
        """Participation of organisations."""
        return (ASKED,)

    def describe(self) -> dict[str, Any]:
        """The noise, in units of what one person may add."""
        return {"clip": 1.0, "noise": self.noise, "messages": self.messages}


def _shrunk(x: dict) -> dict:
    """One person's update, at most 1 long."""
    length = jnp.sqrt(sum(jnp.square(leaf).sum() for leaf in jax.tree.leaves(x)))
    return jax.tree.map(lambda leaf: leaf / jnp.maximum(length, 1.0), x)
