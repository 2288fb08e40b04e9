"""Tune: try settings on a validation part, ask the test part once, and say what the search would cost real people.

The log is split as the protocol says, and what may be learned from is split again in the same way. The search sees only
that inner part. The plan it chose then learns from all of the outer part and is asked the test questions, once.
"""

import math
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from tacit.core.plan import Plan
from tacit.errors import PlanError, unknown
from tacit.lab.data.datasets import Log, as_population
from tacit.lab.evaluation.protocols import Protocol, load_protocol
from tacit.lab.evaluation.statistics import Interval
from tacit.lab.experiments.compare import cut, listening
from tacit.lab.experiments.search import Range, Space, draw
from tacit.lab.experiments.search_cost import Bill, together
from tacit.lab.experiments.trial import Trial, trial
from tacit.lab.experiments.variants import Variant, check_fit, refuse, vary
from tacit.lab.plans.loader import load_plan
from tacit.metrics.names import parse
from tacit.privacy.price import Price

CHEAPER = (
    "Cheaper: search on public or synthetic data, or on people who agreed to it; or plan the whole search, and make its "
    "ε the promise."
)


@dataclass(frozen=True)
class Attempt:
    """One trial of a search: what was set, how it answered the validation questions, what a run of it costs."""

    variant: Variant
    value: float
    interval: Interval | None  # None where a person has no value of their own
    seconds: float
    price: Price

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "setting": self.variant.setting,
            "digest": self.variant.plan.digest,
            "value": self.value,
            "interval": _ends(self.interval),
            "seconds": self.seconds,
            "epsilon": self.price.whole.epsilon,
        }


@dataclass(frozen=True)
class Tuning:
    """Every attempt, the best of them, and how that one answered the test questions."""

    metric: str
    seed: int
    search: Space
    attempts: tuple[Attempt, ...]
    test: Trial
    notes: tuple[str, ...] = field(default=())

    @property
    def best(self) -> Attempt:
        """The highest on the validation part; the first of equals."""
        return max(self.attempts, key=lambda attempt: attempt.value)

    @property
    def tested(self) -> float:
        """The metric on the test part."""
        return self.test.answers.metrics[self.metric]

    @cached_property
    def bills(self) -> dict[str, Bill]:
        """What one run of the best plan, the search, and the search with the run that follows it cost, at one δ."""
        prices = [attempt.price for attempt in self.attempts]
        every = together([*prices, self.test.run.price])
        return {
            "one_run": together([self.best.price], every.delta),
            "search": together(prices, every.delta),
            "search_and_run": every,
        }

    @property
    def privacy(self) -> str:
        """What the search would cost on real devices, in words."""
        one, search, every = self.bills.values()
        count = f"{search.runs} trial{'s' if search.runs != 1 else ''}"
        if every.epsilon == 0:
            return f"Nothing leaves a device in {count} or in the run that follows, so the search is free: ε = 0."
        text = (
            f"On real devices, one run of the best plan costs {one}; the {count}, each a run of the same people, "
            f"together {search}; with the run that follows, {every} ({every.terms})."
        )
        if search.epsilon == math.inf:
            text += f" ∞ means that no bound holds: {_why(one)}."
        return f"{text} Reporting how well each trial did would come on top. {CHEAPER}"

    def to_dict(self) -> dict[str, Any]:
        """Everything, as plain values."""
        asked = self.test.answers
        return {
            "protocol": asked.protocol,
            "candidates": asked.candidates,
            "treatment": asked.treatment,
            "metric": self.metric,
            "seed": self.seed,
            "search": {path: str(v) if isinstance(v, Range) else list(v) for path, v in self.search.items()},
            "trials": [attempt.to_dict() for attempt in self.attempts],
            "best": {**self.best.to_dict(), "plan": self.best.variant.plan.to_dict()},
            "test": {"value": self.tested, "interval": _ends(_interval(self.test, self.metric)), **self.test.to_dict()},
            "privacy": {**{name: bill.to_dict() for name, bill in self.bills.items()}, "words": self.privacy},
            "notes": list(self.notes),
        }


