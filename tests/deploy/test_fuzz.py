"""Fuzzing: whatever arrives is accepted as a second reader confirms, or refused with one sentence; nothing else is raised.

The seeds are whole and sound inputs, which are cut, repeated and changed. `slow` tests do the same for longer: FUZZ_EXAMPLES sets how
long. A crash becomes a test of its own in `test_damage.py`.
"""

import json
import os
import shutil
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("cryptography")

from support.deployment import Deployment, post, short_world
from tacit.core.run_folder import read_arrays_by_name, read_checked, write_arrays, write_checked
from tacit.deploy.bundle import _digest, read_bundle
from tacit.deploy.messages import Reply, Request, from_plain, to_plain
from tacit.deploy.signing import read_public_key
from tacit.deploy.supervisor import _read_note
from tacit.device.node.history_file import read_history_file
from tacit.errors import TacitError
from tacit.lab.plans.loader import choose
from tacit.server.session.session import Session

MORE = int(os.environ.get("FUZZ_EXAMPLES", "200"))
QUICK = settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
LONG = settings(max_examples=MORE, deadline=None, suppress_health_check=list(HealthCheck))
ANY = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=9), st.binary(max_size=9), st.just(2**70),
    st.lists(st.integers(-3, 3), max_size=3), st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)  # fmt: skip


@pytest.fixture(scope="module")
def deployment(tmp_path_factory) -> Deployment:
    plan = choose("fcf", {"rounds": 3, "hyper.dim": 2})
    made = Deployment(tmp_path_factory.mktemp("fuzz"), plan, short_world(4), (1, 3)).enrol()
    made.session.open()
    return made


@st.composite
def changed(draw: Any, data: bytes) -> bytes:
    """Sound bytes that were cut, repeated, overwritten or changed in some places."""
    found = bytearray(data)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(found)))
        what = draw(st.sampled_from(("flip", "cut", "put", "repeat", "drop")))
        if what == "flip" and at < len(found):
            found[at] ^= 1 << draw(st.integers(0, 7))
        elif what == "cut":
            del found[at:]
        elif what == "put":
            found[at:at] = draw(st.binary(max_size=20))
        elif what == "repeat":
            found[at:at] = found[max(0, at - 50) : at]
        elif what == "drop":
            del found[at : at + draw(st.integers(1, 50))]
    return bytes(found)


def accepted(read: Any) -> Any:
    """What a reader makes of its input; None where it refuses with one sentence."""
    try:
        return read()
    except TacitError as problem:
        refusal = str(problem)
    assert refusal.strip() and "\n" not in refusal  # noqa: PT018 - one property: a sentence
    return None


def both(test: Any) -> Any:
    """A quick test of it, and a slow one."""
    return pytest.mark.parametrize(
        "effort", [pytest.param(QUICK, id="quick"), pytest.param(LONG, id="long", marks=pytest.mark.slow)]
    )(test)


@both
def test_messages(deployment, effort):
    name, node = next(iter(deployment.nodes.items()))
    request = deployment.session.request(name)
    reply = post(node, request)

    def play(kind, sound):
        values, names = to_plain(sound), [field.name for field in fields(kind)]

        @effort
        @given(st.dictionaries(st.sampled_from([*names, "extra"]), ANY, min_size=1, max_size=3))
        def one(changes):
            found = accepted(lambda: from_plain(kind, values | changes))
            if found is not None:
                assert to_plain(found) == values | changes
                if kind is Request:
                    answer = node.reply_to(found)  # never raises
                    assert isinstance(answer, Reply)
                else:
                    taken = accepted(lambda: deployment.session.receive(found))
                    assert not taken or to_plain(found) == values

        one()

    play(Request, request)
    play(Reply, reply)


@both
def test_reports_in_the_bytes(deployment, effort):
    """Signed by their node: what a liar with a key can send."""

    def play(name, node):
        reply = post(node, deployment.session.request(name))

        @effort
        @given(changed(reply.report))
        def one(data):
            deployment.session.copied.clear()
            if accepted(lambda: deployment.session.receive(node.store.key(replace(reply, report=data)))):
                shutil.rmtree(deployment.session.folder.path / "inbox")  # taken: another may be tried
                deployment.session.open()

        one()

    for name, node in deployment.nodes.items():
        play(name, node)


