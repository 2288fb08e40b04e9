"""Frappe: app launches with their context.

Linas Baltrunas et al., "Frappe: Understanding the Usage and Perception of Mobile App Recommendations In-The-Wild", 2015.
"""

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from tacit.errors import DataError
from tacit.lab.data import Population
from tacit.lab.data.columns import encode_ids
from tacit.lab.data.datasets import Dataset
from tacit.lab.data.interactions import interactions
from tacit.lab.data.sources._files import find_file, log_path, read_separated

SURROUNDINGS = ("daytime", "weekday", "isweekend", "homework", "weather", "country", "city")


def frappe(path: str | Path | None = None, *, negatives: int = 0, seed: int = 0, **options: Any) -> Population:
    """Frappe (Baltrunas et al. 2015): launches with their surroundings as context; no times and no stars.

    Every row is a positive, label 1. With `negatives`, each row is followed by that many apps its user never
    launched, drawn from `seed`, in the same surroundings, label 0: with 2, 96,203 rows become 288,609.
    The price class is an item field; the launch count is context.
    """
    events = read_separated(find_file("frappe", log_path("frappe", path), "frappe.csv"), "\t")
    missing = {"user", "item", "cnt", "cost", *SURROUNDINGS} - set(events.columns)
    if missing:
        raise DataError(f"frappe.csv must have the column {min(missing)!r}; it has {', '.join(events.columns)}.")
    events = events.with_columns(pl.col("user", "item", "cnt").cast(pl.Int64), label=pl.lit(1.0))
    prices = events.group_by("item").agg(pl.col("cost").mode().sort().first()).sort("item")
    if negatives:
        events = _with_negatives(events, negatives, seed)
    return interactions(
        events,
        user="user",
        item="item",
        time=None,
        weight="label",
        context=["cnt", *SURROUNDINGS],
        items=prices,
        kinds={"cnt": "numeric", "cost": "categorical", **dict.fromkeys(SURROUNDINGS, "categorical")},
        **options,
    )


def _with_negatives(events: pl.DataFrame, count: int, seed: int) -> pl.DataFrame:
    """Each row, then `count` copies of it with an app its user never launched and label 0."""
    users, items = encode_ids(events["user"], "user"), encode_ids(events["item"], "item")
    n, rng = len(items.names), np.random.default_rng(seed)
    used = np.unique(users.codes.astype(np.int64) * n + items.codes)
    if np.bincount(used // n).max() == n:
        raise DataError("frappe: negatives need an app that the user never launched, and one user launched them all.")
    user = np.repeat(users.codes, count).astype(np.int64)
    drawn = rng.integers(n, size=user.size)
    taken = np.isin(user * n + drawn, used)
    while taken.any():
        drawn[taken] = rng.integers(n, size=int(taken.sum()))
        taken[taken] = np.isin(user[taken] * n + drawn[taken], used)
    rows = np.repeat(np.arange(len(events)), count + 1)
    real = np.arange(rows.size) % (count + 1) == 0
    item = np.empty(rows.size, np.int64)
    item[real], item[~real] = events["item"].to_numpy(), items.names[drawn]
    return events[rows].with_columns(item=pl.Series(item), label=pl.Series(real.astype(np.float32)))


_SAMPLE = """user\titem\tcnt\tdaytime\tweekday\tisweekend\thomework\tcost\tweather\tcountry\tcity
0\t0\t1\tmorning\tsunday\tweekend\tunknown\tfree\tsunny\tSpain\t0
0\t5\t14\tevening\tmonday\tworkday\thome\tpaid\tcloudy\tSpain\t0
1\t0\t2\tmorning\tsunday\tweekend\tunknown\tfree\tsunny\tSpain\t0
"""

DATASETS = (
    Dataset(
        "frappe",
        "Frappe: app launches with weather, place and time of day",
        frappe,
        "research; see the owner's page",
        "Baltrunas et al. 2015, Frappe: Understanding the Usage and Perception of Mobile App Recommendations, arXiv:1505.03014",
        "https://www.baltrunas.info/context-aware",
        sample={"frappe.csv": _SAMPLE},
    ),
)
