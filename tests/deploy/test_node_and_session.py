"""A deployment without a network: the simulator's parameters, whatever is killed, sent twice, late, foreign or unwanted."""

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path
from threading import Timer

import jax
import numpy as np
import polars as pl
import pytest

from support.deployment import RUN, Deployment, plans, post, short_world, stranger, write_history
from support.toys import close, compiled_quickly, same
from tacit.core.catalog import Catalog, Field
from tacit.core.plan import Plan
from tacit.deploy.bundle import read_bundle
from tacit.deploy.messages import Request, from_plain, to_plain
from tacit.device.ledger.node_ledger import GroupLedger, open_node_ledger
from tacit.device.method import method_class
from tacit.device.node.history_file import read_history_file
from tacit.device.node.node import Node
from tacit.device.node.recommend import recommend_on_device
from tacit.device.node.store import Store
from tacit.errors import DataError, DeviceError, PlanError, RunError, WireError
from tacit.lab.plans.loader import choose
from tacit.lab.plans.publish import make_bundle
from tacit.lab.runs.run import simulate
from tacit.privacy.accounting.events import CorrelatedGaussian
from tacit.privacy.budget import Budget, Entry
from tacit.privacy.price import ledger_entry_of, price
from tacit.server.session.round_policy import RoundPolicy
from tacit.server.session.session import Session

pytestmark = pytest.mark.filterwarnings("ignore::tacit.lab.analysis.feasibility.FeasibilityWarning")
ROOT = Path(__file__).resolve().parents[2]
WHOLE = {"seqmf", "dplcf"}  # their sums are of whole numbers
COUNTING = choose("popularity", {"privacy.mechanism": "laplace", "privacy.epsilon": 1.0, "privacy.messages": 1})


def arrays(tree):
    return jax.tree.map(np.asarray, tree)


def names(deployment: Deployment) -> list[str]:
    return list(deployment.nodes)


@pytest.fixture
def deployment(tmp_path) -> Deployment:
    """Three nodes of 1, 4 and 4 people who learn a small table in three rounds, without noise."""
    plan = choose("fcf", {"rounds": 3, "hyper.dim": 2})
    return Deployment(tmp_path, plan, short_world(9), (1, 4, 4)).enrol()


# ---- the simulator's parameters ----


@pytest.mark.parametrize(
    "name",
    [
        "fcf",
        "seqmf",
        pytest.param("dplcf", marks=pytest.mark.bitwise),
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("fpl", "dp-privrec", "steps", "fedseqrec")),
    ],
)
def test_a_deployment_ends_where_the_simulator_does(name, tmp_path):
    plan, world, people = plans()[name]
    deployment = Deployment(tmp_path, plan, world, people).enrol().play()
    run = simulate(plan, world, seed=0, quiet=True)
    # The last digit of what a server divides depends on how a program is compiled; where users run it, it is the same.
    equal = same if name in WHOLE and not compiled_quickly() else close
    equal(arrays(deployment.session.params), arrays(run.params))
    assert deployment.session.finished
    assert [row["reports"] for row in deployment.session.folder.rows()] == [row["reports"] for row in run.rounds]


@pytest.mark.slow
def test_a_sampled_cohort_is_the_simulators(tmp_path):
    plan = choose("fcf", {"rounds": 4, "hyper.dim": 2, "cohort": {"sampler": "fixed", "count": 4}})
    deployment = Deployment(tmp_path, plan, short_world(9), (1, 4, 4)).enrol().play()
    run = simulate(plan, deployment.world, seed=0, quiet=True)
    close(arrays(deployment.session.params), arrays(run.params))
    assert {sum(row["asked"].values()) for row in deployment.session.folder.rows()} == {4}


CORRELATED = choose(
    "popularity",
    {
        "rounds": 6,
        "privacy": {"mechanism": "gaussian", "noise": 2.0, "correlation": "blt"},
        "cohort": {"sampler": "pass", "count": 3, "shuffle": "once"},
    },
)


def test_correlated_noise_is_that_of_the_simulator(tmp_path):
    deployment = Deployment(tmp_path, CORRELATED, short_world(9), (1, 4, 4)).enrol().play()
    run = simulate(CORRELATED, deployment.world, seed=0, quiet=True)
    assert deployment.bundle.mechanism(0).describe()["buffers"] > 0
    close(arrays(deployment.session.params), arrays(run.params))


def test_a_device_refuses_to_report_sooner_than_correlated_noise_is_priced_for(tmp_path):
    deployment = Deployment(tmp_path, CORRELATED, short_world(9), (1, 4, 4)).enrol()
    deployment.session.open()
    name = next(iter(deployment.session.cohort))
    node, request = deployment.nodes[name], deployment.session.request(name)
    assert not post(node, request).refused
    for round, refused in ((1, True), (2, True), (3, False)):  # a pass has three rounds
        assert bool(post(node, replace(request, round=round)).refused) == refused, round


