"""Which recipe makes private meta-learning useful? Hits@10 against ε, recipe by recipe, beside what costs the same.

    python benchmarks/privrec_dp.py --size small                  # minutes on two cores: fewer seeds, ε and people
    python benchmarks/privrec_dp.py --jobs 3                      # three seeds, six ε; for a GPU
    python benchmarks/privrec_dp.py --data movies --users 100000  # a synthetic log of many people
    python benchmarks/pages.py --kept                             # puts the tables of the results into docs/privrec.md

Everything is (ε, δ) for the whole run, unit user, a trusted server, δ below 1/people^1.1. People are held out as in the
paper: a fifth takes no part in training, half of their events adapts, liked items of the rest are asked among all
items never met. Settings of the recipes were tried on MovieLens-1M and `movies` with the seeds 0 and 1; measured are
others, from 10 on.
"""

import argparse
import math
import multiprocessing
import re
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import cache
from itertools import repeat
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from harness import machine, write

from tacit.core.plan import Plan, Stage
from tacit.lab.analysis.feasibility import FeasibilityWarning
from tacit.lab.data import Population
from tacit.lab.data.datasets import dataset
from tacit.lab.evaluation.protocols import load_protocol
from tacit.lab.evaluation.splits import Split
from tacit.lab.evaluation.statistics import interval, paired_test
from tacit.lab.plans.loader import choose
from tacit.lab.runs.run import simulate
from tacit.privacy.accounting.accountant import default_delta
from tacit.privacy.price import price

WAY, METRICS = load_protocol("privrec"), ("Hits@10", "NDCG@10", "Hits@20")
EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0, math.inf)
SMALL_EPSILONS, OTHERS = (math.inf, 8.0, 1.0), (8.0, math.inf)
LEADING = ("popularity", "printed", "counts and tastes (dp-privrec)")  # at every ε; the others at two
EVERYBODY = {"sampler": "all"}
HOME = {
    "hidden": (),
    "dim": 32,
    "dislikes": False,
    "popular": 1.0,
    "adapts": ("head",),
    "rate": 0.2,
    "most": 100,
    "spread": 0.5,
    "item_spread": 0.0,
}
FIELDS = ("item_values", "person_values", "item_tower", "person_tower", "head")


def counted(noise: float) -> Stage:
    """Everybody says once what they have, bounded to ‖x‖₂ ≤ 10; the server adds the noise."""
    privacy = {"mechanism": "gaussian", "clip": 10.0, "noise": noise}
    return Stage("popularity", trains=("counts",), rounds=1, privacy=privacy, server={"rule": "count"})


def meta(noise: float, sends: tuple[str, ...], rounds: int, clip: float, server: dict, **hyper: Any) -> Stage:
    """Everybody's difference in every round."""
    privacy = {"mechanism": "gaussian", "clip": clip, "noise": noise}
    server = {"rule": "mean_step", **server}
    return Stage("privrec", {**HOME, **hyper, "sends": sends}, sends, privacy, server, EVERYBODY, rounds)


def popularity(noise: float) -> tuple[Stage, ...]:
    return (counted(noise),)


def printed(noise: float) -> tuple[Stage, ...]:
    """As the paper prints it: every leaf, 30 people, S = 40; ten epochs of a narrow network."""
    stage = choose("dp-privrec-paper").stages[0]
    hyper = {**stage.hyper, "dim": 16, "hidden": (16, 8, 8, 4), "epochs": 10, "most": 100}
    return (replace(stage, hyper=hyper, privacy={**stage.privacy, "noise": noise}),)


def at_home(noise: float) -> tuple[Stage, ...]:
    """The counts with all of the noise budget; what is personal is found at home from public fields alone."""
    return counted(noise), Stage("privrec", {**HOME, "epochs": 10})


def fields(noise: float) -> tuple[Stage, ...]:
    """Counts and a network on fields: no item has a vector, so few numbers carry noise; ten rounds of everybody."""
    hyper = {"dim": 16, "hidden": (16,), "epochs": 3, "adapts": FIELDS, "rate": 0.2}
    return counted(2 * noise), meta(2 * noise, FIELDS, 10, 0.5, {"rate": 1.0, "momentum": 0.7}, **hyper)


