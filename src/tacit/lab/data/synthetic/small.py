"""Small synthetic logs: `groups`, a checkerboard whose right answers are known, and random histories."""

import numpy as np

from tacit.core.catalog import Catalog
from tacit.errors import DataError
from tacit.lab.data import Population, from_events
from tacit.lab.data.datasets import Dataset


def checkerboard(size: int = 20) -> tuple[Population, np.ndarray]:
    """Users have the items of their own parity but for one each, which is the right recommendation.

    All users go through the items in the same direction and stop just before their own, so that it is also the next item.

    >>> log, targets = checkerboard(6)
    >>> log.histories(np.array([2]), 3).items.tolist(), int(targets[2])
    ([[4, 0, -1]], 2)
    """
    user, item = np.divmod(np.arange(size * size), size)
    liked = (user % 2 == item % 2) & (user != item)
    user, item = user[liked], item[liked]
    return from_events(user, item, (item - user) % size, n_items=size), np.arange(size)


def taste_groups(
    users: int = 1000, items: int = 200, events: float = 40.0, *, groups: int = 8, seed: int = 0
) -> Population:
    """A small log to try things on: users of a few mixed tastes, items of uneven popularity, no item twice.

    Each user mixes two of `groups` tastes; an item belongs to one taste; items are drawn by taste and
    popularity, and one in four is the successor of the previous item in the same taste.
    """
    if users < 1 or items < 20:
        raise DataError(f"groups needs at least 1 user and 20 items, got {users} and {items}.")
    rng = np.random.default_rng(seed)
    popularity = 1.0 / np.arange(1, items + 1) ** 0.7
    taste_of = rng.integers(groups, size=items)
    first, second = rng.integers(groups, size=(2, users))
    share = rng.beta(4, 2, size=users)
    lengths = np.clip(rng.lognormal(np.log(events), 0.5, users), 5, items // 2).astype(int)
    user, picked = [], []
    order = [np.flatnonzero(taste_of == g) for g in range(groups)]
    for u in range(users):
        liking = 0.03 + share[u] * (taste_of == first[u]) + (1 - share[u]) * (taste_of == second[u])
        noise = rng.gumbel(size=items)
        chosen = np.argsort(-(np.log(popularity * liking) + noise))[: lengths[u]]
        user.append(np.full(lengths[u], u))
        picked.append(_follow(rng, chosen, taste_of, order))
    return from_events(np.concatenate(user), np.concatenate(picked), n_items=items)


def _follow(rng: np.random.Generator, chosen: np.ndarray, taste_of: np.ndarray, order: list[np.ndarray]) -> np.ndarray:
    """Put a quarter of the items right after their predecessor in the same taste."""
    left = list(chosen)
    line = [left.pop(0)]
    while left:
        kin = order[taste_of[line[-1]]]
        successor = kin[(np.searchsorted(kin, line[-1]) + 1) % kin.size]
        at = left.index(successor) if rng.random() < 0.25 and successor in left else 0
        line.append(left.pop(at))
    return np.array(line)


def random_histories(devices: int, items: int = 2000, length: int = 60, *, seed: int = 0) -> Population:
    """Random histories of any size, to measure speed."""
    rng = np.random.default_rng(seed)
    lengths = np.clip(rng.normal(length, length / 10, devices), 1, None).astype(np.int64)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    return Population(Catalog(items), offsets, rng.integers(items, size=offsets[-1], dtype=np.int32))


DATASETS = (
    Dataset.synthetic(
        "groups",
        "people of a few mixed tastes, no item twice; small, to try things on",
        taste_groups,
        former=("tastes",),
    ),
)
