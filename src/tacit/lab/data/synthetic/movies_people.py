"""The people of the synthetic rating log: features, tastes, organisations and calendars. One batch at a time."""

from dataclasses import dataclass

import numpy as np

from tacit.core.catalog import Field
from tacit.lab.data.synthetic.movies_titles import GENRES, TRAITS

FIELDS = (
    Field("gender", "categorical", 2, ("a", "b")),
    Field("age", "categorical", 6, ("under 18", "18-24", "25-34", "35-44", "45-54", "55 and over")),
    Field("occupation", "categorical", 10, tuple(f"occupation {n}" for n in range(10))),
)
SHARES = ((0.5, 0.5), (0.08, 0.22, 0.30, 0.18, 0.12, 0.10), tuple(0.1 for _ in range(10)))
FROM_FEATURES, OWN, DRIFT, TRAIT = 0.7, 0.6, 0.8, 0.55  # scales of genre taste, its change, and hidden taste
MONTHS, PHASE = 36, 6  # months of the log; months after which tastes are looked at anew
MEDIAN, SPREAD, LEAST = 40.0, 0.7, 5  # ratings of a person: lognormal


@dataclass(frozen=True)
class World:
    """What everybody has in common, and how the organisations differ."""

    by_feature: tuple[np.ndarray, ...]  # for each field [values, G]: what its values like
    by_silo: np.ndarray  # [silos, G]
    extra_popularity: np.ndarray  # float32[silos, items]
    share: np.ndarray  # [silos] of the people
    stretch: np.ndarray  # [silos] how much longer histories are


@dataclass(frozen=True)
class People:
    """A batch of people."""

    features: np.ndarray  # float32[U, 3]
    silo: np.ndarray  # int64[U]
    taste: np.ndarray  # float32[U, G] in the middle of the log
    drift: np.ndarray  # float32[U, G] how taste moves from the first day to the last
    traits: np.ndarray  # float32[U, TRAITS]
    old: np.ndarray  # float32[U] liking of old titles, by age
    bias: np.ndarray  # float32[U] how high they rate


def shared(rng: np.random.Generator, items: int, silos: int, taste_gap: float, activity_gap: float) -> World:
    """Draw what everybody has in common; organisations stand on a line from small and quiet to large and busy."""
    scale = FROM_FEATURES / np.sqrt(len(FIELDS))
    by_feature = tuple(scale * rng.normal(size=(field.size, len(GENRES))) for field in FIELDS)
    count = max(silos, 1)
    by_silo = taste_gap * rng.normal(size=(count, len(GENRES)))
    extra = (taste_gap * 0.7 * rng.normal(size=(count, items))).astype(np.float32)
    line = np.linspace(1, -1, count) if count > 1 else np.zeros(1)
    share = np.exp(1.5 * activity_gap * line)
    return World(by_feature, by_silo, extra, share / share.sum(), np.exp(0.7 * activity_gap * line))


def people(rng: np.random.Generator, world: World, count: int) -> People:
    """Draw a batch of people: taste comes from features, from the organisation and from nowhere but oneself."""
    features = np.stack([rng.choice(len(share), count, p=share) for share in SHARES], axis=1)
    silo = rng.choice(world.share.size, count, p=world.share)
    taste = sum(table[features[:, f]] for f, table in enumerate(world.by_feature)) + world.by_silo[silo]
    taste = taste + OWN * rng.normal(size=taste.shape)
    old = 0.25 * (features[:, 1] - 2.0) + 0.3 * rng.normal(size=count)
    return People(
        features.astype(np.float32),
        silo,
        taste.astype(np.float32),
        (DRIFT * rng.normal(size=taste.shape)).astype(np.float32),
        (TRAIT * rng.normal(size=(count, TRAITS))).astype(np.float32),
        old.astype(np.float32),
        (0.4 * rng.normal(size=count)).astype(np.float32),
    )


def calendar(rng: np.random.Generator, world: World, who: People, most: int) -> tuple[np.ndarray, np.ndarray]:
    """(person, month) of every rating, in order: histories of uneven length, from joining to leaving."""
    count = who.silo.size
    raw = MEDIAN * world.stretch[who.silo] * rng.lognormal(0, SPREAD, count)
    length = np.clip(np.rint(raw), min(LEAST, most), most).astype(int)
    join = rng.integers(MONTHS - 6, size=count)
    leave = join + 1 + rng.random(count) * (MONTHS - join - 1)
    person = np.repeat(np.arange(count), length)
    at = np.sort(person + rng.random(person.size)) - person  # in order within each person
    return person, np.clip(join[person] + at * (leave - join)[person], 0, MONTHS - 1).astype(int)
