"""How fast are randomised bits turned into similar items? The whole pipeline against NumPy and scipy, and its kernels.

    python benchmarks/dplcf.py                  # 6,000 people, 3,700 items: races, ratios in one process
    python benchmarks/dplcf.py --size paper     # 74,529 people, 9,953 items: one run, with progress

Flip every bit, count pairs, take the noise off, Jaccard, the twenty nearest of every item. Tacit's part begins with
everybody's homes and includes each device's own step. Synthetic histories; speed does not depend on what is in them.
"""

import argparse
import json
import math
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from harness import RESULTS, machine, peak_memory, race, rounds_of, write

from tacit.lab.data import Population
from tacit.lab.data.synthetic.small import random_histories
from tacit.lab.plans.loader import choose
from tacit.lab.simulation import cooccurrence
from tacit.lab.simulation.engine import Job
from tacit.lab.simulation.federation import Federation, Performance
from tacit.lab.simulation.report_collection import GRID, OnProgress, collect_reports, cooccurrence_job, enter_devices
from tacit.nets.counts.item_pairs import TILE, count_tile_pairs, packed_columns, tile_pairs, write_tiles
from tacit.privacy.mechanisms._parts.pair_counts import cooccurrence_counts

SIZES = {"w3": (6000, 3700, 160), "paper": (74_529, 9953, 253)}
PLAN, K = choose("dplcf", {"server.recipe": "clamp"}), 20
P = 1 / (1 + math.exp(-1))
Q = 1 - P


def truth_of(people: Population) -> np.ndarray:
    had = np.zeros((len(people), people.catalog.n_items), bool)
    had[np.repeat(np.arange(len(people)), people.lengths), people.items] = True
    return had


# ---- as a careful NumPy programmer writes it ----


def flipped(rng: np.random.Generator, had: np.ndarray) -> np.ndarray:
    return rng.random(had.shape, np.float32) < np.where(had, np.float32(P), np.float32(Q))


def nearest(both: np.ndarray, people: int) -> tuple[np.ndarray, np.ndarray]:
    counts = np.diagonal(both).astype(np.float32)
    each = np.maximum((counts - people * Q) / (P - Q), 0)
    pair = (both - np.float32(Q) * (counts[:, None] + counts) + np.float32(people * Q * Q)) / np.float32((P - Q) ** 2)
    pair = np.clip(pair, 0, np.minimum(each[:, None], each))
    close = pair / np.maximum(each[:, None] + each - pair, 1)
    np.fill_diagonal(close, -1)
    best = np.argpartition(-close, K, axis=1)[:, :K]
    return best, np.take_along_axis(close, best, 1)


def numpy_pipeline(rng: np.random.Generator, had: np.ndarray) -> Any:
    said = flipped(rng, had).astype(np.float32)
    return nearest(said.T @ said, had.shape[0])  # NumPy sees the transpose and calls SYRK


def scipy_pipeline(rng: np.random.Generator, had: np.ndarray) -> Any:
    from scipy import sparse

    said = sparse.csr_matrix(flipped(rng, had).astype(np.float32))
    return nearest((said.T @ said).toarray(), had.shape[0])


# ---- Tacit's ----


def fresh(people: Population, learn: Callable[[Federation, Job], Any]) -> Callable[[], Any]:
    """Learn from a federation in which nobody has spoken yet, again and again."""
    federation = Federation(PLAN, people, performance=Performance(grid=GRID))
    job = cooccurrence_job(federation)
    enter_devices(federation, job)
    silent = list(federation.buckets)

    def turn() -> Any:
        federation.buckets = list(silent)
        return learn(federation, job)

    return turn


def pipeline(people: Population, tell: OnProgress = lambda *_: None):
    """Every device's step, then the server's table, as `tacit.lab.simulation.cooccurrence.learn` does them."""

    def learn(federation: Federation, job: Job) -> Any:
        return cooccurrence.similarity_table(
            collect_reports(federation, job, tell), job.rule, job.mechanism, K, on_progress=tell
        )

    return fresh(people, learn)


def at_once(people: Population):
    """Every device's step and the server's whole round as one program, as `tacit.lab.simulation.cooccurrence.learn` does on a GPU."""
    return fresh(people, cooccurrence.learn_in_one_program)


# ---- kernels ----


def in_words(packed: jax.Array, width: int) -> np.ndarray:
    words = packed_columns(packed, width)
    left, right = tile_pairs(words.shape[0])
    table = np.zeros((words.shape[0] * TILE,) * 2, np.int32)
    write_tiles(table, left, right, np.asarray(count_tile_pairs(words, left, right)))
    return table[:width, :width]


def in_floats(packed: np.ndarray, width: int) -> np.ndarray:
    bits = np.unpackbits(packed, axis=1, count=width).astype(np.float32)
    return bits.T @ bits


