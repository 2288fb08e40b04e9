"""Quality of private plans with the noise of this checkout, beside that of another one, such as one with noise in floats.

    git worktree add ../before 30d652d                              # the last commit with noise in floats
    python benchmarks/noise_quality.py --before ../before           # about ten minutes on one core
    python benchmarks/pages.py --kept                               # the numbers into docs/privacy.md

Both checkouts run the same plans with the same seeds on the same synthetic people, and promise the same ε. Each seed has
its own people, initial parameters and noise, so a seed gives one difference of the people's mean NDCG@10, and the interval is over
seeds: the noise of a run is common to all its people.
"""

import argparse
import json
import os
import subprocess
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from harness import machine, write
from pages import kept, read, table
from scipy import stats

from tacit.lab.data.synthetic import movies
from tacit.lab.plans.loader import choose
from tacit.lab.runs.run import simulate

METRIC, ITEMS = "NDCG@10", 200
COMMAND = "python benchmarks/noise_quality.py --before ../before"
NOISY: dict[str, Any] = {"privacy.mechanism": "gaussian", "privacy.epsilon": 8.0}
PLANS: dict[str, tuple[str, dict[str, Any], int]] = {  # plan, settings, people
    "popularity, laplace": ("popularity", {"privacy.mechanism": "laplace", "privacy.epsilon": 8.0}, 2000),
    "fcf, gaussian": ("fcf", NOISY, 2000),
    "fpl-dp": ("fpl-dp", {}, 2000),
    "dp-privrec": ("dp-privrec", {}, 2000),
    "dp-privrec-one": ("dp-privrec-one", {"cohort.count": 300}, 6000),
}


def run(name: str, seeds: int, silent: bool) -> None:
    """One line for each seed: the metric of every person, and what the run promised."""
    warnings.simplefilter("ignore")
    plan, settings, people = PLANS[name]
    chosen = choose(plan, settings)
    if silent:  # where updates are clipped, they stay clipped
        for number, stage in enumerate(chosen.stages, 1):
            chosen = chosen.with_setting(f"{number}.privacy", without_noise(stage.privacy))
    for seed in range(seeds):
        made = simulate(chosen, movies(people, ITEMS, seed=seed), seed=seed, protocol="full", quiet=True)
        assert made.evaluation is not None
        claim = made.price.whole
        values = [float(value) for value in made.evaluation.values[METRIC]]
        print(json.dumps({"epsilon": claim.epsilon, "delta": claim.delta, "values": values}), flush=True)


def without_noise(privacy: Mapping[str, Any]) -> dict[str, Any]:
    """The same clipping where there is any."""
    if privacy["mechanism"] != "gaussian":
        return {"mechanism": "none"}
    promise = ("epsilon", "delta", "share")
    return {**{name: value for name, value in privacy.items() if name not in promise}, "noise": 0.0}


def runs_of(checkout: Path, name: str, seeds: int, *options: str) -> list[dict[str, Any]]:
    """The runs of a plan with the library of a checkout."""
    own = {**os.environ, "PYTHONPATH": str(checkout / "src")}
    command = [sys.executable, __file__, "--run", name, "--seeds", str(seeds), *options]
    made = subprocess.run(command, env=own, check=True, stdout=subprocess.PIPE)
    return [json.loads(line) for line in made.stdout.splitlines() if line.startswith(b"{")]


def compared(before: list[dict[str, Any]], after: list[dict[str, Any]], silent: list[dict[str, Any]]) -> dict[str, Any]:
    """The means, and the interval of the paired difference over seeds."""
    one, other, none = (np.array([np.mean(made["values"]) for made in runs]) for runs in (before, after, silent))
    change = other - one
    half = float(stats.t.ppf(0.975, change.size - 1) * change.std(ddof=1) / np.sqrt(change.size))
    return {
        "epsilon": [max(made["epsilon"] for made in runs) for runs in (before, after)],
        "delta": [max(made["delta"] for made in runs) for runs in (before, after)],
        "seeds": change.size,
        "people": len(before[0]["values"]),
        "before": float(one.mean()),
        "after": float(other.mean()),
        "without noise": float(none.mean()),
        "difference": [float(change.mean()), float(change.mean()) - half, float(change.mean()) + half],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path, help="the other checkout")
    parser.add_argument("--seeds", type=int, default=40)
    parser.add_argument("--run", choices=PLANS, help="print the runs of one plan with the library that is imported")
    parser.add_argument("--silent", action="store_true", help="with --run: without noise")
    asked = parser.parse_args()
    if asked.run:
        return run(asked.run, asked.seeds, asked.silent)
    if asked.before is None or not (asked.before / "src/tacit").is_dir():
        parser.error("--before must name a checkout of another version; `git worktree add ../before COMMIT` makes one")
    here, found = Path(__file__).parent.parent, {}
    commit = ["git", "-C", str(asked.before), "rev-parse", "--short", "HEAD"]
    for name in PLANS:
        before, after = (runs_of(place, name, asked.seeds) for place in (asked.before, here))
        found[name] = compared(before, after, runs_of(here, name, asked.seeds, "--silent"))
        print(name, found[name], flush=True)
    commit = subprocess.run(commit, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
    write("noise-quality", {"machine": machine(), "before": commit, "items": ITEMS, "plans": found})


def integers_or_floats() -> str:
    found = read("noise-quality")
    lines = []
    for name, one in found["plans"].items():
        mean, low, high = (round(value, 4) + 0.0 for value in one["difference"])  # no negative zeros
        lines.append(
            [
                f"`{name}`",
                f"{one['epsilon'][1]:.3g}",
                f"{one['people']:,}",
                f"{one['seeds']}",
                f"{one['before']:.4f}",
                f"{one['after']:.4f}",
                f"{one['without noise']:.4f}",
                f"{mean:+.4f} [{low:+.4f}, {high:+.4f}]",
            ]
        )
    return table(["plan", "ε", "people", "seeds", "noise in floats", "in integers", "no noise", "difference"], lines)


BLOCKS = kept("docs/privacy.md", {"integers or floats": (COMMAND, integers_or_floats)})

if __name__ == "__main__":
    main()
