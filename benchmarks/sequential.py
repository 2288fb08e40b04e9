"""Are the baselines as good as others find them? MovieLens-1M, each person's last item among all they have not seen.

    python benchmarks/sequential.py --plan gru4rec           # a few minutes on two quiet cores; results are kept plan by plan
    python benchmarks/sequential.py --plan bert4rec --set hyper.epochs=100
    python benchmarks/sequential.py --plan fedrec-plus       # ratings of a tenth that was left out, as errors

A reference is a number that others published for the same log. As in RecBole's, ratings below 3 are left out where items are ranked, and
people and items with fewer than ten of the others.
"""

import argparse
import time
from typing import Any, NamedTuple

import jax
import numpy as np
from harness import RESULTS, machine, write
from pages import kept, read, span, table

from tacit.cli.common import parsed
from tacit.device.round import adapt
from tacit.lab.data import Population
from tacit.lab.data.datasets import dataset
from tacit.lab.data.selection import k_core, owners, take
from tacit.lab.evaluation.scoring import ranks
from tacit.lab.evaluation.splits import leave_last_out
from tacit.lab.evaluation.statistics import interval
from tacit.lab.plans.loader import choose
from tacit.lab.runs.run import Run, simulate
from tacit.metrics import per_case

METRICS = ("NDCG@10", "HR@10")
RECENT, LEAST, CORE = 50, 3.0, 10  # events that a question shows, the least rating, the fewest events: as in RecBole


class Reference(NamedTuple):
    """What somebody else found."""

    values: dict[str, float]
    source: str


REFERENCES = {
    "gru4rec": Reference({"NDCG@10": 0.1551, "HR@10": 0.2753}, "RecBole, one layer, best of 4 rates"),
    "sr-gnn": Reference({"NDCG@10": 0.1360, "HR@10": 0.2425}, "RecBole, best of 5 rates"),
    "bert4rec": Reference(
        {"NDCG@10": 0.1516, "HR@10": 0.2821}, "Petrov and Macdonald, all ratings; RecBole has 0.038 and 0.079"
    ),
    "fedrec-plus": Reference({"RMSE": 0.916, "MAE": 0.724}, "Surprise, NMF; its SVD with biases has 0.873 and 0.686"),
}


def _ratings(log: Population) -> np.ndarray:
    assert log.labels is not None, "a log of ratings"
    return log.labels


def ranked(plan: str, settings: dict[str, Any], log: Population) -> tuple[Run, dict[str, list[float]]]:
    """Metrics with their intervals over people."""
    people = k_core(take(log, _ratings(log) >= LEAST), CORE)
    print(f"{len(people):,} people, {people.catalog.n_items:,} items, {people.items.size:,} events")
    split = leave_last_out(people, recent=RECENT)
    run = simulate(choose(plan, settings), split.train, quiet=True)
    found = ranks(run, split)
    made = {name: interval(per_case(found, name)) for name in METRICS}
    return run, {name: [one.mean, one.low, one.high] for name, one in made.items()}


def rated(plan: str, settings: dict[str, Any], log: Population) -> tuple[Run, dict[str, list[float]]]:
    """Errors of ratings left out at random, a tenth of them, with intervals over ratings."""
    left_out = np.random.default_rng(0).random(log.items.size) < 0.1
    people = take(log, ~left_out)
    run = simulate(choose(plan, {**settings, "hyper.zeros": 0.0}), people, quiet=True)
    person = np.zeros((len(log), run.params["items"].shape[1]))
    for bucket in run.buckets:
        home = jax.jit(jax.vmap(lambda home, own: adapt(run.method, run.stage, run.params, home, own)))(
            bucket.home, bucket.own
        )
        person[bucket.ids] = home.local[str(run.stage)]["person"]
    guessed = (person[owners(log)[left_out]] * np.asarray(run.params["items"])[log.items[left_out]]).sum(1)
    wrong = np.clip(guessed, 1, 5) - _ratings(log)[left_out]
    square, size = interval(wrong**2), interval(np.abs(wrong))
    errors = {"RMSE": [value**0.5 for value in (square.mean, square.low, square.high)]}
    return run, errors | {"MAE": [size.mean, size.low, size.high]}


def measure(plan: str, settings: dict[str, Any], data: str) -> dict[str, Any]:
    """One row."""
    log = dataset(data)
    began = time.perf_counter()
    ask = rated if plan == "fedrec-plus" else ranked
    run, found = ask(plan, settings, log)
    seconds = time.perf_counter() - began
    told = {"plan": plan, "digest": run.plan.digest, "settings": settings, "seconds": seconds, "machine": machine()}
    return {**told, **found}


def keep(row: dict[str, Any], data: str) -> None:
    """In the place of what was kept of the same plan."""
    name = f"sequential-{data}"
    rows = read(name)["rows"] if (RESULTS / f"{name}.json").exists() else []
    rows = [one for one in rows if one["plan"] != row["plan"]] + [row]
    write(name, {"data": data, "rows": sorted(rows, key=lambda one: one["plan"])})


def rows_of(result: dict[str, Any], metrics: tuple[str, str]) -> list[list[str]]:
    """Ours and theirs, for the plans that were asked for these."""
    made = []
    for row in result["rows"]:
        if metrics[0] not in row:
            continue
        other = REFERENCES.get(row["plan"])
        theirs = [f"{other.values[name]:.3f}" if other else "" for name in metrics]
        settings = ", ".join(f"{name.removeprefix('hyper.')} = {value}" for name, value in row["settings"].items())
        cells = [f"`{row['plan']}`", *(span(row[name]) for name in metrics), *theirs, other.source if other else ""]
        made.append([*cells, settings or "as it is", f"{row['seconds'] / 60:.0f}, {row['machine']['device']}"])
    return made


def tables() -> str:
    """Of every log that was measured."""
    parts = []
    for path in sorted(RESULTS.glob("sequential-*.json")):
        result = read(path.stem)
        for metrics in (METRICS, ("RMSE", "MAE")):
            if rows := rows_of(result, metrics):
                head = ["plan", *metrics, *(f"theirs, {name}" for name in metrics), "who", "settings", "minutes, on"]
                parts.append(f"**{result['data']}**\n\n{table(head, rows)}")
    return "\n\n".join(parts)


BLOCKS = kept("docs/sequential.md", {"quality": ("python benchmarks/sequential.py", tables)})


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--plan", default="gru4rec")
    parser.add_argument("--data", default="ml-1m")
    parser.add_argument("--set", nargs="*", default=[], help="settings, as hyper.NAME=VALUE")
    options = parser.parse_args()
    row = measure(options.plan, parsed(options.set), options.data)
    print(", ".join(f"{name} {span(row[name])}" for name in (*METRICS, "RMSE", "MAE") if name in row))
    keep(row, options.data)


if __name__ == "__main__":
    main()
