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
DRAWN_SHARES = (*GUESSED_SHARES, 0.02)  # where few canaries are drawn, and nobody sees which
_MOST_EFFECT = 30.0  # a larger one adds nothing to a bound
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
    scores: np.ndarray,
    coins: np.ndarray,
    delta: float,
    confidence: float,
    relation: str | None = None,
    shares: tuple[float, ...] = GUESSED_SHARES,
) -> Evidence:
    """What scores float[m] prove about coins bool[m]; `relation`: normal noise is claimed, between these neighbours.

    `shares` are those of the canaries that are guessed, the most certain first.

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
    alpha = error_of_each(confidence, shares)
    right = (scores > 0) == coins
    curve = None if relation is None else gaussian_bound(int(right.sum()), coins.size, delta, alpha, relation)
    return Evidence(
        coins.size,
        int(right.sum()),
        auc(scores, coins),
        tpr_at(scores, coins),
        one_run_bound(np.abs(scores), right, delta, alpha, shares),
        curve,
    )


def error_of_each(confidence: float, shares: tuple[float, ...] = GUESSED_SHARES) -> float:
    """The chance that one bound fails: there is one for each share of guesses, and one that assumes normal noise."""
    return (1 - confidence) / (len(shares) + 1)


def one_run_bound(
    certainty: np.ndarray,
    right: np.ndarray,
    delta: float,
    alpha: float,
    shares: tuple[float, ...] = GUESSED_SHARES,
) -> float:
    """ε at least, by right and wrong guesses about coins that were tossed independently: nothing else is assumed.

    Steinke, Nasr and Jagielski, "Privacy auditing with one (1) training run" (NeurIPS 2023).
    """
    auditing = load_auditing()
    # The auditor counts hits and misses above a threshold; one artificial guess of each keeps its lists from being empty.
    hits, misses = np.append(certainty[right], -1.0), np.append(certainty[~right], -1.0)
    auditor = auditing.CanaryScoreAuditor(hits, misses)
    ranked = np.sort(certainty)[::-1]
    cuts = [float(ranked[max(0, math.ceil(share * certainty.size) - 1)]) for share in shares]
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

    effect = normal_effect(right, canaries, alpha)
    if effect <= 1e-3:
        return 0.0
    reach = 2.0 if relation == "replace_one" else 1.0  # by how many bounds two neighbours differ
    return accountant.compose(((Gaussian(reach / effect), 1),), delta, relation).epsilon


def normal_effect(right: int, guesses: int, alpha: float) -> float:
    """How far apart the two values of a bit are at least, in standard deviations, if the noise is normal.

    >>> round(normal_effect(841, 1000, 0.5), 1)
    2.0
    """
    return max(0.0, float(2 * stats.norm.ppf(at_least(right, guesses, alpha))))


def at_least(hits: int, trials: int, alpha: float) -> float:
    """The least chance of a hit that explains so many of them (Clopper and Pearson)."""
    return float(stats.beta.ppf(alpha, hits, trials - hits + 1)) if hits else 0.0


# ---- where cohorts are drawn at random ----


def drawn_score(scores: np.ndarray, effect: float, rate: float, presence: bool) -> np.ndarray:
    """The log-likelihood ratio of a bit of 1 in each round, for an attacker who does not see whether a canary was drawn.

    `scores` are float[rounds, canaries] in any unit, and `effect` is how far the two values of a bit are apart in
    standard deviations of the noise if a canary was drawn, which happens at `rate`. Where the bit is the canary's
    `presence`, 0 is as if it had not been drawn.
    """
    high, low, both = (effect, 0.0, rate / 2) if presence else (effect / 2, -effect / 2, rate)
    means, weights = (
        np.array([0.0, high, low]),
        np.array([1 - both, both, 0.0] if presence else [1 - rate, rate / 2, rate / 2]),
    )
    middle, spread = _middle_and_spread(means, weights)
    found = np.median(scores, axis=1, keepdims=True)
    apart = np.median(np.abs(scores - found), axis=1, keepdims=True)
    unit = np.maximum(apart / spread, 1e-9 * np.abs(scores).max() + 1e-30)
    where = (scores - found) / unit + middle

    def mixed(mean: float) -> np.ndarray:
        with np.errstate(divide="ignore"):
            return np.logaddexp(np.log1p(-rate), np.log(rate) + mean * where - mean**2 / 2)

    return mixed(high) - mixed(low)


def _middle_and_spread(means: np.ndarray, weights: np.ndarray) -> tuple[float, float]:
    """The median of normal numbers around these means, and the median distance from it."""
    x = np.linspace(means.min() - 8, means.max() + 8, 20_001)
    shares = (stats.norm.cdf(x[:, None] - means) * weights).sum(1)
    middle = float(np.interp(0.5, shares, x))
    near = np.linspace(0, x[-1] - x[0], 20_001)
    inside = np.interp(middle + near, x, shares) - np.interp(middle - near, x, shares)
    return middle, float(np.interp(0.5, inside, near))


def drawn_bound(effect: float, drawn: np.ndarray, delta: float, alpha: float) -> float:
    """ε at least, if a drawn canary moves normal noise by this `effect` and the noise does not depend on draws.

    `drawn` is bool[rounds, canaries]. Two tests for a device's presence do not see it: the best one for independent draws
    at the rate that was seen, and one of the sum of all rounds, for devices that are drawn again and again.
    """
    from tacit.privacy.accounting.pld import attack_lower_bound

    rounds, counts, effect = drawn.shape[0], drawn.sum(0), min(effect, _MOST_EFFECT)
    often = sorted({min(2**power, rounds) for power in range(rounds.bit_length() + 1)})
    alpha = alpha / (len(often) + 1)
    rate = at_least(int(counts.sum()), drawn.size, alpha)
    if rate == 0 or effect <= 1e-3:
        return 0.0
    cut, found = np.linspace(0, 30, 601), [attack_lower_bound(rate, 1 / effect, rounds, delta)]
    for times in often:
        share = at_least(int((counts >= times).sum()), counts.size, alpha)
        seen = share * stats.norm.sf(cut - times * effect / math.sqrt(rounds)) - delta
        found.append(float(np.max(np.log(np.maximum(seen, 1e-300)) - stats.norm.logsf(cut))))
    return max(0.0, *found)


def drawn_pure_bound(certainty: np.ndarray, right: np.ndarray, drawn: np.ndarray, delta: float, alpha: float) -> float:
    """ε at least of one round, from guesses about canaries that all were asked, if draws do not depend on anything else.

    What is not (ε, δ/q) if a device is in the cohort for certain is not (ln(1 + q(e^ε − 1)), δ) if that happens at rate q.
    """
    from tacit.privacy.accounting.closed_form import amplified

    rate = at_least(int(drawn.sum()), drawn.size, alpha)
    if rate <= delta:
        return 0.0
    return amplified(one_run_bound(certainty, right, delta / rate, alpha / len(GUESSED_SHARES)), rate)


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
