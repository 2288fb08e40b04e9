"""Statistics over users: bootstrap confidence intervals, paired tests with correction, and results by group.

All functions take one value for each user, as `metrics.average` returns them: users are independent of each other,
the test cases of one user are not.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from scipy import stats

from tacit.errors import DataError, PlanError, unknown

CORRECTIONS = ("holm", "bonferroni", "none")
TESTS = ("t", "wilcoxon")
_BLOCK = 1 << 22  # values resampled at a time, so that memory stays flat


@dataclass(frozen=True)
class ConfidenceInterval:
    """A mean over users with its bootstrap confidence interval."""

    mean: float
    low: float
    high: float
    users: int
    level: float = 0.95
    note: str = ""

    def __str__(self) -> str:
        text = f"{self.mean:.4f} [{self.low:.4f}, {self.high:.4f}] ({self.level:.0%}, {_people(self.users)})"
        return f"{text}: {self.note}" if self.note else text


@dataclass(frozen=True)
class PairedTest:
    """Ours minus theirs on the same users: the difference (effect size) and the p-values of two paired tests."""

    name: str
    difference: ConfidenceInterval
    t: float  # p-value of the paired t-test
    wilcoxon: float  # p-value of the Wilcoxon signed-rank test
    p: float  # p-value of the chosen test, corrected for the number of comparisons
    correction: str = "t, uncorrected"
    note: str = ""

    def __str__(self) -> str:
        text = (
            f"{self.name}: {self.difference.mean:+.4f} [{self.difference.low:+.4f}, {self.difference.high:+.4f}] "
            f"({self.difference.level:.0%}, {_people(self.difference.users)}), p = {self.p:.2g} ({self.correction}), "
            f"paired t {self.t:.2g}, Wilcoxon {self.wilcoxon:.2g}"
        )
        return f"{text}: {self.note}" if self.note else text


def interval(values: np.ndarray, *, level: float = 0.95, resamples: int = 2000, seed: int = 0) -> ConfidenceInterval:
    """The mean over users and its percentile bootstrap interval: users are drawn with replacement.

    >>> found = interval(np.array([0.0, 1.0] * 200))
    >>> found.mean, 0.44 < found.low < 0.46, 0.54 < found.high < 0.56
    (0.5, True, True)
    """
    values = _one_each(values)
    if not 0 < level < 1:
        raise PlanError(f"level must lie between 0 and 1, got {level}; 0.95 is usual.")
    if resamples < 1:
        raise PlanError(f"resamples must be at least 1, got {resamples}; 2000 is usual.")
    mean, note = float(values.mean()), ""
    if values.size == 1:
        note = "one user allows no interval"
    elif _flat(values):
        note = "every user has the same value"
    if note:
        return ConfidenceInterval(mean, mean, mean, values.size, level, note)
    means = _resample(np.random.default_rng(seed), values, resamples)
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return ConfidenceInterval(mean, float(low), float(high), values.size, level)


def paired_test(ours: np.ndarray, theirs: np.ndarray, name: str = "difference", **options: Any) -> PairedTest:
    """Ours against theirs, user by user: the mean difference with its interval, and two paired two-sided tests.

    Where a test is undefined, its p-value is 1 and a note says why. `options` are those of `interval`.
    """
    ours, theirs = _one_each(ours), _one_each(theirs)
    if ours.size != theirs.size:
        raise DataError(f"A paired comparison needs the same users twice, got {ours.size} and {theirs.size} values.")
    # What differs by rounding alone is equal: the Wilcoxon test ranks differences and must see ties as ties.
    difference = np.round(ours - theirs, 12)
    found = replace(interval(difference, **options), note="")
    t, wilcoxon, note = _tests(difference)
    return PairedTest(name, found, t, wilcoxon, t, note=note)


def paired_tests(
    ours: np.ndarray,
    others: Mapping[str, np.ndarray],
    *,
    test: Literal["t", "wilcoxon"] = "t",
    correction: Literal["holm", "bonferroni", "none"] = "holm",
    **options: Any,
) -> list[PairedTest]:
    """Ours against each of several others on the same users; p-values are corrected for how many there are."""
    if test not in TESTS:
        raise PlanError(unknown("compare_all", test, TESTS, "test"))
    each = [paired_test(ours, theirs, name, **options) for name, theirs in others.items()]
    p = correct_p_values(np.array([getattr(one, test) for one in each]), correction)
    label = f"{test}, {correction} of {len(each)}"
    return [replace(one, p=float(mine), correction=label) for one, mine in zip(each, p)]


def correct_p_values(p: np.ndarray, correction: Literal["holm", "bonferroni", "none"] = "holm") -> np.ndarray:
    """P-values corrected so that the chance of any false alarm among them stays below the level of each test.

    >>> correct_p_values(np.array([0.01, 0.04, 0.03]), "holm").round(3).tolist()
    [0.03, 0.06, 0.06]
    """
    if correction not in CORRECTIONS:
        raise PlanError(unknown("correct", correction, CORRECTIONS, "correction"))
    p = np.asarray(p, float)
    if correction == "none":
        return p
    if correction == "bonferroni":
        return np.minimum(p * p.size, 1)
    # Holm: the smallest times m, the next times m − 1, …; never less than the one before.
    order = np.argsort(p)
    stepped = np.maximum.accumulate(p[order] * np.arange(p.size, 0, -1))
    corrected = np.empty_like(p)
    corrected[order] = np.minimum(stepped, 1)
    return corrected


def interval_by_group(
    values: np.ndarray, groups: np.ndarray, names: Mapping[Any, str] | None = None, **options: Any
) -> dict[str, ConfidenceInterval]:
    """The mean, interval and number of users of each group, in the groups' order.

    >>> print(interval_by_group(np.array([1.0, 1.0, 0.0]), np.array(["new", "new", "old"]))["new"])
    1.0000 [1.0000, 1.0000] (95%, 2 users): every user has the same value
    """
    values, groups = _one_each(values), np.asarray(groups)
    if groups.shape != values.shape:
        raise DataError(f"Every user needs a group, got {values.size} values and {groups.size} groups.")
    labels, at = np.unique(groups, return_inverse=True)
    called = [str(label) if names is None else names[label.item()] for label in labels]
    return {name: interval(values[at == i], **options) for i, name in enumerate(called)}


def interval_by_history(
    values: np.ndarray, lengths: np.ndarray, parts: int = 4, **options: Any
) -> dict[str, ConfidenceInterval]:
    """Results for users with few and with many events: `parts` groups of about equal size by length of history.

    Users with equally long histories stay together, so there may be fewer groups. A group is called by its range.

    >>> list(interval_by_history(np.array([0.1, 0.2, 0.3, 0.4]), np.array([5, 9, 30, 200]), parts=2))
    ['5 to 9 events', '30 to 200 events']
    """
    if parts < 1:
        raise PlanError(f"parts must be at least 1, got {parts}; 4 is usual.")
    lengths = np.asarray(lengths)
    if lengths.shape != np.shape(values):
        raise DataError(f"Every user needs a length, got {np.size(values)} values and {lengths.size} lengths.")
    edges = np.quantile(lengths, np.arange(1, parts) / parts, method="lower")
    group = np.searchsorted(edges, lengths)
    names = {int(g): _range(lengths[group == g]) for g in np.unique(group)}
    return interval_by_group(values, group, names, **options)


def _one_each(values: np.ndarray) -> np.ndarray:
    values = np.asarray(values, float)
    if values.ndim != 1 or values.size == 0:
        raise DataError(f"Statistics need one value for each user, got an array of shape {values.shape}.")
    if not np.isfinite(values).all():
        raise DataError(f"Every user's value must be a finite number, user {np.argmin(np.isfinite(values))}'s is not.")
    return values


def _resample(rng: np.random.Generator, values: np.ndarray, resamples: int) -> np.ndarray:
    """Means of `resamples` draws of all users with replacement."""
    distinct, counts = np.unique(values, return_counts=True)
    if distinct.size <= 100:  # hit rates and the like: drawing how often each value occurs is the same, and far faster
        return rng.multinomial(values.size, counts / values.size, size=resamples) @ distinct / values.size
    block = max(1, _BLOCK // values.size)
    sizes = [min(block, resamples - start) for start in range(0, resamples, block)]
    return np.concatenate([values[rng.integers(values.size, size=(k, values.size))].mean(1) for k in sizes])


def _tests(difference: np.ndarray) -> tuple[float, float, str]:
    """P-values of the paired t-test and of Wilcoxon's, and a note where one of them is undefined."""
    if not difference.any():
        return 1.0, 1.0, "no user's value differs"
    if difference.size == 1:
        return 1.0, 1.0, "one user allows no test"
    nonzero = difference[difference != 0]
    ranked: Any = stats.wilcoxon(nonzero)
    if _flat(difference):
        return 1.0, float(ranked.pvalue), "every user differs by the same, which leaves the t-test no spread"
    # With n differences, the smallest p-value Wilcoxon's test can give is 2 / 2ⁿ.
    note = f"Wilcoxon's test cannot reach 0.05 with {nonzero.size} users who differ" if nonzero.size < 6 else ""
    student: Any = stats.ttest_1samp(difference, 0.0)
    return float(student.pvalue), float(ranked.pvalue), note


def _flat(values: np.ndarray) -> bool:
    """Whether values differ by rounding at most."""
    return bool(np.ptp(values) <= 1e-12 * np.abs(values).max())


def _people(count: int) -> str:
    return f"{count} user{'s' if count != 1 else ''}"


def _range(lengths: np.ndarray) -> str:
    low, high = lengths.min(), lengths.max()
    return f"{low} to {high} events" if low != high else f"{low} event{'s' if low != 1 else ''}"
