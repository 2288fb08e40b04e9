"""gaussian: clip the update in L2 norm and add normal noise, at the server to the sum, or on the device to the message."""

import math
from dataclasses import replace
from typing import Any, ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from tacit.core.settings import setting
from tacit.core.sparse_rows import is_rows
from tacit.errors import PlanError
from tacit.privacy.accounting.events import CorrelatedGaussian, Event, FixedGaussian, Gaussian, SplitGaussian
from tacit.privacy.claim import Claim, Per
from tacit.privacy.mechanism import Spread, UpdateForm, delta_setting, epsilon_setting, messages_setting, wire_setting
from tacit.privacy.mechanisms._parts.clipped_sum import Clipped
from tacit.privacy.mechanisms._parts.correlated_noise import (
    Correlated,
    Participation,
    best_correlation,
    priced_sensitivity,
    squared_errors,
)
from tacit.privacy.mechanisms._parts.local_dp import ASKED, RELEASED, REPORTS, TOWARDS_SERVER
from tacit.privacy.mechanisms._parts.noise_grid import GAP, check_clip, check_noise
from tacit.privacy.mechanisms._parts.outer_products import why_not_outer_products
from tacit.privacy.sampler import DRAWN, Exposure

_OFTEN = "the ledger of a device refuses more reports than {0}, and reports less than {1} rounds apart"
_BUFFERS = "the server keeps the noise of earlier rounds in memory until the stage ends, and shows it to nobody"


