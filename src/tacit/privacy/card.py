"""Privacy card: what a plan or a run guarantees, as an entry for a public registry: JSON, or a page in Markdown."""

import math
from collections.abc import Mapping
from typing import Any

from tacit.privacy.claim import Claim
from tacit.privacy.price import Price

_NOT_COVERED = (
    "that a device took part, and when",
    "choosing settings by looking at results of earlier runs on the same people, unless those runs are in the ledger",
    "what can be concluded from the recommendations, by the user or by anyone who sees the screen",
)
_OF_REPORTS = "histories stay on devices, reports are summed by a server"
_OF_RAW_DATA = "a stage needs raw data: histories are seen outside the devices"
_RELATIONS = {
    "replace_one": "one unit replaced by any other",
    "add_remove": "one unit present or absent",
    "zero_out": "one unit's contribution replaced by nothing",
    "one_sided_1_to_0": "a unit that is present is hidden, one that is absent is not",
}


def card(price: Price, facts: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The entry as plain values. `facts` may add what a run knows: date, metrics, ledger, bytes."""
    whole = price.whole
    return {
        "name": price.plan.name,
        "digest": price.plan.digest,
        "purpose": f"recommendation: {_OF_RAW_DATA if price.raw else _OF_REPORTS}",
        "devices": price.devices,
        "flavour": _flavour(whole),
        "guarantee": whole.to_dict(),
        "in_words": sentence(whole),
        "beside": [claim.to_dict() for claim in price.beside],
        "composed_by": _accountant(price),
        "stages": [
            {"number": number, "method": stage.method, **priced.to_dict()}
            for number, (stage, priced) in enumerate(zip(price.plan.stages, price.stages), 1)
        ],
        "not_covered": list(_NOT_COVERED),
        **(facts or {}),
    }


def sentence(claim: Claim) -> str:
    """A claim as a sentence for people who are not experts.

    >>> sentence(Claim("local", "user", "replace_one", 1.0, 0.0, "run", "corrected", "nobody"))
    'An attacker who sees everything that one device sends in the run can tell which of two possible users is the real one at most 73.1 % of the time (a blind guess: 50 %).'
    """
    if math.isinf(claim.epsilon):
        return f"There is no guarantee for a {claim.unit}: what is sent may reveal it with certainty."
    from tacit.privacy.accounting.accountant import guess_bound

    if claim.epsilon == 0 and claim.delta == 0:
        return "Nothing about the unit can be learnt: what is sent does not depend on it."
    what = "that one device sends" if claim.model == "local" else "that the server releases"
    right = 100 * guess_bound(claim.epsilon, claim.delta)
    share = f"{right:.3g}" if right < 99 else f"{right:.2f}" if right < 99.99 else "practically 100"
    return (
        f"An attacker who sees everything {what} in the {claim.per} can tell which of two possible {claim.unit}s is the "
        f"real one at most {share} % of the time (a blind guess: 50 %)."
    )


def to_markdown(card: Mapping[str, Any]) -> str:
    """The entry as a page."""
    claim = card["guarantee"]
    lines = [
        f"# Privacy card: {card['name']}",
        "",
        card["in_words"],
        "",
        *_table(
            {
                "ε": _number(claim["epsilon"]),
                "δ": _number(claim["delta"]),
                "for": claim["per"],
                "unit": claim["unit"],
                "neighbours": f"{claim['relation'].replace('_', '-')}: {_RELATIONS[claim['relation']]}",
                "model": claim["model"],
                "must be trusted": claim["trust"],
                "flavour": card["flavour"],
                "composed by": card["composed_by"],
                "devices": f"{card['devices']:,}",
                "plan": f"{card['name']} ({card['digest']})",
            }
        ),
    ]
    if card.get("beside"):
        lines += ["", "Other claims:", "", *(f"- {_claim(one)}" for one in card["beside"])]
    for stage in card["stages"]:
        lines += ["", f"## Stage {stage['number']}: {stage['method']}, {stage['sends']}", ""]
        lines += _table({name.replace("_", " "): _number(value) for name, value in stage["noise"].items()})
        lines += ["", "Claims:", "", *(f"- {_claim(one)}" for one in stage["claims"])]
        lines += ["", "Also visible:", "", *(f"- {word}" for word in stage["visible"] or ["nothing"])]
    if card.get("public_state"):
        lines += ["", "## Public state, first and last round", "", *_table(_public_state(card["public_state"]))]
    if card.get("leakage"):
        lines += ["", "## What attacks found", "", *_leakage(card["leakage"])]
    if card.get("device_cost"):
        lines += ["", "## Cost on a device", "", *_table(_device_cost(card["device_cost"]))]
    if "ledger" in card:
        lines += ["", "## Spent so far, in all runs", "", *_ledger(card["ledger"])]
    lines += ["", "## Not covered", "", *(f"- {word}" for word in card["not_covered"]), ""]
    return "\n".join(lines)


def _table(rows: Mapping[str, str]) -> list[str]:
    return ["| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows.items())]


def _public_state(public_state: list[Mapping[str, Any]]) -> dict[str, str]:
    return {
        f"{one['number']} of stage {one['stage']}": f"{one['first']:.4g} → {one['last']:.4g}" for one in public_state
    }


def _ledger(ledger: Mapping[str, Any]) -> list[str]:
    both = {name: [_number(ledger[name][which]) for which in ("median", "worst")] for name in _SPENT}
    rows = [f"| {name} | {median} | {worst} |" for name, (median, worst) in both.items()]
    return ["| | median device | worst device |", "|---|---|---|", *rows]


def _leakage(found: list[Mapping[str, Any]]) -> list[str]:
    """Precision and recall of the attacks."""
    head = ["Guessed against true histories. A measurement, not a bound: a better attack may find more.", ""]
    rows = [
        f"| {one['attack']} | {one['rounds'] or '–'} | {one['precision']:.3f} | {one['recall']:.3f} | {one['f1']:.3f} |"
        for one in found
    ]
    return [*head, "| attack | messages | precision | recall | F1 |", "|---|---|---|---|---|", *rows]


_COSTS = {
    "round_ms": "one round, ms on the machine of the run",
    "adapt_ms": "adapting on the device, ms",
    "held_bytes": "kept between rounds, bytes",
    "working_bytes": "needed during a round in addition, bytes",
    "message_bytes": "sent in a round, bytes",
    "broadcast_bytes": "received in a round, bytes",
}


def _device_cost(cost: Mapping[str, float]) -> dict[str, str]:
    """Of the device with the longest history."""
    return {words: _number(cost[name]) for name, words in _COSTS.items() if name in cost}


_SPENT = ("epsilon", "messages", "bytes")


def _claim(values: Mapping[str, Any]) -> str:
    numbers = {name: float(values[name]) for name in ("epsilon", "delta")}
    return str(Claim(**{**values, **numbers, "conditions": tuple(values["conditions"])}))


def _number(value: Any) -> str:
    if value is None:  # raw data is no message, so it has no bytes
        return "raw data"
    if isinstance(value, int | float) and not isinstance(value, bool):
        return "∞" if math.isinf(value) else f"{value:,.6g}"
    return "∞" if value == "inf" else str(value)


def _flavour(claim: Claim) -> str:
    if math.isinf(claim.epsilon):
        return "none"
    return "approximate differential privacy" if claim.delta else "pure differential privacy"


def _accountant(price: Price) -> str:
    from tacit.privacy.accounting.accountant import compose

    spent = tuple(part for stage in price.covered for part in stage.spent)
    if not spent or math.isinf(price.whole.epsilon):
        return "nothing to compose"
    return compose(spent, price.whole.delta, price.whole.relation).by
