"""Accountant: composition of many events into one ε, and calibration of noise.

`compose` takes events and returns the tightest bound it can prove; `calibrate` and `per_message` are its inverses, rounded
to the safe side. The other functions are their parts; each states for which sampling and which neighbours it holds, and
what its multiplier means.

Neighbours. `replace_one`: one device's data is replaced by any other. `zero_out`: it is replaced by an empty contribution,
and the device still takes part. `add_remove`: the device is present or absent. Two neighbours' sums differ by at most one
contribution under the last two, and by two under the first, for a contribution and its replacement may be opposite; so
a Gaussian event of noise n has the multiplier n, or n/2.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

from scipy.optimize import brentq

from tacit.errors import PlanError
from tacit.privacy.accounting.closed_form import amplified as amplified
from tacit.privacy.accounting.closed_form import check_delta as check_delta
from tacit.privacy.accounting.closed_form import check_delta_range, gaussian_epsilon, kov
from tacit.privacy.accounting.closed_form import default_delta as default_delta
from tacit.privacy.accounting.closed_form import gaussian_delta as gaussian_delta
from tacit.privacy.accounting.closed_form import gaussian_noise as gaussian_noise
from tacit.privacy.accounting.closed_form import group_privacy as group_privacy
from tacit.privacy.accounting.closed_form import guess_bound as guess_bound
from tacit.privacy.accounting.closed_form import parallel as parallel
from tacit.privacy.accounting.closed_form import pure_sum as pure_sum
from tacit.privacy.accounting.closed_form import unamplified as unamplified
from tacit.privacy.accounting.events import (
    LEAST_DELTA,
    CorrelatedGaussian,
    Drawn,
    Event,
    FixedGaussian,
    FixedPure,
    Gaussian,
    PoissonGaussian,
    Pure,
    Relation,
    Spent,
    SplitGaussian,
    Unbounded,
    distance,
    undrawn,
)
from tacit.privacy.accounting.pld import SMALLEST_DELTA, attack_lower_bound, composed_epsilon
from tacit.privacy.accounting.pld import EpsilonInterval as EpsilonInterval
from tacit.privacy.accounting.pld import pld_fixed as pld_fixed
from tacit.privacy.accounting.pld import pld_poisson as pld_poisson
from tacit.privacy.accounting.pld import pld_poisson_replace as pld_poisson_replace
from tacit.privacy.accounting.rdp import rdp_fixed as rdp_fixed
from tacit.privacy.accounting.rdp import rdp_poisson as rdp_poisson
from tacit.privacy.accounting.rdp import renyi_epsilon

_RELATIONS = ("replace_one", "add_remove", "zero_out")
_NOISES = (1e-4, 1e9)  # the range of calibration
_CARRIED = (1e-9, 1e12)  # the noise that bounds are computed for: less counts as none, more as this much
_ON_A_GRID = 1e6  # the same for what is composed on a grid
_MOST_EPSILON = 1e6  # a larger ε of one event counts as no bound
_LEAST_RATE = 1e-12  # a smaller rate of sampling counts as this one
_CLOSE = 5e-5  # how close to the least noise calibration comes, relatively


@dataclass(frozen=True)
class Bound:
    """An upper bound on ε, the best known lower bound, and the analysis that gave the upper one."""

    epsilon: float
    lower: float  # proved by an attack; 0 when nothing is known
    by: str


# ---- many events together ----


def compose(spent: Iterable[tuple[Event, int]], delta: float, relation: Relation = "replace_one") -> Bound:
    """The tightest bound on ε for all these events together: rounds, messages and stages alike.

    >>> compose([(Pure(1.0), 3)], 0.0)
    Bound(epsilon=3.0, lower=0.0, by='pure sum')

    Pure events of replace-one hold between any two inputs, so they cover zero-out; under add-remove they are refused, because
    a message shows that its sender took part. Those of add-remove, such as one interaction more or less, count twice under
    replace-one. A cohort of fixed size is analysed under replace-one only.

    What events state as `gap` and `silence` is taken off δ first. Where δ = 0, nothing can be: a total of pure ε then holds
    but for the gap, which is far below any δ in use. A δ as small as a gap is one, and counts as 0.
    """
    check_delta_range(delta)
    delta = delta if delta >= LEAST_DELTA else 0.0
    spent = tuple(spent)
    return _compose(_tidy(spent, relation), _lost(spent, relation), delta, relation)


@lru_cache(maxsize=1024)
def _compose(spent: Spent, lost: "Lost", delta: float, relation: Relation) -> Bound:
    epsilon, by = _price(spent, lost, delta, relation)
    exact = by in ("analytic Gaussian", "none", "nothing sent")
    lower = epsilon if exact else _lower_bound(spent, delta, relation)
    return Bound(epsilon, min(lower, epsilon), by)


# ---- what is taken off δ ----


class Lost(NamedTuple):
    """What is taken off δ before composing: that of silence grows with e^ε, because P may gain it while e^ε·P′ loses it."""

    of_silence: float  # as a distance in total variation, with the ε of everything together
    of_gaps: float  # Σ over messages and sums of what the gap of each does to its own δ

    def delta(self, epsilon: float) -> float:
        """The part of δ."""
        return self.of_silence * (1 + math.exp(min(epsilon, 700.0))) + self.of_gaps

    def without_draws(self) -> "Lost":
        """The same where sampling is not counted on."""
        return self._replace(of_silence=0.0)


def total_delta(deltas: Iterable[float]) -> float:
    """The δ of several claims together: the largest that was given up, or, where none was, all that tables leave of pure ε."""
    deltas = tuple(deltas)
    largest = max(deltas, default=0.0)
    return largest if largest >= LEAST_DELTA else math.fsum(deltas)


def gap_delta(spent: Iterable[tuple[Event, int]], relation: Relation = "replace_one") -> float:
    """What the gaps of all these events add to δ.

    A message that is within a gap g of its law, between neighbours P and P′ whose δ at ε is h(ε), adds at most
    (1 + e^E)·g + h(E) to h at every ε, for any E: below E because of the gap, above it because h falls. Added at every ε, it is
    added to the δ of everything together, message by message, and does not grow with the ε of that.
    """
    return math.fsum(count * _gap_delta(event, relation) for event, count in spent)


@lru_cache(maxsize=1024)
def _gap_delta(event: Event, relation: Relation) -> float:
    gap = getattr(event, "gap", 0.0)
    if not gap:
        return 0.0
    plain = undrawn(event)  # sampling makes h smaller
    if isinstance(plain, Pure):
        return gap * (1 + math.exp(min(_between(plain, relation), 700.0)))
    # Of a sum that is priced with others, given those before it, neighbours differ by no more than of all sums together.
    assert isinstance(plain, Gaussian | CorrelatedGaussian | SplitGaussian)
    if plain.noise == 0:
        return 1.0
    multiplier = _together(((Gaussian(plain.noise), 1),), relation)
    return min(gap * (1 + math.exp(ceiling)) + gaussian_delta(multiplier, ceiling) for ceiling in range(1, 60))


def _lost(spent: Iterable[tuple[Event, int]], relation: Relation) -> Lost:
    spent = tuple(spent)
    return Lost(math.fsum(count * getattr(event, "silence", 0.0) for event, count in spent), gap_delta(spent, relation))


def _price(
    spent: Spent, lost: Lost, delta: float, relation: Relation, coarse: float | None = None
) -> tuple[float, str]:
    """The least bound at what is left of δ; where draws at random cost more of it than there is, without counting on them."""
    if not any(lost) or delta == 0:
        return _upper_bound(spent, delta, relation, coarse)
    slack = 1e-9 * delta  # of rounding: pure events whose tables leave just this δ have none left, and need none
    left = delta - lost.delta(0.0)
    for _ in range(50):
        if left < -slack:
            break
        left = max(left, 0.0)
        epsilon, by = _upper_bound(spent, left, relation, coarse)
        room = delta - lost.delta(epsilon)
        if left <= room or (left == 0 and room >= -slack):
            return epsilon, by
        left = delta - lost.delta(epsilon) * (1 + 1e-9)
    if not lost.of_silence:
        return math.inf, "none"
    plain = _tidy(((undrawn(event), count) for event, count in spent), relation)
    return _price(plain, lost.without_draws(), delta, relation, coarse)


def _upper_bound(spent: Spent, delta: float, relation: Relation, coarse: float | None = None) -> tuple[float, str]:
    """The least bound and its name. A search sets how `coarse` the grid is, and skips the slower bounds."""
    if not spent:
        return 0.0, "nothing sent"
    pure = [(event.epsilon, count) for event, count in spent if isinstance(event, Pure)]
    if any(isinstance(event, Unbounded) for event, _ in spent) or (delta == 0 and len(pure) < len(spent)):
        return math.inf, "none"
    if all(isinstance(event, Gaussian) for event, _ in spent):
        return gaussian_epsilon(_together(spent, relation), delta), "analytic Gaussian"
    found = [(math.fsum(count * epsilon for epsilon, count in pure), "pure sum")] if len(pure) == len(spent) else []
    if found and delta == 0:
        return found[0]
    if found and len(spent) == 1:
        return min(*found, (kov(*pure[0], delta), "KOV"))
    if delta >= SMALLEST_DELTA:
        found.append((composed_epsilon(spent, relation, delta, coarse or 1.0), "PLD"))
    if coarse is None or all(math.isinf(epsilon) for epsilon, _ in found):
        found.append((renyi_epsilon(spent, relation, delta), "RDP"))
    return min(found)


def _lower_bound(spent: Spent, delta: float, relation: Relation) -> float:
    """The bound of the best attack on a single kind of event; more events can only reveal more."""
    if delta < SMALLEST_DELTA:
        return 0.0
    found = [0.0]
    gaussians = tuple((event, count) for event, count in spent if isinstance(event, Gaussian))
    if gaussians:
        found.append(gaussian_epsilon(_together(gaussians, relation), delta))
    for event, count in spent:
        if isinstance(event, FixedGaussian):
            found.append(attack_lower_bound(event.cohort / event.devices, event.noise / event.apart, count, delta))
        if isinstance(event, PoissonGaussian):
            found.append(attack_lower_bound(event.rate, event.noise, count, delta))
    return max(found)


def _together(spent: Spent, relation: Relation) -> float:
    """The multiplier of the one Gaussian equivalent to all of these: 1/z² = Σ count/z²."""
    information = sum(
        count * (distance(event, relation) / event.noise) ** 2 for event, count in spent if isinstance(event, Gaussian)
    )
    return 1 / math.sqrt(information)


def _tidy(spent: Iterable[tuple[Event, int]], relation: Relation) -> Spent:
    """The same events checked, in their simplest form, equal ones counted together, sorted."""
    if relation not in _RELATIONS:
        raise PlanError(f"relation must be one of {', '.join(_RELATIONS)} to be accounted for, got {relation!r}.")
    totals: Counter[Event] = Counter()
    for event, count in spent:
        if isinstance(count, bool) or not isinstance(count, int) or count < 0:
            raise PlanError(f"the count of {event!r} must be a whole number, at least 0, got {count!r}.")
        parts = event.parts if isinstance(event, Pure) else 1
        totals[_simplest(_exact(event), relation)] += count * parts
    kept = [(event, count) for event, count in totals.items() if count and not _reveals_nothing(event)]
    if not all(isinstance(event, Gaussian) for event, _ in kept):
        kept = [(_at_most(event, _ON_A_GRID), count) for event, count in kept]
    return tuple(sorted(kept, key=repr))


def _at_most(event: Event, noise: float) -> Event:
    """The event with no more noise than this, which only makes it cost more."""
    return replace(event, noise=noise) if getattr(event, "noise", 0.0) > noise else event


def _exact(event: Event) -> Event:
    """The event without what is taken off δ."""
    if isinstance(event, Drawn):
        return replace(event, gap=0.0, silence=0.0)
    return replace(event, gap=0.0) if isinstance(event, Pure | Gaussian | CorrelatedGaussian | SplitGaussian) else event


def _simplest(event: Event, relation: Relation) -> Event:
    """Sampling everyone is no sampling; no noise is no bound. Refuses what has no meaning."""
    match event:
        case Pure(epsilon=epsilon, parts=parts):
            _check(epsilon >= 0 and parts >= 1, event, "an epsilon of at least 0 and at least 1 part")
            epsilon = _between(event, relation)
            return Unbounded("no randomness") if epsilon > _MOST_EPSILON else Pure(epsilon / parts)
        case FixedPure(epsilon=epsilon, cohort=cohort, devices=devices):
            _check(1 <= cohort <= devices, event, "a cohort of at least 1 and at most its devices")
            _check_replaced(event, relation)
            _check(epsilon >= 0, event, "an epsilon of at least 0")
            return _simplest(Pure(amplified(epsilon, cohort / devices)), relation)
        case CorrelatedGaussian(noise=noise, rounds=rounds):
            _check(rounds >= 1, event, "at least 1 round")
            return _simplest(Gaussian(noise * math.sqrt(rounds)), relation)  # so many of these are one of `noise`
        case SplitGaussian(noise=noise, rounds=rounds):
            _check(rounds >= 1, event, "at least 1 round")
            return _simplest(Gaussian(noise * math.sqrt(rounds), apart=event.apart), relation)  # all are one of `noise`
        case Gaussian(noise=noise):
            whole = True
        case PoissonGaussian(noise=noise, rate=rate):
            _check(0 <= rate <= 1, event, "a rate between 0 and 1")
            whole = rate == 1
            event = replace(event, rate=rate and max(rate, _LEAST_RATE))
        case FixedGaussian(noise=noise, cohort=cohort, devices=devices):
            _check(1 <= cohort <= devices, event, "a cohort of at least 1 and at most its devices")
            _check_replaced(event, relation)
            whole = cohort == devices
        case _:
            return event
    _check(noise >= 0, event, "a noise of at least 0")
    _check(math.sqrt(2) <= distance(event, "replace_one") <= 2, event, "an apart from √2 to 2")
    if noise < _CARRIED[0]:
        return Unbounded("no noise")
    noise = noise if math.isinf(noise) else min(noise, _CARRIED[1])
    return Gaussian(noise, apart=distance(event, "replace_one")) if whole else replace(event, noise=noise)


def _between(event: Pure, relation: Relation) -> float:
    """The ε of a message between other neighbours than its own."""
    if event.relation not in ("replace_one", "add_remove"):
        raise PlanError(f"the relation of an event must be replace_one or add_remove, got {event!r}.")
    if event.relation == "add_remove":
        return event.epsilon if relation == "add_remove" else group_privacy(event.epsilon, 2)
    if relation == "add_remove":
        raise PlanError(
            f"{event!r} cannot be accounted for under add_remove: a message shows that its sender took part; "
            "use zero_out or replace_one."
        )
    return event.epsilon


def _check(holds: bool, event: Event, rule: str) -> None:
    if not holds:
        raise PlanError(f"an event needs {rule}, got {event!r}.")


def _check_replaced(event: Event, relation: Relation) -> None:
    if relation != "replace_one":
        raise PlanError(
            f"{event!r} cannot be accounted for under {relation}: a cohort of fixed size is analysed under "
            "replace_one; use that, or draw the cohort with the sampler 'poisson'."
        )


def _reveals_nothing(event: Event) -> bool:
    return event == Pure(0.0) or getattr(event, "noise", 0.0) == math.inf or getattr(event, "rate", 1.0) == 0


# ---- calibration: from a budget to noise ----


def calibrate(
    spend: Callable[[float], Iterable[tuple[Event, int]]],
    epsilon: float,
    delta: float,
    relation: Relation = "replace_one",
) -> float:
    """The least noise for which what `spend(noise)` lists costs at most ε, to a ten-thousandth and never below it.

    >>> noise = calibrate(lambda noise: [(Gaussian(noise), 1)], epsilon=1.0, delta=1e-6, relation="add_remove")
    >>> f"{noise:.3f}"
    '4.225'
    """
    _check_budget(epsilon)
    check_delta_range(delta)

    def excess(log_noise: float, coarse: float) -> float:
        spent = tuple(spend(math.exp(log_noise)))
        cost, _ = _price(_tidy(spent, relation), _lost(spent, relation), delta, relation, coarse)
        return math.log(min(max(cost, 1e-9), 1e9) / epsilon)

    def rough(log_noise: float) -> float:
        return excess(log_noise, 8.0)

    def fine(log_noise: float) -> float:
        return excess(log_noise, 1.0)

    middle = _root(rough, *_bracket(rough, epsilon, delta), 1e-3)
    low, high = middle - 0.05, middle + 2e-3
    while fine(high) > 0:
        low, high = high, high + 0.05
    while fine(low) <= 0 and low > math.log(_NOISES[0]):
        low, high = low - 0.05, low
    noise = math.exp(_root(fine, low, high, _CLOSE / 2))
    while compose(spend(noise), delta, relation).epsilon > epsilon:
        noise *= 1 + _CLOSE
    return noise


def _root(excess: Callable[[float], float], low: float, high: float, close: float) -> float:
    """Where the excess changes its sign; `low` itself where there is none even there."""
    return low if excess(low) <= 0 else float(brentq(excess, low, high, xtol=close))  # pyright: ignore[reportArgumentType]


def _bracket(excess: Callable[[float], float], epsilon: float, delta: float) -> tuple[float, float]:
    """Logarithms of a noise that costs too much and of one that does not, a factor of two apart."""
    smallest, largest = map(math.log, _NOISES)
    x, pace = 0.0, math.log(2)
    if excess(x) > 0:
        while excess(x + pace) > 0:
            x += pace
            if x > largest:
                raise PlanError(
                    f"epsilon = {epsilon!r} with delta = {delta!r} cannot be reached by any noise; allow a larger "
                    "epsilon or delta, or fewer rounds."
                )
        return x, x + pace
    while excess(x - pace) <= 0:
        x -= pace
        if x < smallest:
            return x, x
    return x - pace, x


def per_message(epsilon: float, messages: int, delta: float, parts: int = 1) -> float:
    """The largest ε for one message such that all messages together cost at most ε, never above it.

    A message is made of `parts` independent pure parts, each with an equal share (k bits of ε/k). Without δ the budget
    is split evenly; with δ, by KOV where that allows more.

    >>> per_message(3.0, 3, 0.0)
    1.0
    """
    _check_budget(epsilon)
    check_delta_range(delta)
    if messages < 1 or parts < 1:
        raise PlanError(f"messages and parts must be at least 1, got {messages!r} and {parts!r}.")
    even = epsilon / messages
    while messages * even > epsilon:
        even = math.nextafter(even, 0.0)
    if delta == 0:
        return even

    def excess(share: float) -> float:
        return kov(share / parts, messages * parts, delta) - epsilon

    high = 2 * even
    while excess(high) < 0:
        high *= 2
    share = _root(lambda share: -excess(share), even / 2, high, 1e-12 * even)
    while excess(share) > 0:
        share *= 1 - 1e-9
    return max(even, share)


def _check_budget(epsilon: float) -> None:
    if not 0 < epsilon <= _MOST_EPSILON:
        raise PlanError(
            f"epsilon must be above 0 and finite, at most {_MOST_EPSILON:g}, to find noise for it, got {epsilon!r}."
        )
