"""What a round costs over Flower: seconds and bytes for 2, 8 and 32 nodes and for a shard of 10,000 people; memory per node.

    python benchmarks/deploy.py [--nodes 2 8 32] [--shard 10000] [--out FILE]

Every node has a SuperNode of its own. So that 32 fit on a small machine, their messages are answered by one process for every
eight nodes; with 2 and 8, by a process each. The simulator plays the same plan with the same people beside it. What it finds goes into results/deploy.json and
from there into docs/deploy.md.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

import jax
import numpy as np
from deploy_page import fill_page

from support.deployment import Deployment
from support.loopback import Loopback
from tacit.lab.data.synthetic.small import taste_groups
from tacit.lab.plans.loader import choose
from tacit.lab.runs.run import simulate

TOGETHER = 8  # nodes to a process, where there are many
RESULTS = Path(__file__).parent / "results" / "deploy.json"


def measure(people: list[int], rounds: int, seconds: float) -> dict:
    """Play some rounds over real processes; the first compiles, so the rest are counted."""
    plan = choose("fcf", {"rounds": rounds, "hyper.dim": 8})
    world = taste_groups(users=sum(people), items=200, events=12)
    with tempfile.TemporaryDirectory() as folder:
        deployment = Deployment(Path(folder), plan, world, people)
        with Loopback(deployment, "--wait", seconds, "--deadline", seconds) as deployed:
            began = time.monotonic()
            deployed.serve()
            started = attend(deployed, together=TOGETHER if len(people) > TOGETHER else 1)
            deployed.until(lambda: deployed.done() >= 2, seconds)
            memory = memory_of(deployed, started)
            session = deployed.finish(seconds)
            whole = time.monotonic() - began
        rows = session.folder.rows()
    _, run = (simulate(plan, world, seed=0, quiet=True) for _ in range(2))  # the second time, programs are compiled
    later = [row["seconds"] for row in rows[1:]]
    return {
        "nodes": len(people),
        "people": sum(people),
        "first_round_seconds": rows[0]["seconds"],
        "round_seconds": statistics.median(later),
        "simulator_round_seconds": statistics.median([row["seconds"] for row in run.rounds[1:]]),
        "bytes_up": rows[-1]["bytes_up"],
        "bytes_down": rows[-1]["bytes_down"],
        "whole_seconds": whole,
        "memory_mb": memory,
        "largest_difference": max(float(np.abs(session.params[n] - run.params[n]).max()) for n in run.params),
    }


def attend(deployed: Loopback, together: int) -> int:
    """Start the nodes; how many processes answer for them."""
    names = list(deployed.deployment.nodes)
    if together == 1:
        for name in names:
            deployed.attend(name)
        return len(names)
    for first in range(0, len(names), together):
        homes = [str(deployed.deployment.nodes[name].store.path) for name in names[first : first + together]]
        command = [sys.executable, __file__, "--attend", deployed.address, *homes]
        with open(deployed.deployment.folder / f"group{first}.log", "ab") as log:
            deployed.devices[names[first]] = subprocess.Popen(command, stdout=log, stderr=log)
    return -(-len(names) // together)


def group(address: str, homes: list[str]) -> None:
    """Answer for several nodes, each with a SuperNode of its own, one after another."""
    from contextlib import ExitStack

    import httpx

    from tacit.deploy.flower_transport import FlowerRuntime
    from tacit.deploy.supervisor import FlowerProcess, end_by_signal, print_line
    from tacit.device.node.flower import serve_one_message
    from tacit.device.node.node import Node

    end_by_signal()
    with ExitStack() as open_ones:
        pairs = []
        for home in homes:
            supernode = FlowerProcess(Path(home) / "flower", "flower-supernode")
            open_ones.enter_context(supernode.kept_up(["--superlink", address, "--insecure"], print_line))
            pairs.append((Node(home, print_line), FlowerRuntime(f"127.0.0.1:{supernode.port}", supernode.secret)))
        while True:
            for node, runtime in pairs:
                try:
                    serve_one_message(node, runtime, print_line)
                except httpx.HTTPError:
                    time.sleep(0.1)
            time.sleep(0.1)


def memory_of(deployed: Loopback, processes: int) -> dict[str, float]:
    """Resident megabytes: of the server, of its SuperLink, of a process that answers, and of a SuperNode."""
    assert deployed.server is not None
    answering = [process.pid for process in deployed.devices.values()]
    nodes = [deployed.supernode(name) for name in deployed.deployment.nodes]
    return {
        "server": resident(deployed.server.pid),
        "superlink": resident(deployed.superlink),
        "answering_process": max(map(resident, answering)),
        "answering_processes": processes,
        "supernode": max(map(resident, nodes)),
    }


def resident(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS"))


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--nodes", type=int, nargs="*", default=[2, 8, 32])
    options.add_argument("--shard", type=int, default=10_000)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--seconds", type=float, default=540.0)
    options.add_argument("--out", type=Path, default=RESULTS)
    options.add_argument("--attend", nargs="*", help=argparse.SUPPRESS)
    given = options.parse_args()
    if given.attend:
        group(given.attend[0], given.attend[1:])
        return
    tried = [[1] * nodes for nodes in given.nodes] + ([[given.shard, given.shard]] if given.shard else [])
    rows = json.loads(given.out.read_text())["rows"] if given.out.exists() else []
    for people in tried:
        row = measure(people, given.rounds, given.seconds) | {"load_average": os.getloadavg()[0]}
        print(json.dumps(row), flush=True)
        rows = [one for one in rows if (one["nodes"], one["people"]) != (row["nodes"], row["people"])] + [row]
        machine = {
            "cores": os.cpu_count(),
            "python": platform.python_version(),
            "jax": jax.__version__,
            "transport": "loopback, no TLS",
        }
        rows.sort(key=lambda one: (one["people"], one["nodes"]))
        given.out.write_text(json.dumps({"machine": machine, "rows": rows}, indent=2) + "\n")
    if given.out == RESULTS:
        fill_page()


if __name__ == "__main__":
    main()
