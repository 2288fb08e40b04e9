"""Over Flower itself: the simulator's parameters on real processes, and what happens when these are killed."""

import base64
import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pytest

pytest.importorskip("flwr")

from support.deployment import Deployment, plans, short_world
from support.faults import FAULTS, play
from support.loopback import Loopback
from support.toys import close, same
from tacit.deploy.certificates import new_node
from tacit.lab.plans.loader import choose
from tacit.lab.runs.run import simulate

pytestmark = [
    pytest.mark.deployed,
    pytest.mark.filterwarnings("ignore::tacit.lab.analysis.feasibility.FeasibilityWarning"),
]
WHOLE = {"seqmf", "dplcf"}


@pytest.mark.parametrize("name", ["fcf", "seqmf", "dplcf", "fpl", "dp-privrec", "steps", "fedseqrec"])
def test_real_processes_end_where_the_simulator_does(name, tmp_path):
    plan, world, people = plans()[name]
    people = people if name == "fedseqrec" else (1, len(world) - 1)
    deployment = Deployment(tmp_path, plan, world, people)
    with Loopback(deployment, seeded=True).start_all() as deployed:
        session = deployed.finish()
    run = simulate(plan, world, seed=0, quiet=True)
    equal = same if name in WHOLE else close
    equal(*(jax.tree.map(np.asarray, one.params) for one in (session, run)))


@pytest.mark.parametrize("name", list(FAULTS))
def test_whatever_is_killed_the_run_ends_where_the_simulator_does(name, tmp_path):
    row = play(tmp_path, name)
    assert row["rounds"] == [1, 2, 3, 4]
    assert row["reports"] == [9] * 4
    assert row["lines in each ledger"] == [4, 4]  # nobody spent twice
    assert row["as the simulator"]


def test_with_tls_a_node_whose_key_is_unknown_is_refused(tmp_path):
    (tmp_path / "foreign").mkdir()
    stranger, _ = new_node(tmp_path / "foreign", "stranger")
    deployment = Deployment(tmp_path, choose("fcf", {"rounds": 1, "hyper.dim": 2}), short_world(2), (1, 1))
    one, two = deployment.nodes
    with Loopback(deployment, "--least", 0.5, secured=True) as deployed:
        deployed.serve()
        deployed.attend(two, "--root", tmp_path / "certs" / "ca.crt", "--key", stranger)
        deployed.until(lambda: "0 of 2 people have enrolled" in deployed.said(), 90)
        deployed.until(lambda: "flower-supernode ended" in deployed.said("home1.log"), 90)
        deployed.attend(one)
        session = deployed.finish()
    assert list(session.enrolment.members) == [one]


def test_no_secret_is_in_a_command_line_an_environment_or_a_log(tmp_path):
    """Keys, Flower's secrets, the secrets of homes: raw, as hexadecimal and as base64."""
    deployment = Deployment(tmp_path, choose("fcf", {"rounds": 1, "hyper.dim": 2}), short_world(2), (1, 1))
    with Loopback(deployment, secured=True).start_all() as deployed:
        deployed.until(lambda: deployed.done() >= 1, 150)
        shown = [text for kind in ("cmdline", "environ") for text in _processes(kind)]
        deployed.finish()
    assert any(b"flower-supernode" in text for text in shown)
    logs = [path.read_bytes() for path in tmp_path.rglob("*.log")]
    assert len(logs) == 6  # ours and Flower's
    hidden = _secrets(tmp_path)
    assert len(hidden) == 3 + 4 + 2
    for secret in hidden:
        for form in (secret, secret.hex().encode(), base64.b64encode(secret).rstrip(b"=")):
            assert not any(form in text for text in (*shown, *logs))
    for path in (*tmp_path.rglob("flower/secret"), *tmp_path.glob("home?")):
        assert path.stat().st_mode & 0o077 == 0, path


def test_a_polite_end_leaves_no_process_behind(tmp_path):
    deployment = Deployment(tmp_path, choose("fcf", {"rounds": 1, "hyper.dim": 2}), short_world(2), (1, 1))
    with Loopback(deployment) as deployed:
        deployed.serve()
        name = next(iter(deployment.nodes))
        deployed.attend(name)
        deployed.until(lambda: "listening" in deployed.said(), 90)
        deployed.until(lambda: (deployment.nodes[name].store.path / "flower" / "flower-supernode.json").exists(), 60)
        link, node = deployed.superlink, deployed.supernode(name)
        for process in (deployed.server, deployed.devices[name]):
            assert process is not None
            process.terminate()
            assert process.wait(30) == 130
        time.sleep(0.5)
        assert not any(Path(f"/proc/{pid}").exists() for pid in (link, node))


def test_the_example_plays_a_whole_federation():
    root = Path(__file__).resolve().parents[2]
    environment = {**os.environ, "PYTHONPATH": str(root / "src")}
    command = [sys.executable, str(root / "examples" / "deploy.py")]
    played = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=400, check=True).stdout
    assert "all 3 rounds are done" in played
    assert "40 of 40 people" in played
    assert "takes part  True" in played
    assert "\n  5  " in played  # five recommendations, at home


def _processes(kind: str) -> list[bytes]:
    """What every process that we may look at shows."""
    found = []
    for path in Path("/proc").glob(f"[0-9]*/{kind}"):
        with contextlib.suppress(OSError):
            found.append(path.read_bytes())
    return found


def _secrets(folder: Path) -> list[bytes]:
    """What must not be seen: Flower's secrets, a line of each key, the secrets of homes."""
    keys = [path.read_bytes().splitlines()[2] for path in (folder / "certs").glob("*.key")]
    roots = [next(iter(np.load(path).values())).tobytes() for path in folder.glob("home?/runs/*/secrets.npz")]
    return [path.read_bytes() for path in folder.rglob("flower/secret")] + keys + roots


def test_an_erased_home_ends_its_processes_and_stays_erased(tmp_path):
    deployment = Deployment(tmp_path, choose("fcf", {"rounds": 1, "hyper.dim": 2}), short_world(2), (1, 1))
    name = next(iter(deployment.nodes))
    home = deployment.nodes[name].store
    with Loopback(deployment) as deployed:
        deployed.attend(name)
        deployed.until(lambda: (home.path / "flower" / "flower-supernode.json").exists(), 60)
        node = deployed.supernode(name)
        home.erase()
        assert deployed.devices[name].wait(30) == 0
        assert "this device was erased" in deployed.said("home0.log")
        assert not Path(f"/proc/{node}").exists()
    assert [path.name for path in home.path.rglob("*") if path.is_file()] == ["ledger"]