class GaussianMechanism(Clipped):
    """Clip to ‖x‖₂ ≤ S on the device; add N(0, (noise·S)²) to every number, both in integers of a public grid.

    - `place = "central"`: the server adds the noise once, to the sum of the cohort, and divides by the planned size of
      the cohort, so that a device that does not answer counts as zero.
    - `place = "local"`: each device adds it to its own message.

    `noise` is in units of the clip bound S. Two neighbours that replace one device by another differ by 2S, so the
    multiplier an accountant sees is noise/2; where neighbours differ by one device's presence (Poisson cohorts), it is
    noise. Give `epsilon` for the run and the noise is found, or give `noise` and the ε is computed.

    Where several stages of a plan share one ε, each names the same `epsilon` and its `share` of it: the
    noise is that of ε, divided by √share, so that shares which sum to 1 cost ε exactly. It requires rounds of all devices.

    Some algorithms add the noise to the parameters, after the server's step α. `after_step` is that α: the sum then
    gets noise/α, the step turns it into noise, and the accountant is given noise/α.

    `update_form = "nonnegative"` is for methods whose updates have no number below 0: two such updates differ by √2·S at most,
    for their product is not negative, so the same ε needs less noise where a device is replaced. The device makes sure of
    it: a negative number counts as 0. `update_form = "outer_products"` is the same for methods whose updates are matrices
    x xᵀ, of either sign: the device rounds the factor x, so that whatever it sends is an outer product of integers.

    With `quantile` the bound moves from round to round, towards that quantile of the updates' lengths: `clip` is where it
    starts, `quantile_rate` how fast it moves (0.2), and each report also has whether its update was within. The
    server adds `quantile_noise` to that count, in people. `noise` then covers sum and count together, and the sum gets
    what remains (see `tacit.privacy.mechanisms._parts.clipped_sum`).

    With `correlation = "blt"` the noise of a round takes back part of the noise of earlier rounds, so that less of it is left
    in the final model (see `tacit.privacy.mechanisms._parts.correlated_noise`). `noise` is then the fresh noise of a round, and
    the ε is that of all rounds together. It helps in many rounds where a device reports seldom: with the sampler `pass`
    and `shuffle = "once"`, or with `messages`. Randomly drawn cohorts make it no stronger.

    With `split = "released"` the rounds share the noise's price as the server's rule asks, from what earlier rounds released:
    a round that gets the part p of it has noise/√p, and the parts never sum to more than 1 (see
    `tacit.privacy.mechanisms._parts.clipped_sum`). It requires rounds of all devices, with noise at the server.

    Guarantee:
        `central`: (ε, δ) for everything released, all rounds together, unit user; the server sees every clipped report
        and must be trusted. Randomly drawn cohorts make it stronger, as long as it stays secret who was drawn. `local`:
        (ε, δ) of each message between any two updates of one device, against any reader. Unbiased for the clipped
        update. noise = 0 is ε = ∞. The bound may be any, and may move: ε counts in multiples of it. The noise is a rounded
        Gaussian on integers, which post-processes the Gaussian mechanism; the finite precision of its tables is part of δ.

    Paper: Balle and Wang, "Improving the Gaussian mechanism for differential privacy" (ICML 2018).
    """

    messages: int | None = messages_setting()
    wire: Literal["dense"] = wire_setting()
    place: Literal["central", "local"] = setting("central")
    clip: float = setting(1.0, above=0.0)
    noise: float | None = setting(None, at_least=0.0)
    after_step: float | None = setting(None, at_least=1e-6, at_most=1e6)
    epsilon: float | None = epsilon_setting()
    share: float | None = setting(None, above=0.0, at_most=1.0)
    delta: float | None = delta_setting()
    update_form: UpdateForm = setting(None)  # pyright: ignore[reportIncompatibleVariableOverride]
    quantile: float | None = setting(None, above=0.0, at_most=0.99)
    quantile_rate: float | None = setting(None, above=0.0)
    quantile_noise: float | None = setting(None, at_least=1e-6)
    correlation: Literal["none", "blt"] = setting("none")
    split: Literal["equal", "released"] = setting("equal")
    cohort: float | None = eqx.field(static=True, default=None)  # the planned size, once settled
    rounds: int | None = eqx.field(static=True, default=None)  # of the stage, once settled
    correlated: Correlated | None = eqx.field(static=True, default=None)  # the matrix of `correlation`, once settled
    noise_setting: ClassVar[str | None] = "noise"
    suggested: ClassVar[tuple[dict[str, Any], ...]] = (
        {"epsilon": 2.0},
        {"noise": 1.5, "clip": 0.5},
        {"epsilon": 2.0, "place": "local"},
        {"noise": 4.0, "clip": 2.0, "place": "local"},
        {"noise": 1.5, "quantile": 0.5, "quantile_noise": 1.0},
        {"noise": 1.5, "correlation": "blt", "messages": 1},
    )

    def __check_init__(self):
        if self.noise is None and self.epsilon is None:
            raise PlanError("privacy of gaussian must give epsilon (for the run) or noise, got neither.")
        if self.after_step is not None and self.place == "local":
            raise PlanError(
                f"privacy.after_step = {self.after_step:g} is for noise at the server, got place = 'local'; leave it out."
            )
        if self.share is not None and self.epsilon is None:
            raise PlanError(f"privacy.share = {self.share:g} is a part of privacy.epsilon, and there is none; give it.")
        if self.correlation != "none" and (self.place == "local" or self.quantile is not None):
            why = "place = 'local'" if self.place == "local" else f"quantile = {self.quantile:g}"
            raise PlanError(
                f"privacy.correlation = {self.correlation!r} is for noise at the server and a bound that stays, got {why}; "
                "leave one of the two out."
            )
        self.check_quantile()
        other = [
            f"{name} = {getattr(self, name)!r}"
            for name, plain in (("place", "central"), ("correlation", "none"), ("quantile", None), ("after_step", None))
            if getattr(self, name) != plain
        ]
        if self.split == "released" and other:
            raise PlanError(
                f"privacy.split = 'released' is for noise at the server and a bound that stays, got {other[0]}; leave one of "
                "the two out."
            )
        if self.update_form is not None and (self.quantile is not None or self.correlation != "none"):
            other = "privacy.correlation" if self.quantile is None else "privacy.quantile"
            raise PlanError(
                f"privacy.update_form = {self.update_form!r} has no price together with {other}; leave one of the two out."
            )
        if self.update_form == "outer_products" and self.split == "released":
            raise PlanError(
                "privacy.update_form = 'outer_products' rounds for a bound that every round has whole, got split = 'released'; "
                "leave one of the two out."
            )

    def settle(self, exposure: Exposure) -> "GaussianMechanism":
        """Find δ and the noise, and check that the promise is kept."""
        from tacit.privacy.accounting import accountant

        check_clip("privacy.clip", self.clip)
        if self.noise is not None:
            check_noise(self.multiplier)
        exposure = exposure.at_most(self.messages)
        delta = accountant.default_delta(exposure.devices) if self.delta is None else self.delta
        accountant.check_delta(delta, exposure.devices, "privacy.delta")
        settled = replace(self, delta=delta, cohort=exposure.cohort, rounds=exposure.rounds)
        if self.place == "local":
            settled = replace(settled, messages=exposure.messages)
        elif exposure.drawn is not None:
            settled = replace(settled, messages=exposure.answers(delta, self._expected(settled, exposure)))
        if self.correlation != "none":
            exposure = exposure.at_most(settled.messages)
            pattern = Participation(exposure.rounds, exposure.separation, exposure.messages)
            settled = replace(
                settled, messages=exposure.messages, correlated=Correlated(best_correlation(pattern), pattern)
            )
        if self.noise is None:
            # `spent` below is also what is claimed, so the calibrated noise keeps the claim.
            assert self.epsilon is not None
            settled = replace(settled, noise=0.0)
            found = accountant.calibrate(
                lambda found: replace(settled, noise=found).spent(exposure),
                self.epsilon,
                delta,
                self.relation(exposure),
            )
            settled = replace(settled, noise=self._of_share(found, settled.spent(exposure)[0][0]))
        settled.grid(1)  # refuses an impossible split of the noise, or too much of it
        settled.check_promise(exposure)
        return settled

    def _expected(self, settled: "GaussianMechanism", exposure: Exposure) -> float:
        """About the ε of the run, before it is known after how many reports a device falls silent."""
        if self.noise is None:
            return self.epsilon or 0.0
        return next(claim.epsilon for claim in settled.claim(exposure) if claim.per == "run")

    def _of_share(self, found: float, event: Event) -> float:
        """The noise of a share of the promise: multipliers z/√s compose to z where Σ s = 1."""
        if self.share is None:
            return found
        if not isinstance(event, Gaussian | CorrelatedGaussian | SplitGaussian):
            raise PlanError(
                f"privacy.share = {self.share:g} requires rounds of all devices, got randomly drawn cohorts; set sampler = "
                "'all', or give each stage an epsilon of its own."
            )
        return found / math.sqrt(self.share)

    def check_promise(self, exposure: Exposure) -> None:
        """Refuse an epsilon that the noise does not keep."""
        cost = next(claim for claim in self.claim(exposure) if claim.per == "run")
        if self.epsilon is not None and cost.epsilon > self.epsilon * (1 + 1e-9):
            raise PlanError(
                f"privacy.epsilon = {self.epsilon:g} is a promise that noise = {self.noise:g} does not keep: the run "
                f"costs {cost.epsilon:.4g} at δ = {self.delta:g}. Leave one of the two out."
            )

    @property
    def multiplier(self) -> float:
        """The noise that is priced, in units of the clip bound: of the sum, and of the count where there is one."""
        if self.noise is None:
            raise PlanError("privacy.epsilon is not turned into noise yet; settle the mechanism for a population.")
        return self.noise / (1.0 if self.after_step is None else self.after_step)

    def spent(self, exposure: Exposure) -> tuple[tuple[Event, int], ...]:
        """The events of one device in the run."""
        exposure = exposure.at_most(self.messages)
        if self.place == "local":
            return ((Gaussian(self.multiplier, GAP, self.apart), exposure.messages),)
        if self.split == "released":
            if exposure.drawn is not None or exposure.messages < exposure.rounds:
                raise PlanError(
                    f"privacy.split = 'released' requires rounds of all devices, got cohort.sampler = {exposure.sampler!r}; set "
                    "'all', and leave privacy.messages out."
                )
            return (exposure.split(self.multiplier, GAP, self.apart),)
        if self.correlated is not None:
            return (exposure.correlated(self.multiplier / priced_sensitivity(*self.correlated, exposure.rounds), GAP),)
        event, count = exposure.gaussian(self.multiplier, self.delta or 0.0, GAP)
        return ((replace(event, apart=self.apart) if isinstance(event, Gaussian | FixedGaussian) else event, count),)

    @property
    def apart(self) -> float:
        """How far two bounded updates can be from each other, in bounds."""
        return 2.0 if self.update_form is None else math.sqrt(2)

    def encode(self, key: jax.Array, update: dict, public_state: dict) -> Any:
        """The update's integers; of the form that the price counts on, whatever the method computed."""
        if self.update_form == "nonnegative":
            update = jax.tree.map(_at_least_zero, update, is_leaf=is_rows)
        return super().encode(key, update, public_state)

    def check_payload(self, payload: Any) -> str:
        """As every clipped sum; without noise of its own, a message also shows whether it has that form."""
        reason = super().check_payload(payload)
        if reason or self.update_form is None or self.place == "local":
            return reason
        if self.update_form == "outer_products":
            return why_not_outer_products(payload)
        least = min(int(np.min(leaf, initial=0)) for leaf in jax.tree.leaves(payload))
        return "" if least >= 0 else f"no number may be negative, got {least}"

    def event(self, exposure: Exposure) -> tuple[Event, int]:
        """One message; or, for randomly drawn cohorts, all rounds together."""
        ((event, count),) = self.spent(exposure)
        return event, 1 if isinstance(event, Gaussian) else count

    def relation(self, exposure: Exposure) -> Literal["replace_one", "add_remove"]:
        """The neighbours of the claim: any two updates on the device, the sampler's at the server."""
        return "replace_one" if self.place == "local" else exposure.relation

    def claim(self, exposure: Exposure) -> tuple[Claim, ...]:
        """(ε, δ) of the run first, then of a part of it."""
        return self._local(exposure) if self.place == "local" else self._central(exposure)

    def _local(self, exposure: Exposure) -> tuple[Claim, ...]:
        ((event, count),) = self.spent(exposure)
        message = self._one(((event, 1),), "message", "replace_one", "local")
        return message, self._one(((event, count),), "run", "replace_one", "local")

    def _central(self, exposure: Exposure) -> tuple[Claim, ...]:
        relation, ((event, count),) = self.relation(exposure), self.spent(exposure)
        together = isinstance(event, CorrelatedGaussian | SplitGaussian)  # a round alone may cost all of it
        alone = Gaussian(self.multiplier, GAP, self.apart) if together else event
        return (
            TOWARDS_SERVER,
            self._one(((alone, 1),), "round", relation, "central"),
            self._one(((event, count),), "run", relation, "central"),
        )

    def _one(self, spent: tuple, per: Per, relation: Any, model: Any) -> Claim:
        from tacit.privacy.accounting import accountant

        delta = self.delta or 0.0
        epsilon = accountant.compose(spent, delta, relation).epsilon
        words = () if model == "local" else _central_words(spent[0][0])
        trust = "nobody" if model == "local" else "server"
        return Claim(model, "user", relation, epsilon, delta, per, "corrected", trust, words)

    def spread(self, numbers: int, reports: float) -> Spread:
        """At best S/√D; σ of noise in the sum, or in each report."""
        counted = reports if self.place == "central" else math.sqrt(reports)
        return Spread(self.clip / math.sqrt(numbers), self.deviation / counted)

    def noise_over(self, rounds: int) -> float:
        """√rounds, or what is left of it where noise is correlated."""
        if self.correlated is None:
            return super().noise_over(rounds)
        return math.sqrt(squared_errors(self.correlated.correlation, rounds)[-1])

    def describe(self) -> dict[str, Any]:
        """As for any clipped sum; and, where noise is correlated, how much of it is in the sum of all rounds."""
        described = super().describe()
        if self.correlated is None:
            return described
        correlation, pattern = self.correlated
        return {
            **described,
            "correlation": self.correlation,
            "buffers": len(correlation.decays),
            "separation": pattern.separation,
            "deviation_of_all_rounds": self.noise_over(pattern.rounds) * self.deviation,
        }

    @property
    def always_releases(self) -> bool:
        """At the server: a round without noise would reveal that its cohort was empty."""
        return self.place == "central"

    def visible(self) -> tuple[str, ...]:
        """Participation; at the server, the reports too."""
        if self.place == "local":
            return (ASKED,)
        within = () if self.quantile is None else ("the server sees whether each update was within the clip bound",)
        return (ASKED, REPORTS, *within)


def _at_least_zero(leaf: Any) -> Any:
    """A leaf of an update with its negative numbers as 0."""
    return leaf.with_value(jnp.maximum(leaf.value, 0)) if is_rows(leaf) else jnp.maximum(leaf, 0)


def _central_words(event: Event) -> tuple[str, ...]:
    """The conditions of a central claim."""
    match event:
        case CorrelatedGaussian(reports=reports, separation=separation):
            return (RELEASED, _OFTEN.format(reports, separation), _BUFFERS)
        case Gaussian() | SplitGaussian():
            return (RELEASED,)
        case _:
            return (RELEASED, DRAWN)
