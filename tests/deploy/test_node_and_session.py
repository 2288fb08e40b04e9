"""A deployment without a network: the simulator's parameters, whatever is killed, sent twice, late, foreign or unwanted."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from threading import Timer

import jax
import numpy as np
import pytest

from support.deployment import RUN, Town, plans, post, short_world, write_history
from support.toys import close, same
from tacit.core.plan import Plan
from tacit.deploy.bundle import read_kit
from tacit.deploy.messages import Answer, Ask, from_plain, to_plain
from tacit.device.ledger.node_ledger import ShardPurse, open_purse
from tacit.device.method import method_class
from tacit.device.node.history_file import read_log
from tacit.device.node.node import Node
from tacit.device.node.recommend import recommend
from tacit.device.node.store import Store
from tacit.errors import DataError, DeviceError, PlanError, RunError, WireError
from tacit.lab.plans.loader import choose
from tacit.lab.plans.publish import make_kit
from tacit.lab.runs.run import simulate
from tacit.privacy.budget import Budget
from tacit.privacy.price import ledger_entry_of, price
from tacit.server.session.round_policy import Terms
from tacit.server.session.session import Session

pytestmark = pytest.mark.filterwarnings("ignore::tacit.lab.analysis.feasibility.FeasibilityWarning")
ROOT = Path(__file__).resolve().parents[2]
WHOLE = {"seqmf", "dplcf"}  # their sums are of whole numbers
COUNTING = choose("popularity", {"privacy.mechanism": "laplace", "privacy.epsilon": 1.0, "privacy.messages": 1})


def arrays(tree):
    return jax.tree.map(np.asarray, tree)


def names(town: Town) -> list[str]:
    return list(town.nodes)


@pytest.fixture
def town(tmp_path) -> Town:
    """Three nodes of 1, 4 and 4 people who learn a small table in three rounds, without noise."""
    plan = choose("fcf", {"rounds": 3, "hyper.dim": 2})
    return Town(tmp_path, plan, short_world(9), (1, 4, 4)).enrol()


# ---- the simulator's parameters ----


@pytest.mark.parametrize(
    "name",
    [
        "fcf",
        "seqmf",
        "dplcf",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("fpl", "dp-privrec", "fedseqrec")),
    ],
)
def test_a_deployment_ends_where_the_simulator_does(name, tmp_path):
    plan, world, people = plans()[name]
    town = Town(tmp_path, plan, world, people).enrol().play()
    run = simulate(plan, world, seed=0, quiet=True)
    equal = same if name in WHOLE else close
    equal(arrays(town.session.params), arrays(run.params))
    assert town.session.finished
    assert [row["reports"] for row in town.session.folder.rows()] == [row["reports"] for row in run.rounds]


@pytest.mark.slow
def test_a_sampled_cohort_is_the_simulators(tmp_path):
    plan = choose("fcf", {"rounds": 4, "hyper.dim": 2, "cohort": {"sampler": "fixed", "count": 4}})
    town = Town(tmp_path, plan, short_world(9), (1, 4, 4)).enrol().play()
    run = simulate(plan, town.world, seed=0, quiet=True)
    close(arrays(town.session.params), arrays(run.params))
    assert {sum(row["asked"].values()) for row in town.session.folder.rows()} == {4}


def test_keys_come_from_the_operating_system_unless_a_test_says_them(tmp_path):
    town = Town(tmp_path, COUNTING, short_world(4), (1, 3))
    other = Session.begin(tmp_path / "other", town.kit)
    third = Session.begin(tmp_path / "third", town.kit)
    assert other.run != third.run
    assert other._draws != third._draws
    assert (jax.random.key_data(other._noise) != jax.random.key_data(third._noise)).any()
    node = next(iter(town.nodes.values()))
    drawn = [node.store.run(run).begin("d", [0], False) and node.store.run(run).secrets(1) for run in ("one", "two")]
    assert (drawn[0] != drawn[1]).any()
    for path in (node.store.path / "runs" / "one" / "secrets.npz", tmp_path / "other" / "noise.npz"):
        assert path.stat().st_mode & 0o077 == 0


def test_recommendations_are_computed_at_home_and_are_the_simulators(town):
    town.play()
    run = simulate(town.kit.plan, town.world, seed=0, quiet=True)
    for name, node in town.nodes.items():
        post(node, town.session.farewell(name))
    shard = town.nodes[names(town)[2]]
    shutil.rmtree(town.folder / "run")  # the server is gone
    found = recommend(shard, "000002", k=3)
    expected = run.recommend(users=[7], k=3)
    assert [int(one.item) for one in found] == expected["item_id"].to_list()
    np.testing.assert_allclose([one.score for one in found], expected["score"].to_numpy(), rtol=1e-4)


def test_recommend_says_what_it_needs(town):
    shard = town.nodes[names(town)[1]]
    with pytest.raises(DeviceError, match="has had no broadcast yet"):
        recommend(shard)
    town.play(1)
    with pytest.raises(DeviceError, match="holds 4 people; name one"):
        recommend(shard)
    with pytest.raises(DeviceError, match="no person '00001'; did you mean '000001'"):
        recommend(shard, "00001")


# ---- crashes and repetition ----


def test_a_report_sent_twice_counts_once(town):
    town.session.open()
    name = names(town)[2]
    answer = post(town.nodes[name], town.session.letter(name))
    assert town.session.receive(answer) is True
    assert town.session.receive(answer) is False
    assert town.session.reported == 4


def test_asked_again_a_node_sends_the_same_bytes_and_spends_nothing_more(tmp_path):
    town = Town(tmp_path, COUNTING, short_world(4), (1, 3)).enrol()
    town.session.open()
    for name in names(town):
        first = post(town.nodes[name], town.session.letter(name))
        restarted = Node(town.nodes[name].store.path)  # killed after it had sent
        assert post(restarted, town.session.letter(name)) == first
    assert len(_ledger(town.nodes[names(town)[0]]).entries) == 1
    assert _shard(town.nodes[names(town)[1]])["messages"] == {"median": 1.0, "worst": 1.0}


def test_killed_before_the_ledger_a_node_still_enters_what_it_sends(tmp_path, monkeypatch):
    town = Town(tmp_path, COUNTING, short_world(4), (1, 3)).enrol()
    town.session.open()
    name = names(town)[0]
    node, ask = town.nodes[name], town.session.letter(names(town)[0])
    with monkeypatch.context() as patch:
        patch.setattr("tacit.device.ledger.node_ledger.OwnPurse.reserve", _killed)
        assert "cannot answer" in post(node, ask).refused
    assert len(_ledger(node).entries) == 0
    assert node.store.run(RUN).done == 1  # the report was on disk
    assert post(Node(node.store.path), ask).form == "report"
    assert len(_ledger(node).entries) == 1


def test_killed_before_the_disk_a_node_makes_the_same_report_anew(town, monkeypatch):
    town.session.open()
    name = names(town)[1]
    node, ask = town.nodes[name], town.session.letter(names(town)[1])
    with monkeypatch.context() as patch:
        patch.setattr("tacit.device.node.store.RunStore.keep", _killed)
        assert post(node, ask).refused
    twin = Town(town.folder / "twin", town.kit.plan, town.world, (1, 4, 4)).enrol()
    twin.session.open()
    there = names(twin)[1]
    assert post(node, ask).report == post(twin.nodes[there], twin.session.letter(there)).report


@pytest.mark.parametrize("number", [0, 1], ids=["alone", "shard"])
def test_a_node_that_has_lost_its_outbox_cannot_send_another_message(number, tmp_path):
    """A mutant: it makes the report of a round anew, from homes that have moved. The ledger holds it back."""

    class Forgetful(Node):
        def _again(self, kit, ask, kept):
            return None

    plan = choose("fcf", {"rounds": 2, "hyper.dim": 2, "privacy.mechanism": "laplace", "privacy.epsilon": 1.0})
    town = Town(tmp_path, plan, short_world(4), (1, 3)).enrol()
    town.session.open()
    name = names(town)[number]
    first = post(town.nodes[name], town.session.letter(name))
    moved = {key: value + 1 for key, value in town.kit.params.items()}
    other = replace(town.session.letter(name), params=town.kit.pack_params(moved))
    assert first.report
    assert post(town.nodes[name], other) == first  # the first answer stands, whatever is asked in its round
    assert post(Forgetful(town.nodes[name].store.path), other).report == b""


def test_a_server_that_is_killed_in_a_round_goes_on_with_what_had_arrived(town):
    town.play(1)
    town.session.open()
    arrived = names(town)[:2]
    for name in arrived:
        town.session.receive(post(town.nodes[name], town.session.letter(name)))
    town.again()
    assert (town.session.done, town.session.round) == (1, 1)
    town.session.open()
    assert town.session.missing == names(town)[2:]
    assert town.session.reported == 5
    town.play()
    close(arrays(town.session.params), arrays(simulate(town.kit.plan, town.world, seed=0, quiet=True).params))


def test_a_server_that_is_killed_while_it_closes_closes_the_round_again(town, monkeypatch):
    town.session.open()
    for name in names(town):
        town.session.receive(post(town.nodes[name], town.session.letter(name)))
    with monkeypatch.context() as patch:
        patch.setattr("tacit.server.checkpoint.save", _killed)
        with pytest.raises(KeyError):
            town.session.close()
    town.again()
    assert town.session.done == 0
    assert town.session.folder.rows() == []
    town.play()
    assert [row["done"] for row in town.session.folder.rows()] == [1, 2, 3]
    close(arrays(town.session.params), arrays(simulate(town.kit.plan, town.world, seed=0, quiet=True).params))


def test_a_server_with_momentum_restarts_after_every_round(tmp_path):
    """What is left of earlier rounds is in the server's checkpoint: bit for bit the server that went on."""
    server = {"rule": "sgd", "rate": 0.5, "momentum": 0.9, "scale": "mean"}
    plan, world = choose("fcf", {"rounds": 3, "hyper.dim": 2, "server": server}), short_world(9)
    through, restarted = (Town(tmp_path / name, plan, world, (1, 4, 4)).enrol() for name in ("through", "restarted"))
    through.play()
    for _ in range(restarted.kit.rounds):
        restarted.play(1)
        restarted.again()
    same(arrays(restarted.session.params), arrays(through.session.params))
    close(arrays(restarted.session.params), arrays(simulate(plan, world, seed=0, quiet=True).params))