def test_keys_come_from_the_operating_system_unless_a_test_says_them(tmp_path):
    deployment = Deployment(tmp_path, COUNTING, short_world(4), (1, 3))
    other = Session.begin(tmp_path / "other", deployment.bundle)
    third = Session.begin(tmp_path / "third", deployment.bundle)
    assert other.run != third.run
    assert other._draws != third._draws
    node = next(iter(deployment.nodes.values()))
    drawn = [node.store.run(run).begin("d", [0], False) and node.store.run(run).secrets(1) for run in ("one", "two")]
    assert (drawn[0] != drawn[1]).any()
    assert (node.store.path / "runs" / "one" / "secrets.npz").stat().st_mode & 0o077 == 0


def test_recommendations_are_computed_at_home_and_are_the_simulators(deployment):
    deployment.play()
    run = simulate(deployment.bundle.plan, deployment.world, seed=0, quiet=True)
    for name, node in deployment.nodes.items():
        post(node, deployment.session.final_request(name))
    shard = deployment.nodes[names(deployment)[2]]
    shutil.rmtree(deployment.folder / "run")  # the server is gone
    found = recommend_on_device(shard, "000002", k=3)
    expected = run.recommend(users=[7], k=3)
    assert [int(one.item) for one in found] == expected["item_id"].to_list()
    np.testing.assert_allclose([one.score for one in found], expected["score"].to_numpy(), rtol=1e-4)


def test_recommend_says_what_it_needs(deployment):
    shard = deployment.nodes[names(deployment)[1]]
    with pytest.raises(DeviceError, match="has received no broadcast yet"):
        recommend_on_device(shard)
    deployment.play(1)
    with pytest.raises(DeviceError, match="has 4 people; name one"):
        recommend_on_device(shard)
    with pytest.raises(DeviceError, match="no person '00001'; did you mean '000001'"):
        recommend_on_device(shard, "00001")


# ---- crashes and repetition ----


def test_a_report_sent_twice_counts_once(deployment):
    deployment.session.open()
    name = names(deployment)[2]
    reply = post(deployment.nodes[name], deployment.session.request(name))
    assert deployment.session.receive(reply) is True
    assert deployment.session.receive(reply) is False
    assert deployment.session.reported == 4


def test_asked_again_a_node_sends_the_same_bytes_and_spends_nothing_more(tmp_path):
    deployment = Deployment(tmp_path, COUNTING, short_world(4), (1, 3)).enrol()
    deployment.session.open()
    for name in names(deployment):
        first = post(deployment.nodes[name], deployment.session.request(name))
        restarted = Node(deployment.nodes[name].store.path)  # killed after it had sent
        assert post(restarted, deployment.session.request(name)) == first
    assert len(_ledger(deployment.nodes[names(deployment)[0]]).entries) == 1
    assert _shard(deployment.nodes[names(deployment)[1]])["messages"] == {"median": 1.0, "worst": 1.0}


def test_killed_before_the_ledger_a_node_still_enters_what_it_sends(tmp_path, monkeypatch):
    deployment = Deployment(tmp_path, COUNTING, short_world(4), (1, 3)).enrol()
    deployment.session.open()
    name = names(deployment)[0]
    node, request = deployment.nodes[name], deployment.session.request(names(deployment)[0])
    with monkeypatch.context() as patch:
        patch.setattr("tacit.device.ledger.node_ledger.PersonLedger.reserve", _killed)
        assert "failed to make a report" in post(node, request).refused
    assert len(_ledger(node).entries) == 0
    assert node.store.run(RUN).done == 1  # the report was on disk
    assert post(Node(node.store.path), request).form == "report"
    assert len(_ledger(node).entries) == 1


def test_killed_before_the_disk_a_node_makes_the_same_report_anew(deployment, monkeypatch):
    deployment.session.open()
    name = names(deployment)[1]
    node, request = deployment.nodes[name], deployment.session.request(names(deployment)[1])
    with monkeypatch.context() as patch:
        patch.setattr("tacit.device.node.store.RunStore.keep", _killed)
        assert post(node, request).refused
    twin = Deployment(deployment.folder / "twin", deployment.bundle.plan, deployment.world, (1, 4, 4)).enrol()
    twin.session.open()
    there = names(twin)[1]
    assert post(node, request).report == post(twin.nodes[there], twin.session.request(there)).report