@both
def test_plan_folders(deployment, tmp_path, effort):
    source = deployment.folder / "bundle"

    def play(name):
        sound = (source / name).read_bytes()

        @effort
        @given(changed(sound))
        def one(data):
            folder = tmp_path / "folder"
            shutil.copytree(source, folder, dirs_exist_ok=True)
            (folder / name).write_bytes(data)
            if name != "kit.json":  # whoever makes a folder makes its digest, too
                facts = json.loads((folder / "kit.json").read_text())
                facts.pop("digest")
                (folder / "kit.json").write_text(json.dumps(facts | {"digest": _digest(folder, facts)}))
            found = accepted(lambda: read_bundle(folder))
            if found is not None:
                assert read_bundle(folder).digest == found.digest

        one()

    for name in ("kit.json", "plan.toml", "catalog.json", "catalog.npz", "params.npz"):
        play(name)


@both
def test_histories(deployment, tmp_path, effort):
    sound = b"user_id,item_id,datetime,label\na,1,2026-01-01,1.5\nb,2,2026-01-02,2\nb,11,2026-01-03,-1\n"

    @effort
    @given(changed(sound))
    def one(data):
        (tmp_path / "h.csv").write_bytes(data)
        found = accepted(lambda: read_history_file(tmp_path / "h.csv", deployment.bundle))
        if found is not None:
            assert ((found.items >= 0) & (found.items < 12)).all()
            for numbers in (found.times, found.labels):
                assert numbers is None or np.isfinite(numbers).all()
            assert found.offsets[-1] == found.items.size

    one()


@both
def test_parquet_histories(deployment, tmp_path, effort):
    source = next(deployment.folder.glob("*.parquet")).read_bytes()

    @effort
    @given(changed(source))
    def one(data):
        (tmp_path / "h.parquet").write_bytes(data)
        accepted(lambda: read_history_file(tmp_path / "h.parquet", deployment.bundle))

    one()


@both
def test_archives_and_checked_files(tmp_path, effort):
    write_arrays(tmp_path / "sound.npz", {"a": np.arange(5), "b": {"c": np.zeros((2, 3))}})
    write_checked(tmp_path / "sound.json", {"a": [1, 2.5, None, "word"]})
    archive, value = (tmp_path / "sound.npz").read_bytes(), (tmp_path / "sound.json").read_bytes()

    @effort
    @given(changed(archive), changed(value))
    def one(npz, text):
        (tmp_path / "x.npz").write_bytes(npz)
        accepted(lambda: read_arrays_by_name(tmp_path / "x.npz"))
        (tmp_path / "x.json").write_bytes(text)
        found = accepted(lambda: read_checked(tmp_path / "x.json"))
        assert found in (None, {"a": [1, 2.5, None, "word"]})
        (tmp_path / "note.json").write_bytes(text)
        assert isinstance(_read_note(tmp_path / "note.json"), dict)

    one()


@both
def test_run_folders(deployment, tmp_path, effort):
    source = deployment.folder / "run"

    def play(name):
        sound = (source / name).read_bytes() or b"{}"

        @effort
        @given(changed(sound))
        def one(data):
            shutil.copytree(source, tmp_path / "run", dirs_exist_ok=True)
            (tmp_path / "run" / name).write_bytes(data)
            accepted(lambda: Session(tmp_path / "run", deployment.bundle).open())

        one()

    for name in ("run.json", "roll.json", "open.json", "rounds.jsonl", "environment.json"):
        play(name)


@both
def test_public_keys(deployment, effort):
    line = next(iter(deployment.nodes.values())).store.key.line

    @effort
    @given(changed(line))
    def one(data):
        from tacit.server.session.admission import _named

        accepted(lambda: _named(data, "here"))

    one()
    assert read_public_key(line)
