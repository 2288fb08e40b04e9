"""Evidence: lower bounds on ε from guesses about canaries, and the accuracy of the guesses.

A canary is a random bit that only one device knows. The auditor gives each bit a score from what was released, high for 1
and low for 0. If the two can hardly be distinguished, as claimed, many right guesses are very unlikely.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from tacit.errors import PlanError

GUESSED_SHARES = (1.0, 0.5, 0.1)  # of the canaries, the most certain guesses first; fixed before any score is seen
_PURE = 1e-12  # the δ of a claim that has none: the auditor wants one above 0


class Evidence(NamedTuple):
    """The results of the guesses; the bounds hold together with the requested confidence."""

    canaries: int
    right: int  # when every bit is guessed
    auc: float
    tpr: float  # true positives at 1 % false positives
    proved: float  # ε is at least this, whatever the code does
    curve: float | None  # ... if the noise is normal and the canaries are independent; None: not what is claimed

    @property
    def accuracy(self) -> float:
        """The share of right guesses."""
        return self.right / self.canaries

    @property
    def epsilon(self) -> float:
        """The larger of the two bounds."""
        return self.proved if self.curve is None else max(self.proved, self.curve)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {**self._asdict(), "accuracy": self.accuracy}


def weigh_guesses(
    scores: np.ndarray, coins: np.ndarray, delta: float, confidence: float, relation: str | None = None
) -> Evidence:
    """What scores float[m] prove about coins bool[m]; `relation`: normal noise is claimed, between these neighbours.

    >>> coins = np.arange(400) % 2 == 0
    >>> found = weigh_guesses(np.where(coins, 1.0, -1.0), coins, 1e-5, 0.95)
    >>> found.accuracy, round(found.proved, 1)
    (1.0, 4.5)
    """
    if not 0.5 < confidence < 1:
        raise PlanError(f"confidence must lie between 0.5 and 1, got {confidence:g}; 0.99 is usual.")
    scores, coins = np.asarray(scores, float), np.asarray(coins, bool)
    if coins.all() or not coins.any():
        raise PlanError(f"canaries must be more, got {coins.size}, whose coins all fell alike; 100 is a beginning.")
    alpha = (1 - confidence) / (len(GUESSED_SHARES) + 1)
    right = (scores > 0) == coins
    curve = None if relation is None else gaussian_bound(int(right.sum()), coins.size, delta, alpha, relation)
    return Evidence(
        coins.size,
        int(right.sum()),
        auc(scores, coins),
        tpr_at(scores, coins),
        one_run_bound(np.abs(scores), right, delta, alpha),
        curve,
    )


def one_run_bound(certainty: np.ndarray, right: np.ndarray, delta: float, alpha: float) -> float:
    """ε at least, by right and wrong guesses about coins that were tossed independently: nothing else is assumed.

    Steinke, Nasr and Jagielski, "Privacy auditing with one (1) training run" (NeurIPS 2023).
    """
    auditing = load_auditing()
    # The auditor counts hits and misses above a threshold; one artificial guess of each keeps its lists from being empty.
    hits, misses = np.append(certainty[right], -1.0), np.append(certainty[~right], -1.0)
    auditor = auditing.CanaryScoreAuditor(hits, misses)
    ranked = np.sort(certainty)[::-1]
    cuts = [float(ranked[max(0, math.ceil(share * certainty.size) - 1)]) for share in GUESSED_SHARES]
    bounds = [
        auditor.epsilon_one_run(alpha, max(delta, _PURE), threshold_strategy=auditing.Explicit(cut)) for cut in cuts
    ]
    return float(max(bounds))


def gaussian_bound(right: int, canaries: int, delta: float, alpha: float, relation: Any) -> float:
    """ε at least, if scores are ±μ/2 with normal noise of deviation 1, each by itself: from how many guesses are right.

    P(right) = Φ(μ/2), and the claim is that of one normal noise with this μ.
    """
    from tacit.privacy.accounting import accountant
    from tacit.privacy.accounting.events import Gaussian

    low = stats.beta.ppf(alpha, right, canaries - right + 1) if right else 0.0
    mu = float(2 * stats.norm.ppf(low))
    if mu <= 1e-3:
        return 0.0
    reach = 2.0 if relation == "replace_one" else 1.0  # by how many bounds two neighbours differ
    return accountant.compose(((Gaussian(reach / mu), 1),), delta, relation).epsilon


def most_accurate(epsilon: float, delta: float) -> float:
    """The highest accuracy of a guess between two equally likely neighbours: (e^ε + δ)/(1 + e^ε).

    >>> round(most_accurate(2.0, 0.0), 3), most_accurate(math.inf, 0.0)
    (0.881, 1.0)
    """
    return float(min(1.0, stats.logistic.cdf(epsilon) + delta * stats.logistic.cdf(-epsilon)))


def auc(scores: np.ndarray, truth: np.ndarray) -> float:
    """How often a score of what is true is above one of what is not; ties count half.

    >>> auc(np.array([3.0, 1.0, 2.0]), np.array([True, False, False]))
    1.0
    """
    yes, no = scores[truth], scores[~truth]
    ranks = stats.rankdata(np.concatenate([yes, no]))[: yes.size]
    return float((ranks.sum() - yes.size * (yes.size + 1) / 2) / (yes.size * no.size))


def tpr_at(scores: np.ndarray, truth: np.ndarray, fpr: float = 0.01) -> float:
    """The share of what is true above a cut that at most this share of what is not reaches.

    >>> tpr_at(np.array([3.0, 1.0, 2.0]), np.array([True, True, False]))
    0.5
    """
    no = np.sort(scores[~truth])[::-1]
    return float((scores[truth] > no[math.floor(fpr * no.size)]).mean())


def load_auditing() -> Any:
    """The auditor of jax-privacy, which comes with the extra `audit`."""
    try:
        from jax_privacy import auditing
    except ModuleNotFoundError:
        raise PlanError("An audit needs jax-privacy, which is not installed; pip install 'tacit[audit]'.") from None
    return auditing
