"""What canaries prove against every plan that promises something, and whether a reader knows what people have.

    python benchmarks/audit.py                          # both parts, a few minutes on two cores
    python benchmarks/audit.py --part one_run           # one of them; the other stays as it was kept
    tacit reproduce privrec --part table6 --data movies --out benchmarks/results/reproduce-privrec-membership.json
    python benchmarks/pages.py --kept                     # the numbers into docs/audit.md

Synthetic worlds `movies`. Networks are played for a few rounds of little work: what is sent and what is claimed stay of the
same kind, and the claim is that of the plan as played.
"""

import argparse
import warnings
from typing import Any

import numpy as np
from harness import machine, write
from pages import read

from tacit.core.plan import Plan
from tacit.core.run_folder import plain
from tacit.lab.analysis.feasibility import FeasibilityWarning
from tacit.lab.audits.claim_audit import audit
from tacit.lab.audits.interaction_inference import MESSAGES, infer_interactions
from tacit.lab.data.synthetic import movies
from tacit.lab.evaluation.statistics import interval
from tacit.lab.plans.loader import choose
from tacit.lab.runs.run import simulate
from tacit.lab.simulation.federation import Performance

NETWORK = {"hyper.dim": 16, "hyper.hidden": (16, 8), "hyper.epochs": 5, "hyper.most": 50}
SHORT = {"rounds": 4, "hyper.epochs": 1, "hyper.most": 8}
NOISE = {"privacy.mechanism": "gaussian", "privacy.epsilon": 8.0}
DRAWN = {"privacy.mechanism": "gaussian", "privacy.epsilon": 1.0, "rounds": 20}
AUDITED: dict[str, tuple[str, dict[str, Any], int]] = {  # plan, settings, runs
    "fpl-dp": ("fpl-dp", {}, 3),
    "dp-privrec": ("dp-privrec", {}, 3),
    "dp-privrec-paper, 4 rounds": ("dp-privrec-paper", SHORT, 1),
    "fcf, gaussian": ("fcf", {**NOISE, "privacy.epsilon": 2.0}, 3),
    "seqmf": ("seqmf", {}, 1),
    "dplcf": ("dplcf", {}, 3),
    "fedseqrec-dp, 2 rounds": ("fedseqrec-dp", {"rounds": 2}, 1),
    "popularity, 20 drawn": ("popularity", {**DRAWN, "cohort.sampler": "fixed", "cohort.count": 20}, 10),
    "popularity, 5 % drawn": ("popularity", {**DRAWN, "cohort.sampler": "poisson", "cohort.rate": 0.05}, 10),
    "dp-privrec-one, 4 rounds": ("dp-privrec-one", {"rounds": 4}, 3),
}
ATTACKED = {
    "seqmf-ce": ("seqmf-ce", {}),
    "seqmf": ("seqmf", {}),
    "fcf": ("fcf", {}),
    "fcf, gaussian": ("fcf", NOISE),
    "fpl": ("fpl", {}),
    "fpl-dp": ("fpl-dp", {}),
    "lcf-ub": ("lcf-ub", {}),
    "dplcf": ("dplcf", {}),
    "privrec": ("privrec", NETWORK),
    "dp-privrec": ("dp-privrec", {}),
}
PEOPLE, ITEMS, ROUNDS = 300, 200, 5


def one_run() -> dict[str, Any]:
    """The audit of each plan."""
    made = {}
    for name, (plan, settings, runs) in AUDITED.items():
        made[name] = audit(choose(plan, settings), seeds=range(runs)).to_dict()
        print(name, made[name]["verdict"], made[name]["epsilon_at_least"], flush=True)
    return made


def short(plan: Plan) -> Plan:
    for number, stage in enumerate(plan.stages, 1):
        plan = plan.with_setting(f"{number}.rounds", min(stage.rounds, ROUNDS)) if stage.rounds else plan
    return plan


def interaction_guesses() -> dict[str, Any]:
    """What a reader knows of each plan's people, beside what popularity says."""
    log, made = movies(PEOPLE, ITEMS), {}
    for name, (plan, settings) in ATTACKED.items():
        run = simulate(
            short(choose(plan, settings)), log, quiet=True, performance=Performance(grid=(int(log.lengths.max()),))
        )
        by_message, by_popularity = infer_interactions(run, MESSAGES)
        right, chart = (interval(one.accuracy) for one in (by_message, by_popularity))
        made[name] = {
            "claim": run.price.whole.to_dict(),
            "accuracy": [right.mean, right.low, right.high],
            "auc": by_message.auc,
            "tpr": by_message.tpr,
            "popularity": [chart.mean, chart.low, chart.high],
            "popularity_auc": by_popularity.auc,
        }
        print(name, np.round(right.mean, 3), np.round(by_message.auc, 3), flush=True)
    return made


PARTS = {"interactions": interaction_guesses, "one_run": one_run}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=PARTS, help="make this part only")
    asked = parser.parse_args()
    warnings.simplefilter("ignore", FeasibilityWarning)
    world = f"movies, synthetic, {PEOPLE} people, {ITEMS} items, {ROUNDS} rounds at most, {MESSAGES} messages at most"
    kept = read("audit") if asked.part else {}
    made = {name: part() for name, part in PARTS.items() if asked.part in (None, name)}
    write(
        "audit", plain({"machine": machine(), "world": world, **{name: made.get(name) or kept[name] for name in PARTS}})
    )


if __name__ == "__main__":
    main()
