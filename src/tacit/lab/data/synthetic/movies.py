"""A synthetic rating log with people, titles and organisations: `movies`. No person lives in it."""

import jax.numpy as jnp
import numpy as np

from tacit.core.catalog import Catalog
from tacit.errors import DataError
from tacit.lab.data import Population
from tacit.lab.data.synthetic.draws import choose, in_batches
from tacit.lab.data.synthetic.movies_people import FIELDS, MONTHS, PHASE, People, World, calendar, people, shared
from tacit.lab.data.synthetic.movies_titles import FIRST_YEAR, LAST_YEAR, Titles, titles

BATCH = 512  # people drawn together: bounds the memory, and is part of what a seed means
FOLLOW = 0.5  # how often a title that has a sequel is followed by it at once
STARTS = np.arange("2017-01", "2020-02", dtype="datetime64[M]").astype("datetime64[s]").astype(float)  # of each month


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
    about, world = titles(rng, items), shared(rng, items, silos, taste_gap, activity_gap)
    columns = in_batches(lambda rng, who: _batch(rng, about, world, who.size), users, BATCH, seed)
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


def _catalog(about: Titles) -> Catalog:
    columns = {"genres": about.genres, "title": about.words, "year": about.year}
    attributes = {name: jnp.asarray(column) for name, column in columns.items()}
    return Catalog(about.year.size, attributes, about.fields, FIELDS)


def _batch(rng: np.random.Generator, about: Titles, world: World, count: int) -> tuple[np.ndarray, ...]:
    """Lengths, items, times, ratings, features and organisations of a batch of people."""
    who = people(rng, world, count)
    person, month = calendar(rng, world, who, most=about.year.size // 4)
    items, fit = _watched(rng, about, world, who, person, month)
    seconds = STARTS[month] + (STARTS[month + 1] - STARTS[month]) * rng.random(month.size)
    seconds = seconds[np.lexsort((seconds, person))]  # months are in order already, days within them become so
    rating = 3.5 + 0.45 * (fit - 2) + who.bias[person] + 0.7 * rng.normal(size=fit.size)
    labels = np.clip(np.rint(rating), 1, 5).astype(np.float32)
    lengths = np.bincount(person, minlength=count)
    return lengths, items.astype(np.int32), seconds, labels, who.features, who.silo.astype(np.int32)


def _fit(about: Titles, who: People, phase: int) -> np.ndarray:
    """[U, items] how well the titles fit a person in one phase of the log."""
    when = (phase + 0.5) * PHASE / MONTHS - 0.5
    age = (LAST_YEAR - about.year) / (LAST_YEAR - FIRST_YEAR) - 0.35
    genres = about.genres / np.sqrt(about.genres.sum(axis=1, keepdims=True))
    return (who.taste + when * who.drift) @ genres.T + who.traits @ about.traits.T + 2 * who.old[:, None] * age


def _watched(
    rng: np.random.Generator, about: Titles, world: World, who: People, person: np.ndarray, month: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Item and fit of each rating: phase after phase, and in it everybody's k-th rating together."""
    count, phase_of = who.silo.size, month // PHASE
    items, fits = np.empty(person.size, int), np.empty(person.size, np.float32)
    free = np.ones((count, about.year.size), np.float32)
    last = np.full(count, -1)
    for phase in range(MONTHS // PHASE):
        events = np.flatnonzero(phase_of == phase)
        if events.size == 0:
            continue
        fit = _fit(about, who, phase)
        weight = np.exp(fit + about.log_popularity + world.extra_popularity[who.silo]) * free
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
    after[rest] = choose(rng, weight[now[rest]])
    return after
