"""Metrics: how well recommendations answer, by the names people write: `NDCG@10`, `Recall@20`, `AUC`.

Two families: from the rank of one target, and from top-n lists with the set of items that would have been right.
Ties never fall to index order: `rank` breaks them by a seeded draw, so a scorer that always says the same scores
like Random.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np

from tacit.errors import DataError, PlanError, unknown

# What people write, and the short name of what they mean.
NAMES = {
    **{name: name for name in ("HR", "MRR", "NDCG", "AUC", "P", "R", "F1")},
    **{name: name for name in ("IC", "Gini", "G", "Coverage", "Novelty", "Popularity")},
    **{"Hits": "HR", "Precision": "P", "Recall": "R"},
}
TIES = ("random", "pessimistic", "optimistic")
_SHORT = {name.lower(): short for name, short in NAMES.items()}
_PER_LIST = ("HR", "MRR", "NDCG", "P", "R")
_OF_ITEMS = ("Novelty", "Popularity")
_OF_CATALOGUE = ("IC", "Gini", "G", "Coverage")


@dataclass(frozen=True)
class Metric:
    """A metric and its cut-off; None is no cut-off."""

    kind: str
    n: int | None = None

    def __str__(self) -> str:
        return self.kind if self.n is None else f"{self.kind}@{self.n}"


def parse(name: str) -> Metric:
    """What a written name means; capitals do not matter.

    >>> parse("Recall@20"), str(parse("hits@5")), parse("MRR")
    (Metric(kind='R', n=20), 'HR@5', Metric(kind='MRR', n=None))
    """
    word, at, cut = name.partition("@")
    kind = _SHORT.get(word.lower())
    if kind is None:
        raise PlanError(unknown("Tacit", word, NAMES, "metric"))
    if kind == "AUC" and at:
        raise PlanError(f"AUC looks at every place and takes no cut-off, got {name!r}; write 'AUC'.")
    if kind in ("AUC", "MRR") and not at:
        return Metric(kind)
    if not cut.isdecimal() or int(cut) < 1:
        raise PlanError(f"{word} needs a cut-off of at least 1, got {name!r}; write '{word}@10', say.")
    return Metric(kind, int(cut))


# ---- one target: its rank ----


def rank(
    key: jax.Array,
    scores: jax.Array,
    target: jax.Array,
    ties: Literal["random", "pessimistic", "optimistic"] = "random",
) -> jax.Array:
    """1 + how many candidates beat the target; among equals, each order is equally likely, or as `ties` says.

    A score that is not a number loses against every number. A target that is no candidate itself comes last of all.

    Args:
        key: breaks ties.
        scores: float[c]; -inf is no candidate.
        target: position of the target in `scores`.
        ties: `random`; `pessimistic`, every equal beats the target; `optimistic`, none does.
    """
    if ties not in TIES:
        raise PlanError(unknown("rank", ties, TIES, "tie policy"))
    # A comparison with nan is always false: a model that diverged would come first everywhere.
    scores = jnp.where(jnp.isnan(scores), jnp.finfo(scores.dtype).min, scores)
    mine = scores[target]
    better = jnp.sum(scores > mine)
    equal = jnp.maximum(jnp.sum((scores == mine) & (scores > -jnp.inf)) - 1, 0)
    # The target's place among `equal` others is uniform on 0..equal.
    luck = jnp.floor(jax.random.uniform(key) * (equal + 1)).astype(jnp.int32)
    behind = {"random": luck, "pessimistic": equal, "optimistic": 0}[ties]
    return jnp.where(mine > -jnp.inf, 1 + better + behind, scores.size)


def hit_rate(ranks: np.ndarray, n: float) -> np.ndarray:
    """HR@n: 1 where the target is among the first n."""
    return (np.asarray(ranks) <= n).astype(float)


def reciprocal_rank(ranks: np.ndarray, n: float = np.inf) -> np.ndarray:
    """MRR@n: 1/rank where the target is among the first n, else 0."""
    return hit_rate(ranks, n) / np.asarray(ranks)


def discounted_gain(ranks: np.ndarray, n: float) -> np.ndarray:
    """NDCG@n of a single target: 1/log2(rank + 1) where it is among the first n, else 0."""
    return hit_rate(ranks, n) / np.log2(np.asarray(ranks) + 1)


def area(ranks: np.ndarray, negatives: np.ndarray | int) -> np.ndarray:
    """AUC of a single target: the share of negatives it beats.

    Several targets at once: rank each among the negatives alone; the AUC is the mean.

    >>> area(np.array([4, 3]), negatives=3).mean().round(7)
    np.float64(0.1666667)
    """
    ranks, negatives = np.broadcast_arrays(ranks, negatives)
    if (negatives < 1).any():
        raise DataError("AUC needs at least 1 negative for every target, got 0; leave such cases out.")
    if (ranks > negatives + 1).any():
        most, got = max(zip(negatives.flat, ranks.flat), key=lambda pair: pair[1] - pair[0])
        raise DataError(f"A rank among {most} negatives is at most {most + 1}, got {got}.")
    return 1 - (ranks - 1) / negatives


def per_case(ranks: np.ndarray, name: str, *, negatives: np.ndarray | int | None = None) -> np.ndarray:
    """A named metric for each rank; AUC also needs how many negatives each target was ranked against.

    >>> per_case(np.array([1, 3, 20]), "MRR@10").round(3).tolist()
    [1.0, 0.333, 0.0]
    """
    metric, ranks = parse(name), np.asarray(ranks)
    if ranks.size and ranks.min() < 1:
        raise DataError(f"Ranks start at 1, got {ranks.min()}.")
    n = np.inf if metric.n is None else metric.n
    match metric.kind:
        case "HR" | "R":  # all of a single target is found, or nothing
            return hit_rate(ranks, n)
        case "P":
            return hit_rate(ranks, n) / n
        case "MRR":
            return reciprocal_rank(ranks, n)
        case "NDCG":
            return discounted_gain(ranks, n)
        case "AUC" if negatives is not None:
            return area(ranks, negatives)
        case "AUC":
            raise DataError("AUC needs the number of negatives beside the ranks, got none; pass `negatives`.")
    raise PlanError(f"{name} has no value for a single rank; a summary or top-n lists have one.")


def summary(
    ranks: np.ndarray,
    names: Sequence[str] = ("HR@10", "NDCG@10", "MRR@10"),
    *,
    negatives: np.ndarray | int | None = None,
    groups: Sequence[np.ndarray] = (),
) -> dict[str, float]:
    """The mean of each named metric over cases, or over groups of them as in `average`.

    >>> summary(np.array([1, 3, 20]), ("HR@10",))
    {'HR@10': 0.6666666666666666}
    """

    def mean(name: str) -> float:
        return average(per_case(ranks, name, negatives=negatives), groups).value

    return {name: _f1(parse(name), mean) if parse(name).kind == "F1" else mean(name) for name in names}


def _f1(metric: Metric, mean: Callable[[str], float]) -> float:
    """The harmonic mean of mean precision and mean recall, not the mean of harmonic means."""
    precision, recall = mean(f"P@{metric.n}"), mean(f"R@{metric.n}")
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0


# ---- lists, and what would have been right ----


@dataclass(frozen=True)
class Relevant:
    """Ragged sets: what would have been right in list u stands at offsets[u] : offsets[u + 1] of `items`."""

    offsets: np.ndarray  # int64[m + 1]
    items: np.ndarray  # int64[total]

    @classmethod
    def of(cls, sets: Sequence[Sequence[int]]) -> "Relevant":
        """From one collection of items for each list."""
        lengths = [len(one) for one in sets]
        return cls(np.concatenate([[0], np.cumsum(lengths)]).astype(int), np.array([i for s in sets for i in s], int))


def hits(lists: np.ndarray, relevant: Relevant) -> tuple[np.ndarray, np.ndarray]:
    """Where lists are right, bool[m, n], and how many different items would have been, int[m]. -1 in a list is padding."""
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

    Novelty is the mean self-information, -log2 of an item's share of `popularity`; an item nobody had counts as had
    once. Popularity is the mean of `popularity` itself.

    Args:
        lists: int[m, n], best first; -1 is padding behind.
        relevant: what would have been right in each list; Novelty and Popularity do not need it.
        name: HR, MRR, NDCG, Precision, Recall, Novelty or Popularity, with a cut-off.
        popularity: how often each item of the catalogue was had, [items].

    >>> per_list(np.array([[0, 1, 2]]), Relevant.of([[2, 5]]), "Recall@3").tolist()
    [0.5]
    """
    metric, lists = parse(name), _checked(lists)
    if metric.kind in _OF_ITEMS:
        return _of_items(metric, _cut(lists, metric), popularity)
    if metric.kind not in _PER_LIST:
        raise PlanError(f"{name} has no value for a single list; `list_summary` and `per_case` have the others.")
    if relevant is None:
        raise DataError(f"{name} needs what would have been right in each list, got none; pass `relevant`.")
    found, sizes = hits(lists, relevant)
    return _grade(metric.kind, _cut(found, metric), sizes)


