"""Terms: what an owner agrees to, in plain words and as a record: the guarantee, what leaves, how often, what is spent."""

import math
import time
from collections.abc import Mapping
from typing import Any

from tacit.deploy.bundle import Bundle
from tacit.privacy.claim import Claim

_SAFE = 700.0  # beyond this ε, e^ε is no float


def terms_of(bundle: Bundle, alone: bool) -> dict[str, Any]:
    """The terms of a plan folder, in plain values."""
    stages = []
    for number, stage in enumerate(bundle.plan.stages):
        if bundle.update_specs[number] is not None:
            schema = bundle.report(number) if alone else bundle.total(number)
            most = bundle.price.stages[number].messages
            stages.append({"method": stage.method, "messages": int(most), "bytes": int(schema.bytes())})
    return {
        "plan": bundle.plan.name,
        "digest": bundle.digest,
        "claim": bundle.price.whole.to_dict(),
        "beside": [claim.to_dict() for claim in bundle.price.beside],
        "unbounded": is_unbounded(bundle),
        "sends": stages,
    }


def is_unbounded(bundle: Bundle) -> bool:
    """Whether taking part has no finite ε."""
    return math.isinf(bundle.price.whole.epsilon)


def in_plain_words(bundle: Bundle, alone: bool, spent: Mapping[str, Any]) -> list[str]:
    """The terms as sentences; `spent` is the summary of the ledger."""
    terms = terms_of(bundle, alone)
    lines = [
        f"Plan {bundle.plan.name!r} ({bundle.digest}):",
        f"  {_guarantee(bundle.price.whole)}",
        f"  {_trust(bundle)}",
    ]
    for one in terms["sends"]:
        what = "one report" if alone else "the total of this device's people"
        lines.append(
            f"  It sends at most {one['messages']} messages of at most {one['bytes']:,} bytes: {what} ({one['method']})."
        )
    lines.append("  The server also learns how many people this device has, and when it answers.")
    lines.append(f"  {_spent(spent)}")
    return [*lines, f"  In full: {bundle.price.whole}"]


def _guarantee(claim: Claim) -> str:
    unit = {
        "user": "your whole history",
        "interaction": "one interaction of yours",
        "client(silo)": "all histories here",
    }
    if math.isinf(claim.epsilon):
        return "There is NO bound (ε = ∞): whoever receives a report may learn from it what is in your history."
    sure = 1 / (1 + math.exp(-min(claim.epsilon, _SAFE)))
    return (
        f"Whoever sees all that the run releases, and was undecided between two versions of {unit[claim.unit]}, can be at most "
        f"{100 * sure:.3g} % sure afterwards (ε = {claim.epsilon:.3g}"
        + (f", but for a chance of {claim.delta:.1e})." if claim.delta else ").")
    )


def _trust(bundle: Bundle) -> str:
    words = {
        "nobody": "You need to trust nobody: what leaves this device is private already.",
        "server": "You must trust the operator of the server: it sees more than it releases.",
        "organisation": "You must trust your organisation: it sees your history.",
    }
    return words[bundle.price.whole.trust]


def _spent(spent: Mapping[str, Any]) -> str:
    if "left" in spent:  # of one person
        used, left = spent["spent"], spent["left"]
    else:
        used, budget = spent["epsilon"]["worst"], spent["budget"]["epsilon"]
        left = math.inf if math.isinf(budget) else max(0.0, budget - used)
    rest = "there is no budget (--budget sets one)" if math.isinf(left) else f"{left:.4g} of the budget is left"
    return f"Spent so far: ε = {'∞' if math.isinf(used) else f'{used:.4g}'}; {rest}."


def consent_record(store: Any, agreed: bool, bundles: list[Bundle], alone: bool) -> dict[str, Any]:
    """What was agreed to, when, and by whose command, for an export."""
    return {
        "time": time.time(),
        "agreed": agreed,
        "node": store.name,
        "budget": store.settings.get("budget"),
        "plans": [terms_of(bundle, alone) for bundle in bundles],
    }
