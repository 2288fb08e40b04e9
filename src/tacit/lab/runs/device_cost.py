"""Device cost: time, memory and bytes of a round on one device, measured on the step that a device takes."""

import time
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from tacit.core.chacha import fresh_key
from tacit.core.messages import schema_of
from tacit.device.round import adapt, step
from tacit.server.round import open_round

if TYPE_CHECKING:
    from tacit.lab.runs.run import Run

_REPEATS = 21


def cost(run: "Run") -> dict[str, float]:
    """The cost of a round, and of adapting, on the device with the longest history; medians of repeated runs on this machine.

    Returns:
        `round_ms` and `adapt_ms`; `held_bytes`, what a device keeps between rounds: the last broadcast, what the method
        made of the history, and the private state; `working_bytes`, what a round needs beside that, as compiled;
        `message_bytes` and `broadcast_bytes`. A plan that sends nothing has no round.
    """
    longest = max(run.buckets, key=lambda bucket: bucket.length)
    home, own = jax.tree.map(lambda leaf: leaf[0], (longest.home, longest.own))
    broadcast = open_round(0, run.params)
    found = {
        "adapt_ms": _milliseconds(jax.jit(partial(adapt, run.method, run.stage)), run.params, home, own),
        "held_bytes": _bytes((run.params, home, own)),
        "broadcast_bytes": schema_of(run.params, 0).bytes(),
    }
    mechanism = run.price.stages[run.stage].mechanism
    if mechanism is None or not run.plan.stages[run.stage].rounds:
        return found
    one_round, noise = jax.jit(partial(step, run.method, mechanism, run.stage)), fresh_key()
    memory: Any = one_round.lower(broadcast, home, own, noise).compile().memory_analysis()
    return found | {
        "round_ms": _milliseconds(one_round, broadcast, home, own, noise),
        "working_bytes": float(memory.temp_size_in_bytes + memory.output_size_in_bytes),
        "message_bytes": max((row["bytes_up"] / row["reports"] for row in run.rounds if row["reports"]), default=0.0),
    }


def _milliseconds(turn: Any, *arguments: Any) -> float:
    jax.block_until_ready(turn(*arguments))
    times = []
    for _ in range(_REPEATS):
        began = time.perf_counter()
        jax.block_until_ready(turn(*arguments))
        times.append(time.perf_counter() - began)
    return 1e3 * float(np.median(times))


def _bytes(tree: Any) -> float:
    return float(sum(np.asarray(leaf).nbytes for leaf in jax.tree.leaves(tree)))