@pytest.mark.parametrize("number", [0, 1], ids=["alone", "shard"])
def test_a_node_that_has_lost_its_outbox_cannot_send_another_message(number, tmp_path):
    """A mutant: it makes the report of a round anew, from homes that have moved. The ledger holds it back."""

    class Forgetful(Node):
        def _again(self, bundle, request, kept):
            return None

    plan = choose("fcf", {"rounds": 2, "hyper.dim": 2, "privacy.mechanism": "laplace", "privacy.epsilon": 1.0})
    deployment = Deployment(tmp_path, plan, short_world(4), (1, 3)).enrol()
    deployment.session.open()
    name = names(deployment)[number]
    first = post(deployment.nodes[name], deployment.session.request(name))
    moved = {key: value + 1 for key, value in deployment.bundle.params.items()}
    other = replace(deployment.session.request(name), params=deployment.bundle.pack_params(moved))
    assert first.report
    assert post(deployment.nodes[name], other) == first  # the first reply stands, whatever is asked in its round
    assert post(Forgetful(deployment.nodes[name].store.path), other).report == b""


def test_a_server_that_is_killed_in_a_round_goes_on_with_what_had_arrived(deployment):
    deployment.play(1)
    deployment.session.open()
    arrived = names(deployment)[:2]
    for name in arrived:
        deployment.session.receive(post(deployment.nodes[name], deployment.session.request(name)))
    deployment.restart()
    assert (deployment.session.done, deployment.session.round) == (1, 1)
    deployment.session.open()
    assert deployment.session.missing == names(deployment)[2:]
    assert deployment.session.reported == 5
    deployment.play()
    close(
        arrays(deployment.session.params),
        arrays(simulate(deployment.bundle.plan, deployment.world, seed=0, quiet=True).params),
    )


def test_a_server_that_is_killed_while_it_closes_closes_the_round_again(deployment, monkeypatch):
    deployment.session.open()
    for name in names(deployment):
        deployment.session.receive(post(deployment.nodes[name], deployment.session.request(name)))
    with monkeypatch.context() as patch:
        patch.setattr("tacit.server.session.session.save_checkpoint", _killed)
        with pytest.raises(KeyError):
            deployment.session.close()
    deployment.restart()
    assert deployment.session.done == 0
    assert deployment.session.folder.rows() == []
    deployment.play()
    assert [row["done"] for row in deployment.session.folder.rows()] == [1, 2, 3]
    close(
        arrays(deployment.session.params),
        arrays(simulate(deployment.bundle.plan, deployment.world, seed=0, quiet=True).params),
    )


@pytest.mark.bitwise
def test_a_server_with_momentum_restarts_after_every_round(tmp_path):
    """What is left of earlier rounds is in the server's checkpoint: bit for bit the server that went on."""
    server = {"rule": "sgd", "rate": 0.5, "momentum": 0.9, "scale": "mean"}
    plan, world = choose("fcf", {"rounds": 3, "hyper.dim": 2, "server": server}), short_world(9)
    through, restarted = (
        Deployment(tmp_path / name, plan, world, (1, 4, 4)).enrol() for name in ("through", "restarted")
    )
    through.play()
    for _ in range(restarted.bundle.rounds):
        restarted.play(1)
        restarted.restart()
    same(arrays(restarted.session.params), arrays(through.session.params))
    close(arrays(restarted.session.params), arrays(simulate(plan, world, seed=0, quiet=True).params))


@pytest.mark.slow
def test_stages_resume_at_their_border(tmp_path):
    """Counts first, then a table; the server is killed after every round."""
    stages = (*choose("popularity").stages, *choose("fcf", {"rounds": 2, "hyper.dim": 2}).stages)
    plan, world = Plan("both", stages), short_world(9)
    deployment = Deployment(tmp_path, plan, world, (1, 4, 4)).enrol()
    for _ in range(deployment.bundle.rounds):
        deployment.play(1)
        deployment.restart()
    assert [row["stage"] for row in deployment.session.folder.rows()] == [1, 2, 2]
    close(arrays(deployment.session.params), arrays(simulate(plan, world, seed=0, quiet=True).params))


def test_a_past_round_and_other_people_are_refused(deployment):
    deployment.session.open()
    name = names(deployment)[2]
    first = deployment.session.request(name)
    deployment.play(2)
    assert "past round 0" in post(deployment.nodes[name], first).refused
    now = replace(first, round=1, people=np.array([0, 1], "<i4").tobytes())
    assert "for other people" in post(deployment.nodes[name], now).refused


def _killed(*_, **__):
    raise KeyError("killed here")


def _ledger(node: Node):
    node_ledger = node.store.ledger()
    node_ledger.close()
    return node_ledger.ledger


def _shard(node: Node) -> dict:
    node_ledger = node.store.ledger()
    node_ledger.close()
    return node_ledger.summary()


# ---- the rules of a round ----


