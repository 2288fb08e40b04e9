"""LSApp: app launches with sessions.

Mohammad Aliannejadi et al., "Context-Aware Target Apps Selection and Recommendation", 2021.
"""

from pathlib import Path
from typing import Any

import polars as pl

from tacit.errors import DataError
from tacit.lab.data import Population
from tacit.lab.data.datasets import Dataset, RemoteFile
from tacit.lab.data.interactions import interactions
from tacit.lab.data.sources._files import find_file, log_path, read_separated


def lsapp(path: str | Path | None = None, **options: Any) -> Population:
    """LSApp (Aliannejadi et al. 2021): the Opened events of lsapp.tsv, plain, .gz or inside a .tar.gz."""
    file = find_file("lsapp", log_path("lsapp", path), "lsapp.tsv", "lsapp.tar")
    events = read_separated(file, "\t")
    missing = {"user_id", "timestamp", "app_name", "event_type"} - set(events.columns)
    if missing:
        raise DataError(f"{str(file)!r} must have the column {min(missing)!r}; it has {', '.join(events.columns)}.")
    opened = events.filter(pl.col("event_type").str.strip_chars() == "Opened")
    if opened.is_empty():
        raise DataError(f"{str(file)!r} must have events of type Opened, and has none in {len(events):,} rows.")
    opened = opened.select(pl.col("user_id").cast(pl.Int64), pl.col("app_name").str.strip_chars(), "timestamp")
    return interactions(opened, item="app_name", time="timestamp", weight=None, **options)


_SAMPLE = """user_id\tsession_id\ttimestamp\tapp_name\tevent_type
0\t1\t2018-01-16 06:01:05\tGmail\tOpened
0\t1\t2018-01-16 06:01:09\tGmail\tClosed
7\t2\t2018-01-17 06:26:05\tGoogle\tOpened
"""

DATASETS = (
    Dataset(
        "lsapp",
        "LSApp: app launches of 292 people",
        lsapp,
        "research; cite the paper",
        "Aliannejadi et al. 2021, Context-Aware Target Apps Selection and Recommendation, ACM TOIS",
        "https://github.com/aliannejadi/LSApp",
        (RemoteFile("https://github.com/aliannejadi/LSApp/raw/main/lsapp.tsv.gz", 7_329_439),),
        sample={"lsapp.tsv": _SAMPLE},
    ),
)
