"""Damage and malformed input: named and refused in one sentence, and nothing is changed."""

import json
import zipfile

import jax
import numpy as np
import pytest

pytest.importorskip("cryptography")

from support.deployment import Deployment, post, short_world
from support.toys import same
from tacit.core.run_folder import Folder, read_arrays_by_name, write_arrays
from tacit.deploy.bundle import read_bundle
from tacit.deploy.supervisor import print_line
from tacit.device.node.history_file import read_history_file
from tacit.errors import DataError, PlanError, RunError, TacitError
from tacit.lab.plans.loader import choose
from tacit.server.session.session import roll_back

PLAN = choose("fcf", {"rounds": 5, "hyper.dim": 2})


@pytest.fixture
def deployment(tmp_path) -> Deployment:
    return Deployment(tmp_path, PLAN, short_world(4), (1, 3)).enrol()


def flip(path, at: int = -30) -> None:
    """One bit of a file."""
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(bytes(data))


def numpy(params):
    return jax.tree.map(np.asarray, params)


# ---- the server's folder ----


@pytest.mark.parametrize("name", ["roll.json", "run.json", "counters.json", "open.json"])
def test_a_changed_digit_in_the_servers_files_is_refused(deployment, name):
    deployment.play(2).session.open()
    path = deployment.folder / "run" / name
    text = path.read_text()
    place = next(at for at in range(len(text) - 1, 0, -1) if text[at].isdigit())
    path.write_text(text[:place] + str((int(text[place]) + 1) % 10) + text[place + 1 :])

    def resume():
        deployment.restart()
        deployment.session.open()

    with pytest.raises(RunError, match=f"{name} does not match its checksum: it was altered or damaged"):
        resume()


def test_a_damaged_report_in_the_inbox_is_asked_for_again(deployment):
    deployment.session.open()
    for name, node in deployment.nodes.items():
        deployment.session.receive(post(node, deployment.session.request(name)))
    flip(next(deployment.folder.glob("run/inbox/*/*")))
    deployment.restart()
    deployment.session.open()
    (missing,) = deployment.session.missing
    assert deployment.session.receive(post(deployment.nodes[missing], deployment.session.request(missing)))


@pytest.mark.parametrize("part", ["params.npz", "sums.json"])
def test_a_damaged_checkpoint_is_named_and_an_earlier_one_is_offered(deployment, part):
    deployment.play(2)
    before = numpy(deployment.session.params)
    deployment.play(1)
    flip(deployment.folder / "run" / "state" / "000000003" / part)
    with pytest.raises(RunError, match=r"does not match its checksum.* newest sound checkpoint is that after round 2"):
        deployment.restart()
    assert roll_back(deployment.folder / "run", deployment.bundle) == 2
    deployment.restart()
    assert deployment.session.done == 3  # what was played stays played
    same(numpy(deployment.session.params), before)
    deployment.play()
    assert deployment.session.finished


def test_a_checkpoint_that_is_gone_does_not_start_the_run_again(deployment):
    deployment.play(3)
    (deployment.folder / "run" / "state" / "LATEST").unlink()
    with pytest.raises(RunError, match="3 rounds were closed, and its newest checkpoint is that after round 0"):
        deployment.restart()
    assert roll_back(deployment.folder / "run", deployment.bundle, to=2) == 2
    with pytest.raises(RunError, match="has no sound checkpoint after round 9; it has those after rounds: 1, 2, 3"):
        roll_back(deployment.folder / "run", deployment.bundle, to=9)


@pytest.mark.parametrize("text", ["", "x", "7", "-1", "9" * 30])
def test_a_torn_pointer_is_a_sentence(deployment, text):
    deployment.play(1)
    (deployment.folder / "run" / "state" / "LATEST").write_text(text)
    with pytest.raises(RunError, match="is damaged: it must name a checkpoint"):
        deployment.restart()


# ---- archives ----


def test_a_small_file_stays_small(tmp_path):
    """Compressed zeros, and a header that announces more than there is: neither is read."""
    path = tmp_path / "bomb.npz"
    np.savez_compressed(path, x=np.zeros(1 << 20))
    with pytest.raises(RunError, match="is damaged or was not written by Tacit"):
        read_arrays_by_name(path)
    header = np.lib.format.header_data_from_array_1_0(np.zeros(1)) | {"shape": (1 << 40,)}
    with zipfile.ZipFile(path, "w") as archive, archive.open("x.npy", "w") as file:
        np.lib.format.write_array_header_1_0(file, header)
        file.write(bytes(8))
    with pytest.raises(RunError, match="is damaged or was not written by Tacit"):
        read_arrays_by_name(path)
    np.savez(path, x=np.array([{}], object))
    with pytest.raises(RunError, match="is damaged"):
        read_arrays_by_name(path)


# ---- plan folders ----

