"""Fair races: everybody in one process, turn by turn, medians of ratios. Absolute times drift; ratios do not."""

import itertools
import json
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

from tacit.core.plan import Plan
from tacit.lab.data import Population
from tacit.lab.simulation.federation import Federation

RESULTS = Path(__file__).parent / "results"


def race(runners: dict[str, Callable[[], Any]], repeats: int) -> dict[str, dict[str, float]]:
    """Median milliseconds, and how many times faster than the first runner (median of the turns' ratios).

    Beside them the time of all processors, the least of all turns: on a machine that is shared it is the steadier number.
    """
    for run in runners.values():
        jax.block_until_ready(run())
    times = {name: np.zeros((repeats, 2)) for name in runners}
    for turn in range(repeats):
        for name, run in runners.items():
            began = time.perf_counter(), time.process_time()
            jax.block_until_ready(run())
            times[name][turn] = time.perf_counter() - began[0], time.process_time() - began[1]
    base = next(iter(times.values()))
    return {
        name: {
            "ms": 1e3 * float(np.median(t[:, 0])),
            "times_faster": float(np.median(base[:, 0] / t[:, 0])),
            "cpu_ms": 1e3 * float(t[:, 1].min()),
            "times_less_cpu": float(base[:, 1].min() / t[:, 1].min()),
        }
        for name, t in times.items()
    }


def apart(script: str, *options: str) -> Any:
    """What a script prints last, as JSON, run in a process of its own."""
    made = subprocess.run([sys.executable, script, *options], check=True, stdout=subprocess.PIPE)
    return json.loads(made.stdout.splitlines()[-1])


def rounds_of(plan: Plan, population: Population, **options: Any) -> Callable[[], Any]:
    """A function that runs the plan's next round, exactly as `simulate` would."""
    federation = Federation(plan, population, **options)
    rounds = federation.begin(0)
    assert rounds is not None
    number = itertools.count()

    def turn() -> Any:
        first = next(number)
        federation.play(rounds, first, first + 1)
        return federation.params

    return turn


def peak_memory() -> float:
    """The most memory this program has held, in GiB.

    Linux hands `ru_maxrss` down from the process that started this one, so the kernel's own mark of this program is read
    where there is one.
    """
    status = Path("/proc/self/status")
    if status.exists():
        mark = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
        return int(mark.split()[1]) / 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def machine() -> dict[str, str]:
    device = jax.devices()[0]
    return {
        "device": device.device_kind,
        "platform": device.platform,
        "jax": jax.__version__,
        "system": platform.machine(),
    }


def write(name: str, result: dict[str, Any]) -> None:
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps(result, indent=2) + "\n")
    print(f"written: benchmarks/results/{path.name}")
