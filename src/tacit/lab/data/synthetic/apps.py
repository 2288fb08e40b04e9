"""Synthetic app launches in sessions, like a field study of telephones: `apps`, `apps-weak`, `apps500`."""

from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from tacit.core.catalog import Catalog
from tacit.errors import DataError
from tacit.lab.data import Population
from tacit.lab.data.datasets import Dataset
from tacit.lab.data.synthetic._apps_settings import SETTINGS as SETTINGS
from tacit.lab.data.synthetic._apps_settings import AppsSettings as AppsSettings
from tacit.lab.data.synthetic._apps_settings import app_popularity
from tacit.lab.data.synthetic._apps_settings import apps_settings as apps_settings
from tacit.lab.data.synthetic._sampling import in_batches, weighted_choice

BATCH = 512  # users drawn together: bounds the memory; part of what a seed determines
DEPTH = 8  # how many recent apps of a session can be returned to
BEGIN = 1_577_923_200.0  # Thursday 2 January 2020, 00:00 UTC: the log's first midnight


@dataclass(frozen=True)
class _Common:
    """What all users have in common, by rank of popularity."""

    popularity: np.ndarray  # [N]
    links: np.ndarray  # [N, N] log weight of going from row to column
    rhythm: np.ndarray  # [PARTS, N] log weight by part of the day
    stay: np.ndarray  # [N] app effect on staying
    number: np.ndarray  # [N] item number of each rank: in random order, independent of popularity


@dataclass(frozen=True)
class _Users:
    """A batch of users: slot k of user u is the app item[u, k]; slots past n are empty."""

    item: np.ndarray  # int64[U, K] rank of popularity
    first_day: np.ndarray  # int64[U, K] the day from which the app is there; beyond the span for an empty slot
    liking: np.ndarray  # float32[span, U, K] log preference, day by day
    stay: np.ndarray  # float32[U, K] probability of staying
    follow: np.ndarray  # float32[U, K, K] weight of going from one slot to another; 0 on the diagonal


@dataclass(frozen=True)
class _Sessions:
    """Sessions in order of user and time, and the times of their launches."""

    person: np.ndarray  # int64[S]
    day: np.ndarray  # int64[S]
    hour: np.ndarray  # float64[S] at which it starts
    length: np.ndarray  # int64[S]
    times: np.ndarray  # float64[events], seconds since the log's first midnight


def apps(
    users: int = 292, *, setting: str = "strong", seed: int = 0, days: int | None = None, apps: int | None = None
) -> Population:
    """A synthetic log of app launches in sessions; the settings are strong, weak and apps500.

    `days` is the length of the log; the active days of each user scale with it. `apps` is the size of the
    catalog. Item numbers are in random order and are independent of popularity.

    >>> world = apps(10, days=20)
    >>> len(world), world.catalog.n_items, bool((np.diff(world.times[: world.offsets[1]]) > 3).all())
    (10, 87, True)
    """
    return generate_apps(_adjusted(apps_settings(setting), users, days, apps), users, seed)


def generate_apps(s: AppsSettings, users: int, seed: int) -> Population:
    """The launch log of these settings."""
    common = _draw_common(np.random.default_rng([seed, 0]), s)
    lengths, items, times = in_batches(lambda rng, ids: _batch(rng, s, common, ids.size), users, BATCH, seed)
    return Population(
        Catalog(s.apps),
        np.concatenate([[0], np.cumsum(lengths)]),
        items,
        times,
        item_names=[f"synthetic app {number}" for number in range(s.apps)],
    )


def _adjusted(s: AppsSettings, users: int, days: int | None, apps: int | None) -> AppsSettings:
    days, apps = s.span if days is None else days, s.apps if apps is None else apps
    if users < 1 or days < 1 or apps < s.n_least:
        raise DataError(
            f"apps needs at least 1 user, 1 day and {s.n_least} apps, got {users} users, {days} days and {apps} apps."
        )
    return replace(s, apps=apps, span=days, days_median=s.days_median * days / s.span)


