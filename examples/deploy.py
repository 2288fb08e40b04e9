"""A deployed federation on one machine: a server and three nodes as processes, with TLS; recommendations on a node.

    python examples/deploy.py [FOLDER]

One node holds one user, two are organisations that hold many. Everything is written below the folder; each command is
printed before it runs, and could be run on a machine of its own.
"""

import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import polars as pl

import tacit

PEOPLE = 40
NODES = {"ann": 1, "clinic": 15, "school": 24}
PLAN = ["fcf", "--set", "rounds=3", "--set", "hyper.dim=8", "--set", "privacy.mechanism=gaussian"]
PLAN += ["--set", "privacy.epsilon=8", "--set", "privacy.clip=1"]


def main(folder: Path) -> None:
    write_histories(folder)
    certs, bundle = folder / "certs", folder / "plan"
    address = f"127.0.0.1:{free_port()}"
    run("certs", certs, "--host", "127.0.0.1", "--nodes", len(NODES))
    run("plan", *PLAN, "--devices", PEOPLE, "--folder", bundle)
    server = start("server", bundle, "--out", folder / "run", "--address", address, "--certs", certs)
    devices = []
    for number, name in enumerate(NODES, 1):
        own = ["--home", folder / name, "--plan", bundle, "--history", folder / f"{name}.csv"]
        own += ["--consent", "--budget", 10]
        trust = ["--server", address, "--root", certs / "ca.crt", "--key", certs / f"node-{number}.key"]
        devices.append(start("device", *own, *trust))
    try:
        code = server.wait(timeout=600)
    finally:
        for process in devices:
            process.terminate()
        for process in devices:
            process.wait()
    if code:
        sys.exit(code)
    run("device", "status", "--home", folder / "ann")
    run("device", "recommend", "--home", folder / "ann", "--k", 5)


def write_histories(folder: Path) -> None:
    """A synthetic log, divided among the nodes; each file stays with its node."""
    log = tacit.dataset("groups", users=PEOPLE)
    users = [user for user in range(PEOPLE) for _ in range(log.lengths[user])]
    items = log.items if log.item_names is None else [log.item_names[item] for item in log.items]
    table, first = pl.DataFrame({"user_id": users, "item_id": items}), 0
    for name, people in NODES.items():
        mine = table.filter(pl.col("user_id").is_between(first, first + people - 1))
        (mine if people > 1 else mine.drop("user_id")).write_csv(folder / f"{name}.csv")
        first += people


def command_line(*command: object) -> list[str]:
    print("$ tacit", *command, flush=True)
    return [sys.executable, "-m", "tacit", *map(str, command)]


def run(*command: object) -> None:
    subprocess.run(command_line(*command), check=True)


def start(*command: object) -> subprocess.Popen:
    return subprocess.Popen(command_line(*command))


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


if __name__ == "__main__":
    started = time.monotonic()
    if len(sys.argv) > 1:
        place = Path(sys.argv[1])
        place.mkdir(parents=True)
        main(place)
    else:
        with tempfile.TemporaryDirectory() as found:
            main(Path(found))
    print(f"{time.monotonic() - started:.0f} seconds")