def items(noise: float) -> tuple[Stage, ...]:
    """Counts and item vectors of sixteen numbers, the head found at home; ten rounds of everybody, with momentum."""
    hyper = {"dim": 16, "epochs": 3, "item_rate": 4.0, "item_spread": 0.3}
    return counted(2 * noise), meta(2 * noise, ("items",), 10, 1.0, {"rate": 2.0, "momentum": 0.8}, **hyper)


def bias(noise: float) -> tuple[Stage, ...]:
    """One number an item, learned in five rounds of everybody instead of counted."""
    hyper = {"popular": 0.0, "bias": True, "epochs": 3, "item_rate": 4.0}
    return (meta(noise, ("bias",), 5, 1.0, {"rate": 8.0}, **hyper),)


def tastes(noise: float) -> tuple[Stage, ...]:
    """Counts, and one sum of what goes together among the 200 most frequent items."""
    first, second = choose("dp-privrec").stages
    privacy = [{"mechanism": "gaussian", "clip": one.privacy["clip"]} for one in (first, second)]
    shares = [noise / math.sqrt(one.privacy["share"]) for one in (first, second)]
    first, second = (
        replace(one, privacy={**part, "noise": own}) for one, part, own in zip((first, second), privacy, shares)
    )
    return first, second


def clipped_low(noise: float) -> tuple[Stage, ...]:
    """As items, bounded at a quarter: less is kept of each, and less noise is added."""
    first, second = items(noise)
    return first, replace(second, privacy={**second.privacy, "clip": 0.25}, server={**second.server, "rate": 8.0})


def at_a_quantile(noise: float) -> tuple[Stage, ...]:
    """As items, bounded at the middle length of the updates, which a noisy count finds round by round."""
    first, second = items(noise)
    return first, replace(second, privacy={**second.privacy, "quantile": 0.5, "quantile_rate": 1.0})


RECIPES = {
    "popularity": popularity,
    "printed": printed,
    "bias": bias,
    "counts, adapted at home": at_home,
    "counts and fields": fields,
    "counts and items": items,
    "counts and items, low bound": clipped_low,
    "counts and items, clip at a quantile": at_a_quantile,
    "counts and tastes (dp-privrec)": tastes,
}


def plan_for(name: str, epsilon: float, devices: int) -> Plan:
    """The recipe whose whole run costs this ε: one noisy stage promises it, the noise of two is found by halving."""

    def made(noise: float) -> Plan:
        return choose(Plan("-".join(re.findall(r"\w+", name)), RECIPES[name](noise)))

    if math.isinf(epsilon):
        return made(0.0)
    noisy = [number for number, stage in enumerate(made(1.0).stages, 1) if stage.privacy["mechanism"] == "gaussian"]
    if len(noisy) == 1:
        kept = {key: value for key, value in made(1.0).stages[noisy[0] - 1].privacy.items() if key != "noise"}
        return choose(made(1.0), {f"{noisy[0]}.privacy": {**kept, "epsilon": epsilon}})
    low, high = 1e-1, 1e2
    for _ in range(25):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if price(made(middle), devices).whole.epsilon <= epsilon else (middle, high)
    return made(high)


class Log(NamedTuple):
    label: str
    people: Population
    asked: int

    def split(self, seed: int) -> Split:
        split = WAY.split(self.people, seed)
        return split.among(np.unique(split.test.device)[: self.asked])


def one_seed(
    log: Log, seed: int, epsilons: tuple[float, ...], recipes: list[str], keep: Path | None = None
) -> dict[Any, dict[str, np.ndarray]]:
    """(ε, recipe) -> everybody's values."""
    split = log.split(seed)
    nothing = Plan("untrained", (Stage("privrec", {**HOME, "popular": 0.0, "epochs": 10}),))
    made = {("", "untrained, adapted"): values_of(choose(nothing), split, seed, keep)}
    for epsilon in epsilons:
        for name in recipes:
            if name not in LEADING and epsilon not in OTHERS:
                continue
            began = time.perf_counter()
            plan = plan_for(name, epsilon, len(split.train))
            made[f"{epsilon:g}", name] = values_of(plan, split, seed, keep)
            mean = made[f"{epsilon:g}", name]["Hits@10"].mean()
            took = time.perf_counter() - began
            print(f"seed {seed}  ε = {epsilon:<4g} {name:<30} Hits@10 {mean:.4f}  {took:5.1f} s", flush=True)
    return made


