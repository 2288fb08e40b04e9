"""Datasets: public logs and built-in worlds by name, with their owners' terms. Nothing is downloaded by asking."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from narwhals.typing import IntoFrame

from tacit.core.plan import Plan
from tacit.device.method import person_fields
from tacit.errors import DataError, unknown
from tacit.lab.data import Population
from tacit.lab.data.sources.places import data_folder

# A log: a population, a table (polars, pandas or pyarrow), a file, or the name of a dataset.
Log = Population | IntoFrame | str | Path
GROUPLENS = "research, no redistribution, no commercial use without permission; see the README inside"
HARPER = "Harper and Konstan 2015, The MovieLens Datasets: History and Context, doi:10.1145/2827872"
MOVIELENS = "https://files.grouplens.org/datasets/movielens/"
TWEETINGS = "https://raw.githubusercontent.com/sidooms/MovieTweetings/master/latest/"
YANG = "Yang, Zhang and Qu 2016, Participatory Cultural Mapping Based on Collective Behavior Data, doi:10.1145/2814575"


@dataclass(frozen=True)
class Source:
    """One file at its owner's address; what is not known for certain is None."""

    url: str
    size: int | None = None  # bytes
    sha256: str | None = None


@dataclass(frozen=True)
class Dataset:
    """A log or a world: what it is, how it is read, whose it is and on what terms."""

    name: str
    about: str
    read: Callable[..., Population]
    terms: str
    cite: str = ""
    page: str = ""  # the owner's page
    sources: tuple[Source, ...] = ()  # empty: no automatic download
    needs: tuple[str, ...] = ()  # other datasets it is made of; empty for one with its own folder
    built_in: bool = False

    @property
    def present(self) -> bool:
        """Whether its files lie in the data folder; a built-in world always is."""
        folders = [data_folder() / name for name in (self.needs or (self.name,))]
        return self.built_in or all(folder.is_file() or any(folder.glob("*")) for folder in folders)

    @property
    def size(self) -> int | None:
        """Bytes to download, where every part is known."""
        sizes = [source.size for source in self.sources]
        return None if not sizes or None in sizes else sum(size for size in sizes if size)


def _reader(reader: str, /, **fixed: Any) -> Callable[..., Population]:
    """A reader by name, imported when it is used."""

    def read(path: str | Path | None = None, **options: Any) -> Population:
        from tacit.lab.data import sources

        return getattr(sources, reader)(path, **{**fixed, **options})

    return read


def _movielens(name: str, about: str, size: int | None = None, sha256: str | None = None, **more: Any) -> Dataset:
    readers = {"ml-100k": _reader("movielens_100k"), "ml-1m": _reader("movielens_1m")}
    return Dataset(
        name,
        about,
        readers.get(name) or _reader("movielens", name=name),
        more.get("terms", GROUPLENS),
        HARPER,
        "https://grouplens.org/datasets/movielens/",
        (Source(f"{MOVIELENS}{name}.zip", size, sha256),),
    )


def _foursquare(country: str, code: str) -> Dataset:
    name = f"foursquare-{country.lower()}"
    return Dataset(
        name,
        f"Foursquare check-ins in {country}",
        _reader("foursquare", name=name, country=code),
        "research; ask and download on the owner's page",
        YANG,
        "https://sites.google.com/site/yangdingqi/home/foursquare-dataset",
    )


_SHELF = [
    _movielens(
        "ml-100k",
        "MovieLens 100K: 943 people, films, ratings, demographics",
        4_924_029,
        "50d2a982c66986937beb9ffb3aa76efe955bf3d5c6b761f4e3a7cd717c6a3229",
    ),
    _movielens(
        "ml-1m",
        "MovieLens 1M: 6,040 people, films, ratings, demographics",
        5_917_549,
        "a6898adb50b9ca05aa231689da44c217cb524e7ebd39d264c56e2832f2c54e20",
    ),
    _movielens(
        "ml-20m",
        "MovieLens 20M: ratings and films",
        198_702_078,
        "96f243c338a8665f6bcc89c53edf6ee39162a846940de6b7c8c48aeada765ff3",
    ),
    _movielens("ml-latest", "MovieLens, newest edition; its owner changes it"),
    _movielens(
        "ml-latest-small",
        "MovieLens, a small sample; its owner changes it",
        terms=GROUPLENS.replace("no redistribution", "redistribution on the same terms"),
    ),
    Dataset(
        "movietweetings",
        "MovieTweetings: ratings of films from Twitter; grows",
        _reader("movietweetings"),
        "MIT licence",
        "Dooms, De Pessemier and Martens 2013, MovieTweetings: a Movie Rating Dataset Collected From Twitter",
        "https://github.com/sidooms/MovieTweetings",
        (Source(f"{TWEETINGS}ratings.dat"), Source(f"{TWEETINGS}movies.dat")),
    ),
    Dataset(
        "moviedata",
        "Films that MovieLens and MovieTweetings share; two silos",
        _reader("moviedata"),
        "those of ml-latest-small and movietweetings",
        "Li et al. 2022, Federated low-rank tensor projections for sequential recommendation",
        needs=("ml-latest-small", "movietweetings"),
    ),
    Dataset(
        "frappe",
        "Frappe: app launches with weather, place and time of day",
        _reader("frappe"),
        "research; see the owner's page",
        "Baltrunas et al. 2015, Frappe: Understanding the Usage and Perception of Mobile App Recommendations, arXiv:1505.03014",
        "https://www.baltrunas.info/context-aware",
    ),
    Dataset(
        "lsapp",
        "LSApp: app launches of 292 people",
        _reader("lsapp"),
        "research; cite the paper",
        "Aliannejadi et al. 2021, Context-Aware Target Apps Selection and Recommendation, ACM TOIS",
        "https://github.com/aliannejadi/LSApp",
        (Source("https://github.com/aliannejadi/LSApp/raw/main/lsapp.tsv.gz", 7_329_439),),
    ),
    Dataset(
        "app-usage",
        "App Usage: app traffic of 1,000 people of one city, one week",
        _reader("app_usage"),
        "research; see the owner's page",
        "Yu et al. 2018, Smartphone App Usage Prediction Using Points of Interest, doi:10.1145/3161413",
        "http://fi.ee.tsinghua.edu.cn/appusage/",
    ),
    _foursquare("Italy", "IT"),
    _foursquare("Brazil", "BR"),
    _foursquare("Canada", "CA"),
    Dataset(
        "mooccube",
        "MOOCCube: lecture videos watched, schools as silos",
        _reader("mooccube"),
        "see the owner's page; cite the paper",
        "Yu et al. 2020, MOOCCube: A Large-scale Data Repository for NLP Applications in MOOCs",
        "http://moocdata.cn/data/MOOCCube",
        (Source("http://lfs.aminer.cn/misc/moocdata/data/MOOCCube.zip"),),
    ),
]
_REGISTRY: dict[str, Dataset] = {entry.name: entry for entry in _SHELF}