def test_a_round_reaches_its_goal_without_everybody(tmp_path):
    plan = choose("fcf", {"rounds": 2, "hyper.dim": 2})
    deployment = Deployment(tmp_path, plan, short_world(9), (1, 4, 4), goal=0.8, rest=1).enrol()
    one, two, three = names(deployment)
    deployment.session.open()
    for name in (two, three):
        assert not deployment.session.enough
        late = post(deployment.nodes[one], deployment.session.request(one))
        deployment.session.receive(post(deployment.nodes[name], deployment.session.request(name)))
    assert deployment.session.enough
    row = deployment.session.close()
    assert (row["reports"], row["silent"]) == (8, [one])
    assert deployment.session.receive(late) is False  # it came after the round had closed
    deployment.session.open()
    assert one not in deployment.session.cohort  # and rests for a round
    assert deployment.session.late == 1


@pytest.mark.bitwise
def test_too_few_reports_release_nothing_and_the_round_is_opened_again(tmp_path):
    plan = choose("fcf", {"rounds": 1, "hyper.dim": 2})
    deployment = Deployment(tmp_path, plan, short_world(9), (1, 4, 4), minimum=5, tries=2).enrol()
    one, two, three = names(deployment)
    deployment.session.open()
    deployment.session.receive(post(deployment.nodes[three], deployment.session.request(three)))
    assert deployment.session.close() is None
    same(arrays(deployment.session.params), arrays(deployment.bundle.params))
    deployment.session.open()
    assert deployment.session.missing == [one, two]  # who has reported is not asked again
    assert deployment.session.close() is None
    deployment.restart()
    with pytest.raises(RunError, match="was abandoned 2 times for want of 5 reports"):
        deployment.session.open()
    deployment.session = Session(deployment.folder / "run", deployment.bundle, RoundPolicy(minimum=5, tries=3))
    deployment.session.open()
    deployment.session.receive(post(deployment.nodes[one], deployment.session.request(one)))
    assert deployment.session.close()["reports"] == 5


def test_terms_are_checked():
    for wrong in ({"goal": 0.0}, {"deadline": -1.0}, {"minimum": -1}, {"tries": 0}):
        with pytest.raises(PlanError, match=f"RoundPolicy.{next(iter(wrong))} must be"):
            RoundPolicy(**wrong)
    with pytest.raises(PlanError, match="is a share, at most 1"):
        RoundPolicy(goal=1.5)


def test_nobody_enrols_beyond_the_price_or_grows_in_a_run(deployment):
    with pytest.raises(RunError, match=r"priced for 9 people; 9 have enrolled, and node \w{32} has 1"):
        deployment.session.enrol(stranger(deployment, people=1))
    node = deployment.nodes[names(deployment)[0]]
    with pytest.raises(RunError, match="enrolled 1 people and now has 2"):
        deployment.session.enrol(node.store.key(replace(post(node, deployment.session.hello()), people=2)))


def test_a_run_of_another_plan_folder_is_not_resumed(deployment, tmp_path):
    other = make_bundle(tmp_path / "other", choose("popularity"), deployment.world.catalog, 9)
    with pytest.raises(RunError, match="resume it with its own"):
        Session(tmp_path / "run", other)


# ---- what a node refuses ----


def test_consent_is_off_until_somebody_agrees_and_a_pause_counts_at_once(deployment):
    name = names(deployment)[0]
    node = deployment.nodes[name]
    assert Store(deployment.folder / "fresh").create().takes_part is False
    deployment.session.open()
    node.store.agree(False)
    refused = post(node, deployment.session.request(name))
    assert "does not take part" in refused.refused
    assert refused.report == b""
    with pytest.raises(WireError, match="sends no report"):
        deployment.session.receive(refused)
    assert node.store.run(RUN).done == 0
    node.store.agree(True)
    assert post(node, deployment.session.request(name)).form == "report"


def test_a_foreign_plan_folder_is_refused(deployment):
    name = names(deployment)[0]
    request = replace(deployment.session.hello(), digest="0" * 32)
    said = post(deployment.nodes[name], request).refused
    assert "has no plan folder 0000" in said
    assert deployment.bundle.digest in said
    with pytest.raises(RunError, match="does not take part: This device has no plan folder"):
        deployment.session.enrol(post(deployment.nodes[name], request))


def test_messages_for_another_device_are_refused(deployment):
    deployment.session.open()
    one, two, _ = names(deployment)
    assert "another device" in post(deployment.nodes[one], deployment.session.request(two)).refused


