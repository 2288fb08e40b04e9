"""The commands of a deployment, as a person meets them; nothing is started here."""

import json
import socket
import subprocess
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

pytest.importorskip("cryptography")

from support.deployment import Deployment, post, short_world
from tacit.cli import app, main
from tacit.deploy.bundle import read_bundle
from tacit.deploy.certificates import make_certificates
from tacit.deploy.preflight import alone_in
from tacit.deploy.supervisor import FlowerProcess, _start_time
from tacit.device.node.store import Store
from tacit.errors import DeviceError, PlanError, RunError
from tacit.lab.plans.loader import choose
from tacit.server.session.admission import Admission
from tacit.server.session.session import Session

PLAN = choose("fcf", {"rounds": 1, "hyper.dim": 2})


def tacit(*words: object) -> str:
    """What a command prints; its mistakes are raised."""
    result = CliRunner().invoke(app, [str(word) for word in words], standalone_mode=False)
    if result.exception is not None:
        raise result.exception
    return result.stdout


@pytest.fixture
def deployment(tmp_path) -> Deployment:
    deployment = Deployment(tmp_path, PLAN, short_world(3), (1, 2)).enrol().play()
    for name, node in deployment.nodes.items():
        post(node, deployment.session.final_request(name))
    return deployment


def home(deployment: Deployment, number: int) -> Path:
    return deployment.folder / f"home{number}"


def test_a_plan_folder_names_its_server_and_keeps_its_key_apart(tmp_path):
    pytest.importorskip("flwr")
    printed = tacit("plan", "popularity", "--folder", tmp_path / "plan", "--devices", 50)
    bundle = read_bundle(tmp_path / "plan")
    assert bundle.digest in printed
    assert "ε = ∞ per run" in printed
    assert (bundle.people, len(bundle.server)) == (50, 64)
    Store(tmp_path / "home").create().install(tmp_path / "plan")
    assert [path.name for path in (tmp_path / "home").rglob("*.key")] == ["node.key"]  # its own, not the server's
    with pytest.raises(PlanError, match="holds a plan already"):
        tacit("plan", "popularity", "--folder", tmp_path / "plan")


def test_a_server_needs_the_key_that_its_devices_trust(tmp_path):
    pytest.importorskip("flwr")
    tacit("plan", "popularity", "--folder", tmp_path / "plan")
    tacit("plan", "popularity", "--folder", tmp_path / "other")
    with pytest.raises(PlanError, match="is not the private key of the plan folder's public key"):
        tacit("server", tmp_path / "plan", "--key", tmp_path / "other" / "server.key", "--out", tmp_path / "run")
    with pytest.raises(PlanError, match=r"RoundPolicy\.goal is a share"):
        tacit("server", tmp_path / "plan", "--goal", 2)
    with pytest.raises(PlanError, match=r"has no kit\.json: it is not a plan folder"):
        tacit("server", tmp_path)


def test_a_device_that_nobody_agreed_to_starts_nothing(tmp_path, deployment):
    pytest.importorskip("flwr")
    with pytest.raises(DeviceError, match="needs a plan folder and a history"):
        tacit("device", "--home", tmp_path / "new")
    with pytest.raises(DeviceError, match=r"its owner has not agreed\. Add --consent"):
        tacit("device", "--home", tmp_path / "new", "--plan", tmp_path / "bundle", "--history", tmp_path / "0.parquet")
    assert not (tmp_path / "new" / "flower").exists()


def test_without_flower_a_deployment_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(RunError, match=r"install tacit\[flower\]"):
        tacit("server", tmp_path)


# ---- mistakes: one sentence, a code that is not 0, no traceback, nothing started ----


def mistake(capsys, monkeypatch, *words: object) -> str:
    """The sentence that a wrong command ends with."""
    monkeypatch.setattr("sys.argv", ["tacit", *map(str, words)])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    said = capsys.readouterr().err.strip()
    assert "\n" not in said
    return said


