"""Which plan for this log? Built-in plans that keep a promise, weighed by how many people there are, and the best of them tried.

The plans tried and private popularity learn from the same people and are ranked on the same test cases, under one promise.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from tacit.core.plan import Plan
from tacit.device.method import method_class
from tacit.errors import PlanError
from tacit.lab.analysis.feasibility import assess_priced_plan
from tacit.lab.data.datasets import Log, as_population
from tacit.lab.data.describe import private_plan
from tacit.lab.data.population import Population
from tacit.lab.data.selection import pick
from tacit.lab.experiments.compare import compare
from tacit.lab.experiments.comparison import Comparison, Score
from tacit.lab.experiments.variants import Variant, check_fit
from tacit.lab.plans.loader import choose, load_plan, plan_names
from tacit.privacy.claim import Claim, Trust, Unit
from tacit.privacy.price import Price, price

TRUST = {"nobody": 0, "organisation": 1, "server": 2}  # who is trusted with more comes later
BASELINE = "popularity"
VERDICTS = ("workable", "weak", "nothing sent", "hopeless")  # of feasibility, best first


@dataclass(frozen=True)
class Candidate:
    """A plan under the promise, and what is to be expected of it before it runs."""

    name: str
    plan: Plan
    claim: Claim  # for the whole run
    outlook: str  # of its weakest stage: one of VERDICTS, or why it does not fit the log
    signal: float  # signal to noise a number, of its weakest stage

    @property
    def fits(self) -> bool:
        """Whether it can run on the log at all."""
        return self.outlook in VERDICTS


@dataclass(frozen=True)
class Choice:
    """The candidates, those that were tried, and the one that ranks best."""

    people: int
    candidates: tuple[Candidate, ...]
    tried: Comparison
    metric: str

    @property
    def ranked(self) -> tuple[tuple[str, Score], ...]:
        """The plans that were tried, best first."""
        scores = [(name, self.tried.scores[name][self.metric]) for name in self.tried.names]
        return tuple(sorted(scores, key=lambda one: -one[1].mean))

    @property
    def best(self) -> str:
        """The plan that ranks best, if it is better than private popularity beyond chance; else private popularity."""
        better = [name for name, score in self.ranked if score.mark == "▲"]
        return better[0] if better else BASELINE

    @property
    def sentence(self) -> str:
        """What was found, in one sentence."""
        score, base = (self.tried.scores[name][self.metric].mean for name in (self.best, BASELINE))
        claim = next(one.claim for one in self.candidates if one.name == self.best)
        under = f"ε = {claim.epsilon:.3g} per {claim.unit}, trusting {claim.trust}"
        if self.best == BASELINE:
            return f"No plan tried is better than private popularity ({self.metric} {base:.3f}, {under}) with {self.people:,} people."
        return (
            f"{self.best} ranks best: {self.metric} {score:.3f} where private popularity has {base:.3f}, with {under}."
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        rows = [{"name": one.name, "guarantee": one.claim.to_dict(), "outlook": one.outlook} for one in self.candidates]
        scores = {name: score.to_dict() for name, score in self.ranked}
        return {
            "best": self.best,
            "sentence": self.sentence,
            "metric": self.metric,
            "tried": scores,
            "candidates": rows,
        }


def choose_plan(
    log: Log,
    *,
    epsilon: float,
    trust: Trust = "server",
    unit: Unit = "user",
    protocol: str = "full",
    tries: int = 3,
    most: int = 20_000,
    seeds: Sequence[int] = (0,),
    quiet: bool | None = None,
) -> Choice:
    """Weigh the built-in plans for a log under a promise, try the best, and compare them with private popularity.

    Args:
        log: the histories of all users: a table, a file, the name of a dataset, or a population.
        epsilon: what a run may cost each `unit`.
        trust: who may be trusted: "nobody", the "organisation" that holds people's data, or the "server" with the sums.
        unit: what ε protects: a "user" or an "interaction".
        protocol: how to split and to evaluate.
        tries: how many plans to run beside private popularity.
        most: people to try them on; of a larger log so many are drawn. More people in the field make noise weigh less.
        seeds: each plan tried runs once for each.
        quiet: no progress bar; by default there is one on a terminal.
    """
    world = as_population(log)
    if len(world) > most:
        world = pick(world, np.sort(np.random.default_rng(0).choice(len(world), most, replace=False)))
    candidates = sorted(
        (_weighed(cost, world) for cost in promising(epsilon, trust, unit, len(world))),
        key=lambda one: (one.name != private_plan(world), _rank(one), -one.signal),
    )
    chosen = [one for one in candidates if one.fits][:tries]
    base = _weighed(price(choose(load_plan(BASELINE), epsilon=epsilon), len(world)), world)
    tried = compare([base.plan, *(one.plan for one in chosen)], world, protocol, seeds, quiet=quiet)
    metric = "NDCG@10" if "NDCG@10" in tried.common.metrics else next(iter(tried.common.metrics))
    return Choice(len(world), (base, *candidates), tried, metric)


def promising(epsilon: float, trust: Trust, unit: Unit, people: int) -> list[Price]:
    """The price of one plan of each method that recommends, if it guarantees no more than ε for this unit and trusts no more.

    Without private popularity, with which the others are compared.
    """
    found = []
    for name in _one_of_each_method():
        try:
            plan = load_plan(name)
            plan = choose(plan, epsilon=epsilon) if any(stage.rounds for stage in plan.stages) else plan
            cost = price(plan, people)
        except PlanError:  # it cannot promise this to so many people
            continue
        claim = cost.whole
        enough = unit == "interaction" or claim.unit == "user"
        if claim.epsilon <= epsilon * (1 + 1e-9) and enough and TRUST[claim.trust] <= TRUST[trust]:
            found.append(cost)
    return found


def _one_of_each_method() -> list[str]:
    """For each method the plan that promises something by itself, has the method's name, or sends least."""
    plans: dict[str, list[str]] = {}
    for name in plan_names():
        method = load_plan(name).stages[-1].method
        if method_class(method).scores and method != BASELINE:
            plans.setdefault(method, []).append(name)
    return [min(names, key=partial(_order, method)) for method, names in plans.items()]


def _order(method: str, name: str) -> tuple[bool, bool, int, str]:
    stages = [stage for stage in load_plan(name).stages if stage.rounds]
    promises = all("epsilon" in stage.privacy for stage in stages)
    return not promises, name.replace("-", "_") != method, sum(stage.rounds for stage in stages), name


def _weighed(cost: Price, world: Population) -> Candidate:
    """A candidate with its outlook on this log."""
    plan, name = cost.plan, cost.plan.name
    try:
        check_fit(Variant(name, plan), world)
        views = assess_priced_plan(plan, cost, world.catalog, math.ceil(world.lengths.mean()))
    except PlanError as problem:
        return Candidate(name, plan, cost.whole, str(problem).removeprefix(f"{name}: "), 0.0)
    weakest = min(views, key=lambda view: view.signal_to_noise)
    return Candidate(name, plan, cost.whole, str(weakest.verdict), weakest.signal_to_noise)


def _rank(one: Candidate) -> int:
    return VERDICTS.index(one.outlook) if one.fits else len(VERDICTS)