def test_only_the_server_that_the_plan_folder_names_is_obeyed(tmp_path):
    from tacit.deploy.signing import Signer, new_key

    public = new_key(tmp_path / "server.key")
    world = short_world(2)
    make_bundle(tmp_path / "signed", COUNTING, world.catalog, 2, server=public)
    deployment = Deployment(tmp_path, COUNTING, world, (1, 1))
    node = next(iter(deployment.nodes.values()))
    bundle = node.store.install(tmp_path / "signed")
    node.store.agree(True)
    session, sign = Session.begin(tmp_path / "other", bundle), Signer(tmp_path / "server.key")
    assert (tmp_path / "server.key").stat().st_mode & 0o777 == 0o600
    assert post(node, session.hello()).refused == "This device answers its own server alone."
    assert post(node, sign(session.hello())).people == 1
    forged = replace(sign(session.hello()), run="another")
    assert post(node, forged).refused == "This device answers its own server alone."
    with pytest.raises(PlanError, match="stays on that machine"):
        Signer(tmp_path / "nowhere.key")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"people": b"\0\0\0"}, "four bytes each"),
        ({"people": np.array([5], "<i4").tobytes()}, "from 0 to 0"),
        ({"people": b""}, "from 0 to 0"),
        ({"round": 9}, "no round 9"),
        ({"stage": 3}, "no round 0 in stage 4"),
    ],
)
def test_a_message_that_makes_no_sense_is_refused(deployment, change, words):
    deployment.session.open()
    name = names(deployment)[0]
    assert words in post(deployment.nodes[name], replace(deployment.session.request(name), **change)).refused


def test_a_problem_at_home_is_told_at_home_alone(deployment):
    """The sentence would quote the history."""
    name = names(deployment)[0]
    said = []
    node = Node(deployment.nodes[name].store.path, said.append)
    secret = deployment.folder / "secret.csv"
    secret.write_text("item_id\na-secret\n")
    node.store.set(history=str(secret))
    deployment.session.open()
    refused = post(node, deployment.session.request(name)).refused
    assert refused == "This device failed to make a report; the reason is in its own log."
    assert "a-secret" in said[0]


def test_a_promise_that_the_method_does_not_keep_is_refused_at_home(tmp_path, monkeypatch):
    plan = choose("popularity", {"privacy": {"mechanism": "randomized_response", "epsilon": 1.0}})
    deployment = Deployment(tmp_path, plan, short_world(2), (1, 1)).enrol()
    deployment.session.open()
    one, other = (deployment.session.request(name) for name in names(deployment))
    assert not post(deployment.nodes[names(deployment)[0]], one).refused
    monkeypatch.setattr(method_class("popularity"), "item_by_item", False)
    assert "Stage 1 promises for one interaction" in post(deployment.nodes[names(deployment)[1]], other).refused


def test_a_broadcast_that_does_not_fit_is_refused_and_changes_nothing(deployment):
    deployment.session.open()
    name = names(deployment)[0]
    request = replace(deployment.session.request(name), params=b"TCIT")
    assert post(deployment.nodes[name], request).refused
    assert deployment.nodes[name].store.run(RUN).done == 0


# ---- what the server refuses ----


def test_reports_are_checked_against_their_schema(deployment):
    deployment.session.open()
    name = names(deployment)[1]
    good, sign = post(deployment.nodes[name], deployment.session.request(name)), deployment.nodes[name].store.key
    with pytest.raises(WireError, match="truncated"):
        deployment.session.receive(sign(replace(good, report=good.report[:-1])))
    with pytest.raises(WireError, match="oversized"):
        deployment.session.receive(sign(replace(good, report=good.report + b"\0")))
    with pytest.raises(WireError, match="different plans"):
        deployment.session.receive(sign(replace(good, form="report")))
    with pytest.raises(WireError, match="a report or a total"):
        deployment.session.receive(sign(replace(good, form="")))
    assert deployment.session.receive(good) is True


def test_a_shard_cannot_count_for_more_people_than_were_asked(deployment):
    deployment.session.open()
    _, two, three = names(deployment)
    many = post(deployment.nodes[three], deployment.session.request(three))
    deployment.session.cohort[two] = deployment.session.cohort[two][:3]
    with pytest.raises(WireError, match="of 3 people must hold at most 3 reports, got 4"):
        deployment.session.receive(deployment.nodes[two].store.key(many))


def test_messages_are_checked():
    good = to_plain(Request("hello", "d", "r"))
    assert from_plain(Request, good) == Request("hello", "d", "r")
    with pytest.raises(WireError, match="must have version 3, got 1"):
        from_plain(Request, {**good, "version": 1})
    with pytest.raises(WireError, match="'extra' is missing or unknown"):
        from_plain(Request, {**good, "extra": 1})
    with pytest.raises(WireError, match="round must be of type int, got str"):
        from_plain(Request, {**good, "round": "1"})


def test_a_signature_covers_every_part():
    """Two requests that differ anywhere are signed differently, also where only the border between two fields moves."""
    base = Request("round", "d", "r", "n", 1, 2, b"a", b"b")
    changes = {
        "kind": "end",
        "digest": "e",
        "run": "s",
        "to": "m",
        "stage": 0,
        "round": 0,
        "people": b"",
        "params": b"c",
        "public_state": b"d",
    }
    words = {replace(base, **{name: value}).signed_bytes() for name, value in changes.items()}
    words |= {base.signed_bytes(), replace(base, people=b"ab", params=b"").signed_bytes()}
    assert len(words) == len(changes) + 2


# ---- plan folders ----