@pytest.fixture
def wrong(capsys, monkeypatch, deployment):
    pytest.importorskip("flwr")
    monkeypatch.setattr("tacit.deploy.supervisor.FlowerProcess.start", lambda *_: pytest.fail("something was started"))
    return lambda *words: mistake(capsys, monkeypatch, *words)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--history", "nowhere.csv"], "nowhere.csv does not exist; name the file that holds the history."),
        (["--history", "strange.csv"], "strange.csv: items are numbers from 0 to 11, got 99."),
        (["--history", "empty.csv"], "empty.csv holds no events"),
        (["--server", "127.0.0.1"], "host:port with a port from 1 to 65535, got '127.0.0.1'"),
        (["--server", "127.0.0.1:99999"], "got '127.0.0.1:99999'"),
        (["--plan", "no-plan"], "has no kit.json: it is not a plan folder"),
        (["--root", "nowhere.crt"], "--root nowhere.crt does not exist; name a file that `tacit certs` made."),
        (["--key", "nowhere.key"], "--key nowhere.key does not exist"),
        (["--days", 3], "--days 3 needs --budget, the ε that is renewed."),
        (["--budget", 0], "Budget.epsilon must be above 0"),
        (["--volunteer"], "No plan folder of this device needs volunteers"),
        (["--home", "strange.csv"], "cannot be a device's folder (Not a directory); name another folder."),
    ],
    ids=lambda one: " ".join(map(str, one)) if isinstance(one, list) else "",
)
def test_a_wrong_device_is_said_in_a_sentence(wrong, deployment, monkeypatch, options, words):
    monkeypatch.chdir(deployment.folder)
    (deployment.folder / "strange.csv").write_text("item_id\n99\n")
    (deployment.folder / "empty.csv").write_text("item_id\n")
    (deployment.folder / "no-plan").mkdir()
    assert words in wrong("device", "--home", home(deployment, 0), *options)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--address", "8000"], "An address must be host:port with a port from 1 to 65535, got '8000'."),
        (["--address", "127.0.0.1:http"], "got '127.0.0.1:http'"),
        (["--address", "192.0.2.1:8000"], "The server cannot listen on 192.0.2.1:8000 ("),
        (["--certs", "nowhere"], "--certs nowhere has no ca.crt; `tacit certs DIR` makes such a folder."),
        (["--out", "0.parquet"], "0.parquet cannot be used (Not a directory); name another folder."),
    ],
    ids=lambda one: " ".join(map(str, one)) if isinstance(one, list) else "",
)
def test_a_wrong_server_is_said_in_a_sentence(wrong, deployment, monkeypatch, options, words):
    monkeypatch.chdir(deployment.folder)
    assert words in wrong("server", deployment.folder / "bundle", "--out", deployment.folder / "new", *options)


def test_a_server_without_its_key_is_said_in_a_sentence(wrong, tmp_path):
    tacit("plan", "popularity", "--folder", tmp_path / "plan", "--devices", 9)
    (tmp_path / "plan" / "server.key").write_bytes(b"short")
    assert "is not a private key of a plan folder's server: it must hold 32 bytes" in wrong("server", tmp_path / "plan")
    (tmp_path / "plan" / "server.key").unlink()
    assert "stays on that machine; name it with --key." in wrong("server", tmp_path / "plan")


def test_a_port_that_is_taken_is_said_before_anything_is_started(wrong, deployment):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        said = wrong("server", deployment.folder / "bundle", "--out", deployment.folder / "new", "--address", address)
    assert said.startswith(
        f"The server cannot listen on {address} (Address already in use); stop the program that listens there"
    )
    assert not (deployment.folder / "new" / "run.json").exists()


def test_one_process_at_a_time_works_in_a_home_or_a_run(wrong, deployment):
    for folder, command in (
        (home(deployment, 0), ["device", "--home", home(deployment, 0)]),
        (deployment.folder / "run", ["server", deployment.folder / "bundle", "--out", deployment.folder / "run"]),
    ):
        with alone_in(folder / "flower"):
            assert f"{folder} is in use by another process" in wrong(*command)
        alone_in(folder / "flower").close()  # whoever held it has let go