WRONG = {
    "kit.json": [b"", b"[]", b"{}", b"null", b"\xff", b"[" * 100_000, b'{"digest": 1, "version": 1}'],
    "catalog.json": [b"", b"{}", b"[]", b"[" * 100_000],
    "plan.toml": [b"", b"\xff", b"x = " + b"[" * 100_000, b"a" + b".a" * 5000 + b" = 1", b"name = 1"],
    "params.npz": [b"", b"PK", b"\0" * 100],
}
FACTS = [
    {"people": 0}, {"people": "9"}, {"people": 1 << 40}, {"people": True}, {"began": "soon"}, {"began": 1e400},
    {"server": "x"}, {"server": 7}, {"stages": None}, {"stages": []}, {"stages": [7]}, {"stages": [{"weights": 1}]},
    {"stages": [{"weights": 1, "update": {"items": [[1 << 40], "float32"]}}]},
    {"stages": [{"weights": 1, "update": {"items": [[-1], "float32"]}}]},
    {"stages": [{"weights": 1, "update": {"items": [[2], "no type"]}}]},
]  # fmt: skip


@pytest.mark.parametrize(("name", "data"), [(name, data) for name, all in WRONG.items() for data in all])
def test_a_plan_folder_with_a_broken_file_is_a_sentence(deployment, name, data):
    folder = deployment.folder / "bundle"
    (folder / name).write_bytes(data)
    _sealed(folder)
    with pytest.raises(PlanError):
        read_bundle(folder)


@pytest.mark.parametrize("values", FACTS, ids=str)
def test_a_plan_folder_with_impossible_facts_is_a_sentence(deployment, values):
    folder = deployment.folder / "bundle"
    facts = json.loads((folder / "kit.json").read_text())
    (folder / "kit.json").write_text(json.dumps(facts | values))
    _sealed(folder)
    with pytest.raises(PlanError, match="is not a sound plan folder"):
        read_bundle(folder)


def _sealed(folder) -> None:
    """With a digest that fits, as whoever made it would have it."""
    from tacit.deploy.bundle import _digest

    try:
        facts = json.loads((folder / "kit.json").read_text())
        facts.pop("digest")
        (folder / "kit.json").write_text(json.dumps(facts | {"digest": _digest(folder, facts)}))
    except (ValueError, AttributeError, KeyError, TypeError, RecursionError):
        return


# ---- histories ----


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ("item_id,label\n1,\n", "label must be a finite number in every row"),
        ("item_id,label\n1,nan\n", "label must be a finite number"),
        ("item_id,label\n1,inf\n", "label must be a finite number"),
        ("item_id,label\n1,good\n", "label must be a finite number"),
        ("item_id,datetime\n1,\n2,3.5\n", "datetime must be a finite number"),
        ("item_id,datetime\n1,inf\n2,3.5\n", "datetime must be a finite number"),
        ("item_id,user_id\n1,\n2,b\n", "every event must name its user, got 1"),
        ("item_id\n\xff\xfe\n", "items are numbers from 0 to 11"),
    ],
)
def test_a_history_with_holes_is_refused(deployment, tmp_path, rows, words):
    (tmp_path / "h.csv").write_text(rows)
    with pytest.raises(DataError, match=words):
        read_history_file(tmp_path / "h.csv", deployment.bundle)


@pytest.mark.parametrize("name", ["mine[1].csv", "a*.csv", "what?.csv", "{a,b}.csv"])
def test_a_history_is_the_file_of_its_name(deployment, tmp_path, name):
    for other in ("mine1.csv", "ab.csv", "whatx.csv", "a.csv"):
        (tmp_path / other).write_text("item_id\n1\n1\n1\n")
    with pytest.raises(DataError, match="does not exist"):
        read_history_file(tmp_path / name, deployment.bundle)
    (tmp_path / name).write_text("item_id\n2\n")
    assert read_history_file(tmp_path / name, deployment.bundle).items.tolist() == [2]


# ---- what is printed ----


def test_no_control_character_reaches_the_terminal(capsys):
    print_line("node said \x1b[2J\x07 and \r\n more")
    assert not set(capsys.readouterr().out[:-1]) & set("\x1b\x07\r\n")


def test_a_sound_folder_stays_sound(tmp_path):
    folder = Folder(tmp_path)
    folder.begin("", {}, [])
    folder.checkpoint(1, {"a": {"x": np.arange(3)}}, keep=2)
    folder.checkpoint(2, {"a": {"x": np.arange(3) + 1}}, keep=2)
    folder.checkpoint(3, {"a": {"x": np.arange(3) + 2}}, keep=2)
    assert (folder.checkpoints(), folder.sound(), folder.latest()) == ([2, 3], [2, 3], 3)
    write_arrays(tmp_path / "state" / "000000003" / "a.npz", {"x": np.arange(3)})
    assert folder.sound() == [2]
    with pytest.raises(TacitError, match="newest sound checkpoint is that after round 2"):
        folder.restore("a", {"x": np.arange(3)})


# ---- a device's folder ----

BAD = [
    b"", b"[]", b"7", b"\xff", b'{"sha256": "0", "value": {"takes_part": true}}', b'{"": {"share": 9}}',
    b'{"takes_part": "yes", "plans": 7, "volunteers": 9, "budget": 3, "history": 4, "schedule": []}',
]  # fmt: skip


