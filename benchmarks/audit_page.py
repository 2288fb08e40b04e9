"""The blocks of docs/audit.md; `python benchmarks/pages.py` fills them."""

from functools import partial
from typing import Any

from pages import kept, read, reproduced, span, table


def claimed(claim: dict[str, Any]) -> str:
    """ε with what makes it mean something."""
    epsilon = "∞" if claim["epsilon"] in ("inf", None, float("inf")) else f"{claim['epsilon']:.3g}"
    return f"ε = {epsilon} a run, {claim['unit']}, {claim['relation'].replace('_', '-')}, trust: {claim['trust']}"


def proved(name: str, found: dict[str, Any]) -> list[str]:
    """A claim, and what canaries prove against it."""
    seen = found["evidence"]
    curve = "–" if seen["curve"] is None else f"{seen['curve']:.2f}"
    right = f"{seen['accuracy']:.1%} of {seen['canaries']:,}"
    allowed = f"{found['accuracy_at_most']:.2%}"
    verdict = "PASS" if found["epsilon_at_least"] <= found["claim"]["epsilon"] else "FAIL"
    return [name, claimed(found["claim"]), right, allowed, f"{seen['proved']:.2f}", curve, verdict]


def one_run() -> str:
    lines = []
    for name, found in read("audit")["one_run"].items():
        lines.append(proved(f"`{name}`", found))
        if "asked" in found:
            lines.append(proved("the same, everybody asked in every round", found["asked"]))
    head = ["plan", "claim", "guessed right", "the claim allows", "ε at least", "if normal", "verdict"]
    return table(head, lines)


def interactions() -> str:
    found = read("audit")
    lines = [
        [f"`{name}`", claimed(one["claim"]), span(one["accuracy"]), f"{one['auc']:.3f}", f"{one['tpr']:.3f}"]
        for name, one in found["interactions"].items()
    ]
    chart = next(iter(found["interactions"].values()))
    lines.append(
        ["popularity alone", "nothing is observed", span(chart["popularity"]), f"{chart['popularity_auc']:.3f}", "–"]
    )
    return f"{found['world']}.\n\n{table(['plan', 'claim', 'accuracy', 'AUC', 'TPR at 1 %'], lines)}"


BLOCKS = kept(
    "docs/audit.md",
    {
        "one run": ("python benchmarks/audit.py", one_run),
        "membership": (
            "tacit reproduce privrec --part table6 --out benchmarks/results/reproduce-privrec-membership.json",
            partial(reproduced, "reproduce-privrec-membership"),
        ),
        "interactions": ("python benchmarks/audit.py", interactions),
    },
)