@pytest.mark.slow
def test_stages_resume_at_their_border(tmp_path):
    """Counts first, then a table; the server is killed after every round."""
    stages = (*choose("popularity").stages, *choose("fcf", {"rounds": 2, "hyper.dim": 2}).stages)
    plan, world = Plan("both", stages), short_world(9)
    town = Town(tmp_path, plan, world, (1, 4, 4)).enrol()
    for _ in range(town.kit.rounds):
        town.play(1)
        town.again()
    assert [row["stage"] for row in town.session.folder.rows()] == [1, 2, 2]
    close(arrays(town.session.params), arrays(simulate(plan, world, seed=0, quiet=True).params))


def test_a_past_round_and_other_people_are_refused(town):
    town.session.open()
    name = names(town)[2]
    first = town.session.letter(name)
    town.play(2)
    assert "past round 0" in post(town.nodes[name], first).refused
    now = replace(first, round=1, people=np.array([0, 1], "<i4").tobytes())
    assert "for other people" in post(town.nodes[name], now).refused


def _killed(*_, **__):
    raise KeyError("killed here")


def _ledger(node: Node):
    purse = node.store.purse()
    purse.close()
    return purse.ledger


def _shard(node: Node) -> dict:
    purse = node.store.purse()
    purse.close()
    return purse.summary()


