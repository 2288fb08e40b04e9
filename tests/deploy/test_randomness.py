"""Random numbers of a deployment are used once: at each close, in each report; and answers for life are the same for life."""

import shutil
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest

from support.deployment import Deployment, post, short_world
from tacit.core.catalog import Catalog
from tacit.core.messages import unpack
from tacit.device.node.node import Node
from tacit.lab.data import from_events
from tacit.lab.plans.loader import choose
from tacit.server.session.session import Session

pytestmark = pytest.mark.filterwarnings("ignore::tacit.lab.analysis.feasibility.FeasibilityWarning")
WIDE = from_events(np.repeat(np.arange(4), 3), np.arange(12) % 5, n_items=600)
WIDER = replace(WIDE, catalog=Catalog(10_000))  # many numbers, to measure noise by
CENTRAL = choose("popularity", {"privacy": {"mechanism": "gaussian", "epsilon": 1.0, "place": "central"}})
SILENT = choose("popularity", {"privacy": {"mechanism": "none"}})
LIFE = {"privacy.memoised": True, "rounds": 1}
EXACT = {"rounds": 3, "hyper.dim": 40, "privacy.mechanism": "none"}
LOCAL = {"rounds": 3, "hyper.dim": 40, "privacy.mechanism": "laplace", "privacy.epsilon": 0.5}


def unseeded(deployment: Deployment) -> Deployment:
    """The same deployment as real servers and devices are: nothing decides its random numbers."""
    for name, node in deployment.nodes.items():
        deployment.nodes[name] = Node(node.store.path)
    deployment.session = Session(deployment.folder / "run", deployment.bundle, deployment.policy)
    return deployment.enrol()


def collect(deployment: Deployment) -> Deployment:
    """Open a round and receive all its reports, without closing it."""
    deployment.session.open()
    for name in deployment.session.missing:
        deployment.session.receive(post(deployment.nodes[name], deployment.session.request(name)))
    return deployment


def flat(tree) -> np.ndarray:
    return np.concatenate([np.asarray(leaf, float).ravel() for leaf in jax.tree.leaves(tree)])


# ---- the server ----


def test_two_closes_of_a_restored_run_folder_have_two_noises(tmp_path):
    """The difference of two releases of one round has the noise of both: twice the variance of one."""
    deployment = collect(unseeded(Deployment(tmp_path / "noisy", CENTRAL, WIDER, (1, 3))))
    true = collect(unseeded(Deployment(tmp_path / "exact", SILENT, WIDER, (1, 3)))).session
    assert true.close()
    shutil.copytree(deployment.folder / "run", tmp_path / "backup")
    released = []
    for path in (deployment.folder / "run", tmp_path / "backup"):
        session = Session(path, deployment.bundle, deployment.policy)
        session.open()
        assert session.close()
        released.append(flat(session.params))
    one, both = released[0] - flat(true.params), released[0] - released[1]
    assert both.std() > 0
    assert 1.6 < both.var() / one.var() < 2.4


def _bytes_in(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())


def test_no_file_of_a_run_or_a_home_holds_a_key_of_noise(tmp_path, monkeypatch):
    keys = []

    def kept(make):
        def call(*words):
            keys.append(made := make(*words))
            return made

        return call

    from tacit.device.node import node
    from tacit.server.session import session

    monkeypatch.setattr(session, "fresh_key", kept(session.fresh_key))
    monkeypatch.setattr(node, "fresh_keys", kept(node.fresh_keys))
    unseeded(Deployment(tmp_path, CENTRAL, WIDE, (1, 3))).play()
    words = [np.asarray(jax.random.key_data(key)).reshape(-1, 8) for key in keys]
    assert len(words) == 3  # a close and two nodes
    written = _bytes_in(tmp_path)
    for key in np.concatenate(words):
        assert key.tobytes() not in written
        assert key.tobytes().hex().encode() not in written


def test_the_noise_key_of_an_earlier_version_is_deleted(tmp_path):
    deployment = Deployment(tmp_path, SILENT, short_world(4), (1, 3))
    np.savez(tmp_path / "run" / "noise.npz", noise=np.zeros(2, np.uint32))
    Session(tmp_path / "run", deployment.bundle)
    assert not (tmp_path / "run" / "noise.npz").exists()


# ---- a device ----


@pytest.mark.parametrize("number", [0, 1], ids=["alone", "shard"])
def test_asked_again_the_same_bytes_leave_also_after_a_restart(number, tmp_path):
    deployment = unseeded(Deployment(tmp_path, choose("fcf", LOCAL), short_world(4), (1, 3)))
    deployment.session.open()
    name = list(deployment.nodes)[number]
    node, request = deployment.nodes[name], deployment.session.request(name)
    first = post(node, request)  # and is lost on its way
    assert first.report
    assert post(node, request) == first
    assert post(Node(node.store.path), request) == first


