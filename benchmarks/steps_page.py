"""The blocks and the picture of docs/steps.md; `python benchmarks/pages.py` fills them."""

from typing import Any

import numpy as np
from pages import Picture, kept, read, span, table
from steps import EPSILONS, FREE, PLANS

COMMAND = "python benchmarks/steps.py"
CLAIMS = {"add_remove": "add-remove", "replace_one": "replace-one"}


def rows(log: str = "ml-1m", relation: str = "add_remove", ties: str = "file") -> dict[tuple[str, Any], dict[str, Any]]:
    """Kept rows of a log with all its people, by plan and ε."""
    found = {}
    for row in read("steps")["rows"]:
        if row["log"] == log and row["ties"] == ties and row["relation"] in (None, relation):
            found[row["plan"], row["epsilon"]] = row
    return found


def mean(row: dict[str, Any]) -> float:
    """Over seeds and people."""
    return float(np.mean(row["each"]))


def retained(row: dict[str, Any], log: str, **which: str) -> float | None:
    """How much of what steps gain over popularity without noise is left."""
    free = rows(log, **which)
    if ("popularity", None) not in free or ("steps-free", None) not in free:
        return None
    low, high = mean(free["popularity", None]), mean(free["steps-free", None])
    return (mean(row) - low) / (high - low)


def quality() -> str:
    """NDCG@10 on MovieLens-1M, plan by plan."""
    return _grid("ml-1m", "add_remove", "file", PLANS)


def variants() -> str:
    """The other relation, and ties of time stamps drawn at random."""
    parts = []
    for relation, ties in (("replace_one", "file"), ("add_remove", "random")):
        if not any(row["ties"] == ties and row["relation"] == relation for row in read("steps")["rows"]):
            continue
        title = f"**{CLAIMS[relation]}, ties in the order of {'the file' if ties == 'file' else 'a random draw'}**"
        parts.append(f"{title}\n\n{_grid('ml-1m', relation, ties, PLANS)}")
    return "\n\n".join(parts)


def logs() -> str:
    """Other logs, with the same settings."""
    names = sorted({row["log"] for row in read("steps")["rows"]} - {"ml-1m"})
    parts = []
    for log in names:
        users = next(row["users"] for row in read("steps")["rows"] if row["log"] == log)
        parts.append(f"**{log}, {users:,} people**\n\n{_grid(log, 'add_remove', 'file', PLANS)}")
    return "\n\n".join(parts)


def _grid(log: str, relation: str, ties: str, plans: tuple[str, ...]) -> str:
    found = rows(log, relation, ties)
    epsilons = [epsilon for epsilon in EPSILONS if any(key[1] == epsilon for key in found)]
    lines = []
    for plan in plans:
        if not any(key[0] == plan for key in found):
            continue
        cells = [found.get((plan, None if plan in FREE else epsilon)) for epsilon in epsilons]
        if plan in FREE:
            lines.append(
                [f"`{plan}`, no noise", *([span(cells[0]["metric"])] * len(epsilons) if cells and cells[0] else [])]
            )
        else:
            lines.append(
                [f"`{plan}`" if " " not in plan else plan, *(span(cell["metric"]) if cell else "–" for cell in cells)]
            )
            shares = [retained(cell, log, relation=relation, ties=ties) if cell else None for cell in cells]
            if plan == "steps" and any(share is not None for share in shares):
                lines.append(["… retained", *("–" if share is None else f"{100 * share:.0f} %" for share in shares)])
    return table(["plan", *(f"ε = {epsilon:g}" for epsilon in epsilons)], lines)


def cost() -> str:
    """Memory, and the size of the head."""
    lines = []
    for (plan, epsilon), row in sorted(rows().items(), key=str):
        if plan in ("steps", "steps-once", "steps-free"):
            where = "∞" if epsilon is None else f"{epsilon:g}"
            lines.append([f"`{plan}`", where, f"{np.mean(row['head']):,.0f}", f"{row['gib']:.1f}"])
    return table(["plan", "ε", "items in the head", "peak GiB"], lines)


def draw(path: Any) -> None:
    """NDCG@10 against ε on MovieLens-1M, a line for each plan; dashed lines are without noise."""
    import altair as alt

    found = rows()
    points = [
        {"plan": plan, "epsilon": epsilon, "value": mean(row), "low": row["metric"][1], "high": row["metric"][2]}
        for (plan, epsilon), row in found.items()
        if epsilon is not None
    ]
    x = alt.X("epsilon:Q", title="ε for a user, δ = 1e-5", scale=alt.Scale(type="log", domain=[0.4, 10]))
    x = x.axis(values=list(EPSILONS), grid=False)
    order = [plan for plan in reversed(PLANS) if plan not in FREE]
    color = alt.Color("plan:N", title=None, sort=order, scale=alt.Scale(scheme="category10"))
    base = alt.Chart(alt.Data(values=points)).encode(x=x, color=color)
    y = alt.Y("value:Q", title="NDCG@10", scale=alt.Scale(domainMin=0))
    layers = [base.mark_line(point=True).encode(y=y), base.mark_rule(opacity=0.4).encode(y="low:Q", y2="high:Q")]
    for plan in FREE:
        if (plan, None) in found:
            value = mean(found[plan, None])
            rule = alt.Chart(alt.Data(values=[{"value": value, "epsilon": 0.42, "plan": f"{plan}, no noise"}]))
            layers += [rule.mark_rule(strokeDash=[4, 4]).encode(y="value:Q")]
            layers += [rule.mark_text(align="left", dy=-6).encode(x=x, y="value:Q", text="plan:N")]
    alt.layer(*layers).properties(width=480, height=260).configure(background="white").save(path)


BLOCKS = kept(
    "docs/steps.md",
    {
        "quality": (COMMAND, quality),
        "variants": (COMMAND, variants),
        "logs": (f"{COMMAND} --log NAME", logs),
        "cost": (COMMAND, cost),
    },
)
PICTURES = [Picture("steps.svg", COMMAND, draw)]
