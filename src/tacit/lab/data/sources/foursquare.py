"""Foursquare check-ins: files of one city each, or the owner's global files with a country picked out.

Dingqi Yang, Daqing Zhang and Bingqing Qu, "Participatory Cultural Mapping Based on Collective Behavior Data in
Location-Based Social Networks", 2016.
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl

from tacit.errors import DataError
from tacit.lab.data import Population
from tacit.lab.data.datasets import Dataset
from tacit.lab.data.interactions import interactions
from tacit.lab.data.sources._files import find_file, log_path, read_separated

WRITTEN = "%a %b %d %H:%M:%S %z %Y"  # Tue Apr 03 18:20:27 +0000 2012
CHECKINS, VENUES = "dataset_TIST2015_Checkins.txt", "dataset_TIST2015_POIs.txt"


def foursquare(
    path: str | Path | Sequence[str | Path] | None = None,
    name: str = "foursquare-italy",
    *,
    country: str | None = None,
    **options: Any,
) -> Population:
    """Check-ins with the venue's type and city as item fields; a user of several cities is one device.

    `path` is a folder, one file, or several files `City.tsv.gz` with user_id, venue_id, type, utc; the folder may
    also hold the owner's global check-ins and venues, from which `country` (as "IT") picks one country.
    For Anelli et al. 2021 pass duplicates="latest", on_few="drop", min_events=20.
    """
    files = _files(name, path)
    events = (
        _cities(files)
        if files
        else _global(name, log_path(name, path if isinstance(path, str | Path) else None), country)
    )
    venues = events.group_by("venue_id").agg(pl.col("type", "city").drop_nulls().first()).sort("venue_id")
    return interactions(
        events,
        item="venue_id",
        time="utc",
        time_format=WRITTEN,
        weight=None,
        items=venues,
        kinds={"type": "categorical", "city": "categorical"},
        **options,
    )


def _files(name: str, path: str | Path | Sequence[str | Path] | None) -> list[Path]:
    if path is not None and not isinstance(path, str | Path):
        return [log_path(name, one) for one in path]
    place = log_path(name, path)
    if place.is_file():
        return [place]
    return sorted([*place.glob("*.tsv"), *place.glob("*.tsv.gz")])


def _cities(files: list[Path]) -> pl.DataFrame:
    parts = []
    for file in files:
        part = read_separated(file, "\t")
        missing = {"user_id", "venue_id", "type", "utc"} - set(part.columns)
        if missing:
            raise DataError(
                f"{str(file)!r} must have the columns user_id, venue_id, type, utc; it lacks {min(missing)}."
            )
        city = file.name.partition(".")[0]
        parts.append(part.select(pl.col("user_id").cast(pl.Int64), "venue_id", "type", "utc", city=pl.lit(city)))
    return pl.concat(parts)


def _global(name: str, folder: Path, country: str | None) -> pl.DataFrame:
    """The owner's files: user, venue, utc, minutes; and venue, latitude, longitude, type, country."""
    events = read_separated(find_file(name, folder, CHECKINS), "\t", ["user_id", "venue_id", "utc", "minutes"])
    venues = read_separated(
        find_file(name, folder, VENUES), "\t", ["venue_id", "latitude", "longitude", "type", "country"]
    )
    if country is not None:
        venues = venues.filter(pl.col("country") == country)
    if venues.is_empty():
        raise DataError(f"Foursquare has no venue with the country {country!r}; countries are two letters, as 'IT'.")
    chosen = events.join(venues, on="venue_id", how="inner", maintain_order="left")
    return chosen.select(pl.col("user_id").cast(pl.Int64), "venue_id", "type", "utc", city=pl.col("country"))


_SAMPLE = """user_id\tvenue_id\ttype\tutc
5\tv1\tGym\tTue Apr 03 18:20:27 +0000 2012
5\tv2\tBar\tTue Apr 03 18:20:26 +0000 2012
6\tv2\tBar\tTue Apr 03 18:20:29 +0200 2012
"""


def _country(country: str, code: str) -> Dataset:
    name = f"foursquare-{country.lower()}"
    return Dataset(
        name,
        f"Foursquare check-ins in {country}",
        partial(foursquare, name=name, country=code),
        "research; ask and download on the owner's page",
        "Yang, Zhang and Qu 2016, Participatory Cultural Mapping Based on Collective Behavior Data, doi:10.1145/2814575",
        "https://sites.google.com/site/yangdingqi/home/foursquare-dataset",
        sample={"Rome.tsv": _SAMPLE},
    )


DATASETS = (_country("Italy", "IT"), _country("Brazil", "BR"), _country("Canada", "CA"))