def test_a_run_that_was_killed_while_it_began_begins_again(deployment, monkeypatch):
    """Until the last file is written, no run lives there: the same command starts one."""
    from tacit.core.run_folder import Folder

    def killed(*_):
        raise KeyError("killed here")

    with monkeypatch.context() as patch:
        patch.setattr("tacit.core.run_folder.Folder.begin", killed)
        with pytest.raises(KeyError):
            Session.begin(deployment.folder / "new", deployment.bundle)
    assert not Folder(deployment.folder / "new").exists
    assert Session.begin(deployment.folder / "new", deployment.bundle).done == 0


def test_a_process_left_behind_is_kept_only_where_it_would_be_started_alike(tmp_path):
    words = [
        "sh",
        "-c",
        "sleep 60",
        "sleep",
        str(tmp_path / "secret"),
    ]  # as Flower's are started: with the secret's path
    asleep = subprocess.Popen(words)
    try:
        note = {"pid": asleep.pid, "began": _start_time(asleep.pid), "port": 1, "arguments": ["--superlink", "here"]}
        (tmp_path / "sleep.json").write_text(json.dumps(note))
        until = time.monotonic() + 5
        while not FlowerProcess(tmp_path, "sleep").alive:  # it has a name a moment after it has a number
            assert time.monotonic() < until
            time.sleep(0.01)
        assert FlowerProcess(tmp_path, "sleep").left_over(["--superlink", "here"])
        assert not FlowerProcess(tmp_path, "sleep").left_over(["--superlink", "there"])
        assert not FlowerProcess(tmp_path, "sleep", port=2).left_over(["--superlink", "here"])
        (tmp_path / "sleep.json").write_text(json.dumps(note | {"began": "1"}))  # the number was given again
        assert not FlowerProcess(tmp_path, "sleep").alive
        (tmp_path / "elsewhere").mkdir()
        (tmp_path / "elsewhere" / "sleep.json").write_text(json.dumps(note))  # of another folder
        assert not FlowerProcess(tmp_path / "elsewhere", "sleep").alive
        (tmp_path / "sleep.json").write_text(json.dumps(note)[:20])  # torn
        assert not FlowerProcess(tmp_path, "sleep").alive
    finally:
        asleep.kill()
        asleep.wait()
    assert not FlowerProcess(tmp_path, "sleep").left_over(["--superlink", "here"])


# ---- what a device's owner asks ----


def test_status_shows_the_ledger(deployment):
    printed = tacit("device", "status", "--home", home(deployment, 0))
    assert "takes part  True" in printed
    assert "spent     ∞" in printed
    assert f"plans       fcf ({deployment.bundle.digest})" in printed
    assert "days      –" in printed
    found = json.loads(tacit("device", "status", "--home", home(deployment, 1), "--json"))
    assert found["plans"] == [deployment.bundle.digest]
    assert found["spent"]["messages"] == {"median": 1.0, "worst": 1.0}


def test_recommend_answers_at_home(deployment):
    rows = json.loads(
        tacit("device", "recommend", "--home", home(deployment, 1), "--user", "000001", "--k", 2, "--json")
    )
    assert [set(row) for row in rows] == [{"item_id", "score"}] * 2
    assert "  1  " in tacit("device", "recommend", "--home", home(deployment, 0))


def test_pause_join_and_erase(deployment):
    tacit("device", "pause", "--home", home(deployment, 0))
    assert not Store(home(deployment, 0)).takes_part
    tacit("device", "join", "--home", home(deployment, 0), "--accept-unbounded")
    assert Store(home(deployment, 0)).takes_part
    assert "files were deleted" in tacit("device", "erase", "--home", home(deployment, 0))
    assert [path.name for path in home(deployment, 0).rglob("*") if path.is_file()] == ["ledger"]
    with pytest.raises(DeviceError, match="is not a device's folder"):
        tacit("device", "status", "--home", home(deployment, 0))


