"""Puts what was measured into docs/fpl.md and docs/speed.md: every number of their tables comes from a file in results.

python benchmarks/fpl.py
python benchmarks/fpl_privacy.py
tacit reproduce fpl --out benchmarks/results/reproduce-fpl.json
python benchmarks/fpl_page.py
"""

from functools import partial
from typing import Any

import numpy as np
from pages import fill, read, reproduced, table

ON = {"fpl-cpu": "CPU", "fpl-gpu": "GPU"}
BLIND = ("chance", "popularity")  # what is guessed without a message
MESSAGES = 100


def by_log() -> dict[str, dict[str, list[dict[str, Any]]]]:
    """log -> variant -> a row a seed."""
    found: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for row in read("fpl-privacy")["rows"]:
        found.setdefault(row["log"], {}).setdefault(row["name"], []).append(row)
    return found


def _f1(rows: list[dict[str, Any]]) -> str:
    return f"{np.mean([row['metrics']['F1@10'] for row in rows]):.4f}"


def _attack(rows: list[dict[str, Any]], name: str, *parts: str) -> str:
    """What an attack reached after the most messages it was given, seed by seed, on average."""
    mine = [[one for one in row["attacks"] if one["attack"] == name and one["rounds"] <= MESSAGES] for row in rows]
    last = [max(ones, key=lambda one: one["rounds"]) for ones in mine if ones]
    return ", ".join(f"{np.mean([one[part] for one in last]):.3f}" for part in parts) if last else "–"


def withheld() -> str:
    """What π hides, and what is found all the same."""
    lines = []
    for log, variants in by_log().items():
        for name, rows in variants.items():
            if name.startswith("pFPL"):
                sign = _attack(rows, "sign", "precision", "recall")
                inversion = _attack(rows, "inversion", "precision", "recall", "f1")
                popular = _attack(rows, "popularity", "f1")
                lines.append([log, name.removeprefix("pFPL, "), _f1(rows), sign, inversion, popular])
    head = [
        "log",
        "what is shown",
        "F1@10 of the lists",
        "sign: precision, recall",
        "inversion: precision, recall, F1",
        "popular items' F1",
    ]
    return table(head, lines)


def protects() -> str:
    """Every variant on every log: what is promised, what is left, what is found."""
    lines = []
    for log, variants in by_log().items():
        for name, rows in variants.items():
            epsilon = "∞" if rows[0]["epsilon"] in (float("inf"), "inf", None) else f"{rows[0]['epsilon']:g}"
            kept = "nothing" if epsilon == "∞" else f"{rows[0]['unit']}, {rows[0]['trust']}"
            lines.append([log, name, epsilon, kept, _f1(rows), _best(rows), str(len(rows))])
    return table(["log", "variant", "ε", "unit, trusted", "F1@10", "best attack's F1", "seeds"], lines)


def _best(rows: list[dict[str, Any]]) -> str:
    best = [max((one["f1"] for one in row["attacks"] if one["attack"] not in BLIND), default=None) for row in rows]
    found = [one for one in best if one is not None]
    return f"{np.mean(found):.3f}" if found else "–"


def epochs() -> str:
    """An epoch beside one of `implicit`, on one core and on two."""
    lines = []
    for one in read("fpl-cpu")["epoch"]:
        them, us = one["implicit"], one["pFPL"]
        both = (f"{them[unit]:.0f} / {us[unit]:.0f}" for unit in ("ms", "cpu_ms"))
        ratios = (f"{us[ratio]:.2f}" for ratio in ("times_faster", "times_less_cpu"))
        lines.append([str(one["threads"]), *both, *ratios, f"{one['load']:.1f}"])
    head = [
        "threads",
        "ms, implicit / pFPL",
        "ms of CPU, the least",
        "times faster",
        "times less CPU",
        "load of the machine",
    ]
    return f"{table(head, lines)}\n\n{_verdict()}"


def _verdict() -> str:
    parts = []
    for one in read("fpl-cpu")["epoch"]:
        met = "is met" if one["pFPL"]["times_faster"] >= 1 else "is not met"
        parts.append(f"{met} with {one['threads']} thread{'s' if one['threads'] > 1 else ''}")
    return f"The target, no slower, {'; it '.join(parts)}."


def alone() -> str:
    """Rounds of one device a second, and a minute."""
    lines = []
    for name, where in ON.items():
        found = read(name)["alone"]["rounds_per_second"]
        lines.append([where, f"{found:,.0f}", f"{60 * found:,.0f}"])
    return table(["sFPL", "rounds a second", "a minute"], lines)


def scale() -> str:
    """A round of everybody, one pair each."""
    heads = ["devices", "ms a round", "µs a device", "peak GiB", "compile s"]
    lines = [
        [
            f"{row['devices']:,}",
            f"{1e3 * row['round_s']:,.1f}",
            f"{row['us_per_device']:.2f}",
            f"{row['peak_GiB']:.2f}",
            f"{row['compile_s']:.1f}",
        ]
        for row in read("fpl-cpu")["scale"]
    ]
    return table(heads, lines)


if __name__ == "__main__":
    fill(
        "fpl.md",
        {
            "withheld": withheld,
            "protects": protects,
            "beside": partial(reproduced, "reproduce-fpl", 4),
            "epochs": epochs,
            "alone": alone,
        },
    )
    fill("speed.md", {"epochs": epochs, "scale": scale})
