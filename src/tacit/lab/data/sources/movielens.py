"""MovieLens, every edition: 100K (u.data), 1M (ratings.dat), and those with ratings.csv (20M, latest, small).

F. Maxwell Harper and Joseph A. Konstan, "The MovieLens Datasets: History and Context", 2015.
"""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl

from tacit.lab.data import Population
from tacit.lab.data.datasets import Dataset, RemoteFile
from tacit.lab.data.features import split_title
from tacit.lab.data.interactions import interactions
from tacit.lab.data.sources._files import find_file, log_path, read_double_colon, read_separated
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
    folder = log_path("ml-100k", path)
    events = read_separated(find_file("ml-100k", folder, "u.data"), "\t", RATINGS)
    plain = ["item_id", "title", "date", "video", "address"]
    films = read_separated(find_file("ml-100k", folder, "u.item"), "|", [*plain, *GENRES_100K], "latin-1")
    flags = [pl.when(pl.col(genre) == "1").then(pl.lit(genre)) for genre in GENRES_100K]
    films = films.with_columns(pl.concat_list(flags).list.drop_nulls().alias("genres"))
    names = ["user_id", "age", "gender", "occupation", "zip"]
    people = read_separated(find_file("ml-100k", folder, "u.user"), "|", names).with_columns(
        pl.col("age").cast(pl.Int32)
    )
    return _films(events, films, people, {**PERSON, "age": "numeric"}, options)


def movielens_1m(path: str | Path | None = None, **options: Any) -> Population:
    """MovieLens 1M: ratings.dat, movies.dat, users.dat; ratings as labels, age as one of seven groups."""
    folder = log_path("ml-1m", path)
    events = read_double_colon(find_file("ml-1m", folder, "ratings.dat"), RATINGS)
    films = read_double_colon(find_file("ml-1m", folder, "movies.dat"), ["item_id", "title", "genres"], "latin-1")
    names = ["user_id", "gender", "age", "occupation", "zip"]
    people = read_double_colon(find_file("ml-1m", folder, "users.dat"), names)
    return _films(events, films, people, PERSON, options)


def movielens(path: str | Path | None = None, name: str = "ml-latest-small", **options: Any) -> Population:
    """An edition with ratings.csv and movies.csv: ml-20m, ml-latest, ml-latest-small; ratings as labels."""
    folder = log_path(name, path)
    films = film_table(find_file(name, folder, "movies.csv"))
    names = {"user": "userId", "item": "movieId", "time": "timestamp", "weight": "rating"}
    films = films.rename({"item_id": "movieId"})
    return interactions(find_file(name, folder, "ratings.csv"), **names, items=films, kinds=KINDS, **options)


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


# ---- the editions ----

_TERMS = "research, no redistribution, no commercial use without permission; see the README inside"


_FLAGS = "|".join("1" if genre in ("Comedy", "Drama") else "0" for genre in GENRES_100K)
_SAMPLE_100K = {
    "u.data": "1\t2\t3\t881250949\n2\t1\t4\t891717742\n",
    "u.item": f"1|Toy Story (1995)|01-Jan-1995||http://x|{_FLAGS}\n2|Heat (1995)|01-Jan-1995||http://y|{_FLAGS}\n",
    "u.user": "1|24|M|technician|85711\n2|53|F|other|94043\n",
}
_SAMPLE_1M = {
    "ratings.dat": "1::10::5::100\n1::20::3::50\n2::10::1::70\n",
    "movies.dat": "10::Heat (1995)::Drama|Crime\n20::Toy Story 2 (1999)::Comedy\n",
    "users.dat": "1::F::25::10::48067\n2::M::56::16::70072\n",
}
_CSV_SAMPLE = {
    "ratings.csv": "userId,movieId,rating,timestamp\n1,31,3.5,1260759144\n1,1029,3.0,1260759100\n2,31,4.0,1260759205\n",
    "movies.csv": 'movieId,title,genres\n31,"Trial, The (1962)",Drama\n1029,Dumbo (1941),(no genres listed)\n',
    "links.csv": "movieId,imdbId,tmdbId\n31,0000007,1\n1029,0033563,2\n",
}


def _edition(
    name: str,
    about: str,
    read: Callable[..., Population] | None = None,
    *,
    size: int | None = None,
    sha256: str | None = None,
    terms: str = _TERMS,
    sample: Mapping[str, str] = _CSV_SAMPLE,
) -> Dataset:
    return Dataset(
        name,
        about,
        read or partial(movielens, name=name),
        terms,
        "Harper and Konstan 2015, The MovieLens Datasets: History and Context, doi:10.1145/2827872",
        "https://grouplens.org/datasets/movielens/",
        (RemoteFile(f"https://files.grouplens.org/datasets/movielens/{name}.zip", size, sha256),),
        sample=sample,
    )


DATASETS = (
    _edition(
        "ml-100k",
        "MovieLens 100K: 943 people, films, ratings, demographics",
        movielens_100k,
        size=4_924_029,
        sha256="50d2a982c66986937beb9ffb3aa76efe955bf3d5c6b761f4e3a7cd717c6a3229",
        sample=_SAMPLE_100K,
    ),
    _edition(
        "ml-1m",
        "MovieLens 1M: 6,040 people, films, ratings, demographics",
        movielens_1m,
        size=5_917_549,
        sha256="a6898adb50b9ca05aa231689da44c217cb524e7ebd39d264c56e2832f2c54e20",
        sample=_SAMPLE_1M,
    ),
    _edition(
        "ml-20m",
        "MovieLens 20M: ratings and films",
        size=198_702_078,
        sha256="96f243c338a8665f6bcc89c53edf6ee39162a846940de6b7c8c48aeada765ff3",
    ),
    _edition("ml-latest", "MovieLens, newest edition; its owner changes it"),
    _edition(
        "ml-latest-small",
        "MovieLens, a small sample; its owner changes it",
        terms=_TERMS.replace("no redistribution", "redistribution on the same terms"),
    ),
)