def tune(
    plan: Plan | str | Path,
    log: Log,
    search: Space,
    *,
    trials: int = 20,
    protocol: str = "full",
    metric: str | None = None,
    repeats: str | None = None,
    ties: str = "file",
    seed: int = 0,
    quiet: bool | None = None,
) -> Tuning:
    """Try settings of a plan, and keep the best.

    Args:
        plan: what to start from.
        log: everybody's histories: a table, a file, the name of a dataset, or a population.
        search: setting -> values to choose from, or a Range.
        trials: how many to try; a grid of no more than that is tried whole.
        protocol: how to split and to ask, on the validation part and on the test part alike.
        metric: what decides, of those of the protocol; NDCG@10 where it has that, else its first.
        repeats: evaluate "new" items only, or "all" test cases; by default what fits the log, on both parts alike.
        ties: what orders a person's events of one time stamp before they are split: the "file", or a "random" draw.
        seed: of the draw, the splits and the runs.
        quiet: no bars; by default there are some where somebody watches.
    """
    way = load_protocol(protocol, repeats=repeats, ties=ties)
    judged = metric_of(way, metric)
    variants = _variants(plan if isinstance(plan, Plan) else load_plan(plan), search, trials, seed)
    population = as_population(log, [variant.plan for variant in variants])
    way = way.fixed(population)
    train = cut(way, population, seed).train  # the search sees nothing else of the log
    inner = cut(way, train, seed).train
    for variant in variants:
        check_fit(variant, inner)
    heard: list[list[str]] = [[] for _ in variants]
    attempts = []
    for variant, notes in zip(variants, heard):
        with listening(notes):
            attempts.append(_attempt(variant, trial(variant.plan, train, way, seed=seed, quiet=quiet), judged))
    best = max(attempts, key=lambda attempt: attempt.value)
    with listening([]):
        test = trial(best.variant.plan, population, way, seed=seed, quiet=quiet)
    return Tuning(judged, seed, search, tuple(attempts), test, (*test.notes, *_hopeless(heard)))


def metric_of(way: Protocol, name: str | None) -> str:
    """The protocol's own name for a metric, however it is written.

    >>> metric_of(load_protocol("full"), "hits@10")
    'HR@10'
    """
    if name is None:
        return "NDCG@10" if "NDCG@10" in way.metrics else way.metrics[0]
    wanted = parse(name)
    for known in way.metrics:
        if parse(known) == wanted:
            return known
    raise PlanError(unknown(f"The protocol {way.name}", name, way.metrics, "metric"))


def _variants(plan: Plan, search: Space, trials: int, seed: int) -> list[Variant]:
    """What to try, complete and checked; a setting that the plan does not have is refused."""
    settings = draw(search, trials, seed)
    found = {one.name: one for one in (vary(plan.name, plan, setting) for setting in settings)}
    for path in search:
        if not any(path in one.setting for one in found.values()):
            raise refuse([plan], path, settings[0][path])
    return list(found.values())


def _attempt(variant: Variant, done: Trial, metric: str) -> Attempt:
    """What is kept of a trial: numbers."""
    return Attempt(variant, done.answers.metrics[metric], _interval(done, metric), done.seconds, done.run.price)


def _hopeless(heard: list[list[str]]) -> list[str]:
    """One note for all trials that were warned about."""
    warned = [notes[0] for notes in heard if notes]
    return [f"{len(warned)} of {len(heard)} trials were warned about; the first: {warned[0]}"] if warned else []


def _why(one: Bill) -> str:
    return "not every trial adds noise" if one.epsilon < math.inf else "no noise is added, in a single run either"


def _interval(done: Trial, metric: str) -> Interval | None:
    return done.answers.interval(metric) if metric in done.answers.values else None


def _ends(interval: Interval | None) -> list[float] | None:
    return None if interval is None else [interval.low, interval.high]