def two_in_a_float(packed: np.ndarray, width: int) -> np.ndarray:
    """Two columns share a float, 4,095 rows at a time: half the products of SYRK's triangle twice over."""
    total = np.zeros((width, width), np.int32)
    for start in range(0, packed.shape[0], 4095):
        bits = np.unpackbits(packed[start : start + 4095], axis=1, count=width + width % 2).astype(np.float32)
        pairs = bits[:, ::2] + np.float32(4096) * bits[:, 1::2]
        both = (bits[:, :width].T @ pairs).astype(np.int32)
        total += np.stack([both & 4095, both >> 12], -1).reshape(width, -1)[:, :width]
    return total


def kernels(packed: np.ndarray, width: int, repeats: int) -> dict:
    """Counts of all pairs from packed bits, every way exact; the one way of the machine is used."""
    on_device = jnp.asarray(packed)
    ways = {
        "floats, SYRK (NumPy)": lambda: in_floats(packed, width),
        "two in a float (NumPy)": lambda: two_in_a_float(packed, width),
        "words of 32 (XLA)": lambda: in_words(on_device, width),
    }
    if jax.default_backend() != "cpu":  # minutes on a CPU
        multiplied = jax.jit(lambda packed: cooccurrence_counts(jnp.unpackbits(packed, axis=1, count=width)))
        ways["bytes (XLA)"] = lambda: multiplied(on_device)
    right = in_floats(packed, width).astype(np.int32)
    for name, way in ways.items():
        assert (np.asarray(way()).astype(np.int32) == right).all(), name
    return race(ways, repeats)


# ---- sizes ----


def engine(people: Population):
    """A round as `simulate` plays it, again and again: the same noise each time, and no allowance."""
    stage = replace(PLAN.stages[0], privacy={"mechanism": "cooccurrence", "epsilon_per_message": 1.0}, rounds=10**6)
    return rounds_of(replace(PLAN, stages=(stage,)), people)


def w3(repeats: int) -> dict:
    people, items, events = SIZES["w3"]
    log = random_histories(people, items, events)
    had, rng = truth_of(log), np.random.default_rng(0)
    ours = pipeline(log)
    packed = np.packbits(flipped(rng, had), axis=1)
    return {
        **{"people": people, "items": items, "target": "4 times NumPy, 50 times scipy sparse; counts exact"},
        "against NumPy": race({"NumPy, SYRK": lambda: numpy_pipeline(rng, had), "Tacit": ours}, repeats),
        "against scipy": race({"scipy sparse": lambda: scipy_pipeline(rng, had), "Tacit": ours}, 2),
        "against a round of simulate": race({"simulate": engine(log), "Tacit": ours}, 2),
        "kernels": kernels(packed, items, repeats),
    }


def paper(repeats: int) -> dict:
    people, items, events = SIZES["paper"]
    log = random_histories(people, items, events)
    cpu = jax.default_backend() == "cpu"
    ways = (
        {"tiles": pipeline(log, Progress())} if cpu else {"at once": at_once(log), "a round of simulate": engine(log)}
    )
    times = {name: timed(turn, repeats) for name, turn in ways.items()}
    stats = jax.devices()[0].memory_stats() or {}
    return {
        **{"people": people, "items": items, "events": int(log.items.size), "target": "40 ms on a GPU"},
        **times,
        "peak_GiB": peak_memory(),
        "gpu_peak_GiB": stats.get("peak_bytes_in_use", 0) / 2**30,
        "bytes_up_a_device": -(-items // 8),
    }


def timed(turn: Any, repeats: int) -> dict[str, float]:
    """Seconds of the first turn, compiling and all, and of the best and the median one after it."""
    times = []
    for _ in range(repeats + 1):
        began = time.perf_counter()
        jax.block_until_ready(turn())
        times.append(time.perf_counter() - began)
        print(f"\n{times[-1]:.3f} s", file=sys.stderr)
    return {"first_s": times[0], "best_s": min(times[1:]), "median_s": float(np.median(times[1:]))}


class Progress:
    """One line that says what is being done."""

    def __call__(self, what: str, share: float) -> None:
        print(f"\r{what:<8} {100 * share:3.0f} %", end="", file=sys.stderr, flush=True)


def show(result: dict) -> None:
    for title, found in result.items():
        if not isinstance(found, dict):
            print(f"{title}: {found}")
            continue
        print(f"\n{title}")
        for name, numbers in found.items():
            print(
                f"  {name:<24} {numbers['ms']:10.1f} ms   {numbers['times_faster']:7.2f} times as fast as the first"
                if isinstance(numbers, dict)
                else f"  {name:<24} {numbers:10.4f}"
            )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", choices=list(SIZES), default="w3")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    result = (w3 if options.size == "w3" else paper)(options.repeats)
    show(result)
    path = RESULTS / "dplcf.json"
    known = json.loads(path.read_text()) if path.exists() else {}
    known[f"{options.size}-{jax.default_backend()}"] = {"machine": machine(), **result}
    write("dplcf", known)


if __name__ == "__main__":
    main()
