"""The commands of a deployment, as a person meets them; nothing is started here."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

pytest.importorskip("cryptography")

from deployment import Town, post, short_world
from tacit.certificates import make_certificates, public_keys
from tacit.cli import app
from tacit.device.store import Store
from tacit.errors import DeviceError, PlanError, RunError
from tacit.kit import read_kit
from tacit.lab.shelf import choose

PLAN = choose("fcf", {"rounds": 1, "hyper.dim": 2})


def tacit(*words: object) -> str:
    """What a command prints; its mistakes are raised."""
    result = CliRunner().invoke(app, [str(word) for word in words], standalone_mode=False)
    if result.exception is not None:
        raise result.exception
    return result.stdout


@pytest.fixture
def town(tmp_path) -> Town:
    town = Town(tmp_path, PLAN, short_world(3), (1, 2)).enrol().play()
    for name, node in town.nodes.items():
        post(node, town.session.farewell(name))
    return town


def home(town: Town, number: int) -> Path:
    return town.folder / f"home{number}"


def test_a_plan_folder_names_its_server_and_keeps_its_key_apart(tmp_path):
    pytest.importorskip("flwr")
    printed = tacit("plan", "popularity", "--folder", tmp_path / "plan", "--devices", 50)
    kit = read_kit(tmp_path / "plan")
    assert kit.digest in printed
    assert "ε = ∞ per run" in printed
    assert (kit.people, len(kit.server)) == (50, 64)
    Store(tmp_path / "home").create().install(tmp_path / "plan")
    assert not list((tmp_path / "home").rglob("*.key"))
    with pytest.raises(PlanError, match="holds a plan already"):
        tacit("plan", "popularity", "--folder", tmp_path / "plan")


def test_a_server_needs_the_key_that_its_devices_trust(tmp_path):
    pytest.importorskip("flwr")
    tacit("plan", "popularity", "--folder", tmp_path / "plan")
    tacit("plan", "popularity", "--folder", tmp_path / "other")
    with pytest.raises(PlanError, match="is not the key that the plan folder's devices trust"):
        tacit("server", tmp_path / "plan", "--key", tmp_path / "other" / "server.key", "--out", tmp_path / "run")
    with pytest.raises(PlanError, match=r"Terms\.goal is a share"):
        tacit("server", tmp_path / "plan", "--goal", 2)
    with pytest.raises(PlanError, match=r"has no kit\.json: it is not a plan folder"):
        tacit("server", tmp_path)


def test_a_device_that_nobody_agreed_to_starts_nothing(tmp_path, town):
    pytest.importorskip("flwr")
    with pytest.raises(DeviceError, match="needs a plan folder and a history"):
        tacit("device", "--home", tmp_path / "new")
    with pytest.raises(DeviceError, match=r"nobody has agreed to it\. Add --consent"):
        tacit("device", "--home", tmp_path / "new", "--plan", tmp_path / "kit", "--history", tmp_path / "0.parquet")
    assert not (tmp_path / "new" / "flower").exists()


def test_without_flower_a_deployment_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(RunError, match=r"install tacit\[flower\]"):
        tacit("server", tmp_path)


def test_status_shows_the_ledger(town):
    printed = tacit("device", "status", "--home", home(town, 0))
    assert "takes part  True" in printed
    assert "spent     ∞" in printed
    found = json.loads(tacit("device", "status", "--home", home(town, 1), "--json"))
    assert found["plans"] == [town.kit.digest]
    assert found["spent"]["messages"] == {"median": 1.0, "worst": 1.0}


def test_recommend_answers_at_home(town):
    rows = json.loads(tacit("device", "recommend", "--home", home(town, 1), "--user", "000001", "--k", 2, "--json"))
    assert [set(row) for row in rows] == [{"item_id", "score"}] * 2
    assert "  1  " in tacit("device", "recommend", "--home", home(town, 0))


def test_pause_join_and_erase(town):
    tacit("device", "pause", "--home", home(town, 0))
    assert not Store(home(town, 0)).takes_part
    tacit("device", "join", "--home", home(town, 0))
    assert Store(home(town, 0)).takes_part
    assert "files are gone" in tacit("device", "erase", "--home", home(town, 0))
    assert [path.name for path in home(town, 0).rglob("*") if path.is_file()] == ["ledger"]
    with pytest.raises(DeviceError, match="is no device's home"):
        tacit("device", "status", "--home", home(town, 0))


def test_certificates_vouch_for_the_server_and_know_each_node(tmp_path):
    import ssl

    printed = tacit("certs", tmp_path / "certs", "--host", "127.0.0.1", "--host", "example.org", "--nodes", 2)
    assert "node-2.pub" in printed
    folder = tmp_path / "certs"
    assert len(set(public_keys(folder))) == 2
    assert {path.stat().st_mode & 0o777 for path in folder.glob("*.key")} == {0o600}
    assert (folder / "node-1.key").read_bytes().startswith(b"-----BEGIN OPENSSH PRIVATE KEY-----")
    context = ssl.create_default_context(cafile=str(folder / "ca.crt"))
    assert context.cert_store_stats()["x509_ca"] == 1
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(folder / "server.crt", folder / "server.key")
    with pytest.raises(RunError, match="holds certificates already"):
        make_certificates(folder, ["127.0.0.1"], 0)
