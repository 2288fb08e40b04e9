"""What to do about noise in similarities: six recipes on the same lies, against ε and the number of people.

    python benchmarks/dplcf_recipes.py [--most 100000] [--seeds 3]

The movies world (synthetic), 500 items, 10 neighbours. Everybody speaks; at most 5,000 people are asked for their last
item, among 99 sampled ones and among all. Recipes were chosen on MovieLens-1M and settled before this was run.
"""

import argparse
import math
import time
import warnings
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from harness import machine, write

from tacit.lab.candidates import Everything, Sampled
from tacit.lab.evaluate import ranks
from tacit.lab.outlook import HopelessWarning
from tacit.lab.readings import noise_floor, read, say
from tacit.lab.run import Run
from tacit.lab.shelf import choose
from tacit.lab.simulate import simulate
from tacit.lab.split import Cases, Split, leave_last_out
from tacit.lab.statistics import compare, interval
from tacit.lab.worlds import movies
from tacit.metrics import per_case

PEOPLE = (1_000, 10_000, 100_000)
EPSILONS = (0.25, 0.5, 1.0, 2.0, 4.0)
RECIPES = {
    "raw": {"server.recipe": "raw"},
    "clamp": {"server.recipe": "clamp"},
    "floor": {"server.recipe": "floor"},
    "error": {"server.recipe": "error", "server.strength": 3.0},
    "bound": {"server.recipe": "bound", "server.strength": 2.0},
    "expected": {"server.recipe": "expected"},
}
ITEMS, K, ASKED = 500, 10, 5_000
METRICS = ("HR@10", "NDCG@10")


class Questions(NamedTuple):
    split: Split
    sampled: Sampled

    def values(self, run: Run, seed: int) -> dict[str, np.ndarray]:
        """Each asked person's own values, by the devices' own code."""
        found = {
            "sampled": ranks(run, self.split, self.sampled, seed=seed),
            "all": ranks(run, self.split, Everything(), seed=seed),
        }
        return {f"{metric} {way}": per_case(one, metric) for way, one in found.items() for metric in METRICS}


def questions(people: int, seed: int) -> Questions:
    split = leave_last_out(movies(users=people, items=ITEMS, seed=seed))
    some = np.sort(np.random.default_rng(seed).permutation(len(split.test))[:ASKED])
    split = replace(split, test=Cases(**{name: part[some] for name, part in vars(split.test).items()}))
    return Questions(split, Sampled(split, 99, seed))


def one_seed(people: int, seed: int) -> dict[Any, dict[str, np.ndarray]]:
    """(ε, recipe) -> values; popularity and the truth stand under ε = 0 and ε = ∞."""
    asked = questions(people, seed)
    train = asked.split.train
    truth = choose("lcf-ub", {"hyper.neighbours": K})
    made = {(math.inf, "truth"): asked.values(read(say(truth, train, seed), truth), seed)}
    made[0.0, "popularity"] = asked.values(simulate("popularity", train, quiet=True), seed)
    for epsilon in EPSILONS:
        plans = {name: choose("dplcf", {**recipe, "hyper.neighbours": K}, epsilon) for name, recipe in RECIPES.items()}
        said = say(plans["clamp"], train, seed)
        for name, plan in plans.items():
            made[epsilon, name] = asked.values(read(said, plan), seed)
        made[epsilon, "floor_people"] = {"people": np.array([noise_floor(said)])}
        print(f"{people:>7,} people, seed {seed}, ε = {epsilon:g}", flush=True)
    return made


def summary(people: int, seeds: int) -> dict:
    found = [one_seed(people, seed) for seed in range(seeds)]
    pooled = {
        key: {name: np.concatenate([one[key][name] for one in found]) for name in found[0][key]} for key in found[0]
    }
    rows = {}
    for (epsilon, name), values in pooled.items():
        cells = rows.setdefault(f"{epsilon:g}", {})
        if name == "floor_people":
            cells[name] = float(values["people"].mean())
            continue
        spans = {metric: interval(one) for metric, one in values.items()}
        cells[name] = {metric: [span.mean, span.low, span.high] for metric, span in spans.items()}
        if name not in ("clamp", "truth", "popularity"):
            better = compare(values["NDCG@10 sampled"], pooled[epsilon, "clamp"]["NDCG@10 sampled"])
            cells[name]["NDCG@10 sampled, less clamp"] = [
                better.difference.mean,
                better.difference.low,
                better.difference.high,
            ]
    return rows


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--most", type=int, default=max(PEOPLE))
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    warnings.simplefilter("ignore", HopelessWarning)
    result: dict = {
        "machine": machine(),
        "world": "movies, synthetic",
        "items": ITEMS,
        "neighbours": K,
        "seeds": options.seeds,
    }
    for people in PEOPLE:
        if people <= options.most:
            began = time.perf_counter()
            result[f"{people}"] = summary(people, options.seeds)
            print(f"{people:,} people: {time.perf_counter() - began:.0f} s")
    write("dplcf-recipes", result)


if __name__ == "__main__":
    main()
