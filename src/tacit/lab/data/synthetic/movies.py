"""Synthetic film ratings with user features, titles and organisations: `movies`, `movies-2`, `movies-16`."""

from dataclasses import dataclass
from functools import partial

import jax.numpy as jnp
import numpy as np

from tacit.core.catalog import Catalog, Field
from tacit.errors import DataError
from tacit.lab.data import Population
from tacit.lab.data.datasets import Dataset
from tacit.lab.data.synthetic._sampling import in_batches, weighted_choice

BATCH = 512  # users drawn together: bounds the memory; part of what a seed determines
FOLLOW = 0.5  # how often a title that has a sequel is followed by it at once
STARTS = np.arange("2017-01", "2020-02", dtype="datetime64[M]").astype("datetime64[s]").astype(float)  # of each month
FIELDS = (
    Field("gender", "categorical", 2, ("a", "b")),
    Field("age", "categorical", 6, ("under 18", "18-24", "25-34", "35-44", "45-54", "55 and over")),
    Field("occupation", "categorical", 10, tuple(f"occupation {n}" for n in range(10))),
)
SHARES = ((0.5, 0.5), (0.08, 0.22, 0.30, 0.18, 0.12, 0.10), tuple(0.1 for _ in range(10)))
FROM_FEATURES, OWN, DRIFT, TRAIT = 0.7, 0.6, 0.8, 0.55  # scales of genre taste, its change, and hidden taste
MONTHS, PHASE = 36, 6  # months of the log; months for which a taste stays the same
MEDIAN, SPREAD, LEAST = 40.0, 0.7, 5  # ratings of a user: lognormal
GENRES = (
    "action", "adventure", "animation", "children", "comedy", "crime", "documentary", "drama",
    "fantasy", "horror", "musical", "mystery", "romance", "science", "thriller", "war",
)  # fmt: skip
TRAITS = 6  # hidden dimensions of taste, in no feature
IN_SERIES = 0.3  # share of the titles that belong to a series
GENRE_WORDS, PLAIN_WORDS, TITLE = 10, 120, 4  # words of each genre, words of none, most words of a title
FIRST_YEAR, LAST_YEAR = 1950, 2016
TAIL = 0.8  # popularity of rank r is r^-TAIL
PARTS = ("ii", "iii", "iv")  # of a series, after the first


@dataclass(frozen=True)
class _Common:
    """What all users have in common, and how the organisations differ."""

    by_feature: tuple[np.ndarray, ...]  # for each field [values, G]: the genre taste of each value
    by_silo: np.ndarray  # [silos, G]
    extra_popularity: np.ndarray  # float32[silos, items]
    share: np.ndarray  # [silos] of the users
    stretch: np.ndarray  # [silos] how much longer histories are


@dataclass(frozen=True)
class _Users:
    """A batch of users."""

    features: np.ndarray  # float32[U, 3]
    silo: np.ndarray  # int64[U]
    taste: np.ndarray  # float32[U, G], in the middle of the log
    drift: np.ndarray  # float32[U, G] how taste moves from the first day to the last
    traits: np.ndarray  # float32[U, TRAITS]
    old: np.ndarray  # float32[U] liking of old titles, by age
    bias: np.ndarray  # float32[U], of the ratings


@dataclass(frozen=True)
class _Titles:
    """Everything about the items; the catalog has only a part of it."""

    genres: np.ndarray  # float32[n, G], 1 where the genre holds
    words: np.ndarray  # int32[n, TITLE], places in the vocabulary, -1 is padding
    year: np.ndarray  # float32[n]
    log_popularity: np.ndarray  # float32[n]
    traits: np.ndarray  # float32[n, TRAITS]
    sequel: np.ndarray  # int64[n], the next part of the series, or -1
    vocabulary: tuple[str, ...]

    @property
    def fields(self) -> tuple[Field, ...]:
        """What the catalog says about the columns."""
        title = Field("title", "words", TITLE, self.vocabulary)
        return Field("genres", "multi", len(GENRES), GENRES), title, Field("year", "numeric")

    @property
    def names(self) -> list[str]:
        """Readable names, marked as synthetic."""
        titles = [" ".join(self.vocabulary[w] for w in row if w >= 0) for row in self.words]
        return [f"{name} ({year:.0f}, synthetic #{i})" for i, (name, year) in enumerate(zip(titles, self.year))]


