"""Tables of the bench, as Markdown: one for each log, best first; what could not run says why."""

import math
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any

import numpy as np

from tacit.lab.experiments.bench.logs import PLACES
from tacit.lab.runs.run import in_bytes

Row = dict[str, Any]
HEAD = ("plan", "NDCG@10", "HR@10", "coverage", "up", "down", "seconds", "claim")
_LAB = {"pooled": ("raw data", "a model"), "helped": ("not counted", "not counted")}


def merged(rows: Iterable[Row]) -> list[Row]:
    """One row for each log and plan: numbers are means over the seeds, and `seeds` says which there are."""
    ordered = sorted(rows, key=lambda row: (_place(row["data"]), row["plan"], row["seed"]))
    return [_one(list(some)) for _, some in groupby(ordered, key=lambda row: (row["data"], row["plan"]))]


def _place(name: str) -> tuple[int, str]:
    """Where a log stands: in the order of the bench, others behind."""
    return (PLACES.index(name) if name in PLACES else len(PLACES), name)


def _one(rows: Sequence[Row]) -> Row:
    made = [row for row in rows if "metrics" in row]
    if not made:
        return {**rows[0], "seeds": [row["seed"] for row in rows]}
    means = {name: float(np.mean([row["metrics"][name] for row in made])) for name in made[0]["metrics"]}
    spans = {name: np.mean([row["intervals"][name] for row in made], axis=0).tolist() for name in made[0]["intervals"]}
    sums = {name: _mean([row[name] for row in made]) for name in ("bytes_up", "bytes_down", "seconds")}
    return {**made[0], **sums, "metrics": means, "intervals": spans, "seeds": [row["seed"] for row in made]}


def _mean(values: Sequence[float | None]) -> float | None:
    """The mean; None where something was not counted."""
    return None if None in values else float(np.mean(np.array(values, float)))


def tables(rows: Iterable[Row]) -> str:
    """Every log's table, under what was taken of the log."""
    found = merged(rows)
    parts = []
    for name in dict.fromkeys(row["data"] for row in found):
        mine = [row for row in found if row["data"] == name]
        how = next((f"Among {row['candidates']}; {row['treatment']}." for row in mine if "metrics" in row), "")
        parts.append("\n\n".join(filter(None, (f"**{mine[0]['label']}**", how, table(mine)))))
    return "\n\n".join(parts)


def table(rows: Sequence[Row]) -> str:
    """One log's table: those with numbers by NDCG@10, then those without."""
    made = sorted((row for row in rows if "metrics" in row), key=lambda row: -row["metrics"]["NDCG@10"])
    lines = [HEAD, ("---",) * len(HEAD), *map(_cells, made)]
    lines += [(f"`{row['plan']}`", *("–",) * 6, _sentence(row["why"])) for row in rows if "why" in row]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cells(row: Row) -> tuple[str, ...]:
    up, down = _LAB.get(row["in_the_lab"]) or (in_bytes(row["bytes_up"]), in_bytes(row["bytes_down"]))
    ranks = [_spread(row, name) for name in ("NDCG@10", "HR@10")]
    covered = f"{row['metrics']['Coverage@10']:.1%}"
    return (f"`{row['plan']}`", *ranks, covered, up, down, f"{row['seconds']:.0f}", claimed(row["claim"]))


def _spread(row: Row, name: str) -> str:
    low, high = row["intervals"][name]
    return f"{row['metrics'][name]:.3f} ± {(high - low) / 2:.3f}"


def claimed(claim: Row) -> str:
    """ε with what makes it mean something.

    >>> claimed({"epsilon": "inf", "delta": 0.0, "per": "run", "unit": "user", "relation": "replace_one", "trust": "server"})
    'ε = ∞ a run, user, replace-one, trust: server'
    """
    epsilon = epsilon_of(claim)
    said = "∞" if math.isinf(epsilon) else f"{epsilon:.3g}"
    delta = f", δ = {claim['delta']:.0e}" if claim["delta"] else ""
    return f"ε = {said}{delta} a {claim['per']}, {claim['unit']}, {claim['relation'].replace('_', '-')}, trust: {claim['trust']}"


def epsilon_of(claim: Row) -> float:
    """ε of a claim, which JSON writes as a word where it is ∞."""
    return float(claim["epsilon"])


def _sentence(why: str) -> str:
    return why.replace("|", "\\|")
