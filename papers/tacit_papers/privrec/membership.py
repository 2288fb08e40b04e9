"""PrivRec's Table 6: membership inference against a trained model, ours beside the paper's, and the bound by ε."""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from tacit.audit.evidence import most_accurate
from tacit.audit.inference import MembershipScores, Shadow
from tacit.core.plan import Plan
from tacit.lab.audits.membership import (
    USED,
    MembershipResults,
    PeopleSplit,
    infer_membership,
    shadow_models,
    split_people,
)
from tacit.lab.evaluation.statistics import interval
from tacit.lab.plans.loader import choose
from tacit.privacy.accounting.accountant import default_delta
from tacit.privacy.claim import Claim
from tacit.privacy.price import price
from tacit_papers.privrec.stages import ON_STAND_IN, PRIVATE, budget_plan
from tacit_papers.privrec.study import Log, plan_of, quicker
from tacit_papers.tables import Cell, Table, finding

SHADOWS, SHADOW_PEOPLE = 4, 1000
COLUMNS = (
    *("accuracy", "balanced", "AUC", "TPR at 1 %", "loss: accuracy", "loss: AUC", "loss: TPR at 1 %"),
    *("ε printed", "ε of the run", "at most"),
)
# What the paper prints: accuracy of the forest, by target.
MOVIES = {
    "PrivRec": 0.65,
    **dict(zip((f"DP-PrivRec ε = {e}" for e in (2, 5, 15)), (0.51, 0.54, 0.55))),
    "LM-PrivRec ε = 15": 0.59,
}
APPS = {
    "PrivRec": 0.73,
    **dict(zip((f"DP-PrivRec ε = {e}" for e in (5, 20, 40)), (0.54, 0.61, 0.65))),
    "LM-PrivRec ε = 40": 0.69,
}
OURS = "dp-privrec, ours"
L1 = 1.0  # the bound under Laplace's noise; the paper states none


class Row(NamedTuple):
    """One target."""

    plan: Plan
    found: MembershipResults
    promised: float | None  # the ε that the paper gives it
    claim: Claim


class Target(NamedTuple):
    """What is attacked: a row of the paper, or one beside it."""

    name: str
    paper: str = ""  # the row of the paper's table, where there is one
    private: bool = False  # whether stage 1 has noise too

    @property
    def epsilon(self) -> float | None:
        """What the paper's row promises."""
        return float(self.paper.rpartition(" ")[2]) if "ε" in self.paper else None


def targets(printed: dict[str, float]) -> list[Target]:
    """The paper's rows as printed; beside each with normal noise, the same ε for both stages; and ours."""
    found = []
    for row in printed:
        found.append(Target(f"{row}, as printed" if "ε" in row else row, row))
        if row.startswith("DP"):
            found.append(Target(f"{row}, stage 1 private", row, private=True))
    return [*found, Target(OURS)]


def target_plan(target: Target, log: Log, people: int) -> Plan:
    """PrivRec; its two stages, with normal or with Laplace's noise at the server; or ours."""
    if target.epsilon is None:
        return plan_of("PrivRec", quicker(log.size)) if target.paper else plan_of("dp-privrec", log.size)
    if target.paper.startswith("DP"):
        return budget_plan(PRIVATE if target.private else "DP-PrivRec, as printed", log, people, target.epsilon)
    laplace = {"mechanism": "laplace", "place": "central", "clip": "l1", "bound": L1, "delta": default_delta(people)}
    plan = plan_of("dp-privrec-two-paper", quicker(log.size))
    return choose(plan, {"2.privacy": {**laplace, "epsilon": target.epsilon}})


