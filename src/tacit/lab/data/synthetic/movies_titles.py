"""The titles of the synthetic rating log: genres, words, years, popularity, hidden traits and sequels."""

from dataclasses import dataclass

import numpy as np

from tacit.core.catalog import Field

GENRES = (
    "action", "adventure", "animation", "children", "comedy", "crime", "documentary", "drama",
    "fantasy", "horror", "musical", "mystery", "romance", "science", "thriller", "war",
)  # fmt: skip
TRAITS = 6  # hidden dimensions of taste that no feature tells
IN_SERIES = 0.3  # share of the titles that belong to a series
GENRE_WORDS, PLAIN_WORDS, TITLE = 10, 120, 4  # words of each genre, words of none, most words of a title
FIRST_YEAR, LAST_YEAR = 1950, 2016
TAIL = 0.8  # popularity of rank r is r^-TAIL
PARTS = ("ii", "iii", "iv")  # of a series, after the first


@dataclass(frozen=True)
class Titles:
    """Everything about the items; what the catalog does not show is known to the world alone."""

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
        spoken = [" ".join(self.vocabulary[w] for w in row if w >= 0) for row in self.words]
        return [f"{name} ({year:.0f}, synthetic #{i})" for i, (name, year) in enumerate(zip(spoken, self.year))]


def titles(rng: np.random.Generator, items: int) -> Titles:
    """Draw the titles; the parts of a series share genres, words and traits, and come out years apart."""
    head, part, sequel = _series(rng, items)
    genres = _genres(rng, items)[head]
    vocabulary = _vocabulary()
    year = FIRST_YEAR + (LAST_YEAR - FIRST_YEAR) * rng.beta(3, 1.2, items)
    year = np.minimum(np.floor(year)[head] + 2 * part, LAST_YEAR + 3)
    rank = 1 + rng.permutation(items)
    near = 0.7 * -TAIL * np.log(rank[head]) + 0.3 * -TAIL * np.log(rank)  # a famous first part has famous sequels
    log_popularity = np.where(part > 0, near, -TAIL * np.log(rank))
    return Titles(
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
    """Words that mean nothing: first those of each genre, then plain ones, then the numerals of sequels."""
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
