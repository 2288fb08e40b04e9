"""The people of the synthetic launch log: what they install, prefer, stay with and follow up. One batch at a time."""

from dataclasses import dataclass

import numpy as np

from tacit.lab.data.synthetic.apps_settings import AppsSettings, popularity

PARTS = 4  # night, morning, afternoon, evening
RANK = 6  # of the shared transition structure
REMAINS = 0.97  # of a preference's departure, from one day to the next


@dataclass(frozen=True)
class Shared:
    """What everybody in the world has in common, by rank of popularity."""

    popularity: np.ndarray  # [N]
    links: np.ndarray  # [N, N] log weight of going from row to column
    rhythm: np.ndarray  # [PARTS, N] log weight by part of the day
    stay: np.ndarray  # [N] app effect on staying
    number: np.ndarray  # [N] item number of each rank: a random order, so that numbers tell nothing


@dataclass(frozen=True)
class People:
    """A batch of people in their own slots: slot k of person u is the app item[u, k]; slots past n are empty."""

    item: np.ndarray  # int64[U, K] rank of popularity
    first_day: np.ndarray  # int64[U, K] the day from which the app is there; beyond the span for an empty slot
    liking: np.ndarray  # float32[span, U, K] log preference, day by day
    stay: np.ndarray  # float32[U, K] probability of staying
    follow: np.ndarray  # float32[U, K, K] weight of going from one slot to another; 0 on the diagonal


def shared(rng: np.random.Generator, s: AppsSettings) -> Shared:
    """Draw what everybody has in common."""
    N = s.apps
    links = s.shared_rank * (rng.normal(size=(N, RANK)) @ rng.normal(size=(RANK, N))) / np.sqrt(RANK)
    to = rng.random((N, N)).argsort(axis=1)[:, : s.links]
    links[np.arange(N)[:, None], to] += s.shared_links
    rhythm = s.rhythm * rng.normal(size=(PARTS, N))
    popular, stay = popularity(N), s.stay_app * rng.normal(size=N)
    stay -= popular @ stay  # seeds differ in which apps hold people, not in how long apps hold people on the whole
    return Shared(popular, links, rhythm, stay, rng.permutation(N))


def people(rng: np.random.Generator, s: AppsSettings, world: Shared, count: int) -> People:
    """Draw a batch of people."""
    n = np.clip(np.rint(rng.lognormal(np.log(s.n_median), s.n_spread, count)), s.n_least, s.n_most).astype(int)
    n = np.minimum(np.where(rng.random(count) < s.tiny, 2, n), s.apps)
    width = min(s.n_most, s.apps)
    score = s.installs * np.log(world.popularity) + rng.gumbel(size=(count, s.apps))
    item = np.argsort(-score, axis=1)[:, :width]
    real = np.arange(width) < n[:, None]
    liking = _liking(rng, s, world.popularity[item], real)
    logit = s.stay + s.stay_liked * liking + world.stay[item] + s.stay_person * rng.normal(size=(count, 1))
    return People(
        item,
        _first_day(rng, s, real),
        _drifting(rng, s, liking),
        (1 / (1 + np.exp(-logit))).astype(np.float32),
        _follow(rng, s, world.links, item),
    )


def _liking(rng: np.random.Generator, s: AppsSettings, popular: np.ndarray, real: np.ndarray) -> np.ndarray:
    """eta · log gamma(focus·n·base/2 + .15), with mean 0 over a person's apps."""
    base = np.where(real, popular**s.favour, 0)
    base *= real.sum(axis=1, keepdims=True) / base.sum(axis=1, keepdims=True)
    log_gamma = np.log(rng.standard_gamma(s.focus * base / 2 + 0.15) + 1e-3)
    centred = log_gamma - np.mean(log_gamma, axis=1, where=real, keepdims=True)
    eta = s.eta * rng.lognormal(0, s.eta_spread, (real.shape[0], 1))
    liking = np.where(real, eta * centred, -np.inf)
    liking[np.arange(liking.shape[0]), liking.argmax(axis=1)] += s.favourite
    return np.where(real, liking, 0)


def _first_day(rng: np.random.Generator, s: AppsSettings, real: np.ndarray) -> np.ndarray:
    """A share of the apps appears on a later day; everybody has two from the start."""
    late = rng.random(real.shape) < s.late
    late[:, :2] = False
    day = np.where(late, rng.integers(s.span, size=real.shape), 0)
    return np.where(real, day, s.span)


def _drifting(rng: np.random.Generator, s: AppsSettings, liking: np.ndarray) -> np.ndarray:
    """Preference day by day: a departure that fades and is stirred anew."""
    days = np.empty((s.span, *liking.shape), np.float32)
    away = s.drift / np.sqrt(1 - REMAINS**2) * rng.standard_normal(liking.shape, np.float32)
    for day in range(s.span):
        days[day] = liking + away
        away = REMAINS * away + s.drift * rng.standard_normal(liking.shape, np.float32)
    return days


def _follow(rng: np.random.Generator, s: AppsSettings, links: np.ndarray, item: np.ndarray) -> np.ndarray:
    """exp(G_ij + own departure) in the person's slots; staying is decided elsewhere, so the diagonal is 0."""
    count, width = item.shape
    own = s.own_links * rng.standard_normal((count, width, width), np.float32)
    weight = np.exp(links.astype(np.float32)[item[:, :, None], item[:, None, :]] + own)
    weight[:, np.arange(width), np.arange(width)] = 0
    return weight
