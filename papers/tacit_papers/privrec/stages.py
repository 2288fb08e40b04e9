"""PrivRec in one stage and in two, with noise and without: Figures 4 to 7, and which of their findings hold."""

import math
from collections.abc import Collection, Iterable, Mapping

import numpy as np

from tacit.core.catalog import Catalog
from tacit.core.plan import Plan
from tacit.device.method import build
from tacit.lab.baselines.helpers.fedgnn import fedgnn_claims
from tacit.lab.evaluation.results import chance_warning
from tacit.lab.evaluation.statistics import paired_test
from tacit.lab.plans.loader import choose
from tacit.privacy.accounting.accountant import calibrate, default_delta
from tacit.privacy.accounting.events import FixedGaussian
from tacit.privacy.mechanism import build_mechanism
from tacit.privacy.mechanisms._parts.noise_grid import GAP
from tacit.privacy.price import Price, price
from tacit.privacy.sampler import build_sampler
from tacit_papers.prices import overcounted
from tacit_papers.privrec.orders import order
from tacit_papers.privrec.study import CHANCE, Log, Study, plan_of, quicker
from tacit_papers.tables import finding

NOISY = {
    "PrivRec": "privrec",
    "DP-PrivRec-One, as printed": "dp-privrec-paper",
    "DP-PrivRec, as printed": "dp-privrec-two-paper",
    "DP-PrivRec, as printed, stage 1 private": "dp-privrec-two-paper",
    "DP-PrivRec-One at ε = 8": "dp-privrec-one",
    "DP-PrivRec at ε = 8": "dp-privrec-two",
    "counts and tastes at ε = 8": "dp-privrec",
    "popularity, without noise": "popularity",
}
PRIVATE = "DP-PrivRec, as printed, stage 1 private"
BUDGETS = {
    "DP-PrivRec, as printed": "dp-privrec-two-paper",  # the paper's line: two stages, ε of the second
    PRIVATE: "dp-privrec-two-paper",
    "DP-PrivRec-One, as printed": "dp-privrec-paper",
    "counts and tastes, ours": "dp-privrec",
}
AT_EIGHT = ("DP-PrivRec-One at ε = 8", "DP-PrivRec at ε = 8")
PAPER = "PrivRec in the paper"
WITHIN = "Intervals are over the people evaluated, with one run of each line and seed: they do not include what another draw of the noise would change."
ON_STAND_IN = "The log is a synthetic stand-in for Frappe, and the paper's numbers are of Frappe itself: compare orders, not numbers."
DRAWN = "The paper draws DP-PrivRec and DP-PrivRec-One without printing numbers, the first within 10 % of PrivRec, the second below."


def noisy_plan(row: str, log: Log, people: int) -> Plan:
    """The plan behind a line of the figures; of few people, all are asked."""
    plan = plan_of(NOISY[row], quicker(log.size))
    for number, stage in enumerate(plan.stages, 1):
        if stage.cohort.get("count", 0) > people:
            plan = choose(plan, {f"{number}.cohort.count": people})
    return choose(plan, {"1.privacy": plan.stages[1].privacy}) if row == PRIVATE else plan


def budget_plan(row: str, log: Log, people: int, epsilon: float) -> Plan:
    """The plan behind a point of Figures 6 and 7: so much ε for the run, or for stage 2 alone where stage 1 is open."""
    plan = plan_of(BUDGETS[row], quicker(log.size))
    if row == PRIVATE:
        shared = {**plan.stages[1].privacy, "noise": _together(plan, people, epsilon)}
        return choose(plan, {"1.privacy": shared, "2.privacy": shared})
    kept = [{name: value for name, value in stage.privacy.items() if name != "noise"} for stage in plan.stages]
    noisy = [(number, one) for number, one in enumerate(kept, 1) if one["mechanism"] != "none"]
    return choose(plan, {f"{number}.privacy": {**one, "epsilon": epsilon} for number, one in noisy})


def _together(plan: Plan, people: int, epsilon: float) -> float:
    """The noise that, the same in every stage, makes all of them together cost ε."""
    exposures = [build_sampler(stage.cohort).exposure(stage.rounds, people) for stage in plan.stages]
    delta = default_delta(people)

    def found() -> float:
        return calibrate(lambda noise: [one.gaussian(noise, delta, GAP) for one in exposures], epsilon, delta)

    # After how many reports a device falls silent depends on the noise, and what that costs of δ is part of the price.
    private = {**plan.stages[1].privacy, "noise": found()}
    settled = [build_mechanism(private).settle(one) for one in exposures]
    exposures = [one.at_most(mechanism.messages) for one, mechanism in zip(exposures, settled)]
    return found()


def beside(row: str, plans: Mapping[float, Plan], people: int) -> str:
    """What the points of a line are worth: its ε, the ε that the paper's way of counting gives, and the run's own."""
    costs = {epsilon: price(plan, people) for epsilon, plan in plans.items()}
    words = [
        f"drawn at ε = {epsilon:g}, {_as_the_paper_counts(cost)}, {_epsilon(cost)} for the run"
        for epsilon, cost in costs.items()
    ]
    return f"{row}: {'; '.join(words)}."