# ---- the rules of a round ----


def test_a_round_reaches_its_goal_without_everybody(tmp_path):
    plan = choose("fcf", {"rounds": 2, "hyper.dim": 2})
    town = Town(tmp_path, plan, short_world(9), (1, 4, 4), goal=0.8, rest=1).enrol()
    one, two, three = names(town)
    town.session.open()
    for name in (two, three):
        assert not town.session.enough
        late = post(town.nodes[one], town.session.letter(one))
        town.session.receive(post(town.nodes[name], town.session.letter(name)))
    assert town.session.enough
    row = town.session.close()
    assert (row["reports"], row["silent"]) == (8, [one])
    assert town.session.receive(late) is False  # it came after the round had closed
    town.session.open()
    assert one not in town.session.asked  # and rests for a round
    assert town.session.late == 1


def test_too_few_reports_release_nothing_and_the_round_is_opened_again(tmp_path):
    plan = choose("fcf", {"rounds": 1, "hyper.dim": 2})
    town = Town(tmp_path, plan, short_world(9), (1, 4, 4), minimum=5, tries=2).enrol()
    one, two, three = names(town)
    town.session.open()
    town.session.receive(post(town.nodes[three], town.session.letter(three)))
    assert town.session.close() is None
    same(arrays(town.session.params), arrays(town.kit.params))
    town.session.open()
    assert town.session.missing == [one, two]  # who has reported is not asked again
    assert town.session.close() is None
    town.again()
    with pytest.raises(RunError, match="was abandoned 2 times for want of 5 reports"):
        town.session.open()
    town.session = Session(town.folder / "run", town.kit, Terms(minimum=5, tries=3))
    town.session.open()
    town.session.receive(post(town.nodes[one], town.session.letter(one)))
    assert town.session.close()["reports"] == 5