def membership_table(name: str, title: str, log: Log, printed: dict[str, float]) -> Table:
    """Accuracy of both attacks on every target, with intervals over targets."""
    people = split_people(log.people, min(SHADOW_PEOPLE, len(log.people) // 3))
    table = Table(name, log.told(f"{title}, {log.size.targets} targets"), log.label, COLUMNS)
    shadows = _shadows(Target("PrivRec", "PrivRec"), log, people)
    rows = {}
    for target in targets(printed):
        known = shadows if target.paper else _shadows(target, log, people)
        rows[target.name] = made = _row(target, log, people, known)
        paper = None if target.private else printed.get(target.paper)
        table.add(log.told(target.name), _cells(made, paper), made.plan.digest)
    table.notes += [*_orders(rows), *_words(people, rows), *([ON_STAND_IN] if log.stand_in else [])]
    return table


def _shadows(target: Target, log: Log, people: PeopleSplit) -> list[Shadow]:
    used = round(USED * people.shadow.size)
    return shadow_models(target_plan(target, log, used), people, SHADOWS)


def _row(target: Target, log: Log, people: PeopleSplit, shadows: list[Shadow]) -> Row:
    members = round(0.5 * people.private.size)
    plan = target_plan(target, log, members)
    found = infer_membership(plan, people, shadows, range(log.size.targets))
    return Row(plan, found, target.epsilon, price(plan, members).whole)


def _cells(row: Row, paper: float | None) -> dict[str, Cell]:
    lists, losses = (_columns(part) for part in row.found)
    spans = [interval(values) for values in (*lists, losses[0], *losses[2:])]
    cells = [Cell.of(span, paper if at == 0 else None) for at, span in enumerate(spans)]
    most = most_accurate(row.claim.epsilon, row.claim.delta)
    return dict(zip(COLUMNS, [*cells, Cell(row.promised), Cell(row.claim.epsilon), Cell(most)]))


def _columns(found: Iterable[MembershipScores]) -> list[np.ndarray]:
    return [np.array(values) for values in zip(*found)]


def _mean(row: Row) -> float:
    return float(np.mean([one.accuracy for one in row.found.by_list]))


def _orders(rows: dict[str, Row]) -> list[str]:
    """R7: without noise most is found; more with a larger ε; more under Laplace's noise."""
    means = {row: _mean(made) for row, made in rows.items()}
    laplace = next(value for row, value in means.items() if row.startswith("LM"))
    found = []
    for form in ("as printed", "stage 1 private"):
        noisy = {row: value for row, value in means.items() if row.startswith("DP") and row.endswith(form)}
        shown = ", ".join(f"{row} {value:.3f}" for row, value in {"PrivRec": means["PrivRec"], **noisy}.items())
        by_epsilon = list(noisy.values())
        found += [
            finding(f"R7 by means, noise hides, {form}", means["PrivRec"] > max(by_epsilon), shown),
            finding(
                f"R7 by means, a larger ε shows more, {form}",
                by_epsilon == sorted(by_epsilon),
                "accuracy in the order of ε",
            ),
        ]
        if form == "as printed":
            words = f"at the same ε and δ, both at the server: {laplace:.3f} against {by_epsilon[-1]:.3f}"
            found.append(finding("R7 by means, Laplace shows more", laplace > by_epsilon[-1], words))
    return found


def _words(people: PeopleSplit, rows: dict[str, Row]) -> list[str]:
    best = max(np.mean([one.accuracy for one in row.found.by_loss]) for row in rows.values())
    return [
        "at most: (e^ε + δ)/(1 + e^ε), what the claim of the run allows any attacker. An accuracy near .5 is no proof of an ε: "
        "it shows how weak the attack is.",
        f"{people.shadow.size} shadow people, of whom four in five train each of {SHADOWS} shadow models; half of "
        f"{people.private.size} others train each target. The forest sees as many outsiders as insiders, and lists as item "
        "numbers; it has the features and the list, and no history.",
        _work(rows["PrivRec"].plan),
        f"loss: the likelihood ratio of a person's loss; it knows the history, and is right in {best:.1%} at best.",
        "DP, LM: two stages, the noise of stage 2 at the server. As printed, stage 1 has none: the printed ε is of stage 2 alone, "
        "and the run's is ∞. Stage 1 private: the same noise in both stages, and the printed ε for the two together.",
        f"LM: Laplace's noise on the sum of updates of L1 norm at most {L1:g}; the paper states no bound.",
    ]


def _work(plan: Plan) -> str:
    """How hard the target without noise was trained: what is not learned by heart cannot be found."""
    stage = plan.stages[0]
    events = f"the newest {stage.hyper['most']}" if stage.hyper["most"] else "all"
    return (
        f"PrivRec: {stage.rounds} rounds of {stage.cohort['count']} people, {stage.hyper['epochs']} epochs each over {events} "
        "events."
    )
