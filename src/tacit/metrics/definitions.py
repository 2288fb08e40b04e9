"""Metric definitions and names: one class is one metric, listed because it is defined here.

To add a metric, add a class: its name and aliases, how it takes a cut-off, and the functions it has a value by. A metric
that leaves a function out is refused where that function would be needed, in one sentence.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from tacit.errors import DataError, PlanError, unknown

CutOff = Literal["required", "optional", "none"]


class MetricDefinition:
    """How one metric is computed; what stays None has no value for that kind of input."""

    name: ClassVar[str]
    aliases: ClassVar[tuple[str, ...]] = ()
    cut_off: ClassVar[CutOff] = "required"
    highest: ClassVar[float] = 1.0  # the lowest value is 0

    # (ranks, n, negatives) -> float[m]: one relevant item a case, and its rank
    of_ranks: ClassVar[Callable[[np.ndarray, float, Any], np.ndarray] | None] = None
    # (hits bool[m, n], number of relevant items int[m]) -> float[m]: top-n lists and the items that are relevant
    of_hits: ClassVar[Callable[[np.ndarray, np.ndarray], np.ndarray] | None] = None
    # (popularity [items]) -> float[items]: a list's value is the mean over its items
    of_popularity: ClassVar[Callable[[np.ndarray], np.ndarray] | None] = None
    # (how often each item of the catalogue is recommended, int[items]) -> float
    of_counts: ClassVar[Callable[[np.ndarray], float] | None] = None
    # (mean: name@n -> its mean) -> float: made of the means of other metrics
    of_means: ClassVar[Callable[[Callable[[str], float]], float] | None] = None


# ---- one relevant item, or lists of several ----


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


def _first_hit(hits: np.ndarray) -> np.ndarray:
    """The place of the first hit of each list, from 1; infinite where there is none."""
    return np.where(hits.any(1), hits.argmax(1) + 1, np.inf)


class HitRate(MetricDefinition):
    """Whether any relevant item is among the first n."""

    name = "HR"
    aliases = ("Hits",)

    @staticmethod
    def of_ranks(ranks: np.ndarray, n: float, negatives: Any) -> np.ndarray:
        """1 where the target is among the first n."""
        del negatives
        return hit_rate(ranks, n)

    @staticmethod
    def of_hits(hits: np.ndarray, sizes: np.ndarray) -> np.ndarray:
        """1 where the list has a hit."""
        del sizes
        return (_first_hit(hits) < np.inf).astype(float)


class ReciprocalRank(MetricDefinition):
    """One over the place of the first relevant item."""

    name = "MRR"
    cut_off = "optional"

    @staticmethod
    def of_ranks(ranks: np.ndarray, n: float, negatives: Any) -> np.ndarray:
        """1/rank of the target."""
        del negatives
        return reciprocal_rank(ranks, n)

    @staticmethod
    def of_hits(hits: np.ndarray, sizes: np.ndarray) -> np.ndarray:
        """1 over the place of the first hit; 0 without one."""
        del sizes
        return 1 / _first_hit(hits)


class DiscountedGain(MetricDefinition):
    """Normalised discounted cumulative gain, with binary relevance."""

    name = "NDCG"

    @staticmethod
    def of_ranks(ranks: np.ndarray, n: float, negatives: Any) -> np.ndarray:
        """1/log2(rank + 1) of the target."""
        del negatives
        return discounted_gain(ranks, n)

    @staticmethod
    def of_hits(hits: np.ndarray, sizes: np.ndarray) -> np.ndarray:
        """Σ_hits 1/log2(place + 1), over the most that |R| relevant items can reach in n places."""
        places = np.arange(1, hits.shape[1] + 1)
        gain = 1 / np.log2(places + 1)
        return hits @ gain / np.cumsum(gain)[np.minimum(sizes, places.size) - 1]


class AreaUnderCurve(MetricDefinition):
    """The share of the negatives that the target is ranked above."""

    name = "AUC"
    cut_off = "none"

    @staticmethod
    def of_ranks(ranks: np.ndarray, n: float, negatives: Any) -> np.ndarray:
        """The share of the negatives that each target beats; the whole ranking counts."""
        del n
        if negatives is None:
            raise DataError("AUC needs the number of negatives beside the ranks, got none; pass `negatives`.")
        return area(ranks, negatives)


class Precision(MetricDefinition):
    """The share of the first n places that hold a relevant item."""

    name = "P"
    aliases = ("Precision",)

    @staticmethod
    def of_ranks(ranks: np.ndarray, n: float, negatives: Any) -> np.ndarray:
        """1/n where the target is among the first n."""
        del negatives
        return hit_rate(ranks, n) / n

    @staticmethod
    def of_hits(hits: np.ndarray, sizes: np.ndarray) -> np.ndarray:
        """Hits over places."""
        del sizes
        return hits.mean(1)


class Recall(MetricDefinition):
    """The share of the relevant items that are among the first n."""

    name = "R"
    aliases = ("Recall",)

    @staticmethod
    def of_ranks(ranks: np.ndarray, n: float, negatives: Any) -> np.ndarray:
        """All of a single target is found, or nothing."""
        del negatives
        return hit_rate(ranks, n)

    @staticmethod
    def of_hits(hits: np.ndarray, sizes: np.ndarray) -> np.ndarray:
        """Hits over relevant items."""
        return hits.sum(1) / sizes


class FScore(MetricDefinition):
    """The harmonic mean of mean precision and mean recall, not the mean of harmonic means."""

    name = "F1"

    @staticmethod
    def of_means(mean: Callable[[str], float]) -> float:
        """2·P·R / (P + R) of the two means; 0 where both are 0."""
        precision, recall = mean("P"), mean("R")
        return 2 * precision * recall / (precision + recall) if precision + recall else 0.0


# ---- beyond accuracy: the items of a list, and all lists together ----


def gini(counts: np.ndarray) -> float:
    """How unevenly counts are distributed: 0 all equal, 1 all on one item.

    >>> gini(np.array([3, 3, 3])), gini(np.array([0, 0, 9]))
    (0.0, 1.0)
    """
    c = np.sort(np.asarray(counts, float))
    N = c.size
    if N < 2 or c.sum() == 0:
        return 0.0
    # Σ_j (2j − N − 1) c_(j) / ((N − 1) Σ c)
    return float((2 * np.arange(1, N + 1) - N - 1) @ c / ((N - 1) * c.sum()))


class ItemCount(MetricDefinition):
    """How many distinct items are recommended."""

    name = "IC"
    highest = np.inf

    @staticmethod
    def of_counts(counts: np.ndarray) -> float:
        """Items that are recommended at least once."""
        return float(np.count_nonzero(counts))


class Coverage(MetricDefinition):
    """The share of the catalogue that is recommended."""

    name = "Coverage"

    @staticmethod
    def of_counts(counts: np.ndarray) -> float:
        """Items that are recommended at least once, over all items."""
        return float(np.count_nonzero(counts) / counts.size)


class GiniIndex(MetricDefinition):
    """How unevenly the recommendations are distributed over the catalogue."""

    name = "Gini"

    @staticmethod
    def of_counts(counts: np.ndarray) -> float:
        """The Gini index of the counts."""
        return float(gini(counts))


class GiniComplement(MetricDefinition):
    """1 − Gini: how evenly the recommendations are distributed over the catalogue."""

    name = "G"

    @staticmethod
    def of_counts(counts: np.ndarray) -> float:
        """One minus the Gini index of the counts."""
        return float(1 - gini(counts))


class Novelty(MetricDefinition):
    """The mean self-information of the recommended items."""

    name = "Novelty"
    highest = np.inf

    @staticmethod
    def of_popularity(popularity: np.ndarray) -> np.ndarray:
        """−log2 of an item's share of the events; an item without events counts as having one."""
        return -np.log2(np.maximum(popularity, 1) / popularity.sum())


