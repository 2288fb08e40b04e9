"""MOOCCube: who watched which lecture video, with schools as organisations.

Jifan Yu et al., "MOOCCube: A Large-scale Data Repository for NLP Applications in MOOCs", 2020.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl

from tacit.errors import DataError
from tacit.lab.data import Population
from tacit.lab.data.datasets import Dataset, RemoteFile
from tacit.lab.data.interactions import interactions
from tacit.lab.data.sources._files import find_file, log_path, read_separated

LONG = 300.0  # seconds; a shorter look is no interest
WATCHED = pl.Struct({"video_id": pl.String, "local_watching_time": pl.Float64, "local_start_time": pl.String})


def mooccube(path: str | Path | None = None, *, schools: int = 16, longer: float = LONG, **options: Any) -> Population:
    """Videos watched for more than `longer` seconds; a user belongs to the school whose videos they watched most.

    Reads user_video_act.json and the relations course-video, school-course and video-concept. The `schools` with the
    most users stay, as silos; ties go to the first in order of names. The concepts of a video are its words.
    """
    folder = log_path("mooccube", path)
    watched = _watched(find_file("mooccube", folder, "user_video_act.json"), longer)
    whole = watched.drop_nulls()
    school = _school_of_video(folder)
    home_of = _home_school(whole, school, schools)
    events = whole.join(home_of, on="user_id", how="inner", maintain_order="left")
    world = interactions(
        events,
        item="video_id",
        time="start",
        weight=None,
        silo="school",
        items=_concepts(folder, events),
        kinds={"concepts": "words"},
        **options,
    )
    notes = [f"{len(watched) - len(whole):,} views without a time left out."] if len(watched) > len(whole) else []
    away = whole["user_id"].n_unique() - home_of["user_id"].n_unique()
    notes += [f"{away:,} users outside the {schools} largest schools left out."] if away else []
    return replace(world, notes=(*notes, *world.notes))


def _pairs(folder: Path, one: str, other: str) -> pl.DataFrame:
    """A relation: two identifiers in each line, with a tab between."""
    file = find_file("mooccube", folder, f"{one}-{other}.json", f"relations/{one}-{other}.json")
    return read_separated(file, "\t", [one, other]).unique(maintain_order=True)


def _watched(path: Path, longer: float) -> pl.DataFrame:
    """One row for each user and video watched long enough; a line of the file is one user."""
    rows = pl.scan_ndjson(path, schema={"id": pl.String, "activity": pl.List(WATCHED)}).explode("activity")
    chosen = (
        rows.unnest("activity")
        .filter(pl.col("local_watching_time") > longer)
        .select(user_id="id", video_id="video_id", start="local_start_time")
        .collect()
    )
    if chosen.is_empty():
        raise DataError(f"{str(path)!r} must hold views longer than {longer:g} seconds, and holds none.")
    return chosen


def _school_of_video(folder: Path) -> pl.DataFrame:
    lectures = _pairs(folder, "course", "video")
    return lectures.join(_pairs(folder, "school", "course"), on="course").select("video", "school").unique()


def _home_school(watched: pl.DataFrame, school: pl.DataFrame, most: int) -> pl.DataFrame:
    views = watched.join(school, left_on="video_id", right_on="video").group_by("user_id", "school").len()
    if views.is_empty():
        raise DataError("mooccube: no video watched belongs to a school by course-video.json and school-course.json.")
    order = views.sort(["user_id", "len", "school"], descending=[False, True, False])
    chosen = order.unique("user_id", keep="first", maintain_order=True).select("user_id", "school")
    largest = chosen.group_by("school").len().sort(["len", "school"], descending=[True, False]).head(most)
    return chosen.join(largest, on="school", how="semi")


def _concepts(folder: Path, events: pl.DataFrame) -> pl.DataFrame:
    known = _pairs(folder, "video", "concept").group_by("video").agg(pl.col("concept").sort().alias("concepts"))
    return (
        events.select("video_id")
        .unique()
        .sort("video_id")
        .join(known, left_on="video_id", right_on="video", how="left")
    )


_VIEW = (
    '{{"course_id": "C_1", "video_id": "{}", "local_watching_time": 900, "local_start_time": "2019-05-0{} 10:00:00"}}'
)
_SAMPLE = {
    "additional_information/user_video_act.json": (
        f'{{"id": "U_1", "activity": [{_VIEW.format("V_1", 1)}, {_VIEW.format("V_2", 2)}]}}\n'
        f'{{"id": "U_2", "activity": [{_VIEW.format("V_2", 3)}]}}\n'
    ),
    "relations/course-video.json": "C_1\tV_1\nC_2\tV_2\n",
    "relations/school-course.json": "S_A\tC_1\nS_B\tC_2\n",
    "relations/video-concept.json": "V_1\tK_x\nV_1\tK_y\nV_2\tK_x\n",
}

DATASETS = (
    Dataset(
        "mooccube",
        "MOOCCube: lecture videos watched, schools as silos",
        mooccube,
        "see the owner's page; cite the paper",
        "Yu et al. 2020, MOOCCube: A Large-scale Data Repository for NLP Applications in MOOCs",
        "http://moocdata.cn/data/MOOCCube",
        (RemoteFile("http://lfs.aminer.cn/misc/moocdata/data/MOOCCube.zip"),),
        sample=_SAMPLE,
    ),
)
