"""Does a large log load in bounded memory? Writes a Parquet file of random events, loads it in a process of its own.

python benchmarks/load.py [--events 25000000]
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import polars as pl


def make(path: Path, events: int) -> None:
    rng = np.random.default_rng(0)
    users, items = max(1, events // 154), 62_000
    frame = pl.DataFrame(
        {
            "user_id": rng.integers(users, size=events, dtype=np.int32),
            "item_id": (items * rng.random(events) ** 3).astype(np.int32),
            "datetime": rng.integers(1_500_000_000, 1_600_000_000, size=events),
            "weight": rng.integers(1, 6, size=events).astype(np.float32),
        }
    )
    frame.write_parquet(path)


def load(path: str) -> dict:
    from harness import peak_memory

    import tacit

    before = peak_memory()
    began = time.perf_counter()
    log = tacit.interactions(path)
    return {
        "users": len(log),
        "items": log.catalog.n_items,
        "events": int(log.items.size),
        "seconds": time.perf_counter() - began,
        "peak_GiB": peak_memory(),
        "peak_before_GiB": before,
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--events", type=int, default=25_000_000)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(load(options.one)))
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log.parquet"
        make(path, options.events)
        command = [sys.executable, __file__, "--one", str(path)]
        result = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout.splitlines()[-1])
    for name, value in result.items():
        print(f"{name:<16} {value:,.2f}" if isinstance(value, float) else f"{name:<16} {value:,}")
    from harness import write

    write("load-cpu", result)


if __name__ == "__main__":
    main()
