"""When does federation pay? SeqMF's relatives for people who are new: by depth, by ε and number of people, by recipe.

Settings were chosen on worlds of other seeds than the ones used here. Writes results/seqmf-cold.json after every part.
"""

import argparse
import json
import time
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
from harness import RESULTS, machine, write

from tacit.core.catalog import Catalog
from tacit.lab.analysis.feasibility import FeasibilityWarning
from tacit.lab.data import Population
from tacit.lab.data.datasets import about_dataset, dataset
from tacit.lab.evaluation.candidates import Candidates, Installed, SeenBefore
from tacit.lab.evaluation.scoring import ranks
from tacit.lab.evaluation.sessions import drop_quick_repeats
from tacit.lab.evaluation.splits import Split, cold_start, temporal_ratio
from tacit.lab.evaluation.statistics import interval
from tacit.lab.plans.loader import choose
from tacit.lab.runs.run import simulate
from tacit.metrics import average, levels, per_case
from tacit_papers.seqmf.study import RIVALS

DEPTHS = ({"sessions": 0}, {"sessions": 1}, {"sessions": 2}, {"days": 1}, {"days": 2}, {"days": 5})
WORLDS = ("apps", "apps-weak", "apps500")
_SHOWN = ("control: on-device only", "control: public chart", "control: untrained Q", "SR-od", "SR", "MRU", "MFU", "MF")
ROWS: dict[str, tuple[str, dict[str, Any]]] = {
    **{row: RIVALS[row] for row in _SHOWN[:3]},
    "seqmf-no-noise": ("seqmf-no-noise", {}),
    "seqmf, ε = 4.5": ("seqmf", {}),
    "SeqMF-EB": ("seqmf-eb", {}),
    **{row: RIVALS[row] for row in _SHOWN[3:]},
}
EPSILONS, PEOPLE = (1.0, 4.5, 10.0), (300, 1000, 10_000, 100_000)
ONE = {"epsilon": 4.5, "messages": 1}
RECIPES: dict[str, tuple[str, dict[str, Any]]] = {
    "one report of b (shipped)": ("seqmf", {}),
    "one report, half the step": ("seqmf", {"server.rate": 0.35}),
    "one report, twice the step": ("seqmf", {"server.rate": 1.4}),
    "one report, Kashin": ("seqmf", {"privacy": {"mechanism": "kashin", **ONE, "bound": 7.0}}),
    "one report, Laplace": ("seqmf", {"privacy": {"mechanism": "laplace", "clip": "elements", **ONE}}),
    "five reports of ε/5": (
        "seqmf",
        {"rounds": 5, "privacy.messages": 5, "server.rate": 0.3, "cohort": {"sampler": "all"}},
    ),
    "a day's gradient of b and a": (
        "seqmf-eb",
        {
            "rounds": 1,
            "privacy": {"mechanism": "qharmony", **ONE, "bound": 0.02},
            "server": {"rule": "sgd", "rate": 50.0, "scale": "mean"},
            "cohort": {"sampler": "pass", "count": 1_000_000_000},
        },
    ),
    "rank 4": (
        "seqmf-eb",
        {
            "rounds": 1,
            "hyper.rank": 4,
            "trains": ["a", "b", "T", "S"],
            "privacy": {"mechanism": "qharmony", **ONE, "bound": 0.02},
            "server": {"rule": "sgd", "rate": 50.0, "scale": "mean"},
            "cohort": {"sampler": "pass", "count": 1_000_000_000},
        },
    ),
}


def answers(
    name: str, settings: dict[str, Any], split: Split, offered: Candidates, seed: int = 0
) -> dict[str, np.ndarray]:
    """HR@1 and HR@5 of every person who is asked."""
    run = simulate(choose(name, settings), split.train, seed=seed, quiet=True)
    found = ranks(run, split, offered)
    groups = levels("user", split.test.device, split.test.session)
    return {f"HR@{n}": average(per_case(found, f"HR@{n}"), groups).values for n in (1, 5)}


def summed(parts: list[dict[str, np.ndarray]]) -> dict[str, list[float]]:
    """Mean and 95 % interval over everybody of every seed."""
    spans = {metric: interval(np.concatenate([part[metric] for part in parts])) for metric in parts[0]}
    return {metric: [span.mean, span.low, span.high] for metric, span in spans.items()}


def depth(world: str, at: dict[str, int], seeds: list[int], people: int) -> dict[str, Any]:
    found: dict[str, list] = {row: [] for row in ROWS}
    for seed in seeds:
        # In a log of a week few people are active on more than a day or two, but for the world that is a week.
        days = 28 if at.get("days", 0) > 1 and world != "apps500" else 7
        split = cold_start(drop_quick_repeats(dataset(world, users=people, seed=seed, days=days)), **at, recent=64)
        for row, (name, settings) in ROWS.items():
            found[row].append(answers(name, settings, split, Installed(split), seed))
    return {row: summed(parts) for row, parts in found.items()}


