"""Formatting: values of report data as numbers to draw and text to print."""

import json
import math
from collections import Counter
from typing import Any

Dossier = dict[str, Any]
_PREFERRED = ("NDCG@10", "NDCG", "HR@10", "HR")
_NOISE = ("epsilon", "epsilon_per_message", "epsilon_of_signs", "noise", "scale", "delta", "k")


def number(value: Any) -> float:
    """A number of a dossier, in which infinity is written as a word.

    >>> number("inf")
    inf
    """
    return float(value)


def epsilon_text(value: Any) -> str:
    """An ε as text.

    >>> epsilon_text("inf"), epsilon_text(7.99995), epsilon_text(0.0)
    ('∞', '8', '0')
    """
    epsilon = number(value)
    return "∞" if math.isinf(epsilon) else f"{epsilon:.3g}"


def number_text(value: Any) -> str:
    """Any value of a table as text."""
    if isinstance(value, bool) or value is None:
        return "–" if value is None else "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.4g}" if abs(value) < 1e6 else f"{value:,.0f}"
    return "∞" if value == "inf" else str(value)


def bytes_text(size: float) -> str:
    """A number of bytes in a readable unit.

    >>> bytes_text(0), bytes_text(822), bytes_text(64110)
    ('nothing', '822 B', '64.1 kB')
    """
    if not size:
        return "nothing"
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000 or unit == "GB":
            break
        size /= 1000
    return f"{size:.0f} {unit}" if unit == "B" or size >= 100 else f"{size:.1f} {unit}"


def seconds_text(seconds: float) -> str:
    """A duration."""
    if seconds < 100:
        return f"{seconds:.1f} s" if seconds >= 0.05 else f"{1000 * seconds:.1f} ms"
    return f"{seconds / 60:.1f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def privacy_level(dossier: Dossier) -> str:
    """The privacy level of a plan, which decides its colour everywhere: home (ε = 0), kept (finite ε) or open (ε = ∞)."""
    epsilon = number(dossier["whole"]["epsilon"])
    return "open" if math.isinf(epsilon) else "kept" if epsilon > 0 else "home"


def sent_text(dossier: Dossier) -> str:
    """The bytes a device sent over the run, as text."""
    return "raw data" if dossier["pooled"] else bytes_text(dossier["bytes_up_per_device"])


def first_noisy_stage(dossier: Dossier) -> dict[str, Any] | None:
    """The first stage that adds noise."""
    stages = dossier["plan"]["stage"]
    return next((s for s in stages if s["rounds"] and s["privacy"]["mechanism"] != "none"), None)


def worst_verdict(dossier: Dossier) -> str:
    """The worst feasibility verdict of all stages."""
    if dossier["pooled"]:
        return "raw data"
    order = ("hopeless", "weak", "workable", "raw data", "no noise", "nothing sent")
    return min((view["verdict"] for view in dossier["outlook"]), key=order.index)


def line_key(dossier: Dossier) -> str:
    """The key of a plan's line in a chart: all settings but the size of the noise, as text."""
    stages = [{**stage, "privacy": _without_noise(stage["privacy"])} for stage in dossier["plan"]["stage"]]
    return json.dumps(stages, sort_keys=True)


def _without_noise(privacy: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in privacy.items() if name not in _NOISE}


def line_name(dossier: Dossier) -> str:
    """The name of such a line: the method, its mechanism, and `local` where the device adds the noise."""
    stage = first_noisy_stage(dossier)
    if stage is None:
        return dossier["name"]
    place = " local" if stage["privacy"].get("place") == "local" else ""
    return f"{stage['method'].replace('_', '-')} {stage['privacy']['mechanism']}{place}"


def primary_metric(dossiers: list[Dossier]) -> str | None:
    """The metric to draw: NDCG@10 where all have it, else the most similar one that all have."""
    common = [name for name in dossiers[0]["metrics"] if all(name in one["metrics"] for one in dossiers)]
    for wanted in _PREFERRED:
        for name in common:
            if name == wanted or name.partition("@")[0] == wanted:
                return name
    return common[0] if common else None


def with_distinct_names(dossiers: list[Dossier]) -> list[Dossier]:
    """The same dossiers, with numbers appended to equal names."""
    counts, seen = Counter(one["name"] for one in dossiers), Counter()
    made = []
    for one in dossiers:
        name = one["name"]
        seen[name] += 1
        made.append({**one, "name": f"{name} ({seen[name]})" if counts[name] > 1 else name})
    return made


def comparable_groups(dossiers: list[Dossier]) -> list[list[Dossier]]:
    """Groups that may be compared: the same users, the same protocol and candidates."""
    groups: dict[tuple, list[Dossier]] = {}
    for one in dossiers:
        protocol = one["protocol"] or {}
        key = (one["data"]["digest"], protocol.get("name"), protocol.get("candidates"))
        groups.setdefault(key, []).append(one)
    return list(groups.values())


def metric_interval(dossier: Dossier, metric: str) -> tuple[float, float, float]:
    """Mean, low and high; a metric without an interval has the mean three times."""
    mean = dossier["metrics"][metric]
    one = dossier["intervals"].get(metric)
    return (mean, one["low"], one["high"]) if one else (mean, mean, mean)
