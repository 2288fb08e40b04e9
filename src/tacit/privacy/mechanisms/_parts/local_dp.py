"""Local differential privacy: what mechanisms share whose every message is private by itself, against any reader."""

import math
from dataclasses import replace
from typing import Any, Literal, Self

from tacit.errors import PlanError
from tacit.privacy.accounting.events import Event, Pure, Unbounded
from tacit.privacy.claim import Claim, Per, Relation
from tacit.privacy.mechanism import Mechanism, delta_setting, epsilon_setting, messages_setting, wire_setting
from tacit.privacy.sampler import Exposure

ASKED = "which devices take part in which rounds is visible"
RELEASED = "covers what the server releases, not what the server itself sees"
REPORTS = "the server sees each clipped report"
NO_BOUND = "updates are not clipped: two of them may differ by any amount, which no scale of noise covers"
NO_BOUND_EVENT = Unbounded("an update without a bound")
MOST_GAP = 1e-6  # what noise from tables may add to δ; above it there is no guarantee left to state
TOWARDS_SERVER = Claim(
    *("local", "user", "replace_one", float("inf"), 0.0, "message", "corrected", "server"),
    conditions=(f"{REPORTS}, without noise",),
)


class Local(Mechanism):
    """A mechanism whose message has pure ε between any two inputs of one device.

    `epsilon` is for the run and is split over the messages a device may send; `epsilon_per_message` sets the share
    directly. With `delta` the split uses the tighter composition that allows it.
    """

    messages: int | None = messages_setting()
    wire: Literal["dense"] = wire_setting()
    epsilon: float | None = epsilon_setting()
    epsilon_per_message: float | None = epsilon_setting()
    delta: float | None = delta_setting()

    def __check_init__(self):
        self.check_settings()

    def check_settings(self) -> None:
        """Refuse settings that promise nothing, or not what they state."""
        if self.epsilon is None and self.epsilon_per_message is None:
            raise PlanError(
                f"privacy of {self.name} must give epsilon (for the run) or epsilon_per_message, got neither."
            )

    @property
    def parts(self) -> int:
        """How many independent parts of equal ε a message has."""
        return 1

    def settle(self, exposure: Exposure) -> Self:
        """Split ε over the messages, fix their number, and check that the promise is kept."""
        from tacit.privacy.accounting import accountant

        self.check_delta(exposure)
        exposure = exposure.at_most(self.messages)
        settled = replace(self, messages=exposure.messages)
        if self.epsilon_per_message is None and self.epsilon is not None:
            left = self.left_of_delta(exposure.messages)
            share = accountant.per_message(self.epsilon, exposure.messages, left, self.parts)
            settled = replace(settled, epsilon_per_message=share)
        settled.check_promise(exposure)
        return settled

    def left_of_delta(self, messages: int, silence: float = 0.0) -> float:
        """What so many messages may spend of δ, less the gaps of their noise, and the chance that each is held back by a cap."""
        lost = messages * (self.gap + silence) * (1 + math.exp(min(self.epsilon or 0.0, 700.0)))
        return max(0.0, (self.delta or 0.0) - lost)

    @property
    def gap(self) -> float:
        """How far a message is from the law that is priced, in total variation; 0 where its coins are exact."""
        return 0.0

    def check_delta(self, exposure: Exposure) -> None:
        """Refuse a δ that is too large for so many devices."""
        from tacit.privacy.accounting import accountant

        if self.delta is not None:
            accountant.check_delta(self.delta, exposure.devices, "privacy.delta")

    def check_promise(self, exposure: Exposure) -> None:
        """Refuse an epsilon that the messages together do not keep."""
        exposure = exposure.at_most(self.messages)
        spent = self.claim(exposure)
        kept = next(claim for claim in spent if claim.per == "run")
        if self.epsilon is not None and kept.epsilon > self.epsilon * (1 + 1e-9):
            raise PlanError(
                f"privacy.epsilon = {self.epsilon:g} for the run is a promise that {exposure.messages} message(s) of "
                f"ε = {self.share:g} do not keep: together they cost "
                f"{kept.epsilon:.4g}. Leave one of the two out, or allow fewer messages."
            )

    @property
    def share(self) -> float:
        """ε of one message."""
        if self.epsilon_per_message is None:
            raise PlanError("privacy.epsilon is not split over messages yet; settle the mechanism for a population.")
        return self.epsilon_per_message

    def event(self, exposure: Exposure) -> tuple[Event, int]:
        """One message of pure ε."""
        del exposure
        return Pure(self.share, self.parts, gap=self.gap), 1

    def claim(self, exposure: Exposure) -> tuple[Claim, ...]:
        """Any two updates of one device, one message and all of them."""
        return self.claims(exposure, self.event(exposure)[0], "replace_one", self.conditions())

    def claims(self, exposure: Exposure, event: Event, relation: Relation, words: tuple[str, ...]) -> tuple[Claim, ...]:
        """A claim per message and one per run for an event."""
        times = exposure.at_most(self.messages).messages

        def one(count: int, delta: float, per: Per) -> Claim:
            epsilon, delta = self.cost(event, count, delta)
            return Claim("local", self.unit, relation, epsilon, delta, per, self.fidelity, "nobody", words)

        return one(1, 0.0, "message"), one(times, self.delta or 0.0, "run")

    def cost(self, event: Event, count: int, delta: float) -> tuple[float, float]:
        """(ε, δ) of so many events; without a δ, the gap of tables is what δ is."""
        from tacit.privacy.accounting import accountant

        gap = accountant.gap_delta(((event, count),))
        if gap > MOST_GAP:
            return math.inf, delta
        return accountant.compose(((event, count),), delta).epsilon, delta or gap

    @property
    def fidelity(self) -> Literal["paper", "corrected"]:
        """Whether this is a paper's mechanism as printed."""
        return "corrected"

    def conditions(self) -> tuple[str, ...]:
        """What the claim depends on; nothing, by default."""
        return ()

    def visible(self) -> tuple[str, ...]:
        """Participation only."""
        return (ASKED,)

    def describe(self) -> dict[str, Any]:
        """ε of a message and how many there are."""
        return {"epsilon_per_message": self.share, "messages": self.messages}