class MeanPopularity(MetricDefinition):
    """The mean popularity of the recommended items."""

    name = "Popularity"
    highest = np.inf

    @staticmethod
    def of_popularity(popularity: np.ndarray) -> np.ndarray:
        """How many events an item has."""
        return popularity


# ---- names ----

DEFINITIONS: dict[str, type[MetricDefinition]] = {
    one.name: one
    for one in list(vars().values())
    if isinstance(one, type) and issubclass(one, MetricDefinition) and one is not MetricDefinition
}
# Every name that may be written, and the short name it stands for.
NAMES = {
    **{name: name for name in DEFINITIONS},
    **{alias: name for name, one in DEFINITIONS.items() for alias in one.aliases},
}
_SHORT = {name.lower(): short for name, short in NAMES.items()}


@dataclass(frozen=True)
class Metric:
    """A metric and its cut-off; None is no cut-off."""

    kind: str
    n: int | None = None

    def __str__(self) -> str:
        return self.kind if self.n is None else f"{self.kind}@{self.n}"

    @property
    def definition(self) -> type[MetricDefinition]:
        """How it is computed."""
        return DEFINITIONS[self.kind]

    def of_means(self, mean: Callable[[str], float]) -> float:
        """Its value from the means of other metrics at the same cut-off; `mean` takes their names."""
        assert self.definition.of_means is not None
        return self.definition.of_means(lambda kind: mean(str(Metric(kind, self.n))))


def parse(name: str) -> Metric:
    """The metric that a written name stands for; case does not matter.

    >>> parse("Recall@20"), str(parse("hits@5")), parse("MRR")
    (Metric(kind='R', n=20), 'HR@5', Metric(kind='MRR', n=None))
    """
    word, at, cut = name.partition("@")
    kind = _SHORT.get(word.lower())
    if kind is None:
        raise PlanError(unknown("Tacit", word, NAMES, "metric"))
    rule = DEFINITIONS[kind].cut_off
    if rule == "none" and at:
        raise PlanError(f"{kind} looks at every place and takes no cut-off, got {name!r}; write {kind!r}.")
    if rule != "required" and not at:
        return Metric(kind)
    if not cut.isdecimal() or int(cut) < 1:
        raise PlanError(f"{word} needs a cut-off of at least 1, got {name!r}; write '{word}@10', say.")
    return Metric(kind, int(cut))
