"""Names: what people write for a metric, and what they mean."""

from collections.abc import Callable
from dataclasses import dataclass

from tacit.errors import PlanError, unknown

# What people write, and the short name of what they mean.
NAMES = {
    **{name: name for name in ("HR", "MRR", "NDCG", "AUC", "P", "R", "F1")},
    **{name: name for name in ("IC", "Gini", "G", "Coverage", "Novelty", "Popularity")},
    **{"Hits": "HR", "Precision": "P", "Recall": "R"},
}
_SHORT = {name.lower(): short for name, short in NAMES.items()}


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


def f1(metric: Metric, mean: Callable[[str], float]) -> float:
    """The harmonic mean of mean precision and mean recall, not the mean of harmonic means."""
    precision, recall = mean(f"P@{metric.n}"), mean(f"R@{metric.n}")
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0
