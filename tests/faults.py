"""What is killed, when, and what comes of it, over real processes. As a script, it prints a table and leaves it as JSON.

python tests/faults.py [FILE]
"""

import contextlib
import json
import socket
import sys
import tempfile
import time
from pathlib import Path

import jax
import numpy as np

from deployment import Town, short_world
from loopback import Loopback, kill
from tacit.lab.shelf import choose
from tacit.lab.simulate import simulate

PLAN = choose("fcf", {"rounds": 4, "hyper.dim": 2})


def play(folder: Path, fault) -> dict:
    """Four rounds over two nodes of 1 and 8 people; after the first, something is killed."""
    town = Town(folder, PLAN, short_world(9), (1, 8), wait=120)
    with Loopback(town, "--deadline", 150).everybody() as deployed:
        deployed.until(lambda: deployed.done() >= 1, 150)
        began = time.monotonic()
        what = fault(deployed)
        deployed.until(lambda: deployed.done() >= 3, 300)
        seconds = time.monotonic() - began
        session = deployed.finish()
        given_up = deployed.said().count("gave the run up")
    expected = simulate(PLAN, town.world, seed=0, quiet=True).params
    params = jax.tree.map(np.asarray, session.params)
    rows = session.folder.rows()
    entries = [len(_entries(node)) for node in town.nodes.values()]
    return {
        **what,
        "seconds for two rounds": round(seconds, 1),
        "runs given up by Flower": given_up,
        "rounds": [row["done"] for row in rows],
        "reports": [row["reports"] for row in rows],
        "lines in each ledger": entries,
        "as the simulator": all(
            np.allclose(params[name], np.asarray(leaf), atol=1e-5) for name, leaf in expected.items()
        ),
    }


def _entries(node) -> list:
    purse = node.store.purse()
    purse.close()
    return purse.ledger.entries if hasattr(purse, "ledger") else list(purse._entered)


def node_killed(deployed: Loopback) -> dict:
    """A node in the middle of a round, both its processes; started again a second later."""
    name = list(deployed.town.nodes)[1]
    kill(deployed.supernode(name))
    kill(deployed.devices[name].pid)
    deployed.devices[name].wait()
    time.sleep(1)
    deployed.attend(name)
    return {"killed": "a node, for 1 s", "by hand": "nothing"}


def attendant_killed(deployed: Loopback) -> dict:
    """Only Tacit's own process of a node; its SuperNode lives on and is found again."""
    name = list(deployed.town.nodes)[1]
    kill(deployed.devices[name].pid)
    deployed.devices[name].wait()
    deployed.attend(name)
    return {"killed": "Tacit's process of a node", "by hand": "nothing"}


def server_killed(deployed: Loopback) -> dict:
    """The process that plays the rounds; its SuperLink lives on and is found again."""
    assert deployed.server is not None
    kill(deployed.server.pid)
    deployed.server.wait()
    deployed.serve()
    return {"killed": "the server's rounds", "by hand": "the same command again"}


def link_killed(seconds: float):
    """The SuperLink, and nothing can listen on its port for so long."""

    def fault(deployed: Loopback) -> dict:
        pid, port = deployed.superlink, int(deployed.address.rpartition(":")[2])
        kill(pid)
        with socket.socket() as squatter:
            squatter.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            while squatter_is_early(squatter, port):
                time.sleep(0.02)
            squatter.listen()
            squatter.settimeout(0.2)
            until = time.monotonic() + seconds
            while time.monotonic() < until:
                with contextlib.suppress(TimeoutError):
                    squatter.accept()[0].close()
        return {"killed": f"the SuperLink, for {seconds:g} s", "by hand": "nothing"}

    return fault


def squatter_is_early(squatter: socket.socket, port: int) -> bool:
    """Take the port; True where the process that was killed has not let go of it yet."""
    try:
        squatter.bind(("127.0.0.1", port))
    except OSError:
        return True
    return False


FAULTS = {
    "node": node_killed,
    "attendant": attendant_killed,
    "server": server_killed,
    "link-8": link_killed(8),
    "link-90": link_killed(90),
}


COLUMNS = {
    "killed with −9": "killed",
    "by hand": "by hand",
    "seconds until two more rounds were closed": "seconds for two rounds",
    "Flower runs given up": "runs given up by Flower",
    "reports in each round": "reports",
    "lines in each ledger": "lines in each ledger",
}


def table(rows: list[dict]) -> str:
    """The rows as the page shows them."""
    lines = ["| " + " | ".join(COLUMNS) + " |", "|" + "---|" * len(COLUMNS)]
    return "\n".join(
        [*lines, *("| " + " | ".join(_cell(row[name]) for name in COLUMNS.values()) + " |" for row in rows)]
    )


def _cell(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return f"{value:.0f}" if isinstance(value, float) else str(value)


def main(path: Path | None) -> None:
    rows = []
    for fault in FAULTS.values():
        with tempfile.TemporaryDirectory() as folder:
            rows.append(play(Path(folder), fault))
            print(rows[-1], flush=True)
    print(table(rows))
    if path is not None:
        path.write_text(json.dumps({"plan": PLAN.name, "nodes": [1, 8], "faults": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else None)
