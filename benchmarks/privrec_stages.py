"""How many rounds should the self-supervised first stage have? Hits@10 after the second, by rounds of the first.

    python benchmarks/privrec_stages.py                   # minutes on two cores: a synthetic log of few people
    python benchmarks/privrec_stages.py --data ml-1m      # the paper's log; for a GPU
    python benchmarks/privrec_stages.py --page            # puts the tables of the results into docs/privrec.md

The second stage is the same in every row: joint training without noise, so that what is measured is the start that the
first one gave it. `open` has no noise in stage 1, `private` promises ε = 4 for it (user, replace-one, a trusted server).
`random` has no first stage, and item vectors that start as wide noise: what is left when noise is all there is.
"""

import argparse
import warnings
from typing import Any

import numpy as np
from harness import RESULTS, machine, write
from pages import fill, read

from tacit.lab.data.datasets import dataset
from tacit.lab.outlook import HopelessWarning
from tacit.lab.reproduce.privrec_study import SIZES, WAY, Log
from tacit.lab.shelf import choose
from tacit.lab.simulate import simulate
from tacit.lab.statistics import compare, interval
from tacit.lab.worlds import movies
from tacit.plans import Plan

ROUNDS = (0, 10, 40)
PRIVATE = {"mechanism": "gaussian", "clip": 1.0, "epsilon": 4.0}
WIDE = 1.0  # standard deviation of the first item vectors in `random`
ROWS = [*(("open", r) for r in ROUNDS), ("random", 0), *(("private", r) for r in ROUNDS if r)]
NARROW = {"dim": 16, "hidden": (16,), "epochs": 3, "most": 30, "window": 12, "copies": 8}
METRIC = "Hits@10"


def plan_for(form: str, rounds: int) -> Plan:
    """Two stages; the first so long and so private."""
    settings = {f"2.hyper.{name}": value for name, value in NARROW.items()}
    settings |= {"1.hyper.dim": NARROW["dim"], "1.hyper.window": NARROW["window"], "2.rounds": 30}
    settings |= {"1.hyper.spread": WIDE} if form == "random" else {}
    settings |= {"1.privacy": PRIVATE} if form == "private" else {}
    return choose("privrec-two", {**settings, "1.rounds": rounds})


def one_seed(log: Log, seed: int) -> dict[tuple[str, int], np.ndarray]:
    """(form, rounds) -> everybody's values."""
    split, made = log.split(seed), {}
    for form, rounds in ROWS:
        run = simulate(plan_for(form, rounds), split.train, seed=seed, quiet=True)
        answers = WAY.ask(run, split, seed)
        made[form, rounds] = answers.values[METRIC]
        wide = float(np.asarray(run.params["items"]).std())
        print(
            f"seed {seed}  {form:<8} {rounds:>3} rounds  {METRIC} {answers.metrics[METRIC]:.4f}  spread {wide:.2f}",
            flush=True,
        )
    return made


def summary(found: list[dict[tuple[str, int], np.ndarray]]) -> list[dict[str, Any]]:
    """Means over the people of all seeds, and the difference to no first stage, person by person."""
    rows = []
    for form, rounds in found[0]:
        values, without = (np.concatenate([one[row] for one in found]) for row in ((form, rounds), ("open", 0)))
        span, gain = interval(values), compare(values, without).difference
        row = {"stage 1": form, "rounds": rounds, METRIC: [span.mean, span.low, span.high]}
        rows.append({**row, "gain on no stage 1": [gain.mean, gain.low, gain.high]})
    return rows


def table(result: dict[str, Any]) -> str:
    """One log's rows; a star where the interval of the gain, person by person, lies above 0."""
    head = f"**{result['data']}**: {result['people']:,} people learn, {result['seeds']} seed(s)."
    lines = [head, "", f"| stage 1 | rounds | {METRIC} | less no stage 1 |", "|---|---|---|---|"]
    for row in result["rows"]:
        (mean, low, high), (gain, least, most) = row[METRIC], row["gain on no stage 1"]
        star = " *" if least > 0 else ""
        spread = f"{mean:.4f} ± {(high - low) / 2:.4f}"
        lines.append(
            f"| {row['stage 1']} | {row['rounds']} | {spread} | {gain:+.4f} ({least:+.4f} to {most:+.4f}){star} |"
        )
    return "\n".join(lines)


def tables() -> str:
    """Of every result file."""
    names = sorted(file.stem for file in RESULTS.glob("privrec-stages-*.json"))
    return "\n\n".join(table(read(name)) for name in names)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--page", action="store_true")
    parser.add_argument("--data", choices=("ml-1m", "movies"), default="movies")
    parser.add_argument("--users", type=int, default=400)
    parser.add_argument("--items", type=int, default=200)
    parser.add_argument("--seeds", type=int, default=2)
    options = parser.parse_args()
    if options.page:
        return fill("privrec.md", {"stages": tables})
    warnings.simplefilter("ignore", HopelessWarning)
    synthetic = options.data == "movies"
    people = movies(options.users, options.items, seed=0) if synthetic else dataset(options.data)
    label = f"movies, synthetic, {options.users:,} people, {options.items:,} items" if synthetic else options.data
    log, found = Log(label, people, SIZES["small"]), []
    for seed in range(options.seeds):
        found.append(one_seed(log, seed))
        told = {"machine": machine(), "data": label, "people": len(log.split(seed).train), "seeds": seed + 1}
        write(
            f"privrec-stages-{options.data}",
            {**told, "digest": plan_for("open", ROUNDS[-1]).digest, "rows": summary(found)},
        )


if __name__ == "__main__":
    main()
