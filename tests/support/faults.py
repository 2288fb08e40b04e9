"""Faults: processes of a real deployment that are killed, and the outcome."""

import contextlib
import socket
import time
from pathlib import Path

import jax
import numpy as np

from support.deployment import Deployment, short_world
from support.loopback import Loopback, kill
from tacit.lab.plans.loader import choose
from tacit.lab.runs.run import simulate

PLAN = choose("fcf", {"rounds": 4, "hyper.dim": 2})


def play(folder: Path, name: str) -> dict:
    """Four rounds over two nodes of 1 and 8 people; after the first, a process is killed."""
    fault, deployment = FAULTS[name], Deployment(folder, PLAN, short_world(9), (1, 8), wait=120)
    with Loopback(deployment, "--deadline", 200, secured=name in SECURED).start_all() as deployed:
        deployed.until(lambda: deployed.done() >= 1, 150)
        began = time.monotonic()
        what = fault(deployed)
        deployed.until(lambda: deployed.done() >= 3, 300)
        seconds = time.monotonic() - began
        session = deployed.finish()
        given_up = deployed.said().count("gave the run up")
    expected = simulate(PLAN, deployment.world, seed=0, quiet=True).params
    params = jax.tree.map(np.asarray, session.params)
    rows = session.folder.rows()
    entries = [len(_entries(node)) for node in deployment.nodes.values()]
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
    node_ledger = node.store.ledger()
    node_ledger.close()
    return node_ledger.ledger.entries if hasattr(node_ledger, "ledger") else list(node_ledger._entered)


def node_killed(deployed: Loopback) -> dict:
    """A node in the middle of a round, both its processes; started again a second later."""
    name = list(deployed.deployment.nodes)[1]
    kill(deployed.supernode(name))
    kill(deployed.devices[name].pid)
    deployed.devices[name].wait()
    time.sleep(1)
    deployed.attend(name)
    return {"killed": "a node, for 1 s", "by hand": "nothing"}


def attendant_killed(deployed: Loopback) -> dict:
    """Only Tacit's process of a node; its SuperNode keeps running and is found again."""
    name = list(deployed.deployment.nodes)[1]
    kill(deployed.devices[name].pid)
    deployed.devices[name].wait()
    deployed.attend(name)
    return {"killed": "Tacit's process of a node", "by hand": "nothing"}


def server_killed(deployed: Loopback) -> dict:
    """The process that runs the rounds; its SuperLink keeps running and is found again."""
    assert deployed.server is not None
    kill(deployed.server.pid)
    deployed.server.wait()
    deployed.serve()
    return {"killed": "the server's rounds", "by hand": "the same command again"}


def link_killed(seconds: float):
    """The SuperLink, whose port is occupied for so many seconds."""

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
    """Occupy the port; True while the killed process still holds it."""
    try:
        squatter.bind(("127.0.0.1", port))
    except OSError:
        return True
    return False


def known_node_killed(deployed: Loopback) -> dict:
    """A node with a key is killed; Flower refuses its key for about a minute, as it seems to be connected still."""
    return {**node_killed(deployed), "killed": "a node with a key, for 1 s"}


SECURED = {"node-key"}  # over TLS
FAULTS = {
    "node": node_killed,
    "node-key": known_node_killed,
    "attendant": attendant_killed,
    "server": server_killed,
    "link-8": link_killed(8),
    "link-90": link_killed(90),
}
