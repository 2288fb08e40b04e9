"""The contracts of the house: they hold, and a breach of any of them is reported."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LINT = Path(sys.executable).with_name("lint-imports")

# What a server machine loads may hold no device, no net, no lab.
SERVER_IS_BLIND = """
import pkgutil, sys, importlib
import tacit.server
for module in pkgutil.walk_packages(tacit.server.__path__, "tacit.server."):
    if not module.name.endswith(".flower"):
        importlib.import_module(module.name)
seen = sorted(m for m in sys.modules if m.startswith(("tacit.device", "tacit.nets", "tacit.lab", "tacit.metrics", "tacit.cli")))
sys.exit("server loads " + ", ".join(seen) if seen else 0)
"""
GROUND_IS_ALONE = """
import sys
import tacit.core.plan, tacit.core.catalog, tacit.core.messages, tacit.privacy.mechanism
seen = sorted(m for m in sys.modules if m.startswith(("tacit.device", "tacit.server", "tacit.nets", "tacit.lab", "tacit.cli")))
sys.exit("ground loads " + ", ".join(seen) if seen else 0)
"""
WITH_FLOWER = """
import os, sys
import tacit.{room}.flower
strangers = {strangers}
seen = sorted(m for m in sys.modules if m.startswith(strangers))
sys.exit("it loads " + ", ".join(seen) if seen else os.environ["FLWR_TELEMETRY_ENABLED"] != "0")
"""
DEVICE_IS_ALONE = """
import sys
import tacit.device.round, tacit.device.ranking
seen = sorted(m for m in sys.modules if m.startswith(("tacit.server", "tacit.lab", "tacit.cli", "tacit.metrics")))
sys.exit("device loads " + ", ".join(seen) if seen else 0)
"""

# file, line planted, the contract that must be reported
BREACHES = [
    ("server/round.py", "import tacit.device.methods.fcf", "The server does not know which method is running"),
    (
        "server/rule.py",
        "from tacit.nets.factor.least_squares import ridge",
        "The server does not know which method is running",
    ),
    ("server/checkpoint.py", "import tacit.lab.data", "Rooms stand on the ground"),
    ("server/round.py", "import tacit.metrics", "The server does not know which method is running"),
    ("server/rule.py", "import importlib", "The server imports nothing by name at run time"),
    (
        "server/round.py",
        "from tacit.device.history import History",
        "Raw histories are seen only by device code and the lab",
    ),
    (
        "privacy/none.py",
        "from tacit.device.history import History",
        "Raw histories are seen only by device code and the lab",
    ),
    (
        "cli/__init__.py",
        "from tacit.device.history import History",
        "Raw histories are seen only by device code and the lab",
    ),
    ("lab/simulate.py", "from tacit.device.gate import send", "Only a device's round may open the gate"),
    ("device/rank.py", "from tacit.device.gate import send", "Only a device's round may open the gate"),
    ("device/methods/fcf.py", "from tacit.core.messages import Report", "A method cannot touch the wire"),
    ("device/methods/mfu.py", "from tacit.device.round import Home", "A method cannot touch the wire"),
    (
        "device/methods/sr.py",
        "from tacit.device.methods.sr_od import last_event",
        "Methods are independent of each other",
    ),
    ("device/methods/mru.py", "import socket", "Methods and nets have no network"),
    ("device/methods/popularity.py", "import logging", "Methods and nets have no network"),
    ("nets/mf.py", "import pathlib", "Methods and nets have no network"),
    ("nets/mf.py", "from tacit.privacy.claim import Claim", "Rooms stand on the ground"),
    ("plans.py", "import tacit.privacy.price", "Rooms stand on the ground"),
    ("device/round.py", "import tacit.server.rule", "Rooms stand on the ground"),
    ("audit/attacks/sign.py", "from tacit.device.history import History", "An attack sees what was sent"),
    ("audit/score.py", "import tacit.lab.runs.run", "An attack sees what was sent"),
    ("device/node.py", "import flwr", "Only the couriers know Flower"),
    ("server/session.py", "from tacit.deploy.flower_transport import Desk", "Only the couriers know Flower"),
    ("device/flower.py", "import tacit.lab.data", "Rooms stand on the ground"),
    ("server/flower.py", "import tacit.device.methods.fcf", "The server does not know which method is running"),
    (
        "cli/device.py",
        "from tacit.device.histories import People",
        "Raw histories are seen only by device code and the lab",
    ),
    ("metrics/ranks.py", "import tacit.core.run_folder", "Rooms stand on the ground"),
]


def _python(code: str, source: Path = ROOT / "src") -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={"PYTHONPATH": str(source), "PATH": ""}
    )


def _lint(folder: Path) -> subprocess.CompletedProcess:
    env = {"PYTHONPATH": str(folder / "src"), "PATH": "", "COLUMNS": "200"}
    command = [str(LINT), "--no-cache"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, env=env)


@pytest.fixture
def house(tmp_path: Path) -> Path:
    """A copy of the house to break."""
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def test_contracts_hold(house):
    result = _lint(house)
    assert result.returncode == 0, result.stdout
    assert "0 broken" in result.stdout


@pytest.mark.parametrize(("file", "line", "contract"), BREACHES, ids=lambda value: value[:40])
def test_a_planted_breach_is_reported(house, file, line, contract):
    path = house / "src" / "tacit" / file
    path.write_text(path.read_text() + f"\n{line}\n")
    result = _lint(house)
    assert result.returncode != 0
    broken = [row for row in result.stdout.splitlines() if row.endswith("BROKEN")]
    assert any(contract in row for row in broken), result.stdout


@pytest.mark.parametrize(
    "code", [SERVER_IS_BLIND, GROUND_IS_ALONE, DEVICE_IS_ALONE], ids=["server", "ground", "device"]
)
def test_what_is_loaded_at_run_time(code):
    result = _python(code)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize(
    ("room", "strangers"),
    [("server", ("tacit.device", "tacit.nets", "tacit.lab")), ("device", ("tacit.server", "tacit.lab"))],
)
def test_what_is_loaded_with_flower_and_its_telemetry_is_off(room, strangers):
    pytest.importorskip("flwr")
    result = _python(WITH_FLOWER.format(room=room, strangers=strangers))
    assert result.returncode == 0, result.stderr


def test_a_breach_the_linter_cannot_read_is_seen_at_run_time(house):
    path = house / "src" / "tacit" / "server" / "rule.py"
    path.write_text(path.read_text() + '\n__import__("tacit.device.methods.fcf")\n')
    assert _lint(house).returncode == 0, "the linter reads static imports only"
    result = _python(SERVER_IS_BLIND, house / "src")
    assert result.returncode != 0
    assert "tacit.device.methods.fcf" in result.stderr


def test_importing_tacit_loads_nothing_heavy():
    code = "import sys, tacit; sys.exit(', '.join({'jax', 'numpy', 'polars', 'typer'} & set(sys.modules)) or 0)"
    assert _python(code).returncode == 0


def test_help_loads_nothing_heavy():
    code = (
        "import sys; sys.argv = ['tacit', '--help']\n"
        "from tacit.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "sys.exit(', '.join({'jax', 'numpy', 'polars'} & set(sys.modules)) or 0)"
    )
    assert _python(code).returncode == 0