def test_a_plan_folder_reads_as_it_was_written_and_an_altered_one_is_refused(deployment):
    again = read_bundle(deployment.folder / "bundle")
    assert (again.plan, again.people, again.digest) == (deployment.bundle.plan, 9, deployment.bundle.digest)
    same(again.params, deployment.bundle.params)
    with pytest.raises(PlanError, match="holds a plan already"):
        make_bundle(deployment.folder / "bundle", deployment.bundle.plan, deployment.world.catalog, 9)
    text = (deployment.folder / "bundle" / "plan.toml").read_text()
    (deployment.folder / "bundle" / "plan.toml").write_text(text.replace("rounds = 3", "rounds = 4"))
    with pytest.raises(PlanError, match="does not match its digest"):
        read_bundle(deployment.folder / "bundle")
    with pytest.raises(PlanError, match=r"has no kit.json: it is not a plan folder"):
        read_bundle(deployment.folder)


def test_a_plan_folder_of_another_version_is_refused(deployment):
    path = deployment.folder / "bundle" / "kit.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "version": 9}))
    with pytest.raises(PlanError, match="of version 9, this Tacit reads 1"):
        read_bundle(deployment.folder / "bundle")


def test_pooled_plans_are_not_deployed(tmp_path):
    with pytest.raises(PlanError, match="cannot be deployed: stage 1 pools raw histories"):
        make_bundle(tmp_path / "bundle", choose("bpr-mf"), short_world(3).catalog, 3)


def test_a_plan_with_a_bound_that_unbinds_is_refused_at_home(tmp_path, monkeypatch):
    """A server that does not check its own plan makes a folder with a clip at which nothing is clipped."""
    plan = choose(
        "fcf", {"rounds": 1, "hyper.dim": 2, "privacy": {"mechanism": "gaussian", "epsilon": 1.0, "clip": 1e-25}}
    )
    with monkeypatch.context() as careless:
        careless.setattr("tacit.privacy.mechanisms.gaussian.check_clip", lambda name, clip: None)
        deployment = Deployment(tmp_path, plan, short_world(3), (1, 2))
        hello = deployment.session.hello()
    node = deployment.nodes[names(deployment)[0]]
    refused = post(node, hello).refused
    assert "privacy.clip must be from 1e-12 to 1e+12, got 1e-25" in refused
    assert "\n" not in refused
    with pytest.raises(PlanError, match=r"privacy\.clip must be from"):
        Store(tmp_path / "fresh").create().install(tmp_path / "bundle")
    assert not Store(tmp_path / "fresh").digests()


def test_a_key_is_never_copied_to_a_device(deployment):
    (deployment.folder / "bundle" / "server.key").write_text("secret")
    store = Store(deployment.folder / "fresh").create()
    store.install(deployment.folder / "bundle")
    assert [path.name for path in store.path.rglob("*.key")] == ["node.key"]  # the device's own


# ---- budgets and ledgers ----


@pytest.mark.parametrize("people", [(1, 1), (2,)], ids=["alone", "shard"])
def test_who_has_spent_the_budget_falls_silent(people, tmp_path):
    """A budget of 1.5 covers one message of 1; in the second run nobody is left."""
    deployment = Deployment(tmp_path, COUNTING, short_world(2), people)
    for node in deployment.nodes.values():
        node.store.limit(Budget(1.5))
    deployment.enrol().play()
    assert deployment.session.folder.rows()[0]["reports"] == 2
    second = Session.begin(tmp_path / "second", deployment.bundle, run="second")
    for name, node in deployment.nodes.items():
        second.enrol(post(node, second.hello()))
        assert name in second.enrolment.members
    second.open()
    for name in second.missing:
        with pytest.raises(WireError, match="budget of this device covers no message of this run"):
            second.receive(post(deployment.nodes[name], second.request(name)))
        assert not (deployment.nodes[name].store.path / "runs" / "second").exists()
    assert second.reported == 0
    assert second.close() is None


@pytest.mark.parametrize("people", [1, 3], ids=["alone", "shard"])
def test_who_is_asked_more_often_than_drawn_falls_silent(people, tmp_path):
    """The plan draws 1 of 9 in each of 30 rounds, and the server asks the same person every time."""
    cohort = {"sampler": "fixed", "count": 1}
    plan = choose(
        "fcf", {"rounds": 30, "hyper.dim": 2, "cohort": cohort, "privacy": {"mechanism": "gaussian", "noise": 2.0}}
    )
    deployment = Deployment(tmp_path, plan, short_world(9), (people, 9 - people)).enrol()
    session, name = deployment.session, names(deployment)[0]
    node = deployment.nodes[name]
    session.open()
    sent = 0
    for number in range(30):
        session.done, session.cohort = number, {name: np.zeros(1, "<i4")}
        assert post(node, session.request(name)).report
        sent += int(node.store.run(RUN).outbox().who.size)
    ledger = node.store.ledger()
    assert sent == session.bundle.price.stages[0].messages < 30
    assert ledger.summary()["silent"] == 30 - sent
    ledger.close()


