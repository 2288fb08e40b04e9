"""From a thousand devices to a million: time per device, peak memory, compile time. Each size in a process of its own.

python benchmarks/scale.py [--method fcf|seqmf|fpl|privrec] [--most 1000000] [--rounds 3]

PrivRec's round is that of benchmarks/privrec.py, with a bound and noise, and everybody in it.
"""

import argparse
import json
import time
from typing import Any

SIZES = (1_000, 10_000, 100_000, 1_000_000, 10_000_000)


def scene(method: str, devices: int) -> tuple[Any, Any]:
    """A method's plan and its people."""
    from privrec import ITEMS, meta_learning
    from speed import fcf, seqmf

    from tacit.lab.data.synthetic import movies
    from tacit.lab.data.synthetic.small import random_histories
    from tacit.lab.plans.loader import choose

    if method == "privrec":
        noisy = {"cohort": {"sampler": "all"}, "privacy": {"mechanism": "gaussian", "clip": 1.0, "noise": 1.0}}
        return meta_learning(20, {**noisy, "rounds": 10**4}), movies(devices, ITEMS)
    plans = {"fcf": fcf("own"), "seqmf": seqmf(64), "fpl": choose("fpl", {"rounds": 10**4})}
    return plans[method], random_histories(devices, 2000, 60)


def one(method: str, devices: int, rounds: int) -> dict:
    import jax
    from harness import peak_memory, rounds_of

    began = time.perf_counter()
    plan, population = scene(method, devices)
    made = time.perf_counter() - began
    began = time.perf_counter()
    turn = rounds_of(plan, population)
    prepared = time.perf_counter() - began
    began = time.perf_counter()
    jax.block_until_ready(turn())
    first = time.perf_counter() - began
    times = []
    for _ in range(rounds):
        began = time.perf_counter()
        jax.block_until_ready(turn())
        times.append(time.perf_counter() - began)
    steady = min(times)
    memory = jax.devices()[0].memory_stats() or {}
    return {
        "devices": devices,
        "events": int(population.items.size),
        "make_log_s": made,
        "prepare_s": prepared,
        "compile_s": max(0.0, first - steady),
        "round_s": steady,
        "us_per_device": 1e6 * steady / devices,
        "devices_per_s": devices / steady,
        "peak_GiB": peak_memory(),
        "gpu_peak_GiB": memory.get("peak_bytes_in_use", 0) / 2**30,
    }


def rows(method: str, most: int, rounds: int) -> list[dict]:
    """A row for each size, printed as it is made."""
    from harness import apart

    made = []
    print(
        f"{'devices':>11} {'prepare s':>10} {'compile s':>10} {'round s':>9} {'µs/device':>10} {'peak GiB':>9} {'GPU GiB':>8}"
    )
    for devices in (size for size in SIZES if size <= most):
        row = apart(__file__, "--one", str(devices), "--rounds", str(rounds), "--method", method)
        made.append(row)
        print(
            f"{row['devices']:>11,} {row['prepare_s']:>10.2f} {row['compile_s']:>10.2f} {row['round_s']:>9.3f} "
            f"{row['us_per_device']:>10.2f} {row['peak_GiB']:>9.2f} {row['gpu_peak_GiB']:>8.2f}",
            flush=True,
        )
    return made


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--method", choices=["fcf", "seqmf", "fpl", "privrec"], default="fcf")
    parser.add_argument("--most", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(one(options.method, options.one, options.rounds)))
        return
    made = rows(options.method, options.most, options.rounds)
    import jax
    from harness import machine, write

    which = "" if options.method == "fcf" else f"-{options.method}"
    write(f"scale{which}-{jax.default_backend()}", {"machine": machine(), "rows": made})


if __name__ == "__main__":
    main()
