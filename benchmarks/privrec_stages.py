"""How many rounds should the self-supervised first stage have? Hits@10 after the second, by rounds of the first.

    python benchmarks/privrec_stages.py --size tiny                         # minutes on two cores; writes no result
    python benchmarks/privrec_stages.py --jobs 16 --keep FOLDER             # a synthetic log of 1,500 people
    python benchmarks/privrec_stages.py --data ml-1m --jobs 16 --keep FOLDER
    python benchmarks/pages.py --kept                                       # puts the tables into docs/privrec.md

The second stage is the same in every row: joint training without noise, so that what is measured is the start that the
first one gave it. `open` has no noise in stage 1, `private` promises ε = 4 for it (user, replace-one, a trusted server).
A cell is one form, one number of rounds and one seed; cells are played in processes of their own, and what FOLDER has of
them is not played again.
"""

import argparse
import multiprocessing
import os
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from harness import machine, write
from privrec_dp import Log, values_of

from tacit.core.plan import Plan
from tacit.lab.analysis.feasibility import FeasibilityWarning
from tacit.lab.data.datasets import dataset
from tacit.lab.evaluation.statistics import interval, paired_test
from tacit_papers.privrec.study import SIZES, plan_of

ROUNDS, FIRST = (0, 10, 20, 40, 80), 10  # seeds from 10 on: nothing was tuned on them
PRIVATE = {"mechanism": "gaussian", "clip": 1.0, "epsilon": 4.0}
METRIC, ASKED = "Hits@10", 300
TINY = {
    "1.hyper.dim": 4,
    "2.hyper.dim": 4,
    "2.hyper.hidden": (4,),
    "2.hyper.epochs": 1,
    "2.hyper.most": 10,
    "2.rounds": 4,
}


class Cell(NamedTuple):
    """One run: how private the first stage is, and how long; 0 rounds are the same in either form."""

    form: str
    rounds: int
    seed: int


class Place(NamedTuple):
    """Where cells are played, and where they are kept."""

    data: str
    users: int
    tiny: bool
    keep: Path | None

    @property
    def log(self) -> Log:
        """The people; of those held out, some are asked."""
        if self.data != "movies":
            return Log(self.data, dataset(self.data), ASKED)
        return Log(f"movies, synthetic, {self.users:,} people", dataset("movies", users=self.users), ASKED)


def cells(seeds: range) -> list[Cell]:
    """Every run there is, the longest first: whoever is left over has little to do."""
    forms = [(form, rounds) for rounds in reversed(ROUNDS) for form in ("open", "private") if rounds or form == "open"]
    return [Cell(form, rounds, seed) for form, rounds in forms for seed in seeds]


def plan_for(cell: Cell, tiny: bool = False) -> Plan:
    """Two stages of the small size; the first so long and so private."""
    settings = {"1.rounds": cell.rounds, **({"1.privacy": PRIVATE} if cell.form == "private" else {})}
    return plan_of("privrec-two", SIZES["small"], {**settings, **(TINY if tiny else {})})


def played(place: Place, cell: Cell) -> np.ndarray:
    """What everybody asked got: the metric, person by person."""
    warnings.simplefilter("ignore", FeasibilityWarning)
    began, log = time.perf_counter(), place.log
    values = values_of(plan_for(cell, place.tiny), log.split(cell.seed), cell.seed, place.keep)[METRIC]
    took = time.perf_counter() - began
    print(
        f"seed {cell.seed}  {cell.form:<8} {cell.rounds:>3} rounds  {METRIC} {values.mean():.4f}  {took:5.0f} s",
        flush=True,
    )
    return values


def _sit(seats: Any, jobs: int) -> None:
    """A core for each process, where there are several: a small round keeps one busy, and threads of all would collide."""
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    if jobs > 1 and cores:
        os.sched_setaffinity(0, {cores[seats.get() % len(cores)]})


def summary(found: dict[Cell, np.ndarray]) -> list[dict[str, Any]]:
    """Means over the people of all seeds, and the difference to no first stage, person by person."""
    pooled: dict[tuple[str, int], list[np.ndarray]] = {}
    for cell in sorted(found):
        pooled.setdefault((cell.form, cell.rounds), []).append(found[cell])
    rows, without = [], np.concatenate(pooled["open", 0])
    for (form, rounds), parts in pooled.items():
        values = np.concatenate(parts)
        span, gain = interval(values), paired_test(values, without).difference
        row = {"stage 1": form, "rounds": rounds, METRIC: [span.mean, span.low, span.high]}
        rows.append({**row, "gain on no stage 1": [gain.mean, gain.low, gain.high]})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", choices=("full", "tiny"), default="full")
    parser.add_argument("--data", choices=("movies", "ml-1m", "ml-latest-small"), default="movies")
    parser.add_argument("--users", type=int, default=1500)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=1, help="cells played at a time, each in a process of its own")
    parser.add_argument("--keep", type=Path, help="folder of single cells; what is there is not played again")
    options = parser.parse_args()
    place = Place(options.data, options.users, options.size == "tiny", options.keep)
    asked = cells(range(FIRST, FIRST + options.seeds))
    context = multiprocessing.get_context("spawn")
    seats = context.Queue()
    for job in range(options.jobs):
        seats.put(job)
    with ProcessPoolExecutor(options.jobs, context, _sit, (seats, options.jobs)) as pool:
        found = dict(zip(asked, pool.map(played, [place] * len(asked), asked)))
    log = place.log
    if not place.tiny:
        people, digest = len(log.split(FIRST).train), plan_for(Cell("open", 40, FIRST)).digest
        told = {"machine": machine(), "data": log.label, "people": people, "seeds": options.seeds}
        write(f"privrec-stages-{options.data}", {**told, "digest of 40 open": digest, "rows": summary(found)})


if __name__ == "__main__":
    main()
