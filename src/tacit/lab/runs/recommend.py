"""Recommendations as a table, computed by the device's own code: for users of the run, or for a new user's history."""

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from tacit.device.ranking import EMPTY, RECENT, shuffled_candidates
from tacit.errors import DataError, unknown
from tacit.lab.data import Population
from tacit.lab.data.selection import take
from tacit.lab.evaluation.scoring import adapted_chunks, batch_top_lists, case_batch, new_user_homes, seen_mask
from tacit.lab.evaluation.splits import latest
from tacit.lab.simulation.buckets import Bucket

if TYPE_CHECKING:
    from tacit.lab.runs.run import Run


def recommend_items(
    run: "Run",
    users: Iterable[Any] | None = None,
    history: Sequence[Any] | None = None,
    *,
    k: int = 10,
    candidates: Sequence[Any] | None = None,
    filter_seen: bool = True,
    seed: int = 0,
) -> Any:
    """A table user_id, item_id, score, rank; see `Run.recommend`."""
    if users is not None and history is not None:
        raise DataError(
            "recommend takes users or a history, not both: name people of the run, or show one person's items."
        )
    if k < 1:
        raise DataError(f"recommend: k must be at least 1, got {k}.")
    items = _candidates(run.population, candidates)
    if history is not None:
        people, devices = _newcomer(run.population, history), np.zeros(1, np.int64)
        buckets, names = new_user_homes(run, people, seed), [None]
    else:
        people, devices = run.population, _devices(run.population, users)
        buckets, names = run.buckets, [_name(people, device) for device in devices]
    lists, scores = _best(run, buckets, people, devices, items, k, filter_seen, seed)
    empty = int((lists < 0).all(axis=1).sum())
    if empty:
        warnings.warn(f"Nothing is listed for {empty} of {devices.size} users: {EMPTY}.", stacklevel=3)
    return _table(run.population, names, lists, scores)


def _devices(population: Population, users: Iterable[Any] | None) -> np.ndarray:
    """The devices of these users; all if none is named."""
    if users is None:
        return np.arange(len(population))
    users = [users] if isinstance(users, str | int) else list(users)
    known: dict[str, list[int]] = {}  # a user of two organisations is two devices
    for device in range(len(population)):
        known.setdefault(str(_name(population, device)), []).append(device)
    missing = [user for user in users if str(user) not in known]
    if missing:
        near = [str(_name(population, device)) for device in range(min(3, len(population)))]
        raise DataError(
            f"recommend knows no user {missing[0]!r}; users are called like {', '.join(map(repr, near))}. For somebody "
            "who was not in the log, pass history=[...]."
        )
    return np.array([device for user in users for device in known[str(user)]], np.int64)


def _name(population: Population, device: int) -> Any:
    return int(device) if population.users is None else population.users[device]


def item_numbers(population: Population, names: Sequence[Any], where: str) -> np.ndarray:
    """The numbers of the items with these names."""
    if population.item_names is None:
        numbers = np.asarray(names, np.int64)
        if numbers.size and not 0 <= numbers.min() <= numbers.max() < population.catalog.n_items:
            raise DataError(
                f"{where}: items are numbers from 0 to {population.catalog.n_items - 1}, got {list(names)!r}."
            )
        return numbers
    known = {str(name): number for number, name in enumerate(population.item_names)}
    for name in names:
        if str(name) not in known:
            listed = [str(item) for item in population.item_names[:20]]
            raise DataError(unknown(where, name, listed, "item"))
    return np.array([known[str(name)] for name in names], np.int64)


def _candidates(population: Population, candidates: Sequence[Any] | None) -> np.ndarray:
    if candidates is None:
        return np.arange(population.catalog.n_items, dtype=np.int32)
    numbers = np.unique(item_numbers(population, candidates, "recommend: candidates")).astype(np.int32)
    if not numbers.size:
        raise DataError("recommend: candidates must name at least one item, got none.")
    return numbers


def _newcomer(population: Population, history: Sequence[Any]) -> Population:
    """A population of one user who is not in the log."""
    items = item_numbers(population, history, "recommend: history").astype(np.int32)
    like = take(population, np.zeros(len(population.items), bool))
    none = None if population.person is None else np.zeros((1, population.person.shape[1]), np.float32)
    width = None if population.context is None else np.zeros((items.size, population.context.shape[1]), np.float32)
    return replace(
        like,
        offsets=np.array([0, items.size]),
        items=items,
        times=None if population.times is None else np.full(items.size, population.times.max(initial=0.0)),
        labels=None if population.labels is None else np.ones(items.size, np.float32),
        context=width,
        person=none,
        never=None,
        silo=None,
        users=None,
    )


def _best(
    run: "Run",
    buckets: list[Bucket],
    people: Population,
    devices: np.ndarray,
    items: np.ndarray,
    k: int,
    filter_seen: bool,
    seed: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Adapt, score, keep the best; chunk by chunk."""
    items, k, every = shuffled_candidates(items, seed), min(k, items.size), np.arange(run.population.catalog.n_items)
    lists, scores = np.full((devices.size, k), -1, np.int32), np.full((devices.size, k), -np.inf, np.float32)
    for adapted, part in adapted_chunks(run, buckets, devices, items.size):
        who = devices[part]
        mask = seen_mask(people, who, every)[:, items] if filter_seen else np.zeros((1, 1), bool)
        batch = case_batch(run, adapted, who[:, None], who, latest(people, who, RECENT)[:, None])
        lists[part], scores[part] = map(np.asarray, batch_top_lists(run.method, k, seed, batch, items, mask))
    return lists, scores


def _table(population: Population, names: list, lists: np.ndarray, scores: np.ndarray) -> Any:
    row, place = np.nonzero(lists >= 0)
    items = lists[row, place]
    called = items.tolist() if population.item_names is None else [population.item_names[item] for item in items]
    table = pl.DataFrame(
        {
            "user_id": pl.Series([names[r] for r in row], dtype=None if any(n is not None for n in names) else pl.Null),
            "item_id": called,
            "score": scores[row, place],
            "rank": (place + 1).astype(np.int64),
        }
    )
    return table.to_pandas() if population.frames == "pandas" else table
