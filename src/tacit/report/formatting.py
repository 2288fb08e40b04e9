"""Values: what a dossier says, as numbers to draw and words to print."""

import json
import math
from collections import Counter
from typing import Any

Dossier = dict[str, Any]
_PREFERRED = ("NDCG@10", "NDCG", "HR@10", "HR")
_NOISE = ("epsilon", "epsilon_per_message", "epsilon_of_signs", "noise", "scale", "delta", "k")


def number(value: Any) -> float:
    """A number of a dossier; infinity is written there as a word.

    >>> number("inf")
    inf
    """
    return float(value)


def epsilon_text(value: Any) -> str:
    """An ε as it is printed.

    >>> epsilon_text("inf"), epsilon_text(7.99995), epsilon_text(0.0)
    ('∞', '8', '0')
    """
    epsilon = number(value)
    return "∞" if math.isinf(epsilon) else f"{epsilon:.3g}"


def number_text(value: Any) -> str:
    """Any number or word of a table."""
    if isinstance(value, bool) or value is None:
        return "–" if value is None else "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.4g}" if abs(value) < 1e6 else f"{value:,.0f}"
    return "∞" if value == "inf" else str(value)


def bytes_text(size: float) -> str:
    """Bytes in the unit a person would choose.

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
    """How private a plan is, in one word that decides its colour everywhere: home, kept or open."""
    epsilon = number(dossier["whole"]["epsilon"])
    return "open" if math.isinf(epsilon) else "kept" if epsilon > 0 else "home"


def sent_text(dossier: Dossier) -> str:
    """What a device sent over the run."""
    return "raw data" if dossier["pooled"] else bytes_text(dossier["bytes_up_per_device"])


def first_noisy_stage(dossier: Dossier) -> dict[str, Any] | None:
    """The first stage that adds noise."""
    stages = dossier["plan"]["stage"]
    return next((s for s in stages if s["rounds"] and s["privacy"]["mechanism"] != "none"), None)


def worst_verdict(dossier: Dossier) -> str:
    """The worst outlook of all stages."""
    if dossier["pooled"]:
        return "raw data"
    order = ("hopeless", "weak", "workable", "raw data", "no noise", "nothing sent")
    return min((view["verdict"] for view in dossier["outlook"]), key=order.index)


def line_key(dossier: Dossier) -> str:
    """Plans that differ in the size of their noise alone share one line in a chart: everything else, as text."""
    stages = [{**stage, "privacy": _quiet(stage["privacy"])} for stage in dossier["plan"]["stage"]]
    return json.dumps(stages, sort_keys=True)


def _quiet(privacy: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in privacy.items() if name not in _NOISE}


def line_name(dossier: Dossier) -> str:
    """What such a line is called: the method, its mechanism, and where the noise is added if at home."""
    stage = first_noisy_stage(dossier)
    if stage is None:
        return dossier["name"]
    place = " local" if stage["privacy"].get("place") == "local" else ""
    return f"{stage['method'].replace('_', '-')} {stage['privacy']['mechanism']}{place}"


def primary_metric(dossiers: list[Dossier]) -> str | None:
    """The metric to draw: NDCG@10 where all have it, else the most alike of those that all have."""
    common = [name for name in dossiers[0]["metrics"] if all(name in one["metrics"] for one in dossiers)]
    for wanted in _PREFERRED:
        for name in common:
            if name == wanted or name.partition("@")[0] == wanted:
                return name
    return common[0] if common else None


def with_distinct_names(dossiers: list[Dossier]) -> list[Dossier]:
    """The same dossiers, numbered where two have one name."""
    counts, seen = Counter(one["name"] for one in dossiers), Counter()
    made = []
    for one in dossiers:
        name = one["name"]
        seen[name] += 1
        made.append({**one, "name": f"{name} ({seen[name]})" if counts[name] > 1 else name})
    return made


def comparable_groups(dossiers: list[Dossier]) -> list[list[Dossier]]:
    """Groups that may be compared: the same people, asked in the same way."""
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