def test_a_node_waits_while_its_owner_looks_into_the_ledger(tmp_path, monkeypatch):
    deployment = Deployment(tmp_path, COUNTING, short_world(2), (1, 1)).enrol()
    deployment.session.open()
    name = names(deployment)[0]
    looked_into = deployment.nodes[name].store.ledger()
    with monkeypatch.context() as patch:
        patch.setattr("tacit.device.node.node.PATIENCE", 0.0)
        assert "failed to make a report" in post(deployment.nodes[name], deployment.session.request(name)).refused
    Timer(0.3, looked_into.close).start()
    assert post(deployment.nodes[name], deployment.session.request(name)).form == "report"


def test_a_shards_ledger_counts_each_person_and_survives(tmp_path):
    page = ledger_entry_of(price(COUNTING, 10).stages[0], "plan", "run", 0, 0.0, 100)
    node_ledger = GroupLedger(tmp_path / "ledger", ["a", "b", "c"], Budget(2.5))
    assert node_ledger.allowances(page, 5).tolist() == [2, 2, 2]
    node_ledger.reserve(page, np.array([0, 2]), "x")
    node_ledger.reserve(page, np.array([0, 2]), "x")  # the same message
    with pytest.raises(DeviceError, match="was entered for another message"):
        node_ledger.reserve(page, np.array([0, 2]), "y")
    node_ledger.reserve(replace(page, round=1), np.array([0]), "z")
    node_ledger.close()
    node_ledger = open_node_ledger(tmp_path / "ledger", ["c", "a", "d"], Budget(2.5))  # in another order, b gone, d new
    assert node_ledger.allowances(page, 5).tolist() == [1, 0, 2]
    with pytest.raises(DeviceError, match="beyond the budget of 1 of its people"):
        node_ledger.reserve(replace(page, round=2), np.array([1]), "w")
    node_ledger.close()


def test_a_shards_ledger_keeps_each_persons_reports_apart(tmp_path):
    event = CorrelatedGaussian(noise=4.0, rounds=6, reports=2, separation=3)
    page = Entry(0.0, "plan", "run", 0, 0, "user", "replace_one", event, 1.0, 1e-6, 100, rounds=6)
    node_ledger = GroupLedger(tmp_path / "ledger", ["a", "b"], Budget(math.inf, delta=1e-6))
    node_ledger.reserve(page, np.array([0]), "x")
    node_ledger.reserve(replace(page, round=1), np.array([1]), "y")
    node_ledger.close()
    node_ledger = open_node_ledger(tmp_path / "ledger", ["a", "b"], Budget(math.inf, delta=1e-6))
    with pytest.raises(DeviceError, match="at least 3 rounds apart, and it has reported in round 1"):
        node_ledger.reserve(replace(page, round=3), np.array([0, 1]), "z")
    node_ledger.reserve(replace(page, round=3), np.array([0]), "z")
    node_ledger.reserve(replace(page, round=4), np.array([1]), "z")
    node_ledger.close()


@pytest.mark.parametrize("number", [0, 1], ids=["alone", "shard"])
def test_erase_leaves_the_ledger_alone_and_nothing_can_be_sent_again(number, tmp_path):
    deployment = Deployment(tmp_path, COUNTING, short_world(4), (1, 3)).enrol()
    deployment.session.open()
    name = names(deployment)[number]
    node = deployment.nodes[name]
    post(node, deployment.session.request(name))
    assert node.store.erase() > 5
    assert [path.name for path in node.store.path.rglob("*") if path.is_file()] == ["ledger"]
    with pytest.raises(DeviceError, match="is not a device's folder"):
        _ = node.store.name
    fresh = deployment.new_node(
        node.store.path.name, deployment.folder / f"{number}.parquet", np.zeros((1 + 2 * number, 2), np.uint32)
    )
    request = replace(deployment.session.request(name), to=fresh.store.name)
    assert post(fresh, request).refused == "This device failed to make a report; the reason is in its own log."


# ---- a node's log ----


