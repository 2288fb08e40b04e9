"""Advice: which plan for which need. Read off the rows of the bench; nothing here knows a plan by name but the yardstick."""

import math
from collections.abc import Callable, Iterable

from tacit.lab.experiments.bench.tables import Row, epsilon_of, merged

YARDSTICK = "popularity"  # what everybody has, counted without noise: what a recommender must beat


def _promises(row: Row, trust: str, unit: str | None = None) -> bool:
    """Whether a finite ε above 0 holds if only these are trusted."""
    claim = row["claim"]
    kept = 0 < epsilon_of(claim) < math.inf and not row["in_the_lab"] and claim["trust"] == trust
    return kept and unit in (None, claim["unit"])


NEEDS: dict[str, Callable[[Row], bool]] = {
    "nothing may leave the device": lambda row: epsilon_of(row["claim"]) == 0 and not row["in_the_lab"],
    "nobody is trusted; a whole person is hidden": lambda row: _promises(row, "nobody", "user"),
    "nobody is trusted; each interaction is hidden": lambda row: _promises(row, "nobody", "interaction"),
    "the server is trusted to add noise": lambda row: _promises(row, "server"),
    "an organisation is trusted with its people": lambda row: _promises(row, "organisation"),
    "raw data stay at home; nothing is promised": lambda row: (
        math.isinf(epsilon_of(row["claim"])) and not row["in_the_lab"] and row["device"] == "person"
    ),
    "organisations do not pool; nothing is promised": lambda row: (
        math.isinf(epsilon_of(row["claim"])) and not row["in_the_lab"] and row["device"] == "organisation"
    ),
    "raw data may be pooled": lambda row: row["in_the_lab"] == "pooled",
}


def best(rows: Iterable[Row]) -> dict[str, dict[str, Row]]:
    """For each need and each log, the plan with the highest NDCG@10 that meets it."""
    made = [row for row in merged(rows) if "metrics" in row]
    found: dict[str, dict[str, Row]] = {}
    for need, meets in NEEDS.items():
        for row in filter(meets, made):
            mine = found.setdefault(need, {})
            before = mine.get(row["data"])
            if before is None or row["metrics"]["NDCG@10"] > before["metrics"]["NDCG@10"]:
                mine[row["data"]] = row
    return found


def advice(rows: Iterable[Row]) -> str:
    """The table: a need a row, a log a column; in brackets what recommending the most popular items has."""
    rows = [row for row in merged(rows) if "metrics" in row]
    yard = {row["data"]: row["metrics"]["NDCG@10"] for row in rows if row["plan"] == YARDSTICK}
    logs = list(dict.fromkeys(row["data"] for row in rows))
    head = ["if", *(f"{name} ({yard[name]:.3f})" if name in yard else name for name in logs)]
    lines = [head, ["---"] * len(head)]
    for need, plans in best(rows).items():
        lines.append([need, *(_cell(plans.get(name), yard.get(name)) for name in logs)])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(row: Row | None, yard: float | None) -> str:
    """The plan and its NDCG@10; in italics where that is not above the yardstick's."""
    if row is None:
        return "–"
    value = row["metrics"]["NDCG@10"]
    words = f"`{row['plan']}` {value:.3f}"
    return words if yard is None or value > yard or row["plan"] == YARDSTICK else f"*{words}*"