def test_a_copied_home_does_not_repeat_its_noise_for_other_parameters(tmp_path):
    """Two copies of a home answer one round for other parameters; with one noise, the difference is that of the updates."""
    reports, updates = (
        _two_reports(tmp_path / name, privacy) for name, privacy in (("noisy", LOCAL), ("exact", EXACT))
    )
    between = updates[0] - updates[1]
    assert between.any()
    assert abs(np.corrcoef(between, reports[0] - reports[1])[0, 1]) < 0.5


def _two_reports(folder: Path, settings: dict) -> list[np.ndarray]:
    """What two copies of one home send in the second round, each asked with parameters of its own."""
    deployment = unseeded(Deployment(folder, choose("fcf", settings), short_world(4), (1, 3))).play(1)
    deployment.session.open()
    name = next(iter(deployment.nodes))
    home = deployment.nodes[name].store.path
    shutil.copytree(home, folder / "copy")
    found = []
    for path, more in ((home, 0.0), (folder / "copy", 0.1)):
        params = {leaf: value + np.float32(more) for leaf, value in deployment.bundle.params.items()}
        request = replace(deployment.session.request(name), params=deployment.bundle.pack_params(params))
        reply = post(Node(path), request)
        found.append(flat(unpack(deployment.bundle.report(0), reply.report).payload))
    return found


@pytest.mark.parametrize("name", ["noise", "answers for life"])
def test_two_people_of_a_node_have_two_noises(name, tmp_path):
    """Their histories are the same, so without noise their reports are."""
    from tacit.device.node import batch

    world = from_events(np.array([0, 1]), np.array([3, 3]), n_items=600)
    noise = choose("popularity", {"privacy": {"mechanism": "laplace", "epsilon": 1.0}})
    plan = noise if name == "noise" else choose("dplcf", LIFE)
    deployment, stacks = unseeded(Deployment(tmp_path, plan, world, (2,))), []
    with pytest.MonkeyPatch.context() as patch:
        total_of = batch.total_of
        patch.setattr(batch, "total_of", lambda *words: stacks.append(words[-1]) or total_of(*words))
        collect(deployment)
    sent = next(iter(stacks[0][0].payload.values()))
    one, other = (np.unpackbits(leaf) if leaf.dtype == np.uint8 else np.asarray(leaf, float) for leaf in sent[:2])
    assert one.std() > 0
    assert abs(np.corrcoef(one, other)[0, 1]) < 0.3
    assert not np.array_equal(one, other)


# ---- answers for life ----


def _answers(deployment: Deployment, folder: Path, run: str) -> dict[str, bytes]:
    """What each node answers in a new run."""
    session = Session.begin(folder / run, deployment.bundle, run=run)
    for node in deployment.nodes.values():
        session.enrol(post(node, session.hello()))
    session.open()
    return {name: post(deployment.nodes[name], session.request(name)).report for name in session.missing}


def _bits(deployment: Deployment, report: bytes) -> np.ndarray:
    return np.unpackbits(unpack(deployment.bundle.report(0), report).payload["items"])


def test_an_answer_for_life_is_the_same_in_five_runs(tmp_path):
    deployment = unseeded(Deployment(tmp_path, choose("dplcf", LIFE), WIDE, (1, 3)))
    told = [_answers(deployment, tmp_path, f"again{number}") for number in range(5)]
    assert all(told[0].values())
    assert told == [told[0]] * 5


def test_answers_that_are_not_for_life_differ_from_run_to_run(tmp_path):
    deployment = unseeded(Deployment(tmp_path, choose("dplcf", {"rounds": 1}), WIDE, (1, 3)))
    one, other = (_answers(deployment, tmp_path, run) for run in ("one", "other"))
    assert all(one[name] != other[name] for name in one)


@pytest.mark.parametrize("other", ["odds", "items"])
def test_another_question_has_an_answer_of_its_own(other, tmp_path):
    """With one draw for two questions, where an answer is a lie, so is the other."""
    plans = choose("dplcf", LIFE), choose("dplcf", {**LIFE, "privacy.epsilon": 0.9} if other == "odds" else LIFE)
    renamed = replace(WIDE, item_names=np.array([f"item {number}" for number in range(600)]))
    lies = []
    for number, (plan, world) in enumerate(zip(plans, (WIDE, renamed if other == "items" else WIDE))):
        folder = tmp_path / str(number)
        deployment = unseeded(Deployment(folder, plan, world, (1, 3)))
        name = next(iter(deployment.nodes))
        (deployment.nodes[name].store.path / "lifetime").write_bytes(bytes(range(32)))
        true = np.isin(np.arange(600), WIDE.items[:3])
        lies.append(_bits(deployment, _answers(deployment, folder, "run1")[name]) != true)
    share = lies[1].mean()
    assert 0.2 < share < 0.35
    assert lies[1][lies[0]].mean() < share + 0.15


def test_the_claims_of_a_deployment_do_not_speak_of_a_seed(tmp_path):
    claims = (Deployment(tmp_path, CENTRAL, short_world(4), (1, 3)).session.folder.path / "claims.json").read_text()
    assert '"conditions"' in claims
    assert "seed" not in claims