def _batch(
    rng: np.random.Generator, s: AppsSettings, common: _Common, count: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Lengths, items and times of a batch of users."""
    users, when = _draw_users(rng, s, common, count), _draw_sessions(rng, s, count)
    slots = _launches(rng, s, users, when, _opening(common, users, when))
    person = np.repeat(when.person, when.length)
    items = common.number[users.item[person, slots]].astype(np.int32)
    return np.bincount(person, minlength=count), items, when.times + BEGIN


def _opening(common: _Common, users: _Users, when: _Sessions) -> np.ndarray:
    """[S, K] rhythm · exp(preference) of each session; 0 where the app is not there yet, or never."""
    part = (when.hour * PARTS / 24).astype(int)
    item = users.item[when.person]
    log = users.liking[when.day, when.person] + common.rhythm[part[:, None], item]
    there = users.first_day[when.person] <= when.day[:, None]
    return np.where(there, np.exp(log), 0).astype(np.float32)


def _launches(
    rng: np.random.Generator, s: AppsSettings, users: _Users, when: _Sessions, opening: np.ndarray
) -> np.ndarray:
    """The slots launched, session after session: all sessions take their t-th step together."""
    order = np.argsort(-when.length, kind="stable")  # so that the sessions still going on are a prefix
    first, length = (np.cumsum(when.length) - when.length)[order], when.length[order]
    person, opening = when.person[order], opening[order]
    slots = np.empty(int(length.sum()), np.int8 if users.item.shape[1] < 128 else np.int16)
    recent = np.full((length.size, DEPTH), -1, slots.dtype)  # most recent first
    recent[:, 0] = slots[first] = weighted_choice(rng, opening)
    going = np.searchsorted(-length, -np.arange(s.length_most + 1), side="left")
    for t in range(1, int(length[0])):
        alive = int(going[t])
        _step(rng, s, users, person[:alive], opening[:alive], recent[:alive])
        slots[first[:alive] + t] = recent[:alive, 0]
    return slots


def _step(
    rng: np.random.Generator,
    s: AppsSettings,
    users: _Users,
    person: np.ndarray,
    opening: np.ndarray,
    recent: np.ndarray,
) -> None:
    """One launch in every session: stay, or return to a recent app, or go on to another. Writes `recent`."""
    now = recent[:, 0]
    moving = np.flatnonzero(rng.random(now.size, np.float32) >= users.stay[person, now])
    if moving.size == 0:
        return
    trail = recent[moving]
    others = (trail >= 0).sum(axis=1) - 1
    back = (rng.random(moving.size, np.float32) < s.back) & (others > 0)
    chosen = trail[np.arange(moving.size), _place(rng, s.back_first, others)]
    on = np.flatnonzero(~back)
    moving_users = moving[on]
    chosen[on] = weighted_choice(rng, users.follow[person[moving_users], now[moving_users]] * opening[moving_users])
    recent[moving] = _to_front(trail, chosen)


def _place(rng: np.random.Generator, first: float, most: np.ndarray) -> np.ndarray:
    """A place between 1 and `most`, geometric; 1 where there is none to choose from."""
    rest = 1 - first
    u = rng.random(most.size) * (1 - rest ** np.maximum(most, 1))
    return 1 + np.minimum(np.log1p(-u) / np.log(rest), np.maximum(most, 1) - 0.5).astype(int)


def _to_front(trail: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """Move the chosen slot to the front of each trail; what falls off the end is forgotten."""
    same = trail == chosen[:, None]
    at = np.where(same.any(axis=1), same.argmax(axis=1), DEPTH - 1)
    moved = np.concatenate([chosen[:, None], trail[:, :-1]], axis=1)
    return np.where(np.arange(DEPTH) <= at[:, None], moved, trail)


# ---- users: what they install, prefer, stay with and open next ----

PARTS = 4  # night, morning, afternoon, evening
RANK = 6  # of the shared transition structure
REMAINS = 0.97  # of a preference's deviation, from one day to the next


def _draw_common(rng: np.random.Generator, s: AppsSettings) -> _Common:
    """Draw what all users have in common."""
    N = s.apps
    links = s.shared_rank * (rng.normal(size=(N, RANK)) @ rng.normal(size=(RANK, N))) / np.sqrt(RANK)
    to = rng.random((N, N)).argsort(axis=1)[:, : s.links]
    links[np.arange(N)[:, None], to] += s.shared_links
    rhythm = s.rhythm * rng.normal(size=(PARTS, N))
    popular, stay = app_popularity(N), s.stay_app * rng.normal(size=N)
    stay -= popular @ stay  # seeds differ in which apps users stay with, not in how long they stay on average
    return _Common(popular, links, rhythm, stay, rng.permutation(N))


def _draw_users(rng: np.random.Generator, s: AppsSettings, common: _Common, count: int) -> _Users:
    """Draw a batch of users."""
    n = np.clip(np.rint(rng.lognormal(np.log(s.n_median), s.n_spread, count)), s.n_least, s.n_most).astype(int)
    n = np.minimum(np.where(rng.random(count) < s.tiny, 2, n), s.apps)
    width = min(s.n_most, s.apps)
    score = s.installs * np.log(common.popularity) + rng.gumbel(size=(count, s.apps))
    item = np.argsort(-score, axis=1)[:, :width]
    real = np.arange(width) < n[:, None]
    liking = _liking(rng, s, common.popularity[item], real)
    logit = s.stay + s.stay_liked * liking + common.stay[item] + s.stay_person * rng.normal(size=(count, 1))
    return _Users(
        item,
        _first_day(rng, s, real),
        _drifting(rng, s, liking),
        (1 / (1 + np.exp(-logit))).astype(np.float32),
        _follow(rng, s, common.links, item),
    )


def _liking(rng: np.random.Generator, s: AppsSettings, popular: np.ndarray, real: np.ndarray) -> np.ndarray:
    """eta · log gamma(focus·n·base/2 + .15), with mean 0 over a user's apps."""
    base = np.where(real, popular**s.favour, 0)
    base *= real.sum(axis=1, keepdims=True) / base.sum(axis=1, keepdims=True)
    log_gamma = np.log(rng.standard_gamma(s.focus * base / 2 + 0.15) + 1e-3)
    centred = log_gamma - np.mean(log_gamma, axis=1, where=real, keepdims=True)
    eta = s.eta * rng.lognormal(0, s.eta_spread, (real.shape[0], 1))
    liking = np.where(real, eta * centred, -np.inf)
    liking[np.arange(liking.shape[0]), liking.argmax(axis=1)] += s.favourite
    return np.where(real, liking, 0)


def _first_day(rng: np.random.Generator, s: AppsSettings, real: np.ndarray) -> np.ndarray:
    """A share of the apps appears on a later day; every user has two from the start."""
    late = rng.random(real.shape) < s.late
    late[:, :2] = False
    day = np.where(late, rng.integers(s.span, size=real.shape), 0)
    return np.where(real, day, s.span)


def _drifting(rng: np.random.Generator, s: AppsSettings, liking: np.ndarray) -> np.ndarray:
    """Preference day by day: an autoregressive deviation from the mean preference."""
    days = np.empty((s.span, *liking.shape), np.float32)
    deviation = s.drift / np.sqrt(1 - REMAINS**2) * rng.standard_normal(liking.shape, np.float32)
    for day in range(s.span):
        days[day] = liking + deviation
        deviation = REMAINS * deviation + s.drift * rng.standard_normal(liking.shape, np.float32)
    return days


def _follow(rng: np.random.Generator, s: AppsSettings, links: np.ndarray, item: np.ndarray) -> np.ndarray:
    """exp(G_ij + own deviation) between the slots of a user; staying is drawn separately, so the diagonal is 0."""
    count, width = item.shape
    own = s.own_links * rng.standard_normal((count, width, width), np.float32)
    weight = np.exp(links.astype(np.float32)[item[:, :, None], item[:, None, :]] + own)
    weight[:, np.arange(width), np.arange(width)] = 0
    return weight


# ---- sessions: when apps are used ----

DAY = 86_400.0
APART = 960.0  # seconds between two sessions at least: more than the 15 minutes that end a session
LEAST_GAP = 3.5  # seconds between two launches at least: more than the 3 seconds within which a repeat is a bounce
TYPICAL_GAP, GAP_SPREAD, MOST_GAP = 8.0, 1.0, 300.0  # what is added to it: lognormal, cut off


def _draw_sessions(rng: np.random.Generator, s: AppsSettings, count: int) -> _Sessions:
    """Draw the sessions of a batch of users."""
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
    return _Sessions(person[of_day], day[of_day], start / 3600, length, times + np.repeat(midnight, length))


def _active_days(rng: np.random.Generator, s: AppsSettings, count: int) -> tuple[np.ndarray, np.ndarray]:
    """A random subset of the whole span for each user, so that every part of a calendar split has events of all users."""
    many = np.clip(np.rint(rng.lognormal(np.log(s.days_median), s.days_spread, count)), 1, s.span)
    place = rng.random((count, s.span)).argsort(axis=1).argsort(axis=1)
    person, day = np.nonzero(place < many[:, None])
    return person, day


def _clock(
    rng: np.random.Generator, length: np.ndarray, of_day: np.ndarray, many: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Start of each session and time of each launch, in seconds of the day: a night, then sessions with pauses between them."""
    first = np.cumsum(length) - length
    extra = np.minimum(rng.lognormal(np.log(TYPICAL_GAP), GAP_SPREAD, int(length.sum())), MOST_GAP)
    extra[first] = 0
    total = np.add.reduceat(extra, first)
    # On a day that is too full, what is added to the shortest gaps shrinks until half the remaining day is free.
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


DATASETS = (
    Dataset.synthetic("apps", "app launches in sessions; people share much of what follows what", apps),
    Dataset.synthetic("apps-weak", "app launches in sessions; people share little", partial(apps, setting="weak")),
    Dataset.synthetic("apps500", "app launches, 500 apps, a week", partial(apps, setting="apps500")),
)