def movies(
    users: int = 2000,
    items: int = 1500,
    *,
    silos: int = 0,
    taste_gap: float = 0.5,
    activity_gap: float = 0.5,
    seed: int = 0,
) -> Population:
    """A synthetic rating log of three years: features, genres, words, years, ratings 1 to 5, no item twice.

    With `silos` organisations, `taste_gap` says how far their tastes lie apart and `activity_gap` how uneven their
    sizes and the lengths of their histories are; 0 is no difference, 1 a large one.

    >>> world = movies(20, 100, silos=2)
    >>> len(world), [field.name for field in world.catalog.item_fields], len(world.silo_names)
    (20, ['genres', 'title', 'year'], 2)
    """
    _check(users, items, silos, taste_gap, activity_gap)
    rng = np.random.default_rng([seed, 0])
    about, common = _draw_titles(rng, items), _draw_common(rng, items, silos, taste_gap, activity_gap)
    columns = in_batches(lambda rng, ids: _batch(rng, about, common, ids.size), users, BATCH, seed)
    lengths, picked, times, labels, person, silo = columns
    return Population(
        _catalog(about),
        np.concatenate([[0], np.cumsum(lengths)]),
        picked,
        times,
        labels,
        person=person,
        silo=silo if silos else None,
        item_names=about.names,
        silo_names=[f"synthetic organisation {number}" for number in range(silos)] if silos else None,
    )


def _check(users: int, items: int, silos: int, taste_gap: float, activity_gap: float) -> None:
    if users < 1 or items < 50:
        raise DataError(f"movies needs at least 1 user and 50 items, got {users} and {items}.")
    if silos < 0 or silos == 1:
        raise DataError(f"movies: silos must be 0 for none, or at least 2, got {silos}.")
    for name, gap in (("taste_gap", taste_gap), ("activity_gap", activity_gap)):
        if not 0 <= gap <= 2:
            raise DataError(f"movies: {name} must lie between 0 and 2, got {gap}.")


def _catalog(about: _Titles) -> Catalog:
    columns = {"genres": about.genres, "title": about.words, "year": about.year}
    attributes = {name: jnp.asarray(column) for name, column in columns.items()}
    return Catalog(about.year.size, attributes, about.fields, FIELDS)


