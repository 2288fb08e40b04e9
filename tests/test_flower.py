"""Over Flower itself: the simulator's parameters on real processes, and what happens when these are killed."""

import shutil
import time
from pathlib import Path

import jax
import numpy as np
import pytest

pytest.importorskip("flwr")

from deployment import Town, plans, short_world
from faults import FAULTS, play
from loopback import Loopback
from tacit.certificates import make_certificates, new_node
from tacit.lab.shelf import choose
from tacit.lab.simulate import simulate
from toys import close, same

pytestmark = [pytest.mark.deployed, pytest.mark.filterwarnings("ignore::tacit.lab.outlook.HopelessWarning")]
WHOLE = {"seqmf", "dplcf"}


@pytest.mark.parametrize("name", ["fcf", "seqmf", "dplcf", "fpl", "dp-privrec", "fedseqrec"])
def test_real_processes_end_where_the_simulator_does(name, tmp_path):
    plan, world, people = plans()[name]
    people = people if name == "fedseqrec" else (1, len(world) - 1)
    town = Town(tmp_path, plan, world, people)
    with Loopback(town).everybody() as deployed:
        session = deployed.finish()
    run = simulate(plan, world, seed=0, quiet=True)
    equal = same if name in WHOLE else close
    equal(*(jax.tree.map(np.asarray, one.params) for one in (session, run)))


@pytest.mark.parametrize("name", list(FAULTS))
def test_whatever_is_killed_the_run_ends_where_the_simulator_does(name, tmp_path):
    row = play(tmp_path, FAULTS[name])
    assert row["rounds"] == [1, 2, 3, 4]
    assert row["reports"] == [9] * 4
    assert row["lines in each ledger"] == [4, 4]  # nobody spent twice
    assert row["as the simulator"]


def test_with_tls_a_node_whose_key_is_unknown_is_refused(tmp_path):
    certs = tmp_path / "certs"
    make_certificates(certs, ["127.0.0.1"], 1)
    shutil.copytree(certs, tmp_path / "foreign")
    stranger, _ = new_node(tmp_path / "foreign", "stranger")
    town = Town(tmp_path, choose("fcf", {"rounds": 1, "hyper.dim": 2}), short_world(2), (1, 1))
    one, two = town.nodes
    with Loopback(town, "--certs", certs, "--least", 0.5) as deployed:
        deployed.serve()
        deployed.attend(two, "--root", certs / "ca.crt", "--key", stranger)
        deployed.until(lambda: "0 of 2 people have enrolled" in deployed.said(), 90)
        deployed.until(lambda: "flower-supernode ended" in deployed.said("home1.log"), 90)
        deployed.attend(one, "--root", certs / "ca.crt", "--key", certs / "node-1.key")
        session = deployed.finish()
    assert list(session.roll.members) == [one]


def test_no_secret_is_in_a_command_line_or_in_our_logs(tmp_path):
    town = Town(tmp_path, choose("fcf", {"rounds": 1, "hyper.dim": 2}), short_world(2), (1, 1))
    with Loopback(town).everybody() as deployed:
        deployed.until(lambda: deployed.done() >= 1, 150)
        commands = [one.read_bytes() for one in Path("/proc").glob("[0-9]*/cmdline") if _readable(one)]
        deployed.finish()
    hidden = [path.read_bytes() for path in tmp_path.rglob("flower/secret")]
    assert len(hidden) == 3
    for secret in hidden:
        assert not any(secret in command or secret.hex().encode() in command for command in commands)
    said = "".join(path.read_text() for path in tmp_path.glob("*.log"))
    assert not any(secret.hex() in said for secret in hidden)
    for path in (*tmp_path.rglob("flower/secret"), *tmp_path.glob("home?"), tmp_path / "run" / "noise.npz"):
        assert path.stat().st_mode & 0o077 == 0, path


def test_a_polite_end_leaves_no_process_behind(tmp_path):
    town = Town(tmp_path, choose("fcf", {"rounds": 1, "hyper.dim": 2}), short_world(2), (1, 1))
    with Loopback(town) as deployed:
        deployed.serve()
        name = next(iter(town.nodes))
        deployed.attend(name)
        deployed.until(lambda: "listening" in deployed.said(), 90)
        deployed.until(lambda: (town.nodes[name].store.path / "flower" / "flower-supernode.json").exists(), 60)
        link, node = deployed.superlink, deployed.supernode(name)
        for process in (deployed.server, deployed.devices[name]):
            assert process is not None
            process.terminate()
            assert process.wait(30) == 130
        time.sleep(0.5)
        assert not any(Path(f"/proc/{pid}").exists() for pid in (link, node))


def _readable(path: Path) -> bool:
    try:
        path.read_bytes()
    except OSError:
        return False
    return True
