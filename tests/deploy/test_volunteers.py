"""Stages that ask volunteers alone, on real devices: who volunteers is said at home, and the claim is for everybody else."""

import json

import jax
import numpy as np
import pytest
from typer.testing import CliRunner

from support.deployment import RUN, Deployment, post, short_world, stranger
from support.toys import close
from tacit.cli import app
from tacit.core.plan import Plan
from tacit.device.node.store import Store
from tacit.errors import DeviceError, PlanError, RunError, WireError
from tacit.lab.plans.loader import choose
from tacit.lab.plans.publish import make_bundle
from tacit.lab.runs.run import simulate
from tacit.privacy.sampler import build_sampler
from tacit.server.session.session import Session

pytestmark = pytest.mark.filterwarnings("ignore::tacit.lab.analysis.feasibility.FeasibilityWarning")
COHORT = {"sampler": "volunteers", "count": 2, "share": 0.5}
FIRST = choose("fcf", {"rounds": 3, "hyper.dim": 2, "cohort": COHORT}).stages
THEN = choose("fcf", {"rounds": 2, "hyper.dim": 2, "privacy.mechanism": "laplace", "privacy.epsilon": 1.0}).stages
PLAN = Plan("asks-some", (*FIRST, *THEN))
PEOPLE = 9
AGREED = np.flatnonzero(build_sampler(COHORT).reach(PEOPLE))
HOMES = (1, 4, 4)


def volunteer(deployment: Deployment, ids: np.ndarray) -> Deployment:
    """These people of the plan, and nobody else, volunteer at home."""
    first = 0
    for node, count in zip(deployment.nodes.values(), HOMES):
        users = node.people(deployment.bundle).users
        mine = [users[one - first] for one in ids if first <= one < first + count]
        node.store.volunteer(node.store.volunteering, agreed=False)
        node.store.volunteer(mine, agreed=True)
        first += count
    return deployment


@pytest.fixture
def deployment(tmp_path) -> Deployment:
    return Deployment(tmp_path, PLAN, short_world(PEOPLE), HOMES)


# ---- the simulator's parameters ----


@pytest.mark.slow
def test_with_the_same_volunteers_a_deployment_ends_where_the_simulator_does(deployment):
    volunteer(deployment, AGREED).enrol().play()
    run = simulate(PLAN, deployment.world, seed=0, quiet=True)
    close(*(jax.tree.map(np.asarray, one.params) for one in (deployment.session, run)))
    rows = deployment.session.folder.rows()
    assert [row["reports"] for row in rows] == [2, 2, 2, PEOPLE, PEOPLE]


@pytest.mark.slow
def test_two_stages_of_privrec_with_volunteers_end_where_the_simulator_does(tmp_path):
    from tacit.lab.data.synthetic import movies

    small = {"1.hyper.dim": 4, "2.hyper.dim": 4, "2.hyper.hidden": (4,), "2.hyper.epochs": 1, "2.hyper.most": 8}
    small |= {"1.hyper.window": 8, "2.hyper.window": 8, "1.hyper.steps": 2, "1.rounds": 2, "2.rounds": 2}
    plan = choose("dp-privrec-two-optin", {**small, "1.cohort": COHORT, "2.cohort.count": 4})
    deployment = volunteer(Deployment(tmp_path, plan, movies(PEOPLE, 50, seed=0), HOMES), AGREED).enrol().play()
    run = simulate(plan, deployment.world, seed=0, quiet=True)
    close(*(jax.tree.map(np.asarray, one.params) for one in (deployment.session, run)))


def test_the_claim_is_for_everybody_else_and_volunteers_have_their_own_beside_it(deployment):
    cost = deployment.bundle.price
    assert cost.whole.conditions[0].startswith(f"for all other users, each replaced by any user: {AGREED.size} agreed")
    assert cost.whole.epsilon == pytest.approx(1.0)
    assert cost.beside[0].epsilon == float("inf")


# ---- who is asked ----