def test_terms_are_checked():
    for wrong in ({"goal": 0.0}, {"deadline": -1.0}, {"minimum": -1}, {"tries": 0}):
        with pytest.raises(PlanError, match=f"Terms.{next(iter(wrong))} must be"):
            Terms(**wrong)
    with pytest.raises(PlanError, match="is a share, at most 1"):
        Terms(goal=1.5)


def test_nobody_enrols_beyond_the_price_or_grows_in_a_run(town):
    with pytest.raises(RunError, match="priced for 9 people; 9 have enrolled, and node new brings 1"):
        town.session.enrol(Answer("new", people=1))
    with pytest.raises(RunError, match="enrolled 1 people and now has 2"):
        town.session.enrol(Answer(names(town)[0], people=2))


def test_a_run_of_another_plan_folder_is_not_resumed(town, tmp_path):
    other = make_kit(tmp_path / "other", choose("popularity"), town.world.catalog, 9)
    with pytest.raises(RunError, match="resume it with its own"):
        Session(tmp_path / "run", other)


# ---- what a node refuses ----


def test_consent_is_off_until_somebody_agrees_and_a_pause_counts_at_once(town):
    name = names(town)[0]
    node = town.nodes[name]
    assert Store(town.folder / "fresh").create().takes_part is False
    town.session.open()
    node.store.agree(False)
    refused = post(node, town.session.letter(name))
    assert "does not take part" in refused.refused
    assert refused.report == b""
    with pytest.raises(WireError, match="stays silent"):
        town.session.receive(refused)
    assert node.store.run(RUN).done == 0
    node.store.agree(True)
    assert post(node, town.session.letter(name)).form == "report"


def test_a_foreign_plan_folder_is_refused(town):
    name = names(town)[0]
    ask = replace(town.session.hello(), digest="0" * 32)
    said = post(town.nodes[name], ask).refused
    assert "holds no plan folder 0000" in said
    assert town.kit.digest in said
    with pytest.raises(RunError, match="does not take part: This device holds no plan folder"):
        town.session.enrol(post(town.nodes[name], ask))


