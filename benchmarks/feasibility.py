"""What the outlook's signal to noise means: FCF on a synthetic log under more and more noise, beside its baselines.

python benchmarks/feasibility.py writes benchmarks/results/feasibility.json; `lab/outlook` takes its two limits from it.
"""

import json
import warnings
from pathlib import Path

import tacit
from tacit.core.run_folder import plain
from tacit.lab.analysis.feasibility import FeasibilityWarning, assess_feasibility

RESULTS = Path(__file__).parent / "results" / "feasibility.json"
NOISES = (0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0)
SEEDS = (0, 1, 2)


def quality(name, log, seed, settings=None):
    return tacit.simulate(name, log, settings=settings, protocol="full", seed=seed, quiet=True)


def main() -> None:
    warnings.simplefilter("ignore", FeasibilityWarning)
    rows = []
    for seed in SEEDS:
        log = tacit.dataset("groups", users=1000, seed=seed)
        for name in ("random", "popularity", "fcf"):
            rows.append({"seed": seed, "plan": name, **quality(name, log, seed).metrics})
        for noise in NOISES[1:]:
            settings = {"privacy.mechanism": "gaussian", "privacy.noise": noise}
            run = quality("fcf", log, seed, settings)
            view = assess_feasibility(run.plan, log.catalog, len(log))[0]
            cost = {"noise": noise, "epsilon": run.price.whole.epsilon, "signal_to_noise": view.signal_to_noise}
            rows.append({"seed": seed, "plan": "fcf", **cost, "verdict": view.verdict, **run.metrics})
            print(rows[-1])
    RESULTS.write_text(json.dumps(plain({"data": "groups, 1000 people, 200 items", "rows": rows}), indent=1) + "\n")


if __name__ == "__main__":
    main()