def test_only_volunteers_are_asked_and_charged(deployment):
    volunteer(deployment, AGREED).enrol().play()
    first = 0
    for node, count in zip(deployment.nodes.values(), HOMES):
        node_ledger = node.store.ledger()
        node_ledger.close()
        stages = (
            {entry.stage for entry in node_ledger.ledger.entries}
            if count == 1
            else {stage for _, stage, _ in node_ledger._entered}
        )
        anybody = np.isin(np.arange(first, first + count), AGREED).any()
        assert stages <= ({0, 1} if anybody else {1})
        first += count
    asked = [set(row["asked"]) for row in deployment.session.folder.rows() if row["stage"] == 1]
    assert set.union(*asked) <= {
        name for name in deployment.nodes if deployment.session.enrolment.members[name].volunteers
    }


def test_nothing_begins_before_as_many_volunteer_as_the_price_counts_on(deployment):
    volunteer(deployment, AGREED[1:]).enrol()
    assert deployment.session.enrolment.people == PEOPLE
    assert not deployment.session.ready
    assert deployment.session.enrolled == f"9 of 9 people and {AGREED.size - 1} of {AGREED.size} volunteers"
    volunteer(deployment, AGREED).enrol()
    assert deployment.session.ready


def test_where_more_volunteer_those_who_came_first_are_asked_and_the_price_stays_true(deployment):
    volunteer(deployment, np.arange(PEOPLE)).enrol()
    asked = set()
    for turn in range(60):
        deployment.session._draws = turn
        asked |= {(name, one) for name, ids in deployment.session._draw().items() for one in ids.tolist()}
    members = deployment.session.enrolment.members
    assert {members[name].first + one for name, one in asked} == set(range(AGREED.size))


def test_once_a_round_was_opened_the_roll_is_sealed_also_after_a_crash(deployment):
    volunteer(deployment, AGREED).enrol()
    before = deployment.session.enrolment.volunteers.tolist()
    deployment.session.open()
    deployment.restart()
    volunteer(deployment, np.arange(PEOPLE)).enrol()
    assert deployment.session.enrolment.volunteers.tolist() == before == AGREED.tolist()


# ---- at home ----


def test_nobody_volunteers_until_they_say_so_and_the_server_hears_of_it_only_where_it_matters(deployment, tmp_path):
    assert Store(tmp_path / "fresh").create().volunteering == []
    node = next(iter(deployment.nodes.values()))
    assert post(node, deployment.session.hello()).volunteers == b""
    node.store.volunteer(node.people(deployment.bundle).users, agreed=True)
    assert post(node, deployment.session.hello()).volunteers == np.zeros(1, "<i4").tobytes()
    bundle = make_bundle(tmp_path / "plain", choose("fcf", {"rounds": 1}), deployment.world.catalog, PEOPLE)
    node.store.install(tmp_path / "plain")
    assert post(node, Session.begin(tmp_path / "other", bundle).hello()).volunteers == b""


def test_a_server_that_asks_somebody_who_does_not_volunteer_is_refused(deployment):
    """A mutant: it takes everybody for a volunteer. Each device answers for those who do."""
    volunteer(deployment, AGREED).enrol()
    deployment.session.open()
    for name, node in deployment.nodes.items():
        people = deployment.session.enrolment.members[name].people
        deployment.session.cohort[name] = np.arange(people, dtype="<i4")
        said = post(node, deployment.session.request(name))
        willing = node.store.volunteers(node.people(deployment.bundle).users).size == people
        assert bool(said.report) == willing
        assert willing or "is for volunteers only" in said.refused
        assert willing or node.store.run(RUN).done == 0


def test_a_withdrawal_counts_at_once_and_leaves_the_other_stages_alone(deployment):
    volunteer(deployment, AGREED).enrol()
    deployment.session.open()
    name = next(iter(deployment.session.cohort))
    node, request = deployment.nodes[name], deployment.session.request(name)
    assert post(node, request).report
    node.store.volunteer(node.store.volunteering, agreed=False)
    assert "is for volunteers only" in post(node, request).refused  # not even the same bytes again
    assert node.store.takes_part
    node.store.agree(False)
    node.store.agree(True)
    assert node.store.volunteering == []  # agreeing to take part is not agreeing to that
    everybody = np.arange(deployment.session.enrolment.members[name].people, dtype="<i4")
    deployment.session.done, deployment.session.cohort = 3, {name: everybody}
    assert post(node, deployment.session.request(name)).report


