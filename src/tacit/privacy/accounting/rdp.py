"""Rényi differential privacy (RDP) bounds, and the import of dp-accounting: lazy, and checked at first use.

dp-accounting 0.6 has two pitfalls that give wrong numbers: its PLD accountant counts repeated randomised response once, and
its two accountants define the noise multiplier under replace-one differently. Neither is relied on: counts of randomised
response are never passed to it, and the unit is measured. When this behaviour changes, a warning says so, and the results
stay right.
"""

import logging
import math
import warnings
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from scipy.special import log_expit

from tacit.privacy.accounting.events import (
    Event,
    FixedGaussian,
    Gaussian,
    PoissonGaussian,
    Pure,
    Relation,
    Spent,
    distance,
)

ORDERS = np.array([*(1 + x / 10 for x in range(1, 100)), *range(11, 64), 128, 256, 512, 1024])
_WHOLE_ORDERS = np.arange(2, 65)  # the orders of the classic bound
_ROUNDING = 1e-13  # sums in log space are exact to about 1e-15; this much is added to stay on the safe side


class Upstream(NamedTuple):
    """The parts of dp-accounting that are used."""

    accounting: Any  # dp_accounting: events and relations
    rdp: Any  # dp_accounting.rdp
    pld: Any  # dp_accounting.pld.privacy_loss_distribution
    pmf: Any  # dp_accounting.pld.pld_pmf


@lru_cache(maxsize=1)
def upstream() -> Upstream:
    """dp-accounting, imported at first use (it takes a second) and checked."""
    import dp_accounting
    from dp_accounting import rdp
    from dp_accounting.pld import pld_pmf, privacy_loss_distribution

    # An order that does not converge is left out of the minimum, which is safe and needs no message.
    logging.getLogger("absl").addFilter(lambda record: "failed to converge" not in record.getMessage())
    found = Upstream(dp_accounting, rdp, privacy_loss_distribution, pld_pmf)
    for change in upstream_changes(found):
        warnings.warn(f"dp-accounting has changed: {change}", RuntimeWarning, stacklevel=2)
    return found


def upstream_changes(found: Upstream) -> list[str]:
    """Which behaviour of dp-accounting, worked around here, has changed; one sentence each."""
    noticed = []
    if counts_responses(found):
        noticed.append(
            "PLDAccountant now honours the count of RandomizedResponseDpEvent; results are unaffected, and "
            "tacit.privacy.accounting.pld need no longer build its own distribution for Pure events."
        )
    if replace_unit(found) != 1.0:
        noticed.append(
            f"RdpAccountant now divides a noise multiplier by {replace_unit(found):g} under REPLACE_ONE; results are "
            "unaffected because the unit is measured, and replace_unit in tacit.privacy.accounting.rdp can go."
        )
    return noticed


def counts_responses(found: Upstream) -> bool:
    """Whether two randomised responses cost more than one in the PLD accountant."""
    accounting = found.accounting
    relation = accounting.NeighboringRelation.REPLACE_ONE
    response = accounting.RandomizedResponseDpEvent(noise_parameter=0.5, num_buckets=2)  # ε = ln 3
    accountant = accounting.pld.PLDAccountant(relation).compose(response, 2)
    return accountant.get_epsilon(1e-6) > 1.5 * math.log(3)


def replace_unit(found: Upstream) -> float:
    """By how much RdpAccountant divides a noise multiplier under replace-one: 1 in 0.6.0, 2 if it counts per record."""
    accountant = found.rdp.RdpAccountant([2.0], found.accounting.NeighboringRelation.REPLACE_ONE)
    everybody = found.accounting.SampledWithoutReplacementDpEvent(1, 1, found.accounting.GaussianDpEvent(1.0))
    return math.sqrt(accountant.compose(everybody).rdp[0])  # at order 2, α/2z² = 1/z²


