"""The import contracts hold, and a planted breach of each is reported."""

import shutil
import subprocess
import sys
import tomllib
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
import tacit.{module}
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

# file, line planted, the contract that must be reported; the file is made where it is not there
LAYERS, BLIND = "Layers: a folder imports only those below it", "The server does not know which method is running"
RAW, GATE = "Raw histories are seen only by device code and the lab", "Only a device's round may open the gate"
METHOD, FLOWER = "A method cannot touch messages, the gate", "Only the files named after Flower know Flower"
SILENT, ATTACK = "Methods and nets have no network", "An attack sees what was sent"
BREACHES = [
    ("server/round.py", "import tacit.device.methods.fcf", BLIND),
    ("server/rule.py", "from tacit.nets.factor.least_squares import ridge", BLIND),
    ("server/round.py", "import tacit.metrics", BLIND),
    ("server/session/flower.py", "import tacit.device.methods.fcf", BLIND),
    ("server/rule.py", "import importlib", "The server imports nothing by name at run time"),
    ("server/checkpoint.py", "import tacit.lab.data", LAYERS),
    ("nets/factor/least_squares.py", "from tacit.privacy.claim import Claim", LAYERS),
    ("core/plan.py", "import tacit.privacy.price", LAYERS),
    ("device/round.py", "import tacit.server.rule", LAYERS),
    ("device/node/flower.py", "import tacit.lab.data", LAYERS),
    ("metrics/ranks.py", "import tacit.privacy.claim", LAYERS),
    ("new_folder/__init__.py", "", LAYERS),
    ("device/node/flower.py", "import tacit.lab.data", "What is deployed knows no lab and no papers"),
    ("server/session/session.py", "import tacit_papers", "What is deployed knows no lab and no papers"),
    ("cli/reproduce.py", "import tacit_papers.prices", "The library does not import the papers"),
    ("lab/plans/loader.py", "import tacit_papers", "The library does not import the papers"),
    ("server/round.py", "from tacit.device.history import History", RAW),
    ("privacy/mechanisms/none.py", "from tacit.device.history import History", RAW),
    ("deploy/bundle.py", "from tacit.device.history import History", RAW),
    ("cli/__init__.py", "from tacit.device.history import History", RAW),
    ("cli/device.py", "from tacit.device.histories import Histories", RAW),
    ("lab/runs/run.py", "from tacit.device.gate import send", GATE),
    ("device/ranking.py", "from tacit.device.gate import send", GATE),
    ("device/methods/fcf.py", "from tacit.core.messages import Report", METHOD),
    ("device/methods/mfu.py", "from tacit.device.round import Home", METHOD),
    ("device/methods/sr.py", "from tacit.device.methods.mru import MRU", "Methods are independent of each other"),
    ("device/methods/new.py", "from tacit.device.methods.fcf import FCF", "Methods are independent of each other"),
    (
        "privacy/mechanisms/new.py",
        "import tacit.privacy.mechanisms.gaussian",
        "Mechanisms are independent of each other",
    ),
    ("server/rules/new.py", "import tacit.server.rules.count", "Rules are independent of each other"),
    ("device/methods/mru.py", "import socket", SILENT),
    ("device/methods/popularity.py", "import logging", SILENT),
    ("nets/factor/least_squares.py", "import pathlib", SILENT),
    ("audit/attacks.py", "from tacit.device.history import History", ATTACK),
    ("audit/inference.py", "import tacit.lab.runs.run", ATTACK),
    ("device/node/node.py", "import flwr", FLOWER),
    ("server/session/session.py", "from flwr.app import Message", FLOWER),
    ("privacy/claim.py", "import flwr", FLOWER),
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
def package(tmp_path: Path) -> Path:
    """A copy of the package to break."""
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def test_contracts_hold(package):
    result = _lint(package)
    assert result.returncode == 0, result.stdout
    assert "0 broken" in result.stdout


def test_every_contract_has_a_planted_breach():
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    for contract in contracts:
        assert any(breach[2] in contract["name"] for breach in BREACHES), contract["name"]


@pytest.mark.parametrize(("file", "line", "contract"), BREACHES, ids=lambda value: value[:40])
def test_a_planted_breach_is_reported(package, file, line, contract):
    path = package / "src" / "tacit" / file
    path.parent.mkdir(exist_ok=True)
    path.write_text((path.read_text() if path.exists() else '"""New."""\n') + f"\n{line}\n")
    result = _lint(package)
    assert result.returncode != 0
    broken = [row for row in result.stdout.splitlines() if " BROKEN" in row]
    assert any(contract in row for row in broken), result.stdout


@pytest.mark.parametrize(
    "code", [SERVER_IS_BLIND, GROUND_IS_ALONE, DEVICE_IS_ALONE], ids=["server", "ground", "device"]
)
def test_what_is_loaded_at_run_time(code):
    result = _python(code)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize(
    ("module", "strangers"),
    [
        ("server.session.flower", ("tacit.device", "tacit.nets", "tacit.lab")),
        ("device.node.flower", ("tacit.server", "tacit.lab")),
    ],
)
def test_what_is_loaded_with_flower_and_its_telemetry_is_off(module, strangers):
    pytest.importorskip("flwr")
    result = _python(WITH_FLOWER.format(module=module, strangers=strangers))
    assert result.returncode == 0, result.stderr


def test_a_breach_the_linter_cannot_read_is_seen_at_run_time(package):
    path = package / "src" / "tacit" / "server" / "rule.py"
    path.write_text(path.read_text() + '\n__import__("tacit.device.methods.fcf")\n')
    assert _lint(package).returncode == 0, "the linter reads static imports only"
    result = _python(SERVER_IS_BLIND, package / "src")
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