@pytest.mark.parametrize("wrong", [b"\0\0\0", np.array([1], "<i4").tobytes(), np.array([0, 0], "<i4").tobytes()])
def test_volunteers_that_a_node_does_not_hold_are_refused(deployment, wrong):
    with pytest.raises(WireError, match="must name its volunteers from 0 to 0, ascending, each once"):
        deployment.session.enrol(stranger(deployment, people=1, volunteers=wrong))


def test_public_histories_are_not_asked_of_devices(tmp_path):
    plan = choose(PLAN, {"1.cohort.because": "public"})
    with pytest.raises(PlanError, match="stage 1 reads histories that are public, which no device has to send"):
        make_bundle(tmp_path / "bundle", plan, short_world(3).catalog, PEOPLE)


# ---- over a grid ----


def test_a_run_waits_for_volunteers_and_begins_when_they_have_agreed(deployment, monkeypatch):
    pytest.importorskip("flwr")
    from support.grid import Grid, hurry
    from tacit.server.session.flower import RoundLoop

    hurry(monkeypatch)
    volunteer(deployment, AGREED[1:])
    hellos = []

    def fate(number, request):
        hellos.append(request.kind)
        if hellos.count("hello") == 2 * len(HOMES):
            volunteer(deployment, AGREED)
        return "reply"

    said: list[str] = []
    RoundLoop(deployment.session, Grid(deployment, fate), log=said.append).play()
    assert deployment.session.finished
    assert any(f"{AGREED.size - 1} of {AGREED.size} volunteers have enrolled" in words for words in said)
    assert "hello" not in hellos[hellos.index("round") :]  # who has enrolled is left in peace


def test_too_few_volunteers_are_a_sentence(deployment, monkeypatch):
    pytest.importorskip("flwr")
    from support.grid import Grid, hurry
    from tacit.server.session.flower import RoundLoop

    hurry(monkeypatch)
    deployment.session.policy = type(deployment.policy)(wait=0.3)
    with pytest.raises(RunError, match=r"volunteers had enrolled; .*people volunteer by `tacit device volunteer`"):
        RoundLoop(deployment.session, Grid(deployment), log=lambda words: None).play()


# ---- commands ----


def tacit(*words: object) -> str:
    result = CliRunner().invoke(app, [str(word) for word in words], standalone_mode=False)
    if result.exception is not None:
        raise result.exception
    return result.stdout


def test_people_volunteer_and_withdraw_by_command_and_are_told_the_price(deployment):
    home = ["--home", deployment.folder / "home1"]
    printed = tacit("device", "volunteer", *home, "--user", "000001")
    assert "asks-some: ε = ∞ per run" in printed
    assert f"for volunteers: {AGREED.size} agreed to take part in stage 1" in printed
    assert "1 people of this device volunteer" in printed
    assert json.loads(tacit("device", "status", *home, "--json"))["volunteers"] == 1
    tacit("device", "volunteer", *home)
    assert "volunteers  4" in tacit("device", "status", *home)
    tacit("device", "withdraw", *home, "--user", "000001")
    assert Store(home[1]).volunteering == ["000000", "000002", "000003"]
    tacit("device", "withdraw", *home)
    assert Store(home[1]).volunteering == []
    with pytest.raises(DeviceError, match="This device has no person '00001'; did you mean '000001'"):
        tacit("device", "volunteer", *home, "--user", "00001")


def test_where_no_plan_asks_volunteers_there_is_nothing_to_agree_to(tmp_path):
    Deployment(tmp_path, choose("fcf", {"rounds": 1, "hyper.dim": 2}), short_world(2), (1, 1))
    with pytest.raises(DeviceError, match="No plan folder of this device needs volunteers"):
        tacit("device", "volunteer", "--home", tmp_path / "home0")
