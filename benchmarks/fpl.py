"""How fast is pairwise learning? An epoch against `implicit`, rounds of one device, and a million devices.

    python benchmarks/fpl.py                      # all of it
    python benchmarks/fpl.py --only epoch         # MovieLens-1M, in turns with implicit, same threads and factors
    python benchmarks/fpl.py --only alone,scale

An epoch is as many triples as the log has records. Competitors take turns in one process. Runs on whatever JAX computes
on; `implicit` on the CPU. Without MovieLens-1M a synthetic log of its shape is used, and the result says so.
"""

import argparse
import json
import sys
import time
from typing import Any

import jax
import numpy as np
from harness import RESULTS, machine, peak_memory, race, write

from tacit.lab.crew import hands
from tacit.lab.data import Population
from tacit.lab.data.datasets import about_dataset, dataset
from tacit.lab.federation import SCANNED, Federation
from tacit.lab.shelf import choose
from tacit.lab.synthetic import histories

FACTORS, RATE = 20, 0.05


def movies() -> tuple[str, Population]:
    if about_dataset("ml-1m").present:
        return "ml-1m", dataset("ml-1m")
    return "synthetic, shape of ml-1m", histories(6040, 3706, 165)


def epoch_of(log: Population) -> Any:
    """As many rounds of everybody, one triple each, as make an epoch."""
    rounds = round(log.items.size / len(log))
    federation = Federation(choose("fpl", {"rounds": 10**6, "hyper.dim": FACTORS}), log)
    playing = federation.begin(0)
    assert playing is not None
    done = [0]

    def turn() -> Any:
        for number in range(done[0], done[0] + rounds):
            playing.play(number, number + 1)
        done[0] += rounds
        return federation.params

    return turn


def implicit_epoch(log: Population) -> Any:
    """One epoch of `implicit`, the factors going on from one to the next."""
    import scipy.sparse as sparse
    from implicit.bpr import BayesianPersonalizedRanking

    users = np.repeat(np.arange(len(log)), log.lengths)
    pairs = sparse.csr_matrix((np.ones(users.size, np.float32), (users, log.items)))
    model = BayesianPersonalizedRanking(
        factors=FACTORS, iterations=1, learning_rate=RATE, regularization=RATE / 20, num_threads=hands(), use_gpu=False
    )
    return lambda: model.fit(pairs, show_progress=False)


def epoch(repeats: int) -> dict[str, Any]:
    name, log = movies()
    runners: dict[str, Any] = {}
    try:
        runners["implicit"] = implicit_epoch(log)
    except ImportError:
        print("implicit is not installed: pip install 'tacit[bench]'", file=sys.stderr)
    runners["pFPL"] = epoch_of(log)
    made = race(runners, repeats)
    return {"log": name, "triples": int(log.items.size), "factors": FACTORS, "threads": hands(), **made}


def alone(blocks: int) -> dict[str, Any]:
    """Rounds of one device and one triple, strictly one after the other."""
    name, log = movies()
    federation = Federation(choose("fpl-s", {"rounds": 10**8, "hyper.dim": FACTORS}), log)
    playing = federation.begin(0)
    assert playing is not None
    seconds = []
    for block in range(blocks + 1):
        began = time.perf_counter()
        playing.play(block * SCANNED, (block + 1) * SCANNED)
        jax.block_until_ready(federation.params)
        seconds.append(time.perf_counter() - began)
    return {"log": name, "rounds_per_second": SCANNED / float(np.median(seconds[1:])), "compiling": seconds[0]}


def scale(most: int, rounds: int = 5) -> list[dict[str, Any]]:
    """Seconds a round of everybody, one triple each."""
    made = []
    for devices in (10_000, 100_000, 1_000_000):
        if devices > most:
            continue
        log = histories(devices, 20_000, 30)
        federation = Federation(choose("fpl", {"rounds": 10**6}), log)
        playing = federation.begin(0)
        assert playing is not None
        playing.play(0, 1)
        jax.block_until_ready(federation.params)
        began = time.perf_counter()
        for number in range(1, rounds + 1):
            playing.play(number, number + 1)
        jax.block_until_ready(federation.params)
        each = (time.perf_counter() - began) / rounds
        peak = peak_memory()
        made.append(
            {"devices": devices, "seconds_a_round": each, "devices_per_second": devices / each, "peak_GiB": peak}
        )
        print(made[-1], flush=True)
        playing.end()
    return made


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="epoch,alone,scale")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--most", type=int, default=1_000_000)
    options = parser.parse_args()
    parts = options.only.split(",")
    name = f"fpl-{jax.default_backend()}"
    file = RESULTS / f"{name}.json"
    made: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    made |= {"machine": machine(), "target": "an epoch no slower than implicit's"}
    measures = {
        "epoch": lambda: epoch(options.repeats),
        "alone": lambda: alone(20),
        "scale": lambda: scale(options.most),
    }
    for part in parts:
        made[part] = measures[part]()
        print(made[part], flush=True)
        write(name, made)  # part by part: what is done is kept


if __name__ == "__main__":
    main()
