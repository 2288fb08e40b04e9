"""A synthetic launch log that looks like a field study of telephones: `apps`. No person lives in it."""

from dataclasses import replace

import numpy as np

from tacit.core.catalog import Catalog
from tacit.errors import DataError
from tacit.lab.data import Population
from tacit.lab.data.synthetic.apps_people import PARTS, People, Shared, people, shared
from tacit.lab.data.synthetic.apps_sessions import Sessions, sessions
from tacit.lab.data.synthetic.apps_settings import AppsSettings, settings
from tacit.lab.data.synthetic.draws import choose, in_batches

BATCH = 512  # people drawn together: bounds the memory, and is part of what a seed means
DEPTH = 8  # how many recent apps of a session can be returned to
BEGIN = 1_577_923_200.0  # Thursday 2 January 2020, 00:00 UTC: the log's first midnight


def apps(
    users: int = 292, *, setting: str = "strong", seed: int = 0, days: int | None = None, apps: int | None = None
) -> Population:
    """A synthetic launch log: people, their apps and what they open when; settings strong, weak and apps500.

    `days` is the length of the log; the active days of each person shrink and grow with it. `apps` is the size of the
    catalog. Item numbers are in random order and tell nothing about popularity.

    >>> world = apps(10, days=20)
    >>> len(world), world.catalog.n_items, bool((np.diff(world.times[: world.offsets[1]]) > 3).all())
    (10, 87, True)
    """
    return draw(_adjusted(settings(setting), users, days, apps), users, seed)


def draw(s: AppsSettings, users: int, seed: int) -> Population:
    """The launch log of one setting."""
    world = shared(np.random.default_rng([seed, 0]), s)
    lengths, items, times = in_batches(lambda rng, who: _batch(rng, s, world, who.size), users, BATCH, seed)
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
    rng: np.random.Generator, s: AppsSettings, world: Shared, count: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Lengths, items and times of a batch of people."""
    who, when = people(rng, s, world, count), sessions(rng, s, count)
    slots = _launches(rng, s, who, when, _opening(world, who, when))
    person = np.repeat(when.person, when.length)
    items = world.number[who.item[person, slots]].astype(np.int32)
    return np.bincount(person, minlength=count), items, when.times + BEGIN


def _opening(world: Shared, who: People, when: Sessions) -> np.ndarray:
    """[S, K] rhythm · exp(preference) of each session; 0 where the app is not there yet, or never."""
    part = (when.hour * PARTS / 24).astype(int)
    item = who.item[when.person]
    log = who.liking[when.day, when.person] + world.rhythm[part[:, None], item]
    there = who.first_day[when.person] <= when.day[:, None]
    return np.where(there, np.exp(log), 0).astype(np.float32)


def _launches(
    rng: np.random.Generator, s: AppsSettings, who: People, when: Sessions, opening: np.ndarray
) -> np.ndarray:
    """The slots launched, session after session: all sessions take their t-th step together."""
    order = np.argsort(-when.length, kind="stable")  # so that the sessions still going on are a prefix
    first, length = (np.cumsum(when.length) - when.length)[order], when.length[order]
    person, opening = when.person[order], opening[order]
    slots = np.empty(int(length.sum()), np.int8 if who.item.shape[1] < 128 else np.int16)
    recent = np.full((length.size, DEPTH), -1, slots.dtype)  # most recent first
    recent[:, 0] = slots[first] = choose(rng, opening)
    going = np.searchsorted(-length, -np.arange(s.length_most + 1), side="left")
    for t in range(1, int(length[0])):
        alive = int(going[t])
        _step(rng, s, who, person[:alive], opening[:alive], recent[:alive])
        slots[first[:alive] + t] = recent[:alive, 0]
    return slots


def _step(
    rng: np.random.Generator,
    s: AppsSettings,
    who: People,
    person: np.ndarray,
    opening: np.ndarray,
    recent: np.ndarray,
) -> None:
    """One launch in every session: stay, or return to a recent app, or go on to another. Writes `recent`."""
    now = recent[:, 0]
    moving = np.flatnonzero(rng.random(now.size, np.float32) >= who.stay[person, now])
    if moving.size == 0:
        return
    trail = recent[moving]
    others = (trail >= 0).sum(axis=1) - 1
    back = (rng.random(moving.size, np.float32) < s.back) & (others > 0)
    chosen = trail[np.arange(moving.size), _place(rng, s.back_first, others)]
    on = np.flatnonzero(~back)
    who_goes = moving[on]
    chosen[on] = choose(rng, who.follow[person[who_goes], now[who_goes]] * opening[who_goes])
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