def dataset_names() -> list[str]:
    """The names there are, in order."""
    return sorted(_REGISTRY)


def about_dataset(name: str) -> Dataset:
    """What is known about a dataset: terms, citation, address, whether it is present."""
    if name not in _REGISTRY:
        raise DataError(unknown("The list of datasets", name, _REGISTRY, "dataset"))
    return _REGISTRY[name]


def dataset(name: str, path: str | Path | None = None, **options: Any) -> Population:
    """A public log, or a built-in world, by its name.

    `path` says where the log lies; else it is the folder of its name under TACIT_DATA (or ./data). `options` go to its
    reader, as negatives=2 for frappe, or few="drop", least=20, duplicates="latest" for any log.
    """
    entry = about_dataset(name)
    if entry.built_in:
        if path is not None:
            raise DataError(f"Dataset {name!r} is made by this package and takes no path, got {str(path)!r}.")
        return entry.read(**options)
    return entry.read(path, **options)


def register_world(name: str, function: Callable[..., Population], about: str) -> None:
    """Put a made-up world on the list; `function` makes it, and takes what `dataset` is given beside the name."""
    if name in _REGISTRY:
        raise DataError(f"There already is a dataset {name!r}; choose another name.")
    _REGISTRY[name] = Dataset(name, about, function, "made by this package; nobody lives in it", built_in=True)


def _tastes(users: int = 1000, seed: int = 0, **options: Any) -> Population:
    from tacit.lab.data.synthetic.small import tastes

    return tastes(users, seed=seed, **options)


def _apps(setting: str) -> Callable[..., Population]:
    def make(users: int = 292, seed: int = 0, **options: Any) -> Population:
        from tacit.lab.data.synthetic.apps import apps

        return apps(users, setting=setting, seed=seed, **options)

    return make


def _movies(silos: int) -> Callable[..., Population]:
    def make(users: int = 2000, seed: int = 0, **options: Any) -> Population:
        from tacit.lab.data.synthetic.movies import movies

        return movies(users, seed=seed, **{"silos": silos, **options})

    return make


register_world("tastes", _tastes, "synthetic: people of a few mixed tastes, no item twice; small, to try things on")
register_world("apps", _apps("strong"), "synthetic: app launches in sessions; people share much of what follows what")
register_world("apps-weak", _apps("weak"), "synthetic: app launches in sessions; people share little")
register_world("apps500", _apps("apps500"), "synthetic: app launches, 500 apps, a week")
register_world("movies", _movies(0), "synthetic: ratings by people with features, of items with genres and words")
register_world("movies-2", _movies(2), "synthetic: as movies, in two organisations")
register_world("movies-16", _movies(16), "synthetic: as movies, in sixteen organisations")


def as_population(log: Log, plans: Sequence[Plan] = ()) -> Population:
    """A log however it is given: a population, a table, a file, or the name of a dataset.

    Of a table or a file, the columns that settings of the plans name as fields of a person are read as such.
    """
    if isinstance(log, Population):
        return log
    if isinstance(log, Path) or (isinstance(log, str) and log not in _REGISTRY and Path(log).suffix):
        return _for_plans(log, plans)
    return dataset(log) if isinstance(log, str) else _for_plans(log, plans)


def _for_plans(frame: Any, plans: Sequence[Plan]) -> Population:
    from tacit.lab.data.interactions import interactions

    named = dict.fromkeys(field.name for plan in plans for stage in plan.stages for field in person_fields(stage))
    return interactions(frame, person=[*named], kinds=dict.fromkeys(named, "numeric"))


def open_log(name: str, devices: int, seed: int, plans: Sequence[Plan] = ()) -> Population:
    """A log as a person names it on the command line: a file, a dataset, or a world of so many people."""
    if name not in _REGISTRY and Path(name).suffix in (".csv", ".tsv", ".gz", ".parquet"):
        return _for_plans(name, plans)
    if about_dataset(name).built_in:
        return dataset(name, users=devices, seed=seed)
    return dataset(name)
