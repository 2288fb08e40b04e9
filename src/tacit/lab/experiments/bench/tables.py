"""Tables of the bench, as Markdown: one for each log, best first, and one of the best plan for each need.

No plan is known by name here but the baseline.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import Any

import numpy as np

from tacit.lab.experiments.bench.rows import LOGS
from tacit.lab.runs.run import in_bytes

Row = dict[str, Any]
HEAD = ("plan", "NDCG@10", "HR@10", "coverage", "up", "down", "seconds", "claim")
_LAB = {"pooled": ("raw data", "a model"), "helped": ("not counted", "not counted")}


def average_seeds(rows: Iterable[Row]) -> list[Row]:
    """One row for each log and plan: numbers are means over the seeds, `seeds` lists these."""
    ordered = sorted(rows, key=lambda row: (_position(row["data"]), row["plan"], row["seed"]))
    return [_one(list(some)) for _, some in groupby(ordered, key=lambda row: (row["data"], row["plan"]))]


def _position(name: str) -> tuple[int, str]:
    """The order of the bench, other logs after it."""
    return (LOGS.index(name) if name in LOGS else len(LOGS), name)


def _one(rows: Sequence[Row]) -> Row:
    made = [row for row in rows if "metrics" in row]
    if not made:
        return {**rows[0], "seeds": [row["seed"] for row in rows]}
    means = {name: float(np.mean([row["metrics"][name] for row in made])) for name in made[0]["metrics"]}
    spans = {name: np.mean([row["intervals"][name] for row in made], axis=0).tolist() for name in made[0]["intervals"]}
    sums = {name: _mean([row[name] for row in made]) for name in ("bytes_up", "bytes_down", "seconds")}
    return {**made[0], **sums, "metrics": means, "intervals": spans, "seeds": [row["seed"] for row in made]}


def _mean(values: Sequence[float | None]) -> float | None:
    """The mean; None where a value was not counted."""
    return None if None in values else float(np.mean(np.array(values, float)))


def bench_tables(rows: Iterable[Row]) -> str:
    """The table of every log, under a description of the log."""
    found = average_seeds(rows)
    parts = []
    for name in dict.fromkeys(row["data"] for row in found):
        mine = [row for row in found if row["data"] == name]
        how = next((f"Among {row['candidates']}; {row['treatment']}." for row in mine if "metrics" in row), "")
        parts.append("\n\n".join(filter(None, (f"**{mine[0]['label']}**", how, log_table(mine)))))
    return "\n\n".join(parts)


def log_table(rows: Sequence[Row]) -> str:
    """The table of one log: plans with numbers by NDCG@10, then those without."""
    made = sorted((row for row in rows if "metrics" in row), key=lambda row: -row["metrics"]["NDCG@10"])
    lines = [HEAD, ("---",) * len(HEAD), *map(_cells, made)]
    lines += [(f"`{row['plan']}`", *("–",) * 6, _sentence(row["why"])) for row in rows if "why" in row]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cells(row: Row) -> tuple[str, ...]:
    up, down = _LAB.get(row["in_the_lab"]) or (in_bytes(row["bytes_up"]), in_bytes(row["bytes_down"]))
    ranks = [_spread(row, name) for name in ("NDCG@10", "HR@10")]
    covered = f"{row['metrics']['Coverage@10']:.1%}"
    return (f"`{row['plan']}`", *ranks, covered, up, down, f"{row['seconds']:.0f}", claim_text(row["claim"]))


def _spread(row: Row, name: str) -> str:
    low, high = row["intervals"][name]
    return f"{row['metrics'][name]:.3f} ± {(high - low) / 2:.3f}"


def claim_text(claim: Row) -> str:
    """ε with its δ, unit, relation and trust.

    >>> claim_text({"epsilon": "inf", "delta": 0.0, "per": "run", "unit": "user", "relation": "replace_one", "trust": "server"})
    'ε = ∞ a run, user, replace-one, trust: server'
    """
    epsilon = claimed_epsilon(claim)
    value = "∞" if math.isinf(epsilon) else f"{epsilon:.3g}"
    delta = f", δ = {claim['delta']:.0e}" if claim["delta"] else ""
    return f"ε = {value}{delta} a {claim['per']}, {claim['unit']}, {claim['relation'].replace('_', '-')}, trust: {claim['trust']}"


def claimed_epsilon(claim: Row) -> float:
    """ε of a claim, which is a string in JSON where it is ∞."""
    return float(claim["epsilon"])


def _sentence(why: str) -> str:
    return why.replace("|", "\\|")


# ---- the best plan for each need ----

BASELINE = "popularity"  # item counts without noise, which a recommender must exceed


def _promises(row: Row, trust: str, unit: str | None = None) -> bool:
    """Whether a finite ε above 0 holds under this trust assumption."""
    claim = row["claim"]
    kept = 0 < claimed_epsilon(claim) < math.inf and not row["in_the_lab"] and claim["trust"] == trust
    return kept and unit in (None, claim["unit"])


NEEDS: dict[str, Callable[[Row], bool]] = {
    "nothing may leave the device": lambda row: claimed_epsilon(row["claim"]) == 0 and not row["in_the_lab"],
    "no party is trusted; the ε protects a user": lambda row: _promises(row, "nobody", "user"),
    "no party is trusted; the ε protects an interaction": lambda row: _promises(row, "nobody", "interaction"),
    "the server is trusted to add noise": lambda row: _promises(row, "server"),
    "an organisation is trusted with its users": lambda row: _promises(row, "organisation"),
    "raw data stay on the device; no ε is promised": lambda row: (
        math.isinf(claimed_epsilon(row["claim"])) and not row["in_the_lab"] and row["device"] == "person"
    ),
    "organisations do not pool data; no ε is promised": lambda row: (
        math.isinf(claimed_epsilon(row["claim"])) and not row["in_the_lab"] and row["device"] == "organisation"
    ),
    "raw data may be pooled": lambda row: row["in_the_lab"] == "pooled",
}


def best_plans(rows: Iterable[Row]) -> dict[str, dict[str, Row]]:
    """For each need and each log, the plan with the highest NDCG@10 that meets it."""
    made = [row for row in average_seeds(rows) if "metrics" in row]
    found: dict[str, dict[str, Row]] = {}
    for need, meets in NEEDS.items():
        for row in filter(meets, made):
            mine = found.setdefault(need, {})
            before = mine.get(row["data"])
            if before is None or row["metrics"]["NDCG@10"] > before["metrics"]["NDCG@10"]:
                mine[row["data"]] = row
    return found


def advice(rows: Iterable[Row]) -> str:
    """A table with a row for each need and a column for each log; in brackets the NDCG@10 of the most popular items."""
    rows = [row for row in average_seeds(rows) if "metrics" in row]
    baseline = {row["data"]: row["metrics"]["NDCG@10"] for row in rows if row["plan"] == BASELINE}
    logs = list(dict.fromkeys(row["data"] for row in rows))
    head = ["if", *(f"{name} ({baseline[name]:.3f})" if name in baseline else name for name in logs)]
    lines = [head, ["---"] * len(head)]
    for need, plans in best_plans(rows).items():
        lines.append([need, *(_cell(plans.get(name), baseline.get(name)) for name in logs)])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(row: Row | None, baseline: float | None) -> str:
    """The plan and its NDCG@10; in italics where that is not above the baseline."""
    if row is None:
        return "–"
    value = row["metrics"]["NDCG@10"]
    words = f"`{row['plan']}` {value:.3f}"
    return words if baseline is None or value > baseline or row["plan"] == BASELINE else f"*{words}*"