def _as_the_paper_counts(cost: Price) -> str:
    """Every member of a cohort counted as a round, over the rounds that have noise; no word of stages that have none."""
    noisy = [(stage.event, stage.covers, stage.claims[-1].delta) for stage in cost.stages]
    drawn = [(event, rounds, delta) for event, rounds, delta in noisy if isinstance(event, FixedGaussian)]
    if not drawn or len({(event.noise, event.cohort, event.devices) for event, _, _ in drawn}) > 1:
        return "not in the paper"
    (event, _, delta), rounds = drawn[0], sum(rounds for _, rounds, _ in drawn)
    return f"{overcounted(event.devices, event.cohort, delta, event.noise / 2, rounds):.3g} as the paper counts the same noise"


def _epsilon(cost: Price) -> str:
    return "∞" if math.isinf(cost.whole.epsilon) else f"{cost.whole.epsilon:.3g}"


def with_noise(log: Log, seeds: Iterable[int]) -> tuple[Study, dict[str, str]]:
    """What every line answered on every seed's split, and what it costs a person."""
    found, costs = Study(), {}
    for row in NOISY:
        parts = []
        for seed in seeds:
            people = len(log.split(seed).train)
            plan = noisy_plan(row, log, people)
            parts.append(log.values(plan, seed))
            found.digests[row], costs[row] = plan.digest, cost_of(price(plan, people))
        found.values[row] = {metric: np.concatenate([part[metric] for part in parts]) for metric in parts[0]}
    return found, costs


def cost_of(cost: Price) -> str:
    """ε of the run with its unit, neighbours and trust; where an open stage voids it, what stands beside it."""
    whole = cost.whole
    words = (
        f"ε = {_epsilon(cost)} for the run, unit {whole.unit}, {whole.relation.replace('_', '-')}, trust: {whole.trust}"
    )
    beside = [f"; ε = {one.epsilon:.3g} {one.conditions[0]}" for one in cost.beside]
    return words + "".join(beside) + "."


def lost(found: Study) -> set[str]:
    """Lines of which chance ranks most people: one of them above another is no order."""
    return {row for row, values in found.values.items() if values[CHANCE].mean() > 0.5}


def in_stages(means: Mapping[str, float], lost: Collection[str] = ()) -> list[str]:
    """R3 as printed, with a private first stage, and at equal ε: an order of means, where they mean something."""

    def ordered(name: str, rows: Iterable[str]) -> str:
        by_chance = [row for row in rows if row in lost]
        if len(by_chance) > 1:
            return finding(name, False, f"chance ranks most users in {' and in '.join(by_chance)}")
        return order(name, {row: means[row] for row in rows}, "Hits@10")

    one, two, private = (row for row in NOISY if "as printed" in row)
    share = 1 - means[two] / max(means["PrivRec"], 1e-9)
    few, many = AT_EIGHT
    return [
        ordered("R3 by means, as printed", ("PrivRec", two, one)),
        finding("R3, within 10 %", share < 0.1, f"the printed noise costs {share:.0%} of PrivRec's Hits@10"),
        ordered("R3 by means, stage 1 private too", ("PrivRec", private, one)),
        ordered("R3 by means, at ε = 8", ("PrivRec", many, few)),
        ordered("R3 by means, with less to be noised", ("counts and tastes at ε = 8", one)),
    ]


def two_against_one(found: Study) -> list[str]:
    """Whether two stages are better than one, person by person: where the first is open, and where it is private too."""
    one, two, private = (row for row in NOISY if "as printed" in row)
    few, many = AT_EIGHT
    forms = {
        "with stage 1 open (ε = ∞), printed noise in stage 2": (two, one),
        "with stage 1 private too, printed noise in both": (private, one),
        "with stage 1 private too, ε ≤ 8 in all": (many, few),
    }
    gaps = [_gap(words, *(found.values[row] for row in rows)) for words, rows in forms.items()]
    return [*gaps, WITHIN]


def by_chance(found: Study) -> list[str]:
    """Lines that say nothing."""
    chance = {row: values[CHANCE] for row, values in found.values.items()}
    return [f"{row}: {words}." for row, one in chance.items() for words in chance_warning(int(one.sum()), one.size)]


def _gap(words: str, two: Mapping[str, np.ndarray], one: Mapping[str, np.ndarray]) -> str:
    """A sentence that says which is better, or that it is not known."""
    both = two[CHANCE] & one[CHANCE]
    if both.mean() > 0.5:
        return f"{words}: chance ranks {both.sum():,} of {both.size:,} users in both; there is nothing to compare."
    gap = paired_test(two["Hits@10"], one["Hits@10"]).difference
    better = "two stages are better than one" if gap.low > 0 else "one stage is better than two" if gap.high < 0 else ""
    found = better or "neither one stage nor two is shown to be better"
    return f"{words}: {found}; Hits@10 {gap.mean:+.4f} ({gap.low:+.4f} to {gap.high:+.4f}) by the first stage."


def helped() -> str:
    """What FedGNN's messages are worth, in a sentence."""
    printed, true = fedgnn_claims(build(choose("fedgnn").stages[0], Catalog(1)))
    return (
        f"FedGNN: a helper takes part, played in the lab. Its printed ε = {printed.epsilon:g} is {printed.conditions[0]}; "
        f"a person's is ∞ ({'; '.join(true.conditions)})."
    )