def kept(world: str, people: int, seeds: list[int], asked: int = 1000) -> dict[str, Any]:
    """HR@5 in the first session of free, private and control, and the share of the gain that is kept."""
    rows = {"control": ("on-device", {}), "chart": ("seqmf-popularity-prior", {}), "free": ("seqmf-no-noise", {})}
    rows |= {f"{epsilon:g}": ("seqmf", {"privacy.epsilon": epsilon}) for epsilon in EPSILONS}
    found: dict[str, list[float]] = {row: [] for row in rows}
    for seed in seeds:
        log = drop_quick_repeats(dataset(world, users=people + asked, seed=seed, days=2))
        split = cold_start(log, sessions=0, share=asked / (people + asked), recent=64)
        for row, (name, settings) in rows.items():
            noises = range(3 if people <= 1000 and row in [f"{e:g}" for e in EPSILONS] else 1)
            values = [answers(name, settings, split, Installed(split), 10 * seed + n)["HR@5"].mean() for n in noises]
            found[row].append(float(np.mean(values)))
    control, free = np.array(found["control"]), np.array(found["free"])
    gain = (free - control).mean()
    shares = {row: float((np.array(found[row]) - control).mean() / gain) for row in rows if row[0].isdigit()}
    return {"HR@5 by seed": found, "gain": float(gain), "share kept": shares}


def recipes(world: str, people: int, seeds: list[int], asked: int = 1000) -> dict[str, Any]:
    found: dict[str, list] = {row: [] for row in RECIPES}
    for seed in seeds:
        log = drop_quick_repeats(dataset(world, users=people + asked, seed=seed, days=2))
        split = cold_start(log, sessions=0, share=asked / (people + asked), recent=64)
        for row, (name, settings) in RECIPES.items():
            found[row].append(answers(name, settings, split, Installed(split), seed))
    return {row: summed(parts) for row, parts in found.items()}


def by_type(log: Population) -> Population:
    """A log of check-ins as one of types of places."""
    kind = np.asarray(log.catalog.attributes["type"]).reshape(-1)
    return replace(log, catalog=Catalog(int(kind.max()) + 1), items=kind[log.items].astype(np.int32), item_names=None)


def italy(seeds: list[int]) -> dict[str, Any]:
    """Types of places in six cities: the newest fifth of everybody's check-ins, and people who are new."""
    log = by_type(dataset("foursquare-italy", on_few="drop", min_events=20))
    made: dict[str, Any] = {"people": len(log), "types": log.catalog.n_items}
    split = temporal_ratio(log)
    seen = SeenBefore(split, plus_target=True, in_training=True)
    made["newest fifth"] = {row: summed([answers(*how, split, seen)]) for row, how in ROWS.items()}
    for at in ({"days": 1}, {"days": 2}, {"days": 5}):
        parts: dict[str, list] = {row: [] for row in ROWS}
        for seed in seeds:
            new = cold_start(log, **at, gap=86_400.0, seed=seed)
            for row, how in ROWS.items():
                parts[row].append(answers(*how, new, Installed(new), seed))
        made[f"days {at['days']}"] = {row: summed(one) for row, one in parts.items()}
    return made


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--parts", default="depth,kept,recipes,italy")
    options.add_argument("--worlds", default=",".join(WORLDS))
    options.add_argument("--name", default="seqmf-cold", help="of the file of results")
    options.add_argument("--seeds", type=int, default=3)
    options.add_argument("--first", type=int, default=20, help="seed; not one that anything was tuned on")
    options.add_argument("--depths", default="0,1,2,3,4,5", help="which of the six, by number")
    options.add_argument("--least", type=int, default=0)
    options.add_argument("--people", type=int, default=1250, help="of a world asked by depth; a fifth is new")
    options.add_argument("--most", type=int, default=100_000)
    chosen = options.parse_args()
    seeds = list(range(chosen.first, chosen.first + chosen.seeds))
    path = RESULTS / f"{chosen.name}.json"
    result: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    result |= {"machine": machine(), "seeds": seeds}
    warnings.simplefilter("ignore", FeasibilityWarning)

    def part(name: str, key: str, make: Any) -> None:
        if name in chosen.parts.split(","):
            began = time.perf_counter()
            result.setdefault(name, {})[key] = make()
            print(f"{name} {key}: {time.perf_counter() - began:.0f} s", flush=True)
            write(chosen.name, result)

    worlds = [world for world in WORLDS if world in chosen.worlds.split(",")]
    for world in (world for world in worlds if world != "apps500"):
        for people in (n for n in PEOPLE if chosen.least <= n <= chosen.most):
            part("kept", f"{world} {people}", lambda world=world, people=people: kept(world, people, seeds))
    for world in worlds:
        for at in (DEPTHS[int(number)] for number in chosen.depths.split(",")):
            label = f"{world}: {' '.join(f'{name} {count}' for name, count in at.items())}"
            part("depth", label, lambda world=world, at=at: depth(world, at, seeds, chosen.people))
    part("recipes", "apps 1000, ε = 4.5", lambda: recipes("apps", 1000, seeds))
    if about_dataset("foursquare-italy").present:
        part("italy", "types of places", lambda: italy(seeds))


if __name__ == "__main__":
    main()
