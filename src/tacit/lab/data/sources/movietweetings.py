"""MovieTweetings, and its films in common with MovieLens as a federation of two organisations.

Simon Dooms, Toon De Pessemier and Luc Martens, "MovieTweetings: a Movie Rating Dataset Collected From Twitter", 2013.
"""

from pathlib import Path
from typing import Any

import polars as pl

from tacit.errors import DataError
from tacit.lab.data import Population
from tacit.lab.data.interactions import interactions
from tacit.lab.data.sources.movielens import KINDS, film_table, with_year
from tacit.lab.data.sources.places import double_colon, find, home
from tacit.lab.data.tables import Table

RATINGS = ["user_id", "item_id", "rating", "timestamp"]


def movietweetings(path: str | Path | None = None, **options: Any) -> Population:
    """MovieTweetings: ratings.dat and movies.dat; items are IMDb numbers as text, ratings of ten are labels."""
    folder = home("movietweetings", path)
    films = double_colon(find("movietweetings", folder, "movies.dat"), ["item_id", "title", "genres"])
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
    folder = home("ml-latest-small", path)
    links = imdb_links(find("ml-latest-small", folder, "links.csv"))
    lens = _lens(find("ml-latest-small", folder, "ratings.csv")).with_columns(like=pl.col("rating") >= 3)
    tweeted = _tweets(home("movietweetings", tweets)).with_columns(like=pl.col("rating") >= 7)
    tweeted = tweeted.rename({"item_id": "imdb"}).join(links, on="imdb", how="inner")
    shared = links.filter(
        pl.col("item_id").is_in(lens["item_id"].unique().implode()),
        pl.col("imdb").is_in(tweeted["imdb"].unique().implode()),
    )
    if shared.is_empty():
        raise DataError("moviedata needs films rated in both MovieLens and MovieTweetings, and found none.")
    both = pl.concat([_of(lens, "MovieLens", shared), _of(tweeted, "MovieTweetings", shared)])
    films = film_table(find("ml-latest-small", folder, "movies.csv"))
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
    events = double_colon(find("movietweetings", folder, "ratings.dat"), RATINGS)
    return events.with_columns(pl.col("user_id", "timestamp").cast(pl.Int64), pl.col("rating").cast(pl.Float32))
