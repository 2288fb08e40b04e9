"""PrivRec's Table 6: who was among the people a model learned from, ours beside the paper's, and what ε would allow."""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from tacit.audit.evidence import most_accurate
from tacit.audit.membership import Shadow, Success
from tacit.lab.membership import Found, Sides, infer, shadow_models, sides
from tacit.lab.reproduce.privrec_study import Log, plan_of, quicker
from tacit.lab.reproduce.tables import Cell, Table, said
from tacit.lab.statistics import interval
from tacit.plans import Plan
from tacit.privacy.price import price

TARGETS, SHADOWS, SHADOW_PEOPLE = 10, 4, 1000
COLUMNS = ("accuracy", "balanced", "AUC", "TPR at 1 %", "loss: accuracy", "loss: AUC", "loss: TPR at 1 %", "at most")
# What the paper prints: accuracy of the forest, by target.
MOVIES = {"PrivRec": 0.65, "DP ε = 2": 0.51, "DP ε = 5": 0.54, "DP ε = 15": 0.55, "LM ε = 15": 0.59}
APPS = {"PrivRec": 0.73, "DP ε = 5": 0.54, "DP ε = 20": 0.61, "DP ε = 40": 0.65, "LM ε = 40": 0.69}
LAPLACE = {"mechanism": "laplace", "clip": "l1", "bound": 1.0}  # the paper states no L1 bound


class Row(NamedTuple):
    """One target."""

    plan: Plan
    found: Found
    most: float  # accuracy that its claim allows


def target_plan(row: str, log: Log) -> Plan:
    """The plan behind a row: PrivRec, with normal noise at the server, or with Laplace's at home."""
    if row == "dp-privrec":
        return plan_of(row, log.size)
    if row == "PrivRec":
        return plan_of("PrivRec", quicker(log.size))
    epsilon = float(row.rpartition(" ")[2])
    privacy = {"mechanism": "gaussian", "clip": 40.0} if row.startswith("DP") else LAPLACE
    return plan_of("dp-privrec-paper", quicker(log.size), {"privacy": {**privacy, "epsilon": epsilon}})


def membership_table(name: str, title: str, log: Log, printed: dict[str, float]) -> Table:
    """Accuracy of both attacks on every target, with intervals over targets."""
    people = sides(log.people, min(SHADOW_PEOPLE, len(log.people) // 3))
    table = Table(name, f"{title}, {TARGETS} targets", log.label, COLUMNS)
    shadows = shadow_models(target_plan("PrivRec", log), people, SHADOWS)
    rows = {row: _row(row, log, people, shadows) for row in printed}
    ours = "dp-privrec, ours"
    rows[ours] = _row("dp-privrec", log, people, shadow_models(target_plan("dp-privrec", log), people, SHADOWS))
    for row, made in rows.items():
        table.add(row, _cells(made, printed.get(row)), made.plan.digest)
    table.notes += [*_orders(rows), *_words(people, rows)]
    return table


def _row(row: str, log: Log, people: Sides, shadows: list[Shadow]) -> Row:
    plan = target_plan(row, log)
    claim = price(plan, people.private.size // 2).whole
    return Row(plan, infer(plan, people, shadows, range(TARGETS)), most_accurate(claim.epsilon, claim.delta))


def _cells(row: Row, paper: float | None) -> dict[str, Cell]:
    lists, losses = (_columns(part) for part in row.found)
    spans = [interval(values) for values in (*lists, losses[0], *losses[2:])]
    cells = [Cell.of(span, paper if at == 0 else None) for at, span in enumerate(spans)]
    return dict(zip(COLUMNS, [*cells, Cell(row.most)]))


def _columns(found: Iterable[Success]) -> list[np.ndarray]:
    return [np.array(values) for values in zip(*found)]


def _mean(row: Row) -> float:
    return float(np.mean([one.accuracy for one in row.found.by_list]))


def _orders(rows: dict[str, Row]) -> list[str]:
    """R7: without noise most is found; more with a larger ε; more under Laplace's noise."""
    means = {row: _mean(made) for row, made in rows.items() if row.startswith(("PrivRec", "DP", "LM"))}
    noisy = {row: value for row, value in means.items() if row.startswith("DP")}
    shown = ", ".join(f"{row} {value:.3f}" for row, value in means.items())
    by_epsilon = list(noisy.values())
    laplace = next(value for row, value in means.items() if row.startswith("LM"))
    return [
        said("R7, noise hides", means["PrivRec"] > max(noisy.values()), shown),
        said("R7, a larger ε shows more", by_epsilon == sorted(by_epsilon), "accuracy in the order of ε"),
        said(
            "R7, Laplace shows more", laplace > by_epsilon[-1], "at the same ε; here Laplace's noise is drawn at home"
        ),
    ]


def _words(people: Sides, rows: dict[str, Row]) -> list[str]:
    best = max(np.mean([one.accuracy for one in row.found.by_loss]) for row in rows.values())
    return [
        "at most: (e^ε + δ)/(1 + e^ε), what the claim of the run allows of anybody. An accuracy near .5 is no proof of an ε: "
        "it says how weak the attack is.",
        f"{people.shadow.size} shadow people, of whom four in five train each of {SHADOWS} shadow models; half of "
        f"{people.private.size} others train each target. The forest sees as many outsiders as insiders, and lists as item "
        "numbers; it has the features and the list, and no history.",
        _work(rows["PrivRec"].plan),
        f"loss: the likelihood ratio of a person's loss; it knows the history, and is right in {best:.1%} at best.",
        "LM: Laplace's noise at home on an update of L1 norm at most 1; the paper states no bound.",
    ]


def _work(plan: Plan) -> str:
    """How hard a target was trained: what is not learned by heart cannot be found."""
    stage = plan.stages[0]
    events = f"the newest {stage.hyper['most']}" if stage.hyper["most"] else "all"
    return (
        f"Each target: {stage.rounds} rounds of {stage.cohort['count']} people, {stage.hyper['epochs']} epochs each over {events} "
        "events."
    )
