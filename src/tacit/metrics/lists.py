"""List metrics: top-n lists against the sets of relevant items, and how lists are distributed over the catalogue."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tacit.errors import DataError, PlanError, unknown
from tacit.metrics.definitions import DEFINITIONS, Metric, parse


@dataclass(frozen=True)
class Relevant:
    """Ragged sets: the relevant items of list u are `items[offsets[u] : offsets[u + 1]]`."""

    offsets: np.ndarray  # int64[m + 1]
    items: np.ndarray  # int64[total]

    @classmethod
    def of(cls, sets: Sequence[Sequence[int]]) -> "Relevant":
        """From one collection of items for each list."""
        lengths = [len(one) for one in sets]
        return cls(np.concatenate([[0], np.cumsum(lengths)]).astype(int), np.array([i for s in sets for i in s], int))


def hits(lists: np.ndarray, relevant: Relevant) -> tuple[np.ndarray, np.ndarray]:
    """The places of relevant items in lists, bool[m, n], and the number of relevant items, int[m]; -1 in a list is padding."""
    lists = _checked(lists)
    m, width = lists.shape[0], int(max(lists.max(initial=0), relevant.items.max(initial=0))) + 1
    if relevant.offsets.size != m + 1:
        raise DataError(f"Every list needs its relevant items, got {m} lists and {relevant.offsets.size - 1} sets.")
    if relevant.items.min(initial=0) < 0:
        raise DataError(f"Relevant items are numbered from 0, got {relevant.items.min()}.")
    rows = np.repeat(np.arange(m), np.diff(relevant.offsets))
    right = np.unique(rows * width + relevant.items)  # one number for each pair of list and item
    sizes = np.bincount(right // width, minlength=m)
    if (sizes == 0).any():
        raise DataError(f"Every list needs a relevant item, list {np.argmin(sizes)} has none; leave such lists out.")
    return np.isin(np.arange(m)[:, None] * width + lists, right) & (lists >= 0), sizes


def per_list(
    lists: np.ndarray, relevant: Relevant | None, name: str, *, popularity: np.ndarray | None = None
) -> np.ndarray:
    """A named metric for each list, float[m].

    Args:
        lists: int[m, n], best first; -1 is padding behind.
        relevant: the relevant items of each list; Novelty and Popularity do not need them.
        name: HR, MRR, NDCG, Precision, Recall, Novelty or Popularity, with a cut-off.
        popularity: the number of events of each item of the catalogue, [items].

    >>> per_list(np.array([[0, 1, 2]]), Relevant.of([[2, 5]]), "Recall@3").tolist()
    [0.5]
    """
    metric, lists = parse(name), _checked(lists)
    if metric.definition.of_popularity is not None:
        return _of_items(metric, _cut(lists, metric), popularity)
    of_hits = metric.definition.of_hits
    if of_hits is None:
        raise PlanError(f"{name} has no value for a single list; `list_summary` and `per_case` have the others.")
    if relevant is None:
        raise DataError(f"{name} needs the relevant items of each list, got none; pass `relevant`.")
    found, sizes = hits(lists, relevant)
    return of_hits(_cut(found, metric), sizes)


def _of_items(metric: Metric, lists: np.ndarray, popularity: np.ndarray | None) -> np.ndarray:
    if popularity is None or np.sum(popularity) <= 0:
        raise DataError(f"{metric} needs the number of events of each item, got none; pass `popularity`.")
    item_counts(lists, len(popularity))  # refuses items outside the catalogue
    empty = (lists < 0).all(1)
    if empty.any():
        raise DataError(
            f"{metric} needs an item in every list, list {np.argmax(empty)} is empty; leave such lists out."
        )
    assert metric.definition.of_popularity is not None
    value = metric.definition.of_popularity(np.asarray(popularity, float))
    real = lists >= 0
    return np.where(real, value[lists], 0).sum(1) / real.sum(1)


# ---- all lists together ----


def item_counts(lists: np.ndarray, n_items: int) -> np.ndarray:
    """How often each item of the catalogue is recommended, zeros included."""
    lists = np.asarray(lists)
    if lists.max(initial=-1) >= n_items:
        raise DataError(f"A list names item {lists.max()}, but the catalogue has {n_items} items, numbered from 0.")
    return np.bincount(lists[lists >= 0], minlength=n_items)


def over_catalogue(lists: np.ndarray, name: str, n_items: int) -> float:
    """IC@n, distinct items recommended; Coverage@n, their share; Gini@n, and G@n = 1 − Gini, over the whole catalogue."""
    metric = parse(name)
    of_counts = metric.definition.of_counts
    if of_counts is None:
        known = [name for name, one in DEFINITIONS.items() if one.of_counts is not None]
        raise PlanError(unknown("The catalogue", metric.kind, known, "metric"))
    return of_counts(item_counts(_cut(_checked(lists), metric), n_items))


def list_summary(
    lists: np.ndarray,
    relevant: Relevant | None,
    names: Sequence[str] = ("P@10", "R@10", "F1@10"),
    *,
    n_items: int | None = None,
    popularity: np.ndarray | None = None,
) -> dict[str, float]:
    """Each named metric over all lists; those of the catalogue need `n_items`, Novelty and Popularity `popularity`.

    >>> list_summary(np.array([[0, 1], [0, 2]]), Relevant.of([[0], [3]]), ("P@2", "IC@2"), n_items=4)
    {'P@2': 0.25, 'IC@2': 3.0}
    """

    def mean(name: str) -> float:
        return float(np.mean(per_list(lists, relevant, name, popularity=popularity)))

    def one(name: str) -> float:
        metric = parse(name)
        if metric.definition.of_means is not None:
            return metric.of_means(mean)
        if metric.definition.of_counts is None:
            return mean(name)
        if n_items is None:
            raise DataError(f"{name} needs the size of the catalogue, got none; pass `n_items`.")
        return over_catalogue(lists, name, n_items)

    return {name: one(name) for name in names}


def _checked(lists: np.ndarray) -> np.ndarray:
    lists = np.asarray(lists)
    if lists.ndim != 2 or lists.size == 0:
        raise DataError(f"Lists must be int[lists, places] and not empty, got shape {lists.shape}.")
    line = np.sort(lists, axis=1)
    twice = ((line[:, 1:] == line[:, :-1]) & (line[:, 1:] >= 0)).any(1)
    if twice.any():
        raise DataError(f"A list must name each item once, list {np.argmax(twice)} names one twice.")
    return lists


def _cut(lists: np.ndarray, metric: Metric) -> np.ndarray:
    if metric.n is not None and metric.n > lists.shape[1]:
        raise DataError(f"{metric} needs lists of at least {metric.n} places, got {lists.shape[1]}; pad with -1.")
    return lists[:, : metric.n]
