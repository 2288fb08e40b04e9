"""How much of a next-item recommender is left under user-level privacy: the plans of steps and popularity, at several ε.

    TACIT_DATA=... python benchmarks/steps.py                      # MovieLens-1M, every plan; results are kept row by row
    python benchmarks/steps.py --log movies --people 20000 --epsilon 1 8 --seeds 1
    python benchmarks/steps.py --plan steps --ties random --relation replace_one

The last event of each user, among all items they do not have (on a log of repeats, among all). No setting follows from a log: what the
plans have was chosen on a half of MovieLens-1M's users elsewhere, and is the same on every log. A row that is kept is not run again.
"""

import argparse
import time
from typing import Any

import numpy as np
from harness import RESULTS, machine, peak_memory, write
from pages import read

from tacit.core.plan import Plan, Stage
from tacit.lab.data import Population
from tacit.lab.data.datasets import dataset
from tacit.lab.data.selection import pick
from tacit.lab.evaluation.protocols import load_protocol
from tacit.lab.evaluation.scoring import ranks
from tacit.lab.evaluation.statistics import interval
from tacit.lab.plans.loader import choose
from tacit.lab.runs.run import simulate
from tacit.metrics import per_case

EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0)
PLANS = ("popularity", "private popularity", "dp-privrec", "steps-once", "steps", "steps-free")
FREE = ("popularity", "steps-free")  # without noise: they have no ε
METRIC = "NDCG@10"


def popularity_of(epsilon: float) -> Plan:
    """Private popularity: the counts of the plans of steps, with the whole ε."""
    privacy = {"mechanism": "gaussian", "clip": 1.0, "epsilon": epsilon, "share": 1.0, "update_form": "nonnegative"}
    server = {"rule": "frequent_items", "level": 1e9, "least": 0}  # no item is in the head
    return Plan(
        "private popularity",
        (Stage("steps", {"sends": "counts"}, ("counts", "head", "weights"), privacy, server, rounds=1),),
    )


def plan_of(name: str, epsilon: float | None, relation: str) -> Plan:
    """A plan at this ε, for these neighbours."""
    if name in FREE:
        return choose(name)
    assert epsilon is not None
    plan = choose(popularity_of(epsilon) if name == "private popularity" else name, epsilon=epsilon)
    if name == "dp-privrec":
        plan = choose(plan, {f"{number}.privacy.update_form": "nonnegative" for number in (1, 2)})
    alone = {f"{number}.cohort": {"sampler": "all", "relation": relation} for number in range(1, len(plan.stages) + 1)}
    return choose(plan, alone if relation == "add_remove" else None)


def log_of(name: str, people: int | None) -> Population:
    """A log, or so many of its people."""
    if name in ("movies", "apps", "groups"):
        return dataset(name, users=people or 2000, seed=11)
    log = dataset(name)
    if people is None or people >= len(log):
        return log
    return pick(log, np.sort(np.random.default_rng(0).permutation(len(log))[:people]))


def measure(log: Population, name: str, epsilon: float | None, relation: str, ties: str, seeds: int) -> dict[str, Any]:
    """The metric of each seed, and its interval over people (each one's mean over seeds)."""
    protocol = load_protocol("full", ties=ties)
    split = protocol.split(log, 0)
    found, rows, claim, began = [], [], "", time.perf_counter()
    for seed in range(1 if epsilon is None else seeds):
        run = simulate(plan_of(name, epsilon, relation), split.train, seed=seed, quiet=True)
        claim = str(run.price.whole)
        found.append(per_case(ranks(run, split, protocol.make_candidates(split, 0)), METRIC))
        rows.append(int((np.asarray(run.params["head"]) < log.catalog.n_items).sum()) if "head" in run.params else 0)
    one = interval(np.mean(found, axis=0))
    return {
        "claim": claim,
        "each": [float(np.mean(values)) for values in found],
        "metric": [one.mean, one.low, one.high],
        "head": rows,
        "seconds": time.perf_counter() - began,
        "gib": peak_memory(),
        "machine": machine(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--log", default="ml-1m")
    parser.add_argument("--people", type=int)
    parser.add_argument("--plan", nargs="*", default=PLANS)
    parser.add_argument("--epsilon", type=float, nargs="*", default=EPSILONS)
    parser.add_argument("--relation", default="add_remove", choices=("add_remove", "replace_one"))
    parser.add_argument("--ties", default="file", choices=("file", "random"))
    parser.add_argument("--seeds", type=int, default=3)
    given = parser.parse_args()
    log = None
    for name in given.plan:
        for epsilon in [None] if name in FREE else given.epsilon:
            kept = read("steps")["rows"] if (RESULTS / "steps.json").exists() else []
            what = {"log": given.log, "people": given.people, "plan": name, "epsilon": epsilon}
            what |= {"relation": None if name in FREE else given.relation, "ties": given.ties}
            if any(all(row[key] == value for key, value in what.items()) for row in kept):
                continue
            log = log_of(given.log, given.people) if log is None else log
            made = {**what, "users": len(log), **measure(log, name, epsilon, given.relation, given.ties, given.seeds)}
            print(what, [round(value, 4) for value in made["each"]], f"{made['seconds']:.0f} s", flush=True)
            kept = read("steps")["rows"] if (RESULTS / "steps.json").exists() else []
            write("steps", {"metric": METRIC, "rows": [*kept, made]})


if __name__ == "__main__":
    main()
