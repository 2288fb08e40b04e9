"""Closed-form bounds on ε, and the rules for δ."""

from collections.abc import Iterable

import numpy as np
from scipy.special import expit, gammaln, log_expit

from tacit.errors import PlanError
from tacit.privacy.accounting.events import check_least_delta
from tacit.privacy.accounting.pld import hockey_stick
from tacit.privacy.accounting.rdp import upstream


def pure_sum(epsilon: float, count: int) -> float:
    """ε of `count` messages of pure ε each; any sampling, any neighbours the messages hold for."""
    return count * epsilon


def kov(epsilon: float, count: int, delta: float) -> float:
    """ε of `count` messages of pure ε each when δ may be given up; tight (Kairouz, Oh, Viswanath 2015).

    Any sampling and any neighbours the messages hold for; there is no multiplier.
    """
    lies = np.arange(count // 2 + 1)
    log_ways = gammaln(count + 1) - gammaln(lies + 1) - gammaln(count - lies + 1)
    p, q = log_expit(epsilon), log_expit(-epsilon)
    log_upper = np.logaddexp.accumulate(log_ways + (count - lies) * p + lies * q)
    log_lower = np.logaddexp.accumulate(log_ways + lies * p + (count - lies) * q)
    # δ(ε) = max over k of U_k − e^ε·L_k, where U and L sum the k largest losses; so ε = max ln((U_k − δ)/L_k).
    beyond = np.maximum(np.exp(log_upper) - delta, 0.0)
    with np.errstate(divide="ignore"):
        found = float(np.max(np.log(beyond) - log_lower))
    return min(max(0.0, found), count * epsilon)


def gaussian_epsilon(multiplier: float, delta: float) -> float:
    """ε of one Gaussian mechanism without sampling; analytic (Balle and Wang 2018), for any neighbours.

    `multiplier` is the standard deviation of the noise over how far two neighbours can differ in L2 norm.
    """
    return float(upstream().accounting.get_epsilon_gaussian(multiplier, delta))


def gaussian_delta(multiplier: float, epsilon: float) -> float:
    """δ of one Gaussian mechanism at ε; sampling, neighbours and multiplier as in `gaussian_epsilon`."""
    if multiplier == 0:
        return 1.0
    return float(hockey_stick(np.array(epsilon), multiplier))


def gaussian_noise(epsilon: float, delta: float) -> float:
    """The least multiplier of one Gaussian mechanism for ε at δ; sampling and neighbours as in `gaussian_epsilon`."""
    return float(upstream().accounting.get_sigma_gaussian(epsilon, delta))


def amplified(epsilon: float, rate: float) -> float:
    """Pure ε where a cohort of this share of the devices, of fixed size, is drawn without replacement: ln(1 + q(e^ε − 1)).

    Replace-one (Balle, Barthe and Gaboardi 2018), as long as it stays secret who was drawn.

    >>> round(amplified(1.0, 0.01), 6), amplified(1.0, 1.0)
    (0.017037, 1.0)
    """
    return float(np.logaddexp(np.log1p(-rate), np.log(rate) + epsilon)) if 0 < rate < 1 else epsilon * (rate > 0)


def unamplified(epsilon: float, rate: float) -> float:
    """The pure ε of a cohort's members that comes to this ε by drawing them: ln(1 + (e^ε − 1)/q).

    >>> round(unamplified(amplified(1.0, 0.01), 0.01), 6)
    1.0
    """
    return float(np.log1p(np.expm1(epsilon) / rate)) if epsilon < 700 else epsilon - float(np.log(rate))


def parallel(epsilons: Iterable[float]) -> float:
    """ε of parts that hold different people's data, such as silos with no person in common: the largest."""
    return max(epsilons, default=0.0)


def group_privacy(epsilon: float, size: int) -> float:
    """Pure ε for `size` units that change together: size·ε."""
    return size * epsilon


def guess_bound(epsilon: float, delta: float = 0.0) -> float:
    """The highest accuracy of guessing which of two equally likely neighbours it was: (e^ε + δ)/(1 + e^ε).

    >>> round(guess_bound(1.0), 3)
    0.731
    """
    return min(1.0, float(expit(epsilon) + delta * expit(-epsilon)))


def default_delta(devices: int) -> float:
    """A δ to use when none is given: the largest power of ten below 1/devices^1.1, at most 1e-5.

    >>> default_delta(100), default_delta(1_000_000)
    (1e-05, 1e-07)
    """
    exponent = 5
    while float(f"1e-{exponent}") >= largest_delta(devices):
        exponent += 1
    return float(f"1e-{exponent}")


def largest_delta(devices: int) -> float:
    """δ must stay below it: at 1/devices, a mechanism may publish one person's data and still keep its promise."""
    return devices**-1.1


def check_delta(delta: float, devices: int, where: str = "delta") -> None:
    """Refuse a δ that promises too little to so many devices."""
    check_delta_range(delta, where)
    check_least_delta(delta, where)
    if delta >= largest_delta(devices):
        raise PlanError(
            f"{where} must be below 1/devices^1.1 = {largest_delta(devices):.2g} for {devices} devices (larger values "
            f"are refused: they allow a person's data to be published outright), got {delta!r}; leave it out, or "
            f"write {default_delta(devices):g}."
        )


def check_delta_range(delta: float, where: str = "delta") -> None:
    """Refuse a δ outside [0, 1)."""
    if not 0 <= delta < 1:
        raise PlanError(f"{where} must be at least 0 and below 1, got {delta!r}; 0 means pure ε.")
