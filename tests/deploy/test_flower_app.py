"""examples/flower-app in a federation that Flower's own commands run."""

import os
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pytest

pytest.importorskip("flwr")

from support.deployment import Deployment, short_world
from support.toys import close
from tacit.deploy.supervisor import _listens, free_port
from tacit.lab.plans.loader import choose
from tacit.lab.runs.run import simulate
from tacit.server.session.session import Session

pytestmark = [
    pytest.mark.deployed,
    pytest.mark.filterwarnings("ignore::tacit.lab.analysis.feasibility.FeasibilityWarning"),
]
ROOT = Path(__file__).resolve().parents[2]


def test_the_app_ends_where_the_simulator_does(tmp_path):
    plan = choose("fcf", {"rounds": 2, "hyper.dim": 2})
    deployment = Deployment(tmp_path, plan, short_world(4), (1, 3))
    port, bin = free_port(), Path(sys.executable).parent
    (tmp_path / "flower").mkdir()
    (tmp_path / "flower" / "config.toml").write_text(
        f'[superlink.here]\naddress = "127.0.0.1:{port}"\ninsecure = true\n'
    )
    environment = {
        **os.environ,
        "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT / 'tests'}",
        "FLWR_HOME": str(tmp_path / "flower"),
        "FLWR_TELEMETRY_ENABLED": "0",
        "PATH": f"{bin}{os.pathsep}{os.environ['PATH']}",
    }
    log = open(tmp_path / "log", "ab")  # noqa: SIM115 - the processes write to it

    def start(*words: object) -> subprocess.Popen:
        return subprocess.Popen([*map(str, words)], env=environment, stdout=log, stderr=log, start_new_session=True)

    link = ("--insecure", "--host", "127.0.0.1", "--port", port, "--disable-runtime-dependency-installation")
    running = [start(bin / "flower-superlink", *link)]
    try:
        until = time.monotonic() + 120
        while not _listens("127.0.0.1", port):
            assert time.monotonic() < until
            time.sleep(0.5)
        for node in deployment.nodes.values():
            to = ("--insecure", "--superlink", f"127.0.0.1:{port}", "--host", "127.0.0.1", "--port", free_port())
            running.append(start(bin / "flower-supernode", *to, "--node-config", f'home="{node.store.path}"'))
        folders = f'folder="{tmp_path / "bundle"}" out="{tmp_path / "run"}"'
        command = [bin / "flwr", "run", ROOT / "examples" / "flower-app", "here", "--run-config", folders]
        subprocess.run([*map(str, command)], env=environment, stdout=log, stderr=log, check=True, timeout=120)
        pointer, until = tmp_path / "run" / "state" / "LATEST", time.monotonic() + 300
        while not pointer.exists() or int(pointer.read_text()) < 2:
            assert time.monotonic() < until, (tmp_path / "log").read_text()[-3000:]
            time.sleep(0.5)
    finally:
        for process in running:
            process.terminate()
        for process in running:
            process.wait(30)
        log.close()
    session = Session(tmp_path / "run", deployment.bundle)
    run = simulate(plan, deployment.world, seed=0, quiet=True)
    close(*(jax.tree.map(np.asarray, one.params) for one in (session, run)))