@pytest.mark.parametrize("name", ["consent.json", "settings.json", "choices.json", "ledger"])
@pytest.mark.parametrize("data", BAD, ids=range(len(BAD)))
def test_a_damaged_file_of_a_home_is_a_sentence_and_sends_nothing(deployment, name, data):
    from typer.testing import CliRunner

    from tacit.cli import app

    deployment.session.open()
    target, node = next(iter(deployment.nodes.items()))
    node.store.choose(lambda choice: choice)
    (node.store.path / name).write_bytes(data + b"\n")
    if (name, data) != ("ledger", b""):  # an empty file is a new ledger, which the counter of the server notices
        assert post(node, deployment.session.request(target)).report == b""
    for command in ("status", "log", "terms", "share", "schedule"):
        arguments = ["device", command, "--home", str(node.store.path)]
        problem = CliRunner().invoke(app, arguments, standalone_mode=False).exception
        assert problem is None or (isinstance(problem, TacitError) and "\n" not in str(problem))


def test_a_device_installs_the_files_of_a_plan_folder_alone(deployment, tmp_path):
    from tacit.device.node.store import Store

    (deployment.folder / "bundle" / "more").symlink_to("/etc")
    store = Store(tmp_path / "fresh").create()
    store.install(deployment.folder / "bundle")
    installed = {path.name for path in (store.path / "plans" / deployment.bundle.digest).iterdir()}
    assert installed == {"plan.toml", "catalog.json", "catalog.npz", "params.npz", "kit.json"}


@pytest.mark.parametrize("data", BAD, ids=range(len(BAD)))
def test_a_damaged_status_is_a_sentence(tmp_path, data):
    from tacit.server.session.status import read_status

    (tmp_path / "status.json").write_bytes(data)
    with pytest.raises(RunError, match=r"damaged|checksum"):
        read_status(tmp_path)


# ---- keys: what fuzzing found ----


@pytest.mark.parametrize("found", ["a curve that is misspelt", "a compressed point", "another kind of key"])
def test_a_key_that_cannot_be_read_is_a_sentence(deployment, found):
    import base64

    from cryptography.hazmat.primitives import serialization as forms
    from cryptography.hazmat.primitives.asymmetric import ed25519

    from tacit.server.session.admission import _named

    line = next(iter(deployment.nodes.values())).store.key.line
    if found == "a curve that is misspelt":
        line = b"d" + line[1:]
    elif found == "a compressed point":
        kind, body = line.split()[:2]
        raw = base64.b64decode(body)
        line = kind + b" " + base64.b64encode(raw[:39] + b"\x00\x00\x00\x31\x02" + raw[44:92])
    else:
        public = ed25519.Ed25519PrivateKey.generate().public_key()
        line = public.public_bytes(forms.Encoding.OpenSSH, forms.PublicFormat.OpenSSH)
    with pytest.raises(RunError, match="here does not hold a node's public key"):
        _named(line, "here")


# ---- sizes ----


def altered_plan(deployment, change):
    """The plan folder with other settings of its methods, and a digest that fits."""
    folder = deployment.folder / "bundle"
    text = (folder / "plan.toml").read_text()
    (folder / "plan.toml").write_text(text.replace("dim = 2", change))
    _sealed(folder)
    return folder


def test_a_size_that_no_array_has_is_refused_by_both_sides(deployment):
    folder = altered_plan(deployment, "dim = 1000000000000")
    for read in (read_bundle, next(iter(deployment.nodes.values())).store.install):
        with pytest.raises(
            PlanError, match=r"hyper.dim = 1000000000000 is too large, a whole number may be at most 2²⁸"
        ):
            read(folder)


@pytest.mark.parametrize(
    ("dim", "reason"),
    [(200_000_000, r"fcf has [\d,]+ numbers in parameters for \d+ items, and may have 268,435,456"), (3, "in shape")],
)
def test_settings_that_do_not_fit_a_device_are_refused_before_memory_is_used(deployment, dim, reason):
    folder = altered_plan(deployment, f"dim = {dim}")
    node = next(iter(deployment.nodes.values()))
    with pytest.raises(PlanError, match=reason):
        node.store.install(folder)
    assert len(node.store.digests()) == 1


def test_updates_that_no_server_could_add_are_refused(deployment):
    folder = deployment.folder / "bundle"
    facts = json.loads((folder / "kit.json").read_text())
    facts["stages"][0]["update"] = {f"items{number}": [[2**14, 2**12], "float32"] for number in range(5)}
    (folder / "kit.json").write_text(json.dumps(facts))
    _sealed(folder)
    with pytest.raises(PlanError, match="the updates must have at most 2²⁸ numbers"):
        read_bundle(folder)


@pytest.mark.parametrize("dim", [10**12, 2**27])
def test_a_plan_folder_with_such_sizes_is_not_made(tmp_path, dim):
    from tacit.lab.plans.publish import make_bundle

    with pytest.raises(PlanError, match=r"is too large|may have"):
        make_bundle(tmp_path / "huge", choose("fcf", {"hyper.dim": dim}), short_world(4).catalog, 4)
    assert not (tmp_path / "huge").exists()