def test_certificates_vouch_for_the_server_and_know_each_node(tmp_path):
    import ssl

    printed = tacit("certs", tmp_path / "certs", "--host", "127.0.0.1", "--host", "example.org", "--nodes", 2)
    assert "node-2.pub" in printed
    folder = tmp_path / "certs"
    assert len(Admission(folder).nodes) == 2
    assert {path.stat().st_mode & 0o777 for path in folder.glob("*.key")} == {0o600}
    assert (folder / "node-1.key").read_bytes().startswith(b"-----BEGIN OPENSSH PRIVATE KEY-----")
    context = ssl.create_default_context(cafile=str(folder / "ca.crt"))
    assert context.cert_store_stats()["x509_ca"] == 1
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(folder / "server.crt", folder / "server.key")
    with pytest.raises(RunError, match="holds certificates already"):
        make_certificates(folder, ["127.0.0.1"], 0)


# ---- the owner's side: terms, record, log, schedule ----


def test_the_terms_come_before_consent_and_no_bound_needs_its_own_yes(deployment, capsys, monkeypatch):
    here = home(deployment, 0)
    tacit("device", "pause", "--home", here)
    said = mistake(capsys, monkeypatch, "device", "join", "--home", here)
    assert "has no privacy bound (ε = ∞); who agrees to that all the same adds --accept-unbounded" in said
    assert not Store(here).takes_part
    printed = tacit("device", "join", "--home", here, "--accept-unbounded")
    assert "There is NO bound (ε = ∞)" in printed
    assert "It sends at most 1 messages of at most " in printed
    assert "Spent so far: ε = ∞; there is no budget" in printed
    assert Store(here).takes_part
    record = json.loads(tacit("device", "consents", "--home", here, "--json"))
    assert [one["agreed"] for one in record] == [False, True]
    assert record[1]["plans"][0]["digest"] == deployment.bundle.digest
    assert record[1]["plans"][0]["unbounded"] is True


def test_a_bound_is_said_as_a_chance(tmp_path):
    from tacit.device.node.terms import in_plain_words

    plan = choose("fcf", {"rounds": 1, "hyper.dim": 2, "privacy.mechanism": "gaussian", "privacy.epsilon": 1.0})
    deployment = Deployment(tmp_path, plan, short_world(3), (1, 2))
    words = in_plain_words(deployment.bundle, True, {"spent": 0.5, "left": 1.5})
    assert "at most 73.1 % sure afterwards (ε = 1" in words[1]  # e / (1 + e)
    assert "must trust the operator of the server" in words[2]
    assert words[-2].endswith("ε = 0.5; 1.5 of the budget is left.")


def test_a_plan_that_is_installed_later_needs_a_new_consent(deployment):
    from tacit.lab.plans.publish import make_bundle

    node = deployment.nodes[next(iter(deployment.nodes))]
    bundle = make_bundle(deployment.folder / "later", PLAN, deployment.world.catalog, 3, began=1.0)
    node.store.install(deployment.folder / "later")
    session = Session.begin(deployment.folder / "laterrun", bundle)
    assert "its owner has not agreed" in post(node, session.hello()).refused
    node.store.agree(True)
    assert post(node, session.hello()).people == 1


@pytest.mark.parametrize("number", [0, 1], ids=["alone", "shard"])
def test_the_log_has_every_message_with_its_bytes_and_price(deployment, number):
    rows = json.loads(tacit("device", "log", "--home", home(deployment, number), "--json"))
    assert [(row["stage"], row["round"], row["people"], row["epsilon"]) for row in rows] == [(0, 0, number + 1, "inf")]
    assert sum(row["bytes"] for row in rows) > 0
    assert "1 messages" in tacit("device", "log", "--home", home(deployment, number))
    tacit("device", "log", "--home", home(deployment, number), "--csv", deployment.folder / "log.csv")
    heads, line = (deployment.folder / "log.csv").read_text().splitlines()
    assert dict(zip(heads.split(","), line.split(",")))["run"] == rows[0]["run"]