def values_of(plan: Plan, split: Split, seed: int, keep: Path | None) -> dict[str, np.ndarray]:
    """What was kept of the same plan, people and seed, or a run."""
    path = None if keep is None else keep / f"{plan.digest}-{len(split.train)}-{seed}.npz"
    if path is not None and path.is_file():
        with np.load(path) as kept:
            return dict(kept)
    answers = WAY.evaluate(simulate(plan, split.train, seed=seed, quiet=True), split, seed)
    values = {metric: answers.values[metric] for metric in METRICS}
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        np.savez(path, **values)  # pyright: ignore[reportArgumentType]
    return values


def summary(found: list[dict]) -> dict[str, dict]:
    """Means and intervals over the people of all seeds, and the difference to popularity at the same ε."""
    pooled = {key: {m: np.concatenate([one[key][m] for one in found]) for m in METRICS} for key in found[0]}
    rows: dict[str, dict] = {}
    for (epsilon, name), values in pooled.items():
        spans = {metric: interval(one) for metric, one in values.items()}
        cell: dict[str, Any] = {metric: [span.mean, span.low, span.high] for metric, span in spans.items()}
        if epsilon and name != "popularity":
            better = paired_test(values["Hits@10"], pooled[epsilon, "popularity"]["Hits@10"]).difference
            cell["Hits@10, less popularity"] = [better.mean, better.low, better.high]
        rows.setdefault(epsilon or "nothing sent", {})[name] = cell
    return rows


@cache
def log_of(data: str | None, users: int, asked: int) -> Log:
    if data in (None, "ml-1m"):
        try:
            return Log("ml-1m", dataset("ml-1m"), asked)
        except ValueError:
            if data is not None:
                raise
    return Log(f"movies, synthetic, {users:,} people", dataset("movies", users=users), asked)


def _seed(task: tuple, seed: int) -> dict[Any, dict[str, np.ndarray]]:
    """One seed in a process of its own."""
    warnings.simplefilter("ignore", FeasibilityWarning)
    data, users, asked, epsilons, recipes, keep = task
    return one_seed(log_of(data, users, asked), seed, epsilons, recipes, keep)


def _side_by_side(jobs: int, task: tuple, seeds: range) -> list[dict]:
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
        return list(pool.map(_seed, repeat(task), seeds))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", choices=("small", "full"), default="full")
    parser.add_argument("--data", choices=("ml-1m", "movies"), default=None)
    parser.add_argument("--users", type=int, default=6000)
    parser.add_argument("--seeds", type=int, default=None)
    parser.add_argument("--first", type=int, default=10, help="seed; not one that anything was tuned on")
    parser.add_argument("--jobs", type=int, default=1, help="seeds played at a time")
    parser.add_argument("--keep", type=Path, help="folder of single runs; what is there is not run again")
    parser.add_argument("--recipes", nargs="*", default=list(RECIPES))
    options = parser.parse_args()
    small = options.size == "small"
    seeds = range(options.first, options.first + (options.seeds or (1 if small else 3)))
    recipes = list(dict.fromkeys(["popularity", *options.recipes]))
    asked, epsilons = (150, SMALL_EPSILONS) if small else (1200, EPSILONS)
    task = (options.data, options.users, asked, epsilons, recipes, options.keep)
    found = [_seed(task, seed) for seed in seeds] if options.jobs == 1 else _side_by_side(options.jobs, task, seeds)
    log = log_of(options.data, options.users, asked)
    people = len(log.split(options.first).train)
    told = {
        "machine": machine(),
        "data": log.label,
        "people": people,
        "seeds": len(seeds),
        "first seed": options.first,
        "delta": default_delta(people),
        "digests at 8": {name: plan_for(name, 8.0, people).digest for name in recipes},  # of what was promised
    }
    name = "ml-1m" if log.label == "ml-1m" else f"movies-{options.users}"
    write(f"privrec-dp-{name}", {**told, "rows": summary(found)})


if __name__ == "__main__":
    main()