def test_a_log_is_read_as_the_catalog_numbers_it(tmp_path):
    world = short_world(3)
    bundle = make_bundle(tmp_path / "bundle", COUNTING, world.catalog, 3, names=[f"item {n}" for n in range(12)])
    path = tmp_path / "log.csv"
    path.write_text("user_id,item_id,datetime\nb,item 3,2026-01-02\na,item 1,2026-01-03\na,item 2,2026-01-01\n")
    people = read_history_file(path, bundle)
    assert people.users == ["a", "b"]
    assert people.items.tolist() == [2, 1, 3]
    assert people.histories(np.array([0]), 3).times.tolist() == [[0.0, 2 * 86_400.0, 0.0]]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("item\n1\n", "has no column 'item_id'"),
        ("item_id\nitem 13\n", "has no item 'item 13'; did you mean 'item 3'"),
        ("item_id\n", "holds no events"),
        ("item_id,datetime\nitem 1,2026-01-01\n,2026-01-02\n", "every event must name an item, got 1 that do not"),
        ("item_id,datetime\nitem 1,yesterday\n", "must hold seconds or dates, got 'yesterday'"),
    ],
)
def test_a_wrong_log_is_said_in_a_sentence(text, words, tmp_path):
    bundle = make_bundle(
        tmp_path / "bundle", COUNTING, short_world(3).catalog, 3, names=[f"item {n}" for n in range(12)]
    )
    path = tmp_path / "log.csv"
    path.write_text(text)
    with pytest.raises(DataError, match=words):
        read_history_file(path, bundle)


def test_a_log_that_is_no_table_is_refused(tmp_path):
    bundle = make_bundle(tmp_path / "bundle", COUNTING, short_world(3).catalog, 3)
    with pytest.raises(DataError, match=r"must be a .csv or .parquet file"):
        read_history_file(tmp_path / "log.txt", bundle)
    with pytest.raises(DataError, match="does not exist"):
        read_history_file(tmp_path / "log.csv", bundle)
    for strange in ("some words", "12", "-1"):
        (tmp_path / "strange.csv").write_text(f"item_id\n{strange}\n")
        with pytest.raises(DataError, match="items are numbers from 0 to 11, got"):
            read_history_file(tmp_path / "strange.csv", bundle)


def test_people_of_a_shard_do_not_change_within_a_run(deployment):
    deployment.play(1)
    name = names(deployment)[1]
    write_history(Path(deployment.nodes[name].store.settings["history"]), deployment.world, 1, 2)
    deployment.session.open()
    assert (
        "other people; wait for the next run" in post(deployment.nodes[name], deployment.session.request(name)).refused
    )


# ---- what a node computes once ----


@pytest.fixture
def counted(monkeypatch) -> dict[str, int]:
    """How often nodes read a history file and prepare histories."""
    from tacit.device.node import batch, node

    counts = {"reads": 0, "prepares": 0}

    def counting(name, function):
        def call(*words):
            counts[name] += 1
            return function(*words)

        return call

    monkeypatch.setattr(node, "read_history_file", counting("reads", node.read_history_file))
    prepare = counting("prepares", batch.PreparedHistories._prepare)
    monkeypatch.setattr(batch.PreparedHistories, "_prepare", prepare)
    return counts


def test_a_node_reads_its_history_file_once_and_prepares_once(counted, deployment):
    counted |= {"reads": 0, "prepares": 0}
    for node in deployment.nodes.values():
        node._files.clear()
    deployment.play()
    assert len(deployment.session.folder.rows()) == 3
    assert counted["reads"] == len(deployment.nodes)
    assert counted["prepares"] == len(deployment.nodes)  # all histories of a node are padded alike


def test_a_history_file_that_has_changed_is_read_and_prepared_again(counted, deployment):
    deployment.play(1)
    name = names(deployment)[1]
    node = deployment.nodes[name]
    before, counted["reads"], counted["prepares"] = node.people(deployment.bundle), 0, 0
    path = Path(node.store.settings["history"])
    table = pl.read_parquet(path)
    pl.concat([table, table.tail(1)]).write_parquet(path)
    deployment.play(1)
    assert node.people(deployment.bundle).items.size == before.items.size + 1
    assert counted == {"reads": 1, "prepares": 1}


def test_a_choice_that_has_changed_counts_without_reading_the_file_again(counted, deployment):
    node = deployment.nodes[names(deployment)[1]]
    before, counted["reads"] = node.people(deployment.bundle), 0
    item = str(before.items[0])
    node.store.choose(lambda choice: replace(choice, items=(item,)))
    after = node.people(deployment.bundle)
    assert after.never is not None
    assert after.never.any()
    assert counted["reads"] == 0


# ---- plan folders ----


def test_a_plan_folder_holds_the_catalog_that_was_written(tmp_path):
    fields = (Field("genre", "categorical", 2, ("Drama", "Horror")), Field("tags", "multi", 3, ("a", "b", "c")))
    attributes = {"genre": np.array([0, 1, 1]), "tags": np.eye(3, dtype=np.float32)}
    catalog = Catalog(3, attributes, fields, (Field("age", "numeric"),))
    read = read_bundle(make_bundle(tmp_path / "plan", choose("popularity"), catalog, 2) and tmp_path / "plan").catalog
    assert (read.n_items, read.item_fields, read.person_fields, read.event_fields) == (
        3,
        fields,
        catalog.person_fields,
        (),
    )
    for name, column in attributes.items():
        np.testing.assert_array_equal(read.attributes[name], column)
