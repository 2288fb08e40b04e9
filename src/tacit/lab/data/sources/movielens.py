"""MovieLens, every edition: 100K (u.data), 1M (ratings.dat), and those with ratings.csv (20M, latest, small).

F. Maxwell Harper and Joseph A. Konstan, "The MovieLens Datasets: History and Context", 2015.
"""

from pathlib import Path
from typing import Any

import polars as pl

from tacit.lab.data import Population
from tacit.lab.data.features import split_title
from tacit.lab.data.interactions import interactions
from tacit.lab.data.sources.places import double_colon, find, home, separated
from tacit.lab.data.tables import Table

# The order of the nineteen flags of u.item.
GENRES_100K = [
    "unknown",
    "Action",
    "Adventure",
    "Animation",
    "Children's",
    "Comedy",
    "Crime",
    "Documentary",
    "Drama",
    "Fantasy",
    "Film-Noir",
    "Horror",
    "Musical",
    "Mystery",
    "Romance",
    "Sci-Fi",
    "Thriller",
    "War",
    "Western",
]
RATINGS = ["user_id", "item_id", "rating", "timestamp"]
KINDS = {"genres": "multi", "title": "words", "year": "numeric"}
PERSON = {"gender": "categorical", "age": "categorical", "occupation": "categorical"}


def movielens_100k(path: str | Path | None = None, **options: Any) -> Population:
    """MovieLens 100K: u.data, u.item, u.user; ratings as labels, age in years."""
    folder = home("ml-100k", path)
    events = separated(find("ml-100k", folder, "u.data"), "\t", RATINGS)
    plain = ["item_id", "title", "date", "video", "address"]
    films = separated(find("ml-100k", folder, "u.item"), "|", [*plain, *GENRES_100K], "latin-1")
    flags = [pl.when(pl.col(genre) == "1").then(pl.lit(genre)) for genre in GENRES_100K]
    films = films.with_columns(pl.concat_list(flags).list.drop_nulls().alias("genres"))
    names = ["user_id", "age", "gender", "occupation", "zip"]
    people = separated(find("ml-100k", folder, "u.user"), "|", names).with_columns(pl.col("age").cast(pl.Int32))
    return _films(events, films, people, {**PERSON, "age": "numeric"}, options)


def movielens_1m(path: str | Path | None = None, **options: Any) -> Population:
    """MovieLens 1M: ratings.dat, movies.dat, users.dat; ratings as labels, age as one of seven groups."""
    folder = home("ml-1m", path)
    events = double_colon(find("ml-1m", folder, "ratings.dat"), RATINGS)
    films = double_colon(find("ml-1m", folder, "movies.dat"), ["item_id", "title", "genres"], "latin-1")
    names = ["user_id", "gender", "age", "occupation", "zip"]
    people = double_colon(find("ml-1m", folder, "users.dat"), names)
    return _films(events, films, people, PERSON, options)


def movielens(path: str | Path | None = None, name: str = "ml-latest-small", **options: Any) -> Population:
    """An edition with ratings.csv and movies.csv: ml-20m, ml-latest, ml-latest-small; ratings as labels."""
    folder = home(name, path)
    films = film_table(find(name, folder, "movies.csv"))
    names = {"user": "userId", "item": "movieId", "time": "timestamp", "weight": "rating"}
    films = films.rename({"item_id": "movieId"})
    return interactions(find(name, folder, "ratings.csv"), **names, items=films, kinds=KINDS, **options)


def film_table(path: Path) -> pl.DataFrame:
    """movies.csv as item_id, title (without the year), year, genres."""
    table = Table(path, "movies.csv")
    films = pl.DataFrame({name: table.column(name) for name in ("movieId", "title", "genres")})
    return with_year(films.rename({"movieId": "item_id"})).select("item_id", "title", "year", "genres")


def with_year(films: pl.DataFrame) -> pl.DataFrame:
    """The year moved out of the title, and '(no genres listed)' taken as no genre."""
    title, year = split_title(films["title"])
    films = films.with_columns(title.alias("title"), year.alias("year"))
    if films["genres"].dtype == pl.String:
        films = films.with_columns(pl.col("genres").replace({"(no genres listed)": None}))
    return films


def _films(
    events: pl.DataFrame, films: pl.DataFrame, people: pl.DataFrame, person: dict[str, str], options: dict[str, Any]
) -> Population:
    numbers = [pl.col(name).cast(pl.Int64) for name in ("user_id", "item_id", "timestamp")]
    films = with_year(films).select(pl.col("item_id").cast(pl.Int64), "title", "year", "genres")
    people = people.select(pl.col("user_id").cast(pl.Int64), *person)
    return interactions(
        events.select(*numbers, pl.col("rating").cast(pl.Float32)),
        items=films,
        people=people,
        kinds={**KINDS, **person},
        **options,
    )
