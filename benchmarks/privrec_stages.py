"""How many rounds should the self-supervised first stage have? Hits@10 after the second, by rounds of the first.

    python benchmarks/privrec_stages.py                   # minutes on two cores: a synthetic log of few people
    python benchmarks/privrec_stages.py --data ml-1m      # the paper's log; for a GPU

The second stage is the same in every row: joint training without noise, so that what is measured is the start that the
first one gave it. `open` has no noise in stage 1, `private` promises ε = 4 for it (user, replace-one, a trusted server).
"""

import argparse
import warnings
from typing import Any

import numpy as np
from harness import machine, write

from tacit.lab.data.datasets import dataset
from tacit.lab.outlook import HopelessWarning
from tacit.lab.reproduce.privrec_study import SIZES, WAY, Log
from tacit.lab.shelf import choose
from tacit.lab.simulate import simulate
from tacit.lab.statistics import compare, interval
from tacit.lab.worlds import movies
from tacit.plans import Plan

ROUNDS = (0, 10, 20, 40, 80)
FORMS = {"open": {"mechanism": "none"}, "private": {"mechanism": "gaussian", "clip": 1.0, "epsilon": 4.0}}
NARROW = {"dim": 16, "hidden": (16,), "epochs": 5, "most": 50, "window": 20, "copies": 8}
METRIC = "Hits@10"


def plan_for(form: str, rounds: int) -> Plan:
    """Two stages; the first so long and so private."""
    settings = {f"2.hyper.{name}": value for name, value in NARROW.items()}
    settings |= {"1.hyper.dim": NARROW["dim"], "1.hyper.window": NARROW["window"], "2.rounds": 40}
    plan = choose("privrec-two", {**settings, "1.rounds": rounds})
    return choose(plan, {"1.privacy": FORMS[form]}) if rounds else plan


def one_seed(log: Log, seed: int) -> dict[tuple[str, int], np.ndarray]:
    """(form, rounds) -> everybody's values; without a first stage, both forms are the same."""
    split, made = log.split(seed), {}
    for form in FORMS:
        for rounds in ROUNDS:
            if rounds == 0 and form != "open":
                made[form, 0] = made["open", 0]
                continue
            answers = WAY.ask(simulate(plan_for(form, rounds), split.train, seed=seed, quiet=True), split, seed)
            made[form, rounds] = answers.values[METRIC]
            print(f"seed {seed}  {form:<8} {rounds:>3} rounds  {METRIC} {answers.metrics[METRIC]:.4f}", flush=True)
    return made


def summary(found: list[dict[tuple[str, int], np.ndarray]]) -> list[dict[str, Any]]:
    """Means over the people of all seeds, and the difference to no first stage, person by person."""
    rows = []
    for form, rounds in found[0]:
        values, without = (np.concatenate([one[form, r] for one in found]) for r in (rounds, 0))
        span, gain = interval(values), compare(values, without).difference
        row = {"stage 1": form, "rounds": rounds, METRIC: [span.mean, span.low, span.high]}
        rows.append({**row, "gain on no stage 1": [gain.mean, gain.low, gain.high]})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", choices=("ml-1m", "movies"), default="movies")
    parser.add_argument("--users", type=int, default=600)
    parser.add_argument("--items", type=int, default=300)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    warnings.simplefilter("ignore", HopelessWarning)
    synthetic = options.data == "movies"
    people = movies(options.users, options.items, seed=0) if synthetic else dataset(options.data)
    label = f"movies, synthetic, {options.users:,} people, {options.items:,} items" if synthetic else options.data
    log, found = Log(label, people, SIZES["small"]), []
    for seed in range(options.seeds):
        found.append(one_seed(log, seed))
        told = {"machine": machine(), "data": label, "people": len(log.split(seed).train), "seeds": seed + 1}
        write(f"privrec-stages-{options.data}", {**told, "digest": plan_for("open", 40).digest, "rows": summary(found)})


if __name__ == "__main__":
    main()
