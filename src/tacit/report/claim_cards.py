"""Claim cards: what each plan promises, in words that the person who signs for it can read."""

from typing import Any

from tacit.report.formatting import Dossier, epsilon_text, number, number_text, privacy_level
from tacit.report.html import Html, bullet_list, join_html, tag

_UNITS = {
    "user": "everything about one person",
    "interaction": "one single interaction of a person, not the whole history",
    "client(silo)": "everything about one organisation",
}
_RELATIONS = {
    "replace_one": "the same run with it exchanged for any other",
    "add_remove": "the same run without it",
    "zero_out": "the same run in which it sends nothing",
    "one_sided_1_to_0": "the same run without it; in this direction only",
}
_MODELS = {
    "local": "in every message, before it leaves the device, for any reader",
    "central": "in what the server releases; the server itself sees more",
}
_TRUST = {
    "nobody": "only the device's own software",
    "server": "the server: it must handle the reports as stated",
    "organisation": "the organisation that holds the devices",
}
_NONE = "Nothing in these numbers protects a user from a recipient of the reports."


def claim_cards(dossiers: list[Dossier]) -> Html:
    """A card for each plan."""
    lead = (
        "One card for each plan. ε bounds how much an attacker can learn: the smaller, the safer; 0 means nothing, ∞ means no "
        "bound. δ is the small probability with which the bound may fail."
    )
    return tag("section", tag("h2", "What is promised"), tag("p", lead, cls="lead"), *map(_card, dossiers), id="claims")


def _card(one: Dossier) -> Html:
    whole, card = one["whole"], one["card"]
    head = tag(
        "header",
        tag("h3", tag("i", cls=f"dot {privacy_level(one)}"), one["name"]),
        tag("p", "ε = ", epsilon_text(whole["epsilon"]), _delta(whole), cls="promise"),
        tag("p", card["in_words"], cls="words"),
    )
    terms = tag("dl", *(join_html(tag("dt", name), tag("dd", words)) for name, words in _terms(one) if words))
    plan = tag("details", tag("summary", f"The plan as a file, digest {one['digest']}"), tag("pre", one["toml"]))
    return tag("article", head, terms, _claims(card, privacy_level(one) == "kept"), plan, cls="card")


def _delta(claim: dict[str, Any]) -> str:
    return f", δ = 1 in {1 / claim['delta']:,.0f}" if claim["delta"] else ""


def _terms(one: Dossier) -> list[tuple[str, Any]]:
    whole, card = one["whole"], one["card"]
    visible = list(dict.fromkeys(word for stage in card["stages"] for word in stage["visible"]))
    terms = {
        "home": [("Promise", "Nothing leaves the device, so nothing needs protection.")],
        "open": [
            ("Promise", f"None. {_NONE}"),
            ("Must be trusted", _TRUST[whole["trust"]]),
            ("Visible", bullet_list(visible)),
            ("Sent so far", _ledger(one["ledger"])),
        ],
        "kept": [
            ("Protects", f"{_UNITS[whole['unit']]}, in the whole {whole['per']}"),
            ("Compared with", _RELATIONS[whole["relation"]]),
            ("Holds where", _MODELS[whole["model"]]),
            ("Must be trusted", _TRUST[whole["trust"]]),
            ("Conditions", bullet_list(whole["conditions"]) if whole["conditions"] else "no further condition"),
            ("Visible nevertheless", bullet_list(visible) if visible else "nothing"),
            ("Not covered", bullet_list(card["not_covered"])),
            ("Spent so far", _ledger(one["ledger"])),
            ("Composed by", card["composed_by"]),
            ("Feasibility", _outlook(one)),
        ],
    }[privacy_level(one)]
    return [*terms, ("Attack results", _leakage(card)), ("In one line", tag("code", whole["says"]))]


def _leakage(card: dict[str, Any]) -> Any:
    """Precision and recall of each attack on a history, as measured; None where no attack was run."""
    found = card.get("leakage")
    if not found:
        return None
    heads = ("attack", "messages", "precision", "recall", "F1")
    cells = [tag("th", head, scope="col", cls="number" if head != "attack" else None) for head in heads]
    rows = []
    for one in found:
        texts = (str(one["rounds"] or "–"), *(f"{one[name]:.3f}" for name in ("precision", "recall", "f1")))
        rows.append(
            tag("tr", tag("th", one["attack"], scope="row"), *(tag("td", text, cls="number") for text in texts))
        )
    table = tag("table", tag("thead", tag("tr", *cells)), tag("tbody", *rows))
    return join_html(
        tag("div", table, cls="scroll"), tag("p", "A measurement, not a bound: a better attack may find more.")
    )


def _ledger(ledger: dict[str, Any]) -> str:
    def device(which: str) -> str:
        if ledger.get("raw_data", {}).get(which):
            return f"ε {epsilon_text(ledger['epsilon'][which])}, raw data"
        count = ledger["messages"][which]
        return f"ε {epsilon_text(ledger['epsilon'][which])} in {number_text(count)} message{'s' if count != 1 else ''}"

    median, worst, limit = device("median"), device("worst"), ledger["budget"]["epsilon"]
    words = (
        f"{worst}, by the median and the worst device alike"
        if median == worst
        else f"{median} by the median device, {worst} by the worst"
    )
    return words + (f"; every device's budget is {epsilon_text(limit)}" if number(limit) < float("inf") else "")


def _outlook(one: Dossier) -> Any:
    parts = []
    for place, view in enumerate(one["outlook"], 1):
        stage = f"Stage {place}: " if len(one["outlook"]) > 1 else ""
        if view["verdict"] in ("no noise", "nothing sent", "raw data"):
            parts.append(f"{stage}{view['verdict']}")
            continue
        weak, workable = (number_text(one["signal_to_noise"][word]) for word in ("weak", "workable"))
        parts.append(
            f"{stage}{view['verdict']}: signal to noise {number(view['signal_to_noise']):.2g} at best; from {weak} on it "
            f"is weak, from {workable} on workable, which takes about {number(view['devices_needed']):,.0f} devices"
        )
        if view["advice"]:
            parts.append(f"To improve: {'; '.join(view['advice'])}")
    return [tag("p", part, ".") for part in parts]


def _claims(card: dict[str, Any], open_: bool) -> Html:
    """Every claim of every stage, as a table."""
    heads = ("stage", "for each", "ε", "δ", "protects", "neighbours", "where", "trusts", "as long as")
    cells = [tag("th", head, scope="col", cls="number" if head in ("ε", "δ") else None) for head in heads]
    rows = [_claim(stage, claim) for stage in card["stages"] for claim in stage["claims"]]
    table = tag("table", tag("thead", tag("tr", *cells)), tag("tbody", *rows), cls="claims")
    return tag(
        "details", tag("summary", "Every claim, stage by stage"), tag("div", table, cls="scroll"), open=open_ and "open"
    )


def _claim(stage: dict[str, Any], claim: dict[str, Any]) -> Html:
    delta = f"{claim['delta']:.1e}" if claim["delta"] else "0"
    sends = stage.get("sends") or stage["mechanism"] or "nothing sent"  # dossiers of older versions have no key `sends`
    return tag(
        "tr",
        tag("td", f"{stage['number']}: {stage['method']}, {sends}"),
        tag("td", claim["per"]),
        tag("td", epsilon_text(claim["epsilon"]), cls="number"),
        tag("td", delta, cls="number"),
        tag("td", claim["unit"]),
        tag("td", claim["relation"].replace("_", "-")),
        tag("td", claim["model"]),
        tag("td", claim["trust"]),
        tag("td", "; ".join(claim["conditions"]) or "–"),
    )
