"""Falsify: try to refute a privacy claim by sampling. It knows claims, and no mechanism by name.

An audit takes neighbouring inputs, looks at many outputs of each, finds an event that is likely under one and unlikely
under the other, and counts it on fresh outputs. What it proves is that ε is at least ln((P(one) − δ) / P(other)), with
Clopper–Pearson limits for the two probabilities. A claim of less is false.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.special import betaincinv

from support.views import Pair, drawn, messages, pairs, releases
from tacit.privacy.claim import Claim
from tacit.privacy.mechanism import Mechanism
from tacit.privacy.sampler import Exposure, Sampler

ALPHA = 1e-6  # the chance that an audit refutes a true claim
CHUNK = 20_000  # outputs of each input, to choose an event
CHUNKS = 5  # as many times fresh outputs, to count it
VISIBLE_DELTA = 0.02
UNSEEN = 1e-9  # a δ that is there for the precision of tables alone
TURNED = 8.0  # public_state are audited away from where they start
FEWER = 4  # a release takes drawing a cohort on the host, so so many times fewer of them
_KEPT = 2  # the events that are counted, of all that were looked at
_COUNTED = 40  # the most events that are ever counted in one audit
_FEW = 1024  # so many different outputs are told apart one by one

Score = Callable[[np.ndarray], np.ndarray]
Event = Callable[[np.ndarray], np.ndarray]


class Audit(NamedTuple):
    """A claim and what was proved against it."""

    claim: Claim
    proved: float  # ε is at least this

    @property
    def refuted(self) -> bool:
        """Whether the claim is false."""
        return self.proved > self.claim.epsilon

    @property
    def share(self) -> float:
        """How much of the claimed ε was found."""
        return self.proved / self.claim.epsilon


class Trial(NamedTuple):
    """A mechanism settled for a tiny world."""

    mechanism: Mechanism
    sampler: Sampler
    exposure: Exposure

    @property
    def claims(self) -> tuple[Claim, ...]:
        """What the mechanism says of this world."""
        return self.mechanism.claim(self.exposure)


def trial(
    build: Callable[..., Mechanism], settings: dict, sampler: Sampler, rounds: int = 2, devices: int = 2
) -> Trial:
    """Settle; where a claim needs a δ, with one that is large enough to be seen in the outputs."""
    exposure = sampler.exposure(rounds, devices)
    settled = Trial(build(settings).settle(exposure), sampler, exposure)
    if any(claim.delta > UNSEEN for claim in settled.claims):
        settled = settled._replace(mechanism=build({**settings, "delta": VISIBLE_DELTA}).settle(exposure))
    return settled


def whole(claims: tuple[Claim, ...]) -> list[Claim]:
    """The finite claims, less those about a part of what is sent: there the whole has a claim of the same kind, of ∞."""
    kind = lambda claim: (claim.model, claim.unit, claim.relation, claim.per)  # noqa: E731
    broken = {kind(claim) for claim in claims if math.isinf(claim.epsilon)}
    return [claim for claim in claims if kind(claim) not in broken]


def audits(tried: Trial, per: tuple[str, ...] = ("message", "round")) -> list[Audit]:
    """Every finite claim of a settled mechanism, put to the test."""
    return [audit(claim, *tried) for claim in whole(tried.claims) if claim.per in per]


def audit(claim: Claim, mechanism: Mechanism, sampler: Sampler, exposure: Exposure) -> Audit:
    """The most that can be proved against a claim; stops at a refutation."""
    look = _view(claim, mechanism, sampler, exposure)
    found: list[tuple[float, Event, Pair, int]] = []
    for number, pair in enumerate(pairs(claim)):
        sides = look(pair, 0, 2 * number), look(pair, 1, 2 * number + 1)
        entries = [(*best, pair, side) for best, side in zip(best_events(*sides, claim.delta), (0, 1))]
        entries = entries[: 1 + pair.both_ways]
        promise, *event = max(entries, key=lambda entry: entry[0])
        if promise > claim.epsilon and (proved := _confirm(look, claim, *event)) > claim.epsilon:
            return Audit(claim, proved)
        found += entries
    found.sort(key=lambda entry: -entry[0])
    return Audit(claim, max(_confirm(look, claim, *event) for _, *event in found[:_KEPT]))


def _confirm(look: Callable, claim: Claim, event: Event, pair: Pair, side: int) -> float:
    """What the event proves on outputs that had no part in choosing it."""
    hits = [
        sum(int(event(look(pair, s, 1000 + 2 * chunk + s)).sum()) for chunk in range(CHUNKS)) for s in (side, 1 - side)
    ]
    n = CHUNKS * (CHUNK if claim.model == "local" else CHUNK // FEWER)
    return float(lower_bound(hits[0], n, hits[1], n, claim.delta, ALPHA / _COUNTED))


def _view(claim: Claim, mechanism: Mechanism, sampler: Sampler, exposure: Exposure) -> Callable:
    """(pair, which of the two, seed) -> outputs: messages for a local claim, releases for a central one."""
    if claim.model == "local":
        times = exposure.at_most(mechanism.messages).messages if claim.per == "run" else 1
        return lambda pair, side, seed: messages(mechanism, pair[side], CHUNK, seed, times)
    rounds = exposure.rounds if claim.per == "run" else 1

    def released(pair: Pair, side: int, seed: int) -> np.ndarray:
        # The others hold what the neighbour holds: then a cohort shows best whether the one person was in it.
        world = [pair[0], *[pair[1]] * (exposure.devices - 1)]
        n = CHUNK // FEWER
        first = n * max(0, seed // 2 - 499)  # fresh cohorts where an event is counted
        if claim.relation == "add_remove" and side == 1:
            rest = drawn(sampler, exposure.devices - 1, rounds, n, first)
            cohorts = np.concatenate([np.zeros((n, rounds, 1), bool), rest], 2)
        else:
            world[0] = pair[side]
            cohorts = drawn(sampler, exposure.devices, rounds, n, first)
        return releases(mechanism, world, cohorts, seed, TURNED)

    return released


def lower_bound(hits: Any, n: int, other_hits: Any, other_n: int, delta: float = 0.0, alpha: float = 0.05) -> Any:
    """ln((P − δ)/P′) at least, for an event that was seen `hits` of n times and `other_hits` of other_n times."""
    hits, other_hits = np.asarray(hits, float), np.asarray(other_hits, float)
    low = np.where(hits > 0, betaincinv(np.maximum(hits, 1), n - hits + 1, alpha / 2), 0.0)
    full = other_hits >= other_n
    high = np.where(full, 1.0, betaincinv(other_hits + 1, np.where(full, 1, other_n - other_hits), 1 - alpha / 2))
    with np.errstate(divide="ignore"):
        return np.log(np.maximum(low - delta, 0.0) / high)


def best_events(one: np.ndarray, other: np.ndarray, delta: float) -> list[tuple[float, Event]]:
    """The event that promises most on these outputs, and what it promises: from one to other, and from other to one."""
    columns = _telling(one, other)
    if not columns.size:
        return [(-math.inf, lambda outputs: np.zeros(outputs.shape[0], bool))] * 2
    one, other = one[:, columns], other[:, columns]
    scores = [score for fit in (_outputs, _columns, _direction) if (score := fit(one, other)) is not None]
    found = [[_best_cut(score, sign, one, other, delta) for score in scores] for sign in (1, -1)]
    best = [max(entries, key=lambda entry: entry[0]) for entries in found]
    return [(bound, _above(score, sign, cut, columns)) for (bound, score, cut), sign in zip(best, (1, -1))]


def _above(score: Score, sign: int, cut: float, columns: np.ndarray) -> Event:
    return lambda outputs: sign * score(outputs[:, columns]) >= cut


def _best_cut(score: Score, sign: int, one: np.ndarray, other: np.ndarray, delta: float) -> tuple[float, Score, float]:
    """Where to cut a score so that what lies above proves most."""
    s, s_other = (np.sort(sign * score(outputs)) for outputs in (one, other)[::sign])
    cuts = np.unique(np.concatenate([s[:: s.size // 128], s_other[:: s.size // 128]]))
    hits, other_hits = (x.size - np.searchsorted(x, cuts) for x in (s, s_other))
    bounds = lower_bound(hits, s.size, other_hits, s_other.size, delta, alpha=1e-3)
    best = int(np.argmax(bounds))
    return float(bounds[best]), score, float(cuts[best])


def _telling(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """The columns that are not always the same and not a copy of another."""
    pooled = np.concatenate([one, other])
    _, first = np.unique(_code(pooled[:: pooled.shape[0] // 500].T), return_index=True)
    first = np.sort(first)
    return first[pooled[:, first].min(0) < pooled[:, first].max(0)]


def _outputs(one: np.ndarray, other: np.ndarray) -> Score | None:
    """Each output by its own likelihood ratio, as far as there are few: columns that hardly ever repeat are left out."""
    pooled = np.concatenate([one, other])
    columns = [
        i for i, column in enumerate(pooled[:: pooled.shape[0] // (2 * _FEW)].T) if np.unique(column).size <= _FEW
    ]
    known, place = np.unique(_code(pooled[:, columns]), return_inverse=True)
    if not columns or known.size > _FEW:
        return None
    counts, other_counts = (np.bincount(p, minlength=known.size) for p in np.split(place, [one.shape[0]]))
    ratio = np.log((counts + 0.5) / (other_counts + 0.5))

    def score(outputs: np.ndarray) -> np.ndarray:
        code = _code(outputs[:, columns])
        place = np.minimum(np.searchsorted(known, code), known.size - 1)
        return np.where(known[place] == code, ratio[place], 0.0)

    return score


def _code(outputs: np.ndarray) -> np.ndarray:
    """One whole number for a row of numbers."""
    code = np.zeros(outputs.shape[0], np.uint64)
    for column in np.ascontiguousarray(outputs.T + 0.0).view(np.uint64):  # + 0.0: there are two zeros
        code = ((code ^ column) * np.uint64(0x9E3779B97F4A7C15)) ^ (column >> np.uint64(29))
    return code


def _columns(one: np.ndarray, other: np.ndarray) -> Score:
    """The likelihood ratio if the numbers of an output were independent, each in 32 bins."""
    sample = np.sort(np.concatenate([one[::8], other[::8]]), axis=0)
    edges = [np.unique(column) for column in sample[:: sample.shape[0] // 32][1:].T]

    def bins(outputs: np.ndarray, i: int) -> np.ndarray:
        return np.searchsorted(edges[i], outputs[:, i], side="right")

    def ratio(i: int) -> np.ndarray:
        counts, other_counts = (np.bincount(bins(y, i), minlength=edges[i].size + 1) for y in (one, other))
        return np.log((counts + 1) / (other_counts + 1))

    ratios = [ratio(i) for i in range(one.shape[1])]
    return lambda outputs: sum(ratios[i][bins(outputs, i)] for i in range(outputs.shape[1]))


def _direction(one: np.ndarray, other: np.ndarray) -> Score:
    """Fisher's direction: where the means differ most, in units of the spread along it."""
    scale = np.concatenate([one, other]).std(0)
    scale = np.where(scale > 0, scale, 1.0)
    a, b = one / scale, other / scale
    within = np.cov(a, rowvar=False) + np.cov(b, rowvar=False)
    axis = np.linalg.solve(np.atleast_2d(within) + 1e-9 * np.eye(scale.size), a.mean(0) - b.mean(0))
    return lambda outputs: (outputs / scale) @ axis
