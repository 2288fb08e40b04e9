"""MovieTweetings, and its films in common with MovieLens as a federation of two organisations.

Simon Dooms, Toon De Pessemier and Luc Martens, "MovieTweetings: a Movie Rating Dataset Collected From Twitter", 2013.
"""

from pathlib import Path
from typing import Any

import polars as pl

from tacit.errors import DataError
from tacit.lab.data import Population
from tacit.lab.data.datasets import Dataset, RemoteFile
from tacit.lab.data.interactions import interactions
from tacit.lab.data.sources._files import find_file, log_path, read_double_colon
from tacit.lab.data.sources.movielens import KINDS, film_table, with_year
from tacit.lab.data.tables import Table

RATINGS = ["user_id", "item_id", "rating", "timestamp"]


def movietweetings(path: str | Path | None = None, **options: Any) -> Population:
    """MovieTweetings: ratings.dat and movies.dat; items are IMDb numbers as text, ratings of ten are labels."""
    folder = log_path("movietweetings", path)
    films = read_double_colon(find_file("movietweetings", folder, "movies.dat"), ["item_id", "title", "genres"])
    films = with_year(films).select("item_id", "title", "year", "genres").unique("item_id", keep="first")
    return interactions(_tweets(folder), items=films, kinds=KINDS, **options)


def imdb_links(path: Path) -> pl.DataFrame:
    """links.csv of MovieLens as item_id and imdb, seven digits as MovieTweetings writes them."""
    table = Table(path, "links.csv", text=["imdbId"])
    links = pl.DataFrame({"item_id": table.column("movieId"), "imdb": table.column("imdbId")})
    return (
        links.with_columns(pl.col("imdb").str.zfill(7)).drop_nulls().unique("imdb", keep="first", maintain_order=True)
    )


def moviedata(
    path: str | Path | None = None, tweets: str | Path | None = None, *, liked_only: bool = True, **options: Any
) -> Population:
    """The films MovieLens and MovieTweetings share, joined by IMDb number; each of the two is a silo.

    `path` is a MovieLens folder with ratings.csv, movies.csv and links.csv, `tweets` one of MovieTweetings. A rating of
    at least 3 of 5, or 7 of 10, is a like, label 1; the others are left out, or kept as label 0.
    """
    folder = log_path("ml-latest-small", path)
    links = imdb_links(find_file("ml-latest-small", folder, "links.csv"))
    lens = _lens(find_file("ml-latest-small", folder, "ratings.csv")).with_columns(like=pl.col("rating") >= 3)
    tweeted = _tweets(log_path("movietweetings", tweets)).with_columns(like=pl.col("rating") >= 7)
    tweeted = tweeted.rename({"item_id": "imdb"}).join(links, on="imdb", how="inner")
    shared = links.filter(
        pl.col("item_id").is_in(lens["item_id"].unique().implode()),
        pl.col("imdb").is_in(tweeted["imdb"].unique().implode()),
    )
    if shared.is_empty():
        raise DataError("moviedata needs films rated in both MovieLens and MovieTweetings, and found none.")
    both = pl.concat([_of(lens, "MovieLens", shared), _of(tweeted, "MovieTweetings", shared)])
    films = film_table(find_file("ml-latest-small", folder, "movies.csv"))
    both = both.filter("like") if liked_only else both
    both = both.with_columns(weight=pl.col("like").cast(pl.Float32))
    return interactions(both, silo="silo", time="timestamp", items=films, kinds=KINDS, **options)


def _of(ratings: pl.DataFrame, silo: str, shared: pl.DataFrame) -> pl.DataFrame:
    """One organisation's ratings of the shared films; the same number in both is not the same person."""
    chosen = ratings.join(shared.select("item_id"), on="item_id", how="semi", maintain_order="left")
    name = pl.format("{} {}", pl.lit(silo), pl.col("user_id")).alias("user_id")
    return chosen.select(name, "item_id", "timestamp", "like", silo=pl.lit(silo))


def _lens(path: Path) -> pl.DataFrame:
    table = Table(path, "ratings.csv")
    return pl.DataFrame(
        {new: table.column(old) for new, old in zip(RATINGS, ("userId", "movieId", "rating", "timestamp"))}
    )


def _tweets(folder: Path) -> pl.DataFrame:
    events = read_double_colon(find_file("movietweetings", folder, "ratings.dat"), RATINGS)
    return events.with_columns(pl.col("user_id", "timestamp").cast(pl.Int64), pl.col("rating").cast(pl.Float32))


_SAMPLE = {
    "ratings.dat": "1::0000007::9::1381945744\n2::0033563::7::1381945745\n2::0000007::8::1381945746\n",
    "movies.dat": "0000007::The Trial (1962)::Drama|Short\n0033563::Dumbo (1941)::Animation\n",
}
_LATEST = "https://raw.githubusercontent.com/sidooms/MovieTweetings/master/latest/"

DATASETS = (
    Dataset(
        "movietweetings",
        "MovieTweetings: ratings of films from Twitter; grows",
        movietweetings,
        "MIT licence",
        "Dooms, De Pessemier and Martens 2013, MovieTweetings: a Movie Rating Dataset Collected From Twitter",
        "https://github.com/sidooms/MovieTweetings",
        (RemoteFile(f"{_LATEST}ratings.dat"), RemoteFile(f"{_LATEST}movies.dat")),
        sample=_SAMPLE,
    ),
    Dataset(
        "moviedata",
        "Films that MovieLens and MovieTweetings share; two silos",
        moviedata,
        "those of ml-latest-small and movietweetings",
        "Li et al. 2022, Federated low-rank tensor projections for sequential recommendation",
        needs=("ml-latest-small", "movietweetings"),
    ),
)
