"""App Usage of Tsinghua: app traffic with base stations.

Donghan Yu et al., "Smartphone App Usage Prediction Using Points of Interest", 2018.
"""

from pathlib import Path
from typing import Any

import polars as pl

from tacit.lab.data import Population
from tacit.lab.data.datasets import Dataset
from tacit.lab.data.interactions import interactions
from tacit.lab.data.sources._files import find_file, log_path, read_bytes, read_separated


def app_usage(path: str | Path | None = None, **options: Any) -> Population:
    """App Usage of Tsinghua (Yu et al. 2018): user, yyyymmddHHMMSS, base station, app, bytes; local time.

    The station and the bytes are context; App2Category.txt, where it lies beside, gives each app its category.
    """
    folder = log_path("app-usage", path)
    file = find_file("app-usage", folder, "App_usage_trace.txt", "App_Usage_Trace.txt")
    columns = ["user_id", "moment", "station", "app", "bytes"]
    events = read_separated(file, _separator(file), columns)
    whole = [pl.col(name).str.strip_chars().cast(pl.Int64) for name in ("user_id", "station", "app")]
    events = events.with_columns(
        *whole, pl.col("moment").str.strip_chars(), pl.col("bytes").str.strip_chars().cast(pl.Float64)
    )
    kinds = {"station": "categorical", "bytes": "numeric"}
    known = sorted(file.parent.glob("App2Category.txt"))
    if known:
        options["items"] = read_separated(known[0], _separator(known[0]), ["app", "category"]).with_columns(
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


_SAMPLE = """1 20160420120001 5 12 300
1 20160420120000 5 11 200.5
2 20160426235959 6 12 1
"""

DATASETS = (
    Dataset(
        "app-usage",
        "App Usage: app traffic of 1,000 people of one city, one week",
        app_usage,
        "research; see the owner's page",
        "Yu et al. 2018, Smartphone App Usage Prediction Using Points of Interest, doi:10.1145/3161413",
        "http://fi.ee.tsinghua.edu.cn/appusage/",
        sample={"App_usage_trace.txt": _SAMPLE, "App2Category.txt": "11 3\n12 8\n"},
    ),
)
