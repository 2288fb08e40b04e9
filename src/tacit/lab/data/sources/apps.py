"""Logs of app launches: Frappe, LSApp, App Usage."""

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from tacit.errors import DataError
from tacit.lab.data import Population
from tacit.lab.data.columns import encode_ids
from tacit.lab.data.interactions import interactions
from tacit.lab.data.sources.places import find, home, read_bytes, separated

SURROUNDINGS = ("daytime", "weekday", "isweekend", "homework", "weather", "country", "city")


def frappe(path: str | Path | None = None, *, negatives: int = 0, seed: int = 0, **options: Any) -> Population:
    """Frappe (Baltrunas et al. 2015): launches with their surroundings as context; no times and no stars.

    Every row is a positive, label 1. With `negatives`, each row is followed by that many apps its user never
    launched, drawn from `seed`, in the same surroundings, label 0: with 2, 96,203 rows become 288,609.
    The price class is an item field; the launch count is context.
    """
    events = separated(find("frappe", home("frappe", path), "frappe.csv"), "\t")
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


def lsapp(path: str | Path | None = None, **options: Any) -> Population:
    """LSApp (Aliannejadi et al. 2021): the Opened events of lsapp.tsv, plain, .gz or inside a .tar.gz."""
    file = find("lsapp", home("lsapp", path), "lsapp.tsv", "lsapp.tar")
    events = separated(file, "\t")
    missing = {"user_id", "timestamp", "app_name", "event_type"} - set(events.columns)
    if missing:
        raise DataError(f"{str(file)!r} must have the column {min(missing)!r}; it has {', '.join(events.columns)}.")
    opened = events.filter(pl.col("event_type").str.strip_chars() == "Opened")
    if opened.is_empty():
        raise DataError(f"{str(file)!r} must have events of type Opened, and has none in {len(events):,} rows.")
    opened = opened.select(pl.col("user_id").cast(pl.Int64), pl.col("app_name").str.strip_chars(), "timestamp")
    return interactions(opened, item="app_name", time="timestamp", weight=None, **options)


def app_usage(path: str | Path | None = None, **options: Any) -> Population:
    """App Usage of Tsinghua (Yu et al. 2018): user, yyyymmddHHMMSS, base station, app, bytes; local time.

    The station and the bytes are context; App2Category.txt, where it lies beside, gives each app its category.
    """
    folder = home("app-usage", path)
    file = find("app-usage", folder, "App_usage_trace.txt", "App_Usage_Trace.txt")
    columns = ["user_id", "moment", "station", "app", "bytes"]
    events = separated(file, _separator(file), columns)
    whole = [pl.col(name).str.strip_chars().cast(pl.Int64) for name in ("user_id", "station", "app")]
    events = events.with_columns(
        *whole, pl.col("moment").str.strip_chars(), pl.col("bytes").str.strip_chars().cast(pl.Float64)
    )
    kinds = {"station": "categorical", "bytes": "numeric"}
    known = sorted(file.parent.glob("App2Category.txt"))
    if known:
        options["items"] = separated(known[0], _separator(known[0]), ["app", "category"]).with_columns(
            pl.col("app").str.strip_chars().cast(pl.Int64), pl.col("category").str.strip_chars()
        )
        kinds["category"] = "categorical"
    return interactions(
        events,
        item="app",
        time="moment",
        time_format="%Y%m%d%H%M%S",
        weight=None,
        context=["station", "bytes"],
        kinds=kinds,
        **options,
    )


def _separator(path: Path) -> str:
    line = read_bytes(path).partition(b"\n")[0].decode()
    return next(mark for mark in ("\t", ",", " ") if mark in line or mark == " ")
