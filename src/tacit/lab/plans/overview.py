"""An overview of the built-in plans: what each is, what leaves a device, what it guarantees, and who must be trusted."""

import importlib
import math
from dataclasses import dataclass

from tacit.core.plan import Plan
from tacit.device.method import method_class
from tacit.lab.plans.loader import first_words, load_plan, plan_names
from tacit.privacy.claim import Claim, Trust
from tacit.privacy.price import Price, price


@dataclass(frozen=True)
class PlanSummary:
    """A row of the overview."""

    name: str
    what: str
    sends: str  # what leaves the device
    claim: Claim  # for the whole run

    @property
    def guarantee(self) -> str:
        """ε and its unit, in a few words."""
        if math.isinf(self.claim.epsilon):
            return "none (ε = ∞)"
        return f"ε = {self.claim.epsilon:.3g} per {self.claim.unit}"

    @property
    def trusted(self) -> str:
        """Who must be trusted for the guarantee to hold; a dash where there is none."""
        return "–" if math.isinf(self.claim.epsilon) else self.claim.trust

    def to_dict(self) -> dict[str, object]:
        """Plain values, for JSON."""
        return {"name": self.name, "what": self.what, "sends": self.sends, "guarantee": self.claim.to_dict()}


def plan_overview(users: int, trust: Trust | None = None) -> list[PlanSummary]:
    """A summary of every built-in plan, for so many users; or of those with a guarantee that trusts this party alone."""
    rows = [_summary(name, users) for name in plan_names()]
    return [row for row in rows if trust is None or row.trusted == trust]


def _summary(name: str, users: int) -> PlanSummary:
    plan = load_plan(name)
    cost = price(plan, users)
    return PlanSummary(name, first_words(name) or _of_method(plan), _sent(plan, cost), cost.whole)


def _of_method(plan: Plan) -> str:
    """What the file of a plan's method says first of it."""
    text = importlib.import_module(method_class(plan.stages[-1].method).__module__).__doc__ or ""
    words = text.partition(": ")[2].partition(". ")[0].partition("\n")[0].rstrip(".")
    return words[:1].upper() + words[1:]


def _sent(plan: Plan, cost: Price) -> str:
    if cost.raw:
        return "raw data"
    messages = sum(stage.messages for stage in cost.stages)
    if not messages:
        return "nothing"
    noise = dict.fromkeys(stage.privacy["mechanism"] for stage in plan.stages if stage.rounds)
    return f"{messages:,} message{'s' * (messages > 1)}, {' and '.join(noise).replace('none', 'no noise')}"
