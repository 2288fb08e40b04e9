"""Rounds after rounds of a real deployment: seconds, CPU, memory and disk a round. Minutes.

    python benchmarks/deploy_soak.py [--nodes 2 4] [--rounds 22]

What it finds goes into results/soak.json and from there into docs/deploy.md.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from deploy_page import fill_page
from pages import RESULTS

from support.deployment import Deployment, short_world
from support.loopback import Loopback
from tacit.lab.plans.loader import choose

OUT = RESULTS / "soak.json"
SETTLED = 7  # rounds after which the run folder holds as many checkpoints as it keeps


def measure(folder: Path, nodes: int, rounds: int) -> dict:
    """One deployment; the first rounds, with starting and compiling, are left out."""
    plan = choose("fcf", {"rounds": rounds, "hyper.dim": 2})
    deployment = Deployment(folder, plan, short_world(nodes), (1,) * nodes)
    with Loopback(deployment).start_all() as deployed:
        deployed.until(lambda: deployed.done() >= SETTLED, 400)
        before, first = _state(deployed, folder), deployed.done()
        deployed.until(lambda: deployed.done() >= rounds - 1, 60.0 * rounds)
        after, played = _state(deployed, folder), deployed.done() - first
        deployed.finish()
    each = {name: (after[name] - before[name]) / played for name in ("seconds", "link_cpu", "server_cpu", "bytes")}
    memory = {"link_mb": [before["link_mb"], after["link_mb"]]}
    return {"nodes": nodes, "rounds": played, **each, **memory, "load_average": os.getloadavg()[0]}


def _state(deployed: Loopback, folder: Path) -> dict[str, float]:
    assert deployed.server is not None
    files = [path for path in (folder / "run").rglob("*") if path.is_file() and "flower" not in path.parts]
    return {
        "seconds": time.time(),
        "link_cpu": _cpu(deployed.superlink),
        "server_cpu": _cpu(deployed.server.pid),
        "link_mb": int(Path(f"/proc/{deployed.superlink}/statm").read_text().split()[1])
        * os.sysconf("SC_PAGE_SIZE")
        / 2**20,
        "bytes": sum(path.stat().st_size for path in files),
    }


def _cpu(pid: int) -> float:
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--nodes", type=int, nargs="*", default=[2, 4])
    options.add_argument("--rounds", type=int, default=22)
    given = options.parse_args()
    rows = []
    for nodes in given.nodes:
        with tempfile.TemporaryDirectory() as folder:
            rows.append(measure(Path(folder), nodes, given.rounds))
        print(json.dumps(rows[-1]), flush=True)
    OUT.write_text(json.dumps({"plan": "fcf", "cores": os.cpu_count(), "rows": rows}, indent=2) + "\n")
    fill_page()


if __name__ == "__main__":
    main()
