"""How organisations should weigh in an average when they differ: six recipes over how far tastes and activity lie apart.

    python benchmarks/fedseqrec_weights.py [--seeds 3] [--jobs 16] [--small]

The movies world (synthetic) with sixteen organisations; everybody's last item among all items they have not seen. Each
recipe is the plan `fedseqrec` or `fedavg-seqrec` with one table changed; same network, same rounds, same batches.

    average   β: by how many sequences an organisation has (federated averaging)
    lengths   δ = 0.2 of β, the rest by e^−KL of lengths from everybody's (the paper's re-averaging)
    taste     the same, of the words about the items instead of lengths; one more histogram leaves
    equal     every organisation alike; no signal at all
    root      by the square root of its size; no signal beyond the size
    home      β, and each organisation trains two epochs more at home before its people are asked; nothing leaves
"""

import argparse
import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

RECIPES = ("average", "lengths", "taste", "equal", "root", "home")
WORLDS = tuple(product((0.0, 0.7, 1.5), (0.0, 1.0)))  # (taste_gap, activity_gap)
BASE = "average"


class Size(NamedTuple):
    """How large everything is."""

    users: int = 960
    items: int = 200
    silos: int = 16
    rounds: int = 15
    steps: int = 8
    batch: int = 64


SMALL = Size(96, 60, 4, 3, 2, 16)


class Task(NamedTuple):
    """One run."""

    recipe: str
    world: tuple[float, float]
    seed: int
    size: Size


def plan_of(task: Task) -> Any:
    """The plan of a recipe."""
    from tacit.lab.plans.loader import choose

    hyper = {"steps": task.size.steps, "batch": task.size.batch}
    if task.recipe in ("lengths", "taste"):
        shared = {"2.rounds": task.size.rounds, "2.hyper.second": task.recipe, "1.hyper.of": task.recipe}
        shared |= {"1.trains": [task.recipe], **{f"2.hyper.{name}": value for name, value in hyper.items()}}
        return choose("fedseqrec", shared)
    settings: dict[str, Any] = {"rounds": task.size.rounds, **{f"hyper.{name}": value for name, value in hyper.items()}}
    if task.recipe in ("equal", "root"):
        settings |= {"hyper.second": task.recipe, "server.delta": 0.0}
    return choose("fedavg-seqrec", settings)


def answers(task: Task, keep: Path | None = None) -> tuple[Task, Any, Any]:
    """As `asked`, unless it was kept."""
    import numpy as np

    path = None if keep is None else keep / f"{task.recipe}-{task.world}-{task.seed}-{task.size.users}.npz"
    if path is not None and path.is_file():
        with np.load(path) as kept:
            return task, kept["value"], kept["silo"]
    found = asked(task)
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        np.savez(path, value=found[1], silo=found[2])
    return found


def asked(task: Task) -> tuple[Task, Any, Any]:
    """Reciprocal rank of each person's question, and the person's organisation."""
    import numpy as np

    from tacit.lab.data.synthetic import movies
    from tacit.lab.evaluation.scoring import ranks
    from tacit.lab.evaluation.splits import leave_last_out, train_on_organisations
    from tacit.lab.experiments.transfer import fine_tuned
    from tacit.lab.runs.run import simulate

    taste, activity = task.world
    log = movies(
        task.size.users,
        task.size.items,
        silos=task.size.silos,
        taste_gap=taste,
        activity_gap=activity,
        seed=task.seed,
    )
    split = train_on_organisations(leave_last_out(log, recent=30))
    run = simulate(plan_of(task), split.train, seed=task.seed, quiet=True)
    assert log.silo is not None
    silo = log.silo[split.test.device]
    if task.recipe != "home":
        return task, 1.0 / ranks(run, split, seed=task.seed), silo
    value = np.zeros(silo.size)
    for number in np.unique(silo):
        mine = silo == number
        value[mine] = 1.0 / ranks(fine_tuned(run, split.train, int(number), epochs=2), split, seed=task.seed)[mine]
    return task, value, silo


def summary(found: list[tuple[Task, Any, Any]]) -> list[dict[str, Any]]:
    """Each world's recipes: mean over people and over organisations, and the paired difference from averaging."""
    import numpy as np

    from tacit.lab.evaluation.statistics import interval, paired_test

    rows = []
    for world, recipe in product(WORLDS, RECIPES):
        mine = [(task.seed, value, silo) for task, value, silo in found if (task.world, task.recipe) == (world, recipe)]
        if not mine:
            continue
        base = {task.seed: value for task, value, _ in found if (task.world, task.recipe) == (world, BASE)}
        values, bases = (
            np.concatenate(part) for part in ([v for _, v, _ in mine], [base[seed] for seed, _, _ in mine])
        )
        fair = [np.mean([value[silo == s].mean() for s in np.unique(silo)]) for _, value, silo in mine]
        whole, gained = interval(values), paired_test(values, bases)
        rows.append(
            {
                "taste_gap": world[0],
                "activity_gap": world[1],
                "recipe": recipe,
                "mrr": [whole.mean, whole.low, whole.high],
                "mrr_over_organisations": [float(np.mean(fair)), float(np.min(fair)), float(np.max(fair))],
                "gain": [gained.difference.mean, gained.difference.low, gained.difference.high],
                "p": gained.t,
                "people": int(values.size),
            }
        )
    return rows


def main() -> None:
    """Run everything, print a table, keep the numbers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 1) - 1))
    parser.add_argument("--small", action="store_true", help="a minute's version: nothing is kept")
    parser.add_argument("--keep", type=Path, help="folder of single runs; what is there is not run again")
    options = parser.parse_args()
    size, worlds = (SMALL, WORLDS[-1:]) if options.small else (Size(), WORLDS)
    tasks = [Task(recipe, world, seed, size) for seed, world, recipe in product(range(options.seeds), worlds, RECIPES)]
    if options.jobs == 1:
        found = [answers(task, options.keep) for task in tasks]
    else:
        with ProcessPoolExecutor(options.jobs, multiprocessing.get_context("spawn")) as pool:
            found = list(pool.map(partial(answers, keep=options.keep), tasks))
    rows = summary(found)
    for row in rows:
        print(
            f"taste {row['taste_gap']:.1f}  activity {row['activity_gap']:.1f}  {row['recipe']:8s}"
            f"  MRR {row['mrr'][0]:.4f} [{row['mrr'][1]:.4f}, {row['mrr'][2]:.4f}]"
            f"  over organisations {row['mrr_over_organisations'][0]:.4f}"
            f"  against average {row['gain'][0]:+.4f} [{row['gain'][1]:+.4f}, {row['gain'][2]:+.4f}]"
        )
    if not options.small:
        from harness import machine, write

        write("fedseqrec-weights", {"machine": machine(), "size": size._asdict(), "seeds": options.seeds, "rows": rows})


if __name__ == "__main__":
    main()