def test_a_schedule_holds_messages_back_and_repeats_none(tmp_path, monkeypatch):
    deployment = Deployment(tmp_path, choose("fcf", {"rounds": 2, "hyper.dim": 2}), short_world(3), (1, 2)).enrol()
    deployment.session.open()
    name, node = next(iter(deployment.nodes.items()))
    tacit("device", "schedule", "--home", node.store.path, "--gap", 5)
    first = post(node, deployment.session.request(name))
    assert first.report
    assert post(node, deployment.session.request(name)) == first  # the same bytes are no second message
    deployment.session.done = 1
    later = post(node, deployment.session.request(name))
    assert later.refused == "This device's schedule does not allow it to take part now."
    assert "gap        0.0" in tacit("device", "schedule", "--home", node.store.path, "--always")
    assert post(node, deployment.session.request(name)).report
    with pytest.raises(DeviceError, match=r"--hours takes two hours, such as 22-6, got 'night'"):
        tacit("device", "schedule", "--home", node.store.path, "--hours", "night")


def test_power_is_read_where_the_platform_tells(tmp_path):
    from tacit.device.node.schedule import Schedule, has_power

    assert not has_power(tmp_path / "nowhere")
    assert has_power(tmp_path)  # a machine without a battery
    for name, kind in (("BAT0", "Battery"), ("AC", "Mains")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "type").write_text(kind + "\n")
    (tmp_path / "AC" / "online").write_text("0\n")
    assert not has_power(tmp_path)
    (tmp_path / "AC" / "online").write_text("1\n")
    assert has_power(tmp_path)
    assert Schedule(hook="false").waits_for(None, 0.0) == "hook"
    assert Schedule(hook="true").waits_for(None, 0.0) == ""


def test_a_home_of_an_earlier_version_gets_a_key_and_is_asked_for_a_new_consent(deployment):
    """Its terms were not shown then. Choices, budget and ledger stay."""
    here, store = home(deployment, 0), Store(home(deployment, 0))
    values = {"takes_part": True, "volunteers": []}
    (here / "consent.json").write_text(json.dumps(values))
    (here / "settings.json").write_text(json.dumps({"history": store.settings["history"], "budget": None}))
    (here / "node.key").unlink()
    (here / "name").write_text("0" * 32)
    with pytest.raises(DeviceError, match="its owner has not agreed"):
        tacit("device", "--home", here)
    assert len(store.name) == 32
    assert store.name != "0" * 32
    ledger = store.ledger()
    assert ledger.messages == 1
    ledger.close()


def test_certificates_are_announced_a_month_before_and_refused_afterwards(tmp_path, monkeypatch):
    from datetime import timedelta

    from tacit.deploy import certificates

    monkeypatch.setattr(certificates, "DAYS", 20)
    make_certificates(tmp_path / "soon", ["127.0.0.1"], 0)
    monkeypatch.setattr(certificates, "DAYS", 365)
    make_certificates(tmp_path / "later", ["127.0.0.1"], 0)
    said: list[str] = []
    with certificates.watched([tmp_path / "later" / "server.crt"], said.append, every=0.01):
        time.sleep(0.05)
    assert not said
    with certificates.watched([tmp_path / "soon" / "server.crt"], said.append, every=0.01):
        until = time.monotonic() + 5
        while len(said) < 2 and time.monotonic() < until:
            time.sleep(0.01)
    assert len(said) >= 2
    assert "in 19 days; make new ones with `tacit certs`" in said[0]
    monkeypatch.setattr(certificates, "MONTH", timedelta(0))
    now = certificates._expires(tmp_path / "soon" / "server.crt") + timedelta(days=1)
    monkeypatch.setattr(certificates, "datetime", type("Later", (), {"now": staticmethod(lambda zone: now)}))
    with pytest.raises(RunError, match="expired on"):
        certificates.warn_of_expiry([tmp_path / "soon" / "server.crt"], said.append)


def test_a_log_of_flowers_does_not_grow_without_end(tmp_path, monkeypatch):
    monkeypatch.setattr("tacit.deploy.supervisor.LOG_BYTES", 1000)
    process, path = FlowerProcess(tmp_path, "sleep"), tmp_path / "sleep.log"
    with open(path, "ab") as log:
        for _ in range(10):
            log.write(b"x" * 300)
            log.flush()
            process._shorten_log()
    assert path.stat().st_size <= 1000
    assert (tmp_path / "sleep.log.1").stat().st_size <= 1300