def _grade(kind: str, found: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    places = np.arange(1, found.shape[1] + 1)
    if kind == "P":
        return found.mean(1)
    if kind == "R":
        return found.sum(1) / sizes
    if kind == "NDCG":  # Σ_hits 1/log2(place + 1), over the most that |R| items can reach in n places
        gain = 1 / np.log2(places + 1)
        return found @ gain / np.cumsum(gain)[np.minimum(sizes, places.size) - 1]
    first = np.where(found.any(1), found.argmax(1) + 1, np.inf)
    return 1 / first if kind == "MRR" else (first < np.inf).astype(float)


def _of_items(metric: Metric, lists: np.ndarray, popularity: np.ndarray | None) -> np.ndarray:
    if popularity is None or np.sum(popularity) <= 0:
        raise DataError(f"{metric} needs how often each item was had, got none; pass `popularity`.")
    item_counts(lists, len(popularity))  # refuses items outside the catalogue
    empty = (lists < 0).all(1)
    if empty.any():
        raise DataError(
            f"{metric} needs an item in every list, list {np.argmax(empty)} is empty; leave such lists out."
        )
    worth = np.asarray(popularity, float)
    if metric.kind == "Novelty":
        worth = -np.log2(np.maximum(worth, 1) / worth.sum())
    real = lists >= 0
    return np.where(real, worth[lists], 0).sum(1) / real.sum(1)


# ---- all lists together ----


def item_counts(lists: np.ndarray, n_items: int) -> np.ndarray:
    """How often each item of the catalogue is recommended, zeros included."""
    lists = np.asarray(lists)
    if lists.max(initial=-1) >= n_items:
        raise DataError(f"A list names item {lists.max()}, but the catalogue has {n_items} items, numbered from 0.")
    return np.bincount(lists[lists >= 0], minlength=n_items)


def gini(counts: np.ndarray) -> float:
    """How unevenly counts fall: 0 all equal, 1 all on one item.

    >>> gini(np.array([3, 3, 3])), gini(np.array([0, 0, 9]))
    (0.0, 1.0)
    """
    c = np.sort(np.asarray(counts, float))
    N = c.size
    if N < 2 or c.sum() == 0:
        return 0.0
    # Σ_j (2j − N − 1) c_(j) / ((N − 1) Σ c)
    return float((2 * np.arange(1, N + 1) - N - 1) @ c / ((N - 1) * c.sum()))


def over_catalogue(lists: np.ndarray, name: str, n_items: int) -> float:
    """IC@n, distinct items recommended; Coverage@n, their share; Gini@n, and G@n = 1 − Gini, over the whole catalogue."""
    metric = parse(name)
    if metric.kind not in _OF_CATALOGUE:
        raise PlanError(unknown("The catalogue", metric.kind, _OF_CATALOGUE, "metric"))
    counts = item_counts(_cut(_checked(lists), metric), n_items)
    distinct, uneven = np.count_nonzero(counts), gini(counts)
    return float({"IC": distinct, "Coverage": distinct / n_items, "Gini": uneven, "G": 1 - uneven}[metric.kind])


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
        if metric.kind == "F1":
            return _f1(metric, mean)
        if metric.kind not in _OF_CATALOGUE:
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


# ---- averaging ----


@dataclass(frozen=True)
class Average:
    """A mean, and the values it is the mean of: one for each outermost group."""

    value: float
    values: np.ndarray  # float[g]
    groups: np.ndarray  # [g], what the groups are called, ascending


def average(values: np.ndarray, groups: Sequence[np.ndarray] = ()) -> Average:
    """Mean within the first groups, then of those within the next, and so on; `levels` names the usual ways.

    Args:
        values: float[m], one for each case.
        groups: labels [m] of each case, inner first, such as (session, user). Sessions of different users are
            different sessions even where they are called the same.

    >>> average(np.array([1.0, 0.0, 0.5]), (np.array([7, 7, 8]),)).values.tolist()
    [0.5, 0.5]
    """
    values, labels = np.asarray(values, float), [np.asarray(label) for label in groups]
    if values.size == 0:
        raise DataError("An average needs at least one value, got none.")
    if any(label.shape != values.shape for label in labels):
        raise DataError(
            f"Groups must label each of {values.size} values, got {[label.size for label in labels]} labels."
        )
    names = np.arange(values.size)
    while labels:
        cell, first = _cells(labels)
        values = np.bincount(cell, values) / np.bincount(cell)
        names, labels = labels[0][first], [label[first] for label in labels[1:]]
    return Average(float(values.mean()), values, names)


def levels(
    by: Literal["user", "session", "micro"], user: np.ndarray, session: np.ndarray | None = None
) -> tuple[np.ndarray, ...]:
    """The groups to average over: `user` (cases, then a user's sessions, then users), `session` or `micro` (cases).

    Without sessions, `user` is cases, then users.
    """
    ways = ("user", "session", "micro")
    if by not in ways:
        raise PlanError(unknown("Averaging", by, ways, "way"))
    if by == "micro":
        return ()
    if by == "user":
        return (user,) if session is None else (session, user)
    if session is None:
        raise DataError("Averaging by session needs the session of each case, got none; pass `session`.")
    return (_cells([np.asarray(session), np.asarray(user)])[0],)


def _cells(labels: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Number the different combinations of labels, the last label weighing most; and where each first stands."""
    cell = first = np.zeros(labels[0].size, int)
    for label in reversed(labels):
        _, at = np.unique(label, return_inverse=True)
        _, first, cell = np.unique(cell * (at.max() + 1) + at, return_index=True, return_inverse=True)
    return cell, first
