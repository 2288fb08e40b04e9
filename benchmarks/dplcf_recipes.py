"""What to do about noise in similarities: six recipes on the same lies, against ε and the number of people.

    python benchmarks/dplcf_recipes.py [--most 100000] [--seeds 3] [--keep FOLDER]

The movies world (synthetic), 500 items, 10 neighbours. Everybody speaks; at most 5,000 people are asked for their last
item, among 99 sampled ones and among all. Recipes were chosen on MovieLens-1M and settled before this was run. What is
done is kept, by people, seed and ε: the same command goes on where it stopped.
"""

import argparse
import math
import tempfile
import time
import warnings
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from harness import machine, write

from tacit.core.plan import Plan
from tacit.lab.analysis.feasibility import FeasibilityWarning
from tacit.lab.data.synthetic import movies
from tacit.lab.evaluation.candidates import AllItems, Sampled
from tacit.lab.evaluation.scoring import ranks
from tacit.lab.evaluation.splits import Split, leave_last_out
from tacit.lab.evaluation.statistics import interval, paired_test
from tacit.lab.plans.loader import choose
from tacit.lab.runs.run import Run, simulate
from tacit.metrics import per_case
from tacit_papers.dplcf.readings import collect_reports, decode_run, noise_floor

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
TEST = "NDCG@10 sampled"  # what recipes are held against each other by
Values = dict[str, np.ndarray]  # "recipe, metric" -> each asked person's own


class Questions(NamedTuple):
    split: Split
    sampled: Sampled
    seed: int

    def values(self, name: str, run: Run) -> Values:
        """Each asked person's own values, by the devices' own code."""
        found = {
            "sampled": ranks(run, self.split, self.sampled, seed=self.seed),
            "all": ranks(run, self.split, AllItems(), seed=self.seed),
        }
        return {f"{name}, {metric} {way}": per_case(one, metric) for way, one in found.items() for metric in METRICS}


def questions(people: int, seed: int) -> Questions:
    split = leave_last_out(movies(users=people, items=ITEMS, seed=seed))
    some = np.sort(np.random.default_rng(seed).permutation(len(split.test))[:ASKED])
    split = replace(split, test=split.test.at(some))
    return Questions(split, Sampled(split, 99, seed), seed)


def plans_of(epsilon: float) -> dict[str, Plan]:
    """What is compared at this ε; the truth stands at ∞. Popularity, of exact counts, has none; it is kept as 0."""
    if math.isinf(epsilon):
        return {"truth": choose("lcf-ub", {"hyper.neighbours": K})}
    if epsilon == 0:
        return {"popularity": choose("popularity")}
    return {name: choose("dplcf", {**recipe, "hyper.neighbours": K}, epsilon) for name, recipe in RECIPES.items()}


def measured(asked: Questions, epsilon: float) -> Values:
    """One ε: everybody speaks once, and every recipe reads that."""
    plans, train = plans_of(epsilon), asked.split.train
    if epsilon == 0:
        return asked.values("popularity", simulate(plans["popularity"], train, quiet=True))
    said = collect_reports(next(iter(plans.values())), train, asked.seed)
    made = {"floor": np.array([noise_floor(said)])}
    for name, plan in plans.items():
        made |= asked.values(name, decode_run(said, plan))
    return made


def kept(folder: Path, people: int, seed: int) -> dict[float, Values]:
    """All ε of one world; from the folder where they are there."""
    asked, made = None, {}
    for epsilon in (0.0, *EPSILONS, math.inf):
        path = folder / f"{people}-{seed}-{epsilon:g}.npz"
        if not path.exists():
            began, asked = time.perf_counter(), asked or questions(people, seed)
            np.savez(path, **measured(asked, epsilon))  # pyright: ignore[reportArgumentType]
            print(f"{people:>7,} people, seed {seed}, ε = {epsilon:g}: {time.perf_counter() - began:.0f} s", flush=True)
        with np.load(path) as values:
            made[epsilon] = dict(values)
    return made


def summary(folder: Path, people: int, seeds: int) -> dict:
    """Means and intervals over all people asked, the seeds' worlds together; and each recipe less plain clamping."""
    found = [kept(folder, people, seed) for seed in range(seeds)]
    rows: dict[str, dict] = {}
    for epsilon in found[0]:
        pooled = {name: np.concatenate([one[epsilon][name] for one in found]) for name in found[0][epsilon]}
        cells = rows.setdefault(_name(epsilon), {})
        cells |= {name: _cells(pooled, name) for name in plans_of(epsilon)}
        if epsilon in EPSILONS:
            cells["noise of a count"] = float(pooled["floor"].mean())
    return rows


def _name(epsilon: float) -> str:
    """No noise at all is ε = ∞, for popularity as for the truth."""
    return f"{epsilon or math.inf:g}"


def _cells(pooled: Values, name: str) -> dict:
    spans = {f"{metric} {way}": pooled[f"{name}, {metric} {way}"] for metric in METRICS for way in ("sampled", "all")}
    cells = {metric: _span(interval(values)) for metric, values in spans.items()}
    if name in RECIPES and name != "clamp":
        less = paired_test(pooled[f"{name}, {TEST}"], pooled[f"clamp, {TEST}"])
        cells[f"{TEST}, less clamp"] = _span(less.difference)
    return cells


def _span(one) -> list[float]:
    return [one.mean, one.low, one.high]


def measure(options: argparse.Namespace) -> None:
    folder = Path(options.keep)
    folder.mkdir(parents=True, exist_ok=True)
    digests: dict[str, dict] = {}
    for epsilon in (0.0, *EPSILONS, math.inf):
        named = {name: plan.digest for name, plan in plans_of(epsilon).items()}
        digests.setdefault(_name(epsilon), {}).update(named)
    result: dict = {"machine": machine(), "world": "movies, synthetic", "items": ITEMS, "neighbours": K}
    result |= {"seeds": options.seeds, "asked": ASKED, "digests": digests}
    for people in PEOPLE:
        if people <= options.most:
            result[f"{people}"] = summary(folder, people, options.seeds)
            write("dplcf-recipes", result)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--most", type=int, default=max(PEOPLE))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--keep", default=str(Path(tempfile.gettempdir()) / "tacit-dplcf-recipes"))
    options = parser.parse_args()
    warnings.simplefilter("ignore", FeasibilityWarning)
    measure(options)


if __name__ == "__main__":
    main()
