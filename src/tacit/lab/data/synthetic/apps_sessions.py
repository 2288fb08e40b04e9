"""When the people of the synthetic launch log use their telephones: active days, sessions and seconds."""

from dataclasses import dataclass

import numpy as np

from tacit.lab.data.synthetic.apps_settings import AppsSettings

DAY = 86_400.0
APART = 960.0  # seconds between two sessions at least: more than the 15 minutes that end a session
LEAST_GAP = 3.5  # seconds between two launches at least: more than the 3 seconds within which a repeat is a bounce
TYPICAL_GAP, GAP_SPREAD, MOST_GAP = 8.0, 1.0, 300.0  # what is added to it: lognormal, cut off


@dataclass(frozen=True)
class Sessions:
    """Sessions in order of person and time, and the seconds of their launches."""

    person: np.ndarray  # int64[S]
    day: np.ndarray  # int64[S]
    hour: np.ndarray  # float64[S] at which it starts
    length: np.ndarray  # int64[S]
    times: np.ndarray  # float64[events], seconds since the log's first midnight


def sessions(rng: np.random.Generator, s: AppsSettings, count: int) -> Sessions:
    """Draw the sessions of a batch of people."""
    person, day = _active_days(rng, s, count)
    rate = s.sessions * rng.lognormal(0, s.sessions_between, count)
    many = np.clip(rng.poisson(rate[person]), 1, s.sessions_most)
    within = np.sqrt(s.length_spread**2 - s.length_between**2)
    taste = s.length_between * rng.normal(size=count)
    of_day = np.repeat(np.arange(many.size), many)
    raw = s.length_median * np.exp(taste[person[of_day]] + within * rng.normal(size=of_day.size))
    length = np.clip(np.rint(raw), 1, s.length_most).astype(np.int64)
    start, times = _clock(rng, length, of_day, many)
    midnight = day[of_day] * DAY
    return Sessions(person[of_day], day[of_day], start / 3600, length, times + np.repeat(midnight, length))


def _active_days(rng: np.random.Generator, s: AppsSettings, count: int) -> tuple[np.ndarray, np.ndarray]:
    """A random subset of the whole span for each person, so that every part of a calendar split meets everybody."""
    many = np.clip(np.rint(rng.lognormal(np.log(s.days_median), s.days_spread, count)), 1, s.span)
    place = rng.random((count, s.span)).argsort(axis=1).argsort(axis=1)
    person, day = np.nonzero(place < many[:, None])
    return person, day


def _clock(
    rng: np.random.Generator, length: np.ndarray, of_day: np.ndarray, many: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Start of each session and time of each launch, in seconds of the day: a night, then sessions well apart."""
    first = np.cumsum(length) - length
    extra = np.minimum(rng.lognormal(np.log(TYPICAL_GAP), GAP_SPREAD, int(length.sum())), MOST_GAP)
    extra[first] = 0
    total = np.add.reduceat(extra, first)
    # A day too full is hurried: what is added to the least gaps shrinks until half the remaining day is free.
    free = DAY - APART * (many + 1) - LEAST_GAP * np.bincount(of_day, length - 1)
    squeeze = np.minimum(1, 0.5 * free / np.maximum(np.bincount(of_day, total), 1e-9))
    gaps = extra * np.repeat(squeeze[of_day], length) + LEAST_GAP
    gaps[first] = 0
    lasts = np.add.reduceat(gaps, first)
    start = _starts(rng, lasts, of_day, many)
    since = np.cumsum(gaps)
    return start, since - np.repeat(since[first], length) + np.repeat(start, length)


def _starts(rng: np.random.Generator, lasts: np.ndarray, of_day: np.ndarray, many: np.ndarray) -> np.ndarray:
    """Share out the free time of each day as random pauses; the first is the night, a third of all on average."""
    first = np.cumsum(many) - many
    pause = rng.standard_exponential(lasts.size)
    pause[first] *= 1 + (many + 1) / 2
    end = rng.standard_exponential(many.size)
    free = DAY - APART * (many + 1) - np.bincount(of_day, lasts)
    pause *= (free / (np.bincount(of_day, pause) + end))[of_day]
    step = pause + APART
    step[1:] += lasts[:-1]  # pause before that session, after the one before has ended
    step[first] = pause[first] + APART
    total = np.cumsum(step)
    return total - (total[first] - step[first])[of_day]