@lru_cache(maxsize=64)
def _fixed(devices: int, cohort: int, multiplier: float, whole: bool) -> np.ndarray:
    """Rényi divergences of one round with a cohort of fixed size (Wang, Balle, Kasiviswanathan 2019)."""
    found = upstream()
    accounting = found.accounting
    orders = _WHOLE_ORDERS if whole else ORDERS
    accountant = found.rdp.RdpAccountant(orders, accounting.NeighboringRelation.REPLACE_ONE)
    noise = accounting.GaussianDpEvent(multiplier * replace_unit(found))
    return accountant.compose(accounting.SampledWithoutReplacementDpEvent(devices, cohort, noise)).rdp


@lru_cache(maxsize=64)
def _poisson(rate: float, multiplier: float) -> np.ndarray:
    """Rényi divergences of one round in which a device is drawn by its own coin (Mironov, Talwar, Zhang 2019)."""
    found = upstream()
    noise = found.accounting.GaussianDpEvent(multiplier)
    return found.rdp.RdpAccountant(ORDERS).compose(found.accounting.PoissonSampledDpEvent(rate, noise)).rdp


def _pure(epsilon: float) -> np.ndarray:
    """Rényi divergences of randomised response, the worst that pure ε allows: ln(pᵅq¹⁻ᵅ + qᵅp¹⁻ᵅ)/(α−1)."""
    p, q = log_expit(epsilon), log_expit(-epsilon)
    total = np.logaddexp(ORDERS * p + (1 - ORDERS) * q, ORDERS * q + (1 - ORDERS) * p)
    return np.minimum(total / (ORDERS - 1), epsilon)


def _divergences(event: Event, relation: Relation) -> np.ndarray:
    """Rényi divergences of one event. For Poisson sampling under replace-one, as if all devices were drawn: no better bound is known."""
    far = distance(event, relation)
    match event:
        case Pure():
            return _pure(event.epsilon)
        case FixedGaussian():
            return _fixed(event.devices, event.cohort, event.noise / far, whole=False)
        case PoissonGaussian() if relation != "replace_one":
            return _poisson(event.rate, event.noise)
        case Gaussian() | PoissonGaussian():
            return ORDERS * (far / event.noise) ** 2 / 2
        case _:
            return np.full(ORDERS.size, np.inf)


def renyi_epsilon(spent: Spent, relation: Relation, delta: float) -> float:
    """An upper bound on ε for these events together, by Rényi divergence."""
    total = sum((count * _divergences(event, relation) for event, count in spent), np.zeros(ORDERS.size))
    return _improved(total, sum(count for _, count in spent), delta)


def _improved(total: np.ndarray, count: int, delta: float) -> float:
    """ε from Rényi divergences, by the improved conversion (Canonne, Kamath, Steinke 2020)."""
    safe = np.where(np.isnan(total), np.inf, np.maximum(total, 0.0) + count * _ROUNDING)
    return float(upstream().rdp.compute_epsilon(ORDERS, safe, delta)[0])


def rdp_fixed(
    devices: int, cohort: int, multiplier: float, rounds: int, delta: float, conversion: str = "improved"
) -> float:
    """ε of `rounds` rounds, each with a cohort of fixed size drawn without replacement; replace-one.

    `multiplier` is the standard deviation of the noise over how far the cohort's result moves when one member is
    replaced: z in σ = z·2S/M. `conversion` is `improved`, or `classic`: ε = rdp + ln(1/δ)/(α−1) at whole orders.
    """
    if conversion == "improved":
        return _improved(rounds * _fixed(devices, cohort, multiplier, whole=False), rounds, delta)
    total = rounds * _fixed(devices, cohort, multiplier, whole=True)
    return float(np.min(total - math.log(delta) / (_WHOLE_ORDERS - 1)))


def rdp_poisson(rate: float, multiplier: float, rounds: int, delta: float) -> float:
    """ε of `rounds` rounds in which each device is drawn by its own coin; add-remove.

    `multiplier` is the standard deviation of the noise over the most one device contributes.
    """
    return _improved(rounds * _poisson(rate, multiplier), rounds, delta)
