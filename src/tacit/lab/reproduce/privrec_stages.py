"""PrivRec in one stage and in two, with noise and without: Figures 4 and 5, and which of their orders hold."""

import math
from collections.abc import Mapping

from tacit.catalog import Catalog
from tacit.device.method import build
from tacit.lab.reproduce.privrec_orders import order
from tacit.lab.reproduce.privrec_study import Log, Study, plan_of
from tacit.lab.reproduce.tables import said
from tacit.lab.shelf import choose
from tacit.lab.thirdparty.fedgnn import claims
from tacit.plans import Plan
from tacit.privacy.price import Price, price

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


def noisy_plan(row: str, log: Log, people: int) -> Plan:
    """The plan behind a line of the figures; of few people, all are asked."""
    plan = plan_of(NOISY[row], log.size)
    for number, stage in enumerate(plan.stages, 1):
        if stage.cohort.get("count", 0) > people:
            plan = choose(plan, {f"{number}.cohort.count": people})
    return choose(plan, {"1.privacy": plan.stages[1].privacy}) if row == PRIVATE else plan


def with_noise(log: Log, seed: int) -> tuple[Study, dict[str, str]]:
    """What every line answered on one seed's split, and what it costs a person."""
    found, costs, split = Study(), {}, log.split(seed)
    for row in NOISY:
        plan = noisy_plan(row, log, len(split.train))
        found.digests[row] = plan.digest
        found.values[row] = log.values(plan, seed)
        costs[row] = cost_of(price(plan, len(split.train)))
    return found, costs


def cost_of(cost: Price) -> str:
    """ε of the run with its unit, neighbours and trust; where an open stage voids it, what stands beside it."""
    whole = cost.whole
    epsilon = "∞" if math.isinf(whole.epsilon) else f"{whole.epsilon:.3g}"
    words = f"ε = {epsilon} for the run, unit {whole.unit}, {whole.relation.replace('_', '-')}, trust: {whole.trust}"
    beside = [f"; ε = {one.epsilon:.3g} {one.conditions[0]}" for one in cost.beside]
    return words + "".join(beside) + "."


def in_stages(means: Mapping[str, float]) -> list[str]:
    """R3 as printed, with a private first stage, and at equal ε."""
    one, two, private = (row for row in NOISY if "as printed" in row)
    share = 1 - means[two] / max(means["PrivRec"], 1e-9)
    few, many = "DP-PrivRec-One at ε = 8", "DP-PrivRec at ε = 8"
    return [
        order("R3, as printed", {row: means[row] for row in ("PrivRec", two, one)}, "Hits@10"),
        said("R3, within 10 %", share < 0.1, f"the printed noise costs {share:.0%} of PrivRec's Hits@10"),
        order("R3, stage 1 private too", {row: means[row] for row in ("PrivRec", private, one)}, "Hits@10"),
        order("R3, at ε = 8", {row: means[row] for row in ("PrivRec", many, few)}, "Hits@10"),
        order(
            "R3, with less to be noised", {row: means[row] for row in ("counts and tastes at ε = 8", one)}, "Hits@10"
        ),
    ]


def helped() -> str:
    """What FedGNN's messages are worth, in a sentence."""
    printed, true = claims(build(choose("fedgnn").stages[0], Catalog(1)))
    return (
        f"FedGNN: a helper takes part, played in the lab. Its printed ε = {printed.epsilon:g} is {printed.conditions[0]}; "
        f"a person's is ∞ ({'; '.join(true.conditions)})."
    )