def test_letters_for_another_device_are_refused(town):
    town.session.open()
    one, two, _ = names(town)
    assert "another device" in post(town.nodes[one], town.session.letter(two)).refused


def test_only_the_server_that_the_plan_folder_names_is_obeyed(tmp_path):
    from tacit.deploy.signing import Signer, new_key

    public = new_key(tmp_path / "server.key")
    world = short_world(2)
    make_kit(tmp_path / "signed", COUNTING, world.catalog, 2, server=public)
    town = Town(tmp_path, COUNTING, world, (1, 1))
    node = next(iter(town.nodes.values()))
    kit = node.store.install(tmp_path / "signed")
    session, sign = Session.begin(tmp_path / "other", kit), Signer(tmp_path / "server.key")
    assert (tmp_path / "server.key").stat().st_mode & 0o777 == 0o600
    assert "not signed by the server" in post(node, session.hello()).refused
    assert post(node, sign(session.hello())).people == 1
    forged = replace(sign(session.hello()), run="another")
    assert "not signed by the server" in post(node, forged).refused
    with pytest.raises(PlanError, match="stays with the server"):
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
def test_a_letter_that_makes_no_sense_is_refused(town, change, words):
    town.session.open()
    name = names(town)[0]
    assert words in post(town.nodes[name], replace(town.session.letter(name), **change)).refused


def test_a_problem_at_home_is_told_at_home_alone(town):
    """The sentence would quote the history."""
    name = names(town)[0]
    said = []
    node = Node(town.nodes[name].store.path, said.append)
    secret = town.folder / "secret.csv"
    secret.write_text("item_id\na-secret\n")
    node.store.set(history=str(secret))
    town.session.open()
    refused = post(node, town.session.letter(name)).refused
    assert refused == "This device cannot answer; its own log says why."
    assert "a-secret" in said[0]


def test_a_promise_that_the_method_does_not_keep_is_refused_at_home(tmp_path, monkeypatch):
    plan = choose("popularity", {"privacy": {"mechanism": "randomized_response", "epsilon": 1.0}})
    town = Town(tmp_path, plan, short_world(2), (1, 1)).enrol()
    town.session.open()
    one, other = (town.session.letter(name) for name in names(town))
    assert not post(town.nodes[names(town)[0]], one).refused
    monkeypatch.setattr(method_class("popularity"), "item_by_item", False)
    assert "Stage 1 promises for one interaction" in post(town.nodes[names(town)[1]], other).refused


def test_a_broadcast_that_does_not_fit_is_refused_and_changes_nothing(town):
    town.session.open()
    name = names(town)[0]
    ask = replace(town.session.letter(name), params=b"TCIT")
    assert post(town.nodes[name], ask).refused
    assert town.nodes[name].store.run(RUN).done == 0


# ---- what the server refuses ----


def test_reports_are_checked_against_their_schema(town):
    town.session.open()
    name = names(town)[1]
    good = post(town.nodes[name], town.session.letter(name))
    with pytest.raises(WireError, match="truncated"):
        town.session.receive(replace(good, report=good.report[:-1]))
    with pytest.raises(WireError, match="oversized"):
        town.session.receive(replace(good, report=good.report + b"\0"))
    with pytest.raises(WireError, match="different plans"):
        town.session.receive(replace(good, form="report"))
    with pytest.raises(WireError, match="a report or a total"):
        town.session.receive(replace(good, form=""))
    assert town.session.receive(good) is True


def test_a_shard_cannot_count_for_more_people_than_were_asked(town):
    town.session.open()
    _, two, three = names(town)
    many = post(town.nodes[three], town.session.letter(three))
    town.session.asked[two] = town.session.asked[two][:3]
    with pytest.raises(WireError, match="of 3 people must count at most so many, got 4"):
        town.session.receive(replace(many, name=two))