def _batch(rng: np.random.Generator, about: _Titles, common: _Common, count: int) -> tuple[np.ndarray, ...]:
    """Lengths, items, times, ratings, features and organisations of a batch of users."""
    users = _draw_users(rng, common, count)
    person, month = _draw_calendar(rng, common, users, most=about.year.size // 4)
    items, fit = _watched(rng, about, common, users, person, month)
    seconds = STARTS[month] + (STARTS[month + 1] - STARTS[month]) * rng.random(month.size)
    seconds = seconds[np.lexsort((seconds, person))]  # months are in order already, days within them become so
    rating = 3.5 + 0.45 * (fit - 2) + users.bias[person] + 0.7 * rng.normal(size=fit.size)
    labels = np.clip(np.rint(rating), 1, 5).astype(np.float32)
    lengths = np.bincount(person, minlength=count)
    return lengths, items.astype(np.int32), seconds, labels, users.features, users.silo.astype(np.int32)


def _fit(about: _Titles, users: _Users, phase: int) -> np.ndarray:
    """[U, items] how well the titles fit each user in one phase of the log."""
    when = (phase + 0.5) * PHASE / MONTHS - 0.5
    age = (LAST_YEAR - about.year) / (LAST_YEAR - FIRST_YEAR) - 0.35
    genres = about.genres / np.sqrt(about.genres.sum(axis=1, keepdims=True))
    return (users.taste + when * users.drift) @ genres.T + users.traits @ about.traits.T + 2 * users.old[:, None] * age


def _watched(
    rng: np.random.Generator, about: _Titles, common: _Common, users: _Users, person: np.ndarray, month: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Item and fit of each rating: phase after phase, and in it the k-th ratings of all users together."""
    count, phase_of = users.silo.size, month // PHASE
    items, fits = np.empty(person.size, int), np.empty(person.size, np.float32)
    free = np.ones((count, about.year.size), np.float32)
    last = np.full(count, -1)
    for phase in range(MONTHS // PHASE):
        events = np.flatnonzero(phase_of == phase)
        if events.size == 0:
            continue
        fit = _fit(about, users, phase)
        weight = np.exp(fit + about.log_popularity + common.extra_popularity[users.silo]) * free
        place = events - events[np.searchsorted(person[events], person[events])]  # k of each rating in its phase
        for k in range(int(place.max()) + 1):
            at = events[place == k]
            now = person[at]
            items[at] = last[now] = picked = _next(rng, about.sequel, weight, now, last[now])
            fits[at] = fit[now, picked]
            weight[now, picked] = free[now, picked] = 0
    return items, fits


def _next(
    rng: np.random.Generator, sequel: np.ndarray, weight: np.ndarray, now: np.ndarray, last: np.ndarray
) -> np.ndarray:
    """The sequel of the last title, or a title by weight; never one seen before."""
    after = np.where(last >= 0, sequel[last], -1)
    follow = (after >= 0) & (rng.random(now.size) < FOLLOW) & (weight[now, after] > 0)
    rest = np.flatnonzero(~follow)
    after[rest] = weighted_choice(rng, weight[now[rest]])
    return after


# ---- users: features, tastes, organisations and calendars ----


def _draw_common(rng: np.random.Generator, items: int, silos: int, taste_gap: float, activity_gap: float) -> _Common:
    """Draw what all users have in common; organisations range from small and inactive to large and active."""
    scale = FROM_FEATURES / np.sqrt(len(FIELDS))
    by_feature = tuple(scale * rng.normal(size=(field.size, len(GENRES))) for field in FIELDS)
    count = max(silos, 1)
    by_silo = taste_gap * rng.normal(size=(count, len(GENRES)))
    extra = (taste_gap * 0.7 * rng.normal(size=(count, items))).astype(np.float32)
    line = np.linspace(1, -1, count) if count > 1 else np.zeros(1)
    share = np.exp(1.5 * activity_gap * line)
    return _Common(by_feature, by_silo, extra, share / share.sum(), np.exp(0.7 * activity_gap * line))


def _draw_users(rng: np.random.Generator, common: _Common, count: int) -> _Users:
    """Draw a batch of users: taste is the sum of a part by features, one by organisation and an individual one."""
    features = np.stack([rng.choice(len(share), count, p=share) for share in SHARES], axis=1)
    silo = rng.choice(common.share.size, count, p=common.share)
    taste = sum(table[features[:, f]] for f, table in enumerate(common.by_feature)) + common.by_silo[silo]
    taste = taste + OWN * rng.normal(size=taste.shape)
    old = 0.25 * (features[:, 1] - 2.0) + 0.3 * rng.normal(size=count)
    return _Users(
        features.astype(np.float32),
        silo,
        taste.astype(np.float32),
        (DRIFT * rng.normal(size=taste.shape)).astype(np.float32),
        (TRAIT * rng.normal(size=(count, TRAITS))).astype(np.float32),
        old.astype(np.float32),
        (0.4 * rng.normal(size=count)).astype(np.float32),
    )


def _draw_calendar(
    rng: np.random.Generator, common: _Common, users: _Users, most: int
) -> tuple[np.ndarray, np.ndarray]:
    """(person, month) of every rating, in order: histories of uneven length, from joining to leaving."""
    count = users.silo.size
    raw = MEDIAN * common.stretch[users.silo] * rng.lognormal(0, SPREAD, count)
    length = np.clip(np.rint(raw), min(LEAST, most), most).astype(int)
    join = rng.integers(MONTHS - 6, size=count)
    leave = join + 1 + rng.random(count) * (MONTHS - join - 1)
    person = np.repeat(np.arange(count), length)
    at = np.sort(person + rng.random(person.size)) - person  # in order within each person
    return person, np.clip(join[person] + at * (leave - join)[person], 0, MONTHS - 1).astype(int)


# ---- titles: genres, words, years, popularity, hidden traits and sequels ----


def _draw_titles(rng: np.random.Generator, items: int) -> _Titles:
    """Draw the titles; the parts of a series share genres, words and traits, and come out years apart."""
    head, part, sequel = _series(rng, items)
    genres = _genres(rng, items)[head]
    vocabulary = _vocabulary()
    year = FIRST_YEAR + (LAST_YEAR - FIRST_YEAR) * rng.beta(3, 1.2, items)
    year = np.minimum(np.floor(year)[head] + 2 * part, LAST_YEAR + 3)
    rank = 1 + rng.permutation(items)
    near = 0.7 * -TAIL * np.log(rank[head]) + 0.3 * -TAIL * np.log(rank)  # sequels of a popular first part are popular
    log_popularity = np.where(part > 0, near, -TAIL * np.log(rank))
    return _Titles(
        genres.astype(np.float32),
        _words(rng, genres, head, part, len(vocabulary)),
        year.astype(np.float32),
        log_popularity.astype(np.float32),
        rng.normal(size=(items, TRAITS)).astype(np.float32)[head],
        sequel,
        vocabulary,
    )


def _series(rng: np.random.Generator, items: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """First part, place (0 is the first, or alone) and next part of each item; series have two to four parts."""
    shuffled = rng.permutation(items)[: int(IN_SERIES * items)]
    head, part, sequel = np.arange(items), np.zeros(items, int), np.full(items, -1)
    cuts = np.cumsum(rng.integers(2, 5, size=items))
    for series in np.split(shuffled, cuts[cuts < shuffled.size]):
        head[series], part[series] = series[:1], np.arange(series.size)
        sequel[series[:-1]] = series[1:]
    return head, part, sequel


def _genres(rng: np.random.Generator, items: int) -> np.ndarray:
    """One to three genres of each item, the common ones more often."""
    share = 1 / (1 + rng.permutation(len(GENRES))) ** 0.5
    order = np.argsort(-(np.log(share) + rng.gumbel(size=(items, len(GENRES)))), axis=1)
    many = rng.choice([1, 2, 3], p=[0.4, 0.4, 0.2], size=items)
    table = np.zeros((items, len(GENRES)))
    rows, columns = np.nonzero(np.arange(3) < many[:, None])
    table[rows, order[rows, columns]] = 1
    return table


def _vocabulary() -> tuple[str, ...]:
    """Made-up words: first those of each genre, then plain ones, then the numerals of sequels."""
    one = ("ba", "do", "fe", "gi", "ku", "la", "mo", "ne", "pi", "ra", "so", "tu", "va", "zi", "che", "sha", "thu")
    two = ("lar", "mun", "nes", "rit", "von", "dak", "pel", "sim", "tor", "gan", "hul", "ber", "cas", "fin", "jor")
    count = len(GENRES) * GENRE_WORDS + PLAIN_WORDS
    made = [
        one[i % len(one)] + two[i // len(one) % len(two)] + one[(5 * i + i // 255) % len(one)] for i in range(count)
    ]
    return (*made, *PARTS)


def _words(rng: np.random.Generator, genres: np.ndarray, head: np.ndarray, part: np.ndarray, many: int) -> np.ndarray:
    """A word of one of the genres, one or two plain words; the later parts of a series add a numeral."""
    items = part.size
    genre = np.argmax(genres * rng.random(genres.shape), axis=1)
    words = np.full((items, TITLE), -1)
    words[:, 0] = genre * GENRE_WORDS + rng.integers(GENRE_WORDS, size=items)
    plain = len(GENRES) * GENRE_WORDS + rng.integers(PLAIN_WORDS, size=(items, 2))
    words[:, 1] = plain[:, 0]
    words[:, 2] = np.where(rng.random(items) < 0.5, plain[:, 1], -1)
    words = words[head]
    numeral = many - len(PARTS) + part - 1
    free = np.where(words[:, 2] < 0, 2, 3)
    words[np.flatnonzero(part), free[part > 0]] = numeral[part > 0]
    return words.astype(np.int32)


DATASETS = (
    Dataset.synthetic("movies", "ratings by people with features, of items with genres and words", movies),
    Dataset.synthetic("movies-2", "as movies, in two organisations", partial(movies, silos=2)),
    Dataset.synthetic("movies-16", "as movies, in sixteen organisations", partial(movies, silos=16)),
)
