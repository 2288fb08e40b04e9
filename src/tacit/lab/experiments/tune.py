"""Tuning of settings on validation data, one evaluation on test data, and the privacy cost of the search on real devices.

The log is split as the protocol says, and its training data is split again in the same way. The search sees only that
inner split. The best plan is then trained on all training data and evaluated on the test cases, once.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from tacit.core.plan import Plan
from tacit.errors import PlanError, unknown
from tacit.lab.data.datasets import Log, as_population
from tacit.lab.evaluation.protocols import Protocol, load_protocol
from tacit.lab.evaluation.statistics import ConfidenceInterval
from tacit.lab.experiments.compare import checked_split, collect_warnings
from tacit.lab.experiments.search import Range, Space, draw_settings
from tacit.lab.experiments.trial import Trial, trial
from tacit.lab.experiments.variants import Variant, check_fit, make_variant, setting_error
from tacit.lab.plans.loader import load_plan
from tacit.metrics.definitions import parse
from tacit.privacy.accounting.accountant import compose, total_delta
from tacit.privacy.accounting.events import Relation
from tacit.privacy.claim import Unit
from tacit.privacy.price import Price

CHEAPER = (
    "Cheaper: search on public or synthetic data, or on people who agreed to it; or plan the whole search, and make its "
    "ε the promise."
)


# ---- privacy cost ----


@dataclass(frozen=True)
class SearchCost:
    """ε at δ of some runs composed; all of them count, also those whose result is discarded."""

    epsilon: float
    delta: float
    runs: int
    unit: Unit = "user"
    relation: Relation = "replace_one"

    def __str__(self) -> str:
        return "ε = ∞" if math.isinf(self.epsilon) else f"ε = {self.epsilon:.4g}"

    @property
    def terms(self) -> str:
        """The δ, unit and relation of the ε."""
        delta = f"δ = {self.delta:.1e}, " if self.delta else ""
        return f"{delta}unit {self.unit}, {self.relation.replace('_', '-')}"

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self)


def total_cost(prices: Sequence[Price], delta: float | None = None) -> SearchCost:
    """The privacy cost of these runs, at the largest δ of one of them, or at a given one.

    Runs that protect different units have no ε in common; runs for different neighbouring relations are composed between
    any two histories, which covers adding and removing one.

    >>> from tacit.core.plan import Plan, Stage
    >>> from tacit.privacy.price import price
    >>> print(cost := total_cost([price(Plan("p", (Stage("mfu"),)), 10)] * 3), cost.terms, sep="; ")
    ε = 0; unit user, replace-one
    """
    costly = [one.whole for one in prices if any(stage.event is not None for stage in one.stages)]
    delta = total_delta(claim.delta for claim in costly) if delta is None else delta
    if not costly:
        return SearchCost(0.0, delta, len(prices))
    spent = [part for one in prices for stage in one.stages for part in stage.spent]
    units: list[Unit] = list({claim.unit for claim in costly})
    relations: set[Relation] = {claim.relation for claim in costly}
    if any(stage.others for one in prices for stage in one.stages):
        relations.add("replace_one")  # what volunteers send is composed as well, and their cohorts have a fixed size
    relation: Relation = relations.pop() if len(relations) == 1 else "replace_one"
    if len(units) > 1:
        return SearchCost(math.inf, delta, len(prices), relation=relation)
    return SearchCost(compose(spent, delta, relation).epsilon, delta, len(prices), units[0], relation)


# ---- search ----


@dataclass(frozen=True)
class Attempt:
    """One trial of a search: its settings, its metric on the validation data, and the price of a run."""

    variant: Variant
    value: float
    interval: ConfidenceInterval | None  # None where a user has no value of their own
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
    """Every attempt, the best of them, and its evaluation on the test data."""

    metric: str
    seed: int
    search: Space
    attempts: tuple[Attempt, ...]
    test: Trial
    notes: tuple[str, ...] = field(default=())

    @property
    def best(self) -> Attempt:
        """The highest on the validation data; the first of equals."""
        return max(self.attempts, key=lambda attempt: attempt.value)

    @property
    def tested(self) -> float:
        """The metric on the test data."""
        return self.test.evaluation.metrics[self.metric]

    @cached_property
    def costs(self) -> dict[str, SearchCost]:
        """The cost of one run of the best plan, of the search, and of the search with the run that follows it, at one δ."""
        prices = [attempt.price for attempt in self.attempts]
        every = total_cost([*prices, self.test.run.price])
        return {
            "one_run": total_cost([self.best.price], every.delta),
            "search": total_cost(prices, every.delta),
            "search_and_run": every,
        }

    @property
    def privacy(self) -> str:
        """The privacy cost of the search on real devices, as text."""
        one, search, every = self.costs.values()
        count = f"{search.runs} trial{'s' if search.runs != 1 else ''}"
        if every.epsilon == 0:
            return f"Nothing leaves a device in {count} or in the run that follows, so the search is free: ε = 0."
        text = (
            f"On real devices, one run of the best plan costs {one}; the {count}, each a run of the same people, "
            f"together {search}; with the run that follows, {every} ({every.terms})."
        )
        if search.epsilon == math.inf:
            text += f" ∞ means that no bound holds: {_why_unbounded(one)}."
        return f"{text} Reporting how well each trial did would come on top. {CHEAPER}"

    def to_dict(self) -> dict[str, Any]:
        """Everything, as plain values."""
        evaluation = self.test.evaluation
        return {
            "protocol": evaluation.protocol,
            "candidates": evaluation.candidates,
            "treatment": evaluation.treatment,
            "metric": self.metric,
            "seed": self.seed,
            "search": {path: str(v) if isinstance(v, Range) else list(v) for path, v in self.search.items()},
            "trials": [attempt.to_dict() for attempt in self.attempts],
            "best": {**self.best.to_dict(), "plan": self.best.variant.plan.to_dict()},
            "test": {"value": self.tested, "interval": _ends(_interval(self.test, self.metric)), **self.test.to_dict()},
            "privacy": {**{name: cost.to_dict() for name, cost in self.costs.items()}, "words": self.privacy},
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
    """Try settings of a plan on validation data, and evaluate the best on test data.

    Args:
        plan: what to start from.
        log: the histories of all users: a table, a file, the name of a dataset, or a population.
        search: setting -> values to choose from, or a Range.
        trials: how many to try; a grid of no more than that is tried whole.
        protocol: how to split and to evaluate, for validation and test alike.
        metric: the metric of the protocol that decides; NDCG@10 where it has that, else its first.
        repeats: evaluate "new" items only, or "all" test cases; by default what fits the log, for validation and test alike.
        ties: the order of events of a user with equal time stamps: that of the "file", or a "random" draw.
        seed: of the draw, the splits and the runs.
        quiet: no progress bars; by default there are some on a terminal.
    """
    loaded = load_protocol(protocol, repeats=repeats, ties=ties)
    chosen_metric = metric_of(loaded, metric)
    variants = _variants(plan if isinstance(plan, Plan) else load_plan(plan), search, trials, seed)
    population = as_population(log, [variant.plan for variant in variants])
    loaded = loaded.with_repeats_for(population)
    train = checked_split(loaded, population, seed).train  # the search sees nothing else of the log
    inner = checked_split(loaded, train, seed).train
    for variant in variants:
        check_fit(variant, inner)
    warned: list[list[str]] = [[] for _ in variants]
    attempts = []
    for variant, notes in zip(variants, warned):
        with collect_warnings(notes):
            attempts.append(
                _attempt(variant, trial(variant.plan, train, loaded, seed=seed, quiet=quiet), chosen_metric)
            )
    best = max(attempts, key=lambda attempt: attempt.value)
    with collect_warnings([]):
        test = trial(best.variant.plan, population, loaded, seed=seed, quiet=quiet)
    return Tuning(chosen_metric, seed, search, tuple(attempts), test, (*test.notes, *_warning_note(warned)))


def metric_of(protocol: Protocol, name: str | None) -> str:
    """The protocol's own spelling of a metric.

    >>> metric_of(load_protocol("full"), "hits@10")
    'HR@10'
    """
    if name is None:
        return "NDCG@10" if "NDCG@10" in protocol.metrics else protocol.metrics[0]
    wanted = parse(name)
    for known in protocol.metrics:
        if parse(known) == wanted:
            return known
    raise PlanError(unknown(f"The protocol {protocol.name}", name, protocol.metrics, "metric"))


def _variants(plan: Plan, search: Space, trials: int, seed: int) -> list[Variant]:
    """What to try, complete and checked; a setting that the plan does not have is refused."""
    settings = draw_settings(search, trials, seed)
    found = {one.name: one for one in (make_variant(plan.name, plan, setting) for setting in settings)}
    for path in search:
        if not any(path in one.setting for one in found.values()):
            raise setting_error([plan], path, settings[0][path])
    return list(found.values())


def _attempt(variant: Variant, done: Trial, metric: str) -> Attempt:
    """The numbers of a trial."""
    return Attempt(variant, done.evaluation.metrics[metric], _interval(done, metric), done.seconds, done.run.price)


def _warning_note(warned: list[list[str]]) -> list[str]:
    """One note for all trials that were warned about."""
    first = [notes[0] for notes in warned if notes]
    return [f"{len(first)} of {len(warned)} trials were warned about; the first: {first[0]}"] if first else []


def _why_unbounded(one: SearchCost) -> str:
    return "not every trial adds noise" if one.epsilon < math.inf else "no noise is added, in a single run either"


def _interval(done: Trial, metric: str) -> ConfidenceInterval | None:
    return done.evaluation.interval(metric) if metric in done.evaluation.values else None


def _ends(interval: ConfidenceInterval | None) -> list[float] | None:
    return None if interval is None else [interval.low, interval.high]