def test_letters_are_checked():
    good = to_plain(Ask("hello", "d", "r"))
    assert from_plain(Ask, good) == Ask("hello", "d", "r")
    with pytest.raises(WireError, match="must have version 2, got 1"):
        from_plain(Ask, {**good, "version": 1})
    with pytest.raises(WireError, match="'extra' is missing or strange"):
        from_plain(Ask, {**good, "extra": 1})
    with pytest.raises(WireError, match="round must be of type int, got str"):
        from_plain(Ask, {**good, "round": "1"})


def test_a_signature_covers_every_part():
    """Two letters that differ anywhere are signed differently, also where parts only move their border."""
    base = Ask("round", "d", "r", "n", 1, 2, b"a", b"b")
    changes = {
        "kind": "end",
        "digest": "e",
        "run": "s",
        "to": "m",
        "stage": 0,
        "round": 0,
        "people": b"",
        "params": b"c",
        "dials": b"d",
    }
    words = {replace(base, **{name: value}).signed_words() for name, value in changes.items()}
    words |= {base.signed_words(), replace(base, people=b"ab", params=b"").signed_words()}
    assert len(words) == len(changes) + 2


# ---- plan folders ----


def test_a_plan_folder_reads_as_it_was_written_and_an_altered_one_is_refused(town):
    again = read_kit(town.folder / "kit")
    assert (again.plan, again.people, again.digest) == (town.kit.plan, 9, town.kit.digest)
    same(again.params, town.kit.params)
    with pytest.raises(PlanError, match="holds a plan already"):
        make_kit(town.folder / "kit", town.kit.plan, town.world.catalog, 9)
    text = (town.folder / "kit" / "plan.toml").read_text()
    (town.folder / "kit" / "plan.toml").write_text(text.replace("rounds = 3", "rounds = 4"))
    with pytest.raises(PlanError, match="does not match its digest"):
        read_kit(town.folder / "kit")
    with pytest.raises(PlanError, match=r"has no kit.json: it is not a plan folder"):
        read_kit(town.folder)


def test_a_plan_folder_of_another_version_is_refused(town):
    path = town.folder / "kit" / "kit.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "version": 9}))
    with pytest.raises(PlanError, match="of version 9, this Tacit reads 1"):
        read_kit(town.folder / "kit")


def test_pooled_plans_are_not_deployed(tmp_path):
    with pytest.raises(PlanError, match="cannot be deployed: stage 1 pools raw histories"):
        make_kit(tmp_path / "kit", choose("bpr-mf"), short_world(3).catalog, 3)


def test_a_key_is_never_copied_to_a_device(town):
    (town.folder / "kit" / "server.key").write_text("secret")
    store = Store(town.folder / "fresh").create()
    store.install(town.folder / "kit")
    assert not list(store.path.rglob("*.key"))


# ---- budgets and ledgers ----


@pytest.mark.parametrize("people", [(1, 1), (2,)], ids=["alone", "shard"])
def test_who_has_spent_the_budget_falls_silent(people, tmp_path):
    """A budget of 1.5 covers one message of 1; in the second run nobody is left."""
    town = Town(tmp_path, COUNTING, short_world(2), people)
    for node in town.nodes.values():
        node.store.limit(Budget(1.5))
    town.enrol().play()
    assert town.session.folder.rows()[0]["reports"] == 2
    second = Session.begin(tmp_path / "second", town.kit, run="second")
    for name, node in town.nodes.items():
        second.enrol(post(node, second.hello()))
        assert name in second.roll.members
    second.open()
    for name in second.missing:
        second.receive(post(town.nodes[name], second.letter(name)))
    assert second.reported == 0
    assert second.close() is None


def test_a_node_waits_while_its_owner_looks_into_the_ledger(tmp_path, monkeypatch):
    town = Town(tmp_path, COUNTING, short_world(2), (1, 1)).enrol()
    town.session.open()
    name = names(town)[0]
    looked_into = town.nodes[name].store.purse()
    with monkeypatch.context() as patch:
        patch.setattr("tacit.device.node.node.PATIENCE", 0.0)
        assert "cannot answer" in post(town.nodes[name], town.session.letter(name)).refused
    Timer(0.3, looked_into.close).start()
    assert post(town.nodes[name], town.session.letter(name)).form == "report"


