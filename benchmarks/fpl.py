"""How fast is pairwise learning? An epoch against `implicit`, rounds of one device, and a million devices.

    python benchmarks/fpl.py                            # all of it, into results/fpl-cpu.json or fpl-gpu.json
    python benchmarks/fpl.py --only epoch               # MovieLens-1M, in turns with implicit, same threads and factors
    python benchmarks/fpl.py --only alone,scale --most 100000
    python benchmarks/pages.py --kept                       # the results, into the docs

An epoch is as many triples as the log has records, as the paper counts. Competitors take turns in one process, once on one
core and once on two. Runs on whatever JAX computes on; `implicit` on the CPU. Without MovieLens-1M a synthetic log of its
shape is used, and the result says so.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import scale
from harness import RESULTS, apart, machine, race, write

from tacit.lab.data import Population
from tacit.lab.data.datasets import about_dataset, dataset
from tacit.lab.data.synthetic.small import random_histories
from tacit.lab.plans.loader import choose
from tacit.lab.simulation.federation import Federation
from tacit.lab.simulation.stage_runner import Rounds

FACTORS, RATE, EPOCHS = 20, 0.05, 50


def movies() -> tuple[str, Population]:
    if about_dataset("ml-1m").present:
        return "ml-1m", dataset("ml-1m")
    return "synthetic, shape of ml-1m", random_histories(6040, 3706, 165)


def player(plan: str, log: Population, rounds: int) -> tuple[Federation, Callable[[int], None]]:
    """A federation, and a function that plays so many more rounds of it, exactly as `simulate` would."""
    federation = Federation(choose(plan, {"rounds": rounds, "hyper.dim": FACTORS}), log)
    playing, done = federation.begin(0), 0
    assert isinstance(playing, Rounds)

    def play(more: int) -> None:
        nonlocal done
        end = done + more
        while done < end:
            last = min(end, done + playing.block)
            federation.play(playing, done, last)
            done = last
        jax.block_until_ready(federation.params)

    return federation, play


def implicit_epoch(log: Population, threads: int) -> Callable[[], Any]:
    """One epoch of `implicit`, the factors going on from one to the next."""
    import scipy.sparse as sparse
    from implicit.bpr import BayesianPersonalizedRanking

    users = np.repeat(np.arange(len(log)), log.lengths)
    pairs = sparse.csr_matrix((np.ones(users.size, np.float32), (users, log.items)))
    model = BayesianPersonalizedRanking(
        factors=FACTORS, iterations=1, learning_rate=RATE, regularization=RATE / 20, num_threads=threads, use_gpu=False
    )
    return lambda: model.fit(pairs, show_progress=False)


def epoch(repeats: int) -> dict[str, Any]:
    """An epoch of each, in turns, on the cores this process has."""
    (name, log), threads = movies(), len(os.sched_getaffinity(0))
    runners: dict[str, Callable[[], Any]] = {}
    try:
        runners["implicit"] = implicit_epoch(log, threads)
    except ImportError:
        print("implicit is not installed: pip install 'tacit[bench]'", file=sys.stderr)
    rounds = round(log.items.size / len(log))
    _, play = player("fpl", log, EPOCHS * rounds)
    runners["pFPL"] = lambda: play(rounds)
    load = os.getloadavg()[0]  # what else the machine was doing
    what = {"log": name, "triples": int(log.items.size), "factors": FACTORS, "threads": threads, "load": load}
    return {**what, **race(runners, repeats)}


def alone(blocks: int) -> dict[str, Any]:
    """Rounds of one device and one triple, strictly one after the other."""
    name, log = movies()
    _, play = player("fpl-sequential", log, EPOCHS * log.items.size)
    seconds, many = [], 256
    for _ in range(blocks + 1):
        began = time.perf_counter()
        play(many)
        seconds.append(time.perf_counter() - began)
    return {"log": name, "rounds_per_second": many / float(np.median(seconds[1:])), "compiling": seconds[0]}


def measure(part: str, options: argparse.Namespace) -> Any:
    """A part in processes of its own: what it may use is settled before JAX starts, and its memory is its own."""
    if part == "scale":
        return scale.rows("fpl", options.most, 3)
    asked = ("--one", part, "--repeats", str(options.repeats))
    if part == "alone" or jax.default_backend() != "cpu":
        return apart(__file__, *asked)
    return [apart(__file__, *asked, "--cores", cores) for cores in ("1", "2")]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="epoch,alone,scale")
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--most", type=int, default=1_000_000)
    parser.add_argument("--one", choices=["epoch", "alone"], help=argparse.SUPPRESS)
    parser.add_argument("--cores", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.cores:  # before JAX counts them
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: options.cores])
    if options.one:
        print(json.dumps(epoch(options.repeats) if options.one == "epoch" else alone(40)))
        return
    name = f"fpl-{jax.default_backend()}"
    file = RESULTS / f"{name}.json"
    made: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    made |= {"machine": machine(), "target": "an epoch no slower than implicit's"}
    for part in options.only.split(","):
        made[part] = measure(part, options)
        print(made[part], flush=True)
        write(name, made)  # part by part: what is done is kept


if __name__ == "__main__":
    main()