def test_a_shards_ledger_counts_each_person_and_survives(tmp_path):
    page = ledger_entry_of(price(COUNTING, 10).stages[0], "plan", "run", 0, 0.0, 100)
    purse = ShardPurse(tmp_path / "ledger", ["a", "b", "c"], Budget(2.5))
    assert purse.allowances(page, 5).tolist() == [2, 2, 2]
    purse.reserve(page, np.array([0, 2]), "x")
    purse.reserve(page, np.array([0, 2]), "x")  # the same message
    with pytest.raises(DeviceError, match="was entered for another message"):
        purse.reserve(page, np.array([0, 2]), "y")
    purse.reserve(replace(page, round=1), np.array([0]), "z")
    purse.close()
    purse = open_purse(tmp_path / "ledger", ["c", "a", "d"], Budget(2.5))  # in another order, b gone, d new
    assert purse.allowances(page, 5).tolist() == [1, 0, 2]
    with pytest.raises(DeviceError, match="beyond the budget of 1 of its people"):
        purse.reserve(replace(page, round=2), np.array([1]), "w")
    purse.close()


@pytest.mark.parametrize("number", [0, 1], ids=["alone", "shard"])
def test_erase_leaves_the_ledger_alone_and_nothing_can_be_sent_again(number, tmp_path):
    town = Town(tmp_path, COUNTING, short_world(4), (1, 3)).enrol()
    town.session.open()
    name = names(town)[number]
    node = town.nodes[name]
    post(node, town.session.letter(name))
    assert node.store.erase() > 5
    assert [path.name for path in node.store.path.rglob("*") if path.is_file()] == ["ledger"]
    with pytest.raises(DeviceError, match="is no device's home"):
        _ = node.store.name
    fresh = town.settle(
        node.store.path.name, town.folder / f"{number}.parquet", np.zeros((1 + 2 * number, 2), np.uint32)
    )
    ask = replace(town.session.letter(name), to=fresh.store.name)
    assert post(fresh, ask).refused == "This device cannot answer; its own log says why."


# ---- a node's log ----


def test_a_log_is_read_as_the_catalog_numbers_it(tmp_path):
    world = short_world(3)
    kit = make_kit(tmp_path / "kit", COUNTING, world.catalog, 3, names=[f"item {n}" for n in range(12)])
    path = tmp_path / "log.csv"
    path.write_text("user_id,item_id,datetime\nb,item 3,2026-01-02\na,item 1,2026-01-03\na,item 2,2026-01-01\n")
    people = read_log(path, kit)
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
    kit = make_kit(tmp_path / "kit", COUNTING, short_world(3).catalog, 3, names=[f"item {n}" for n in range(12)])
    path = tmp_path / "log.csv"
    path.write_text(text)
    with pytest.raises(DataError, match=words):
        read_log(path, kit)


def test_a_log_that_is_no_table_is_refused(tmp_path):
    kit = make_kit(tmp_path / "kit", COUNTING, short_world(3).catalog, 3)
    with pytest.raises(DataError, match=r"must be a .csv or .parquet file"):
        read_log(tmp_path / "log.txt", kit)
    with pytest.raises(DataError, match="does not exist"):
        read_log(tmp_path / "log.csv", kit)
    for strange in ("some words", "12", "-1"):
        (tmp_path / "strange.csv").write_text(f"item_id\n{strange}\n")
        with pytest.raises(DataError, match="items are numbers from 0 to 11, got"):
            read_log(tmp_path / "strange.csv", kit)


def test_people_of_a_shard_do_not_change_within_a_run(town):
    town.play(1)
    name = names(town)[1]
    write_history(Path(town.nodes[name].store.settings["history"]), town.world, 1, 2)
    town.session.open()
    assert "other people; wait for the next run" in post(town.nodes[name], town.session.letter(name)).refused
