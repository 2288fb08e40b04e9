"""A device and the simulator recommend the same items in the same order, ties included, from the same history."""

from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest

from support.deployment import RUN, Deployment, post, write_history
from tacit.core.catalog import Catalog
from tacit.core.plan import Plan
from tacit.core.run_folder import write_arrays
from tacit.deploy.bundle import Bundle
from tacit.device import ranking
from tacit.device.node import recommend as node_recommend
from tacit.device.node.node import Node
from tacit.device.node.store import Store
from tacit.errors import PlanError
from tacit.lab.data import Population, from_events
from tacit.lab.evaluation import splits
from tacit.lab.evaluation.scoring import top_lists
from tacit.lab.experiments.variants import applicable_settings
from tacit.lab.plans.loader import choose, load_plan, plan_names
from tacit.lab.plans.publish import make_bundle
from tacit.lab.runs import recommend as run_recommend
from tacit.lab.runs.run import Run, simulate
from tacit.lab.simulation.buckets import device_secrets
from tacit.lab.simulation.setup import run_keys

PEOPLE, ITEMS = 4, 150
SMALL = {
    "hyper.dim": 8, "hyper.hidden": 4, "hyper.width": 8, "hyper.tokens": 4, "hyper.heads": 2, "hyper.most": 20,
    "hyper.epochs": 1, "hyper.levels": 2, "hyper.short": 3, "hyper.batch": 8, "hyper.triples": 20,
}  # fmt: skip
DEEP = {**SMALL, "hyper.hidden": [8]}


def long_world() -> Population:
    """Histories of 81 to 96 events: longer than what any recommendation sees, and of one padded length."""
    rng = np.random.default_rng(5)
    user = np.repeat(np.arange(PEOPLE), rng.integers(81, 97, PEOPLE))
    return from_events(user, rng.integers(ITEMS, size=user.size), n_items=ITEMS)


def untrained(name: str) -> Plan:
    """A small plan without rounds: these tests do not depend on what is learned."""
    plan = load_plan(name)
    for number in range(1, len(plan.stages) + 1):
        for path, value in [("rounds", 0), *SMALL.items()]:
            wanted = {f"{number}.{path}": value} if number > 1 else {path: value}
            for setting in (wanted, {key: DEEP.get(path) for key in wanted}):
                try:
                    plan = choose(plan, applicable_settings(plan, setting))
                    break
                except PlanError:
                    continue
    return choose(plan, {f"{number}.rounds": 0 for number in range(1, len(plan.stages) + 1)})


def home(folder: Path, plan: Plan, world: Population, seed: int = 0) -> Node:
    """A node of everybody, with the secrets that the simulator gives them, that has begun a run."""
    make_bundle(folder / "bundle", plan, world.catalog, len(world), seed=seed)
    write_history(folder / "log.parquet", world, 0, len(world))
    store = Store(folder / "home").create()
    bundle = store.install(folder / "bundle")
    store.set(history=str(folder / "log.parquet"))
    kept = store.run(RUN)
    kept.path.mkdir()
    own = np.asarray(device_secrets(run_keys(seed)[0], np.arange(len(world))))
    write_arrays(kept.path / "secrets.npz", {"secrets": own})
    node = Node(store.path)
    kept.begin(bundle.digest, node.people(bundle).users, False)
    return node


def drawn(params: dict) -> dict:
    """Random parameters without ties, in place of learned ones."""
    rng = np.random.default_rng(7)

    def one(leaf: jax.Array) -> np.ndarray:
        if np.issubdtype(leaf.dtype, np.integer):
            return rng.integers(ITEMS, size=leaf.shape).astype(leaf.dtype)
        return np.asarray(leaf + rng.normal(size=leaf.shape), leaf.dtype)

    return {name: jax.numpy.asarray(one(leaf)) for name, leaf in params.items()}


def deployable(name: str) -> bool:
    """Whether a plan folder of the plan can be made."""
    try:
        Bundle(load_plan(name), Catalog(1), {}, 1, ())
    except PlanError:
        return False
    return True


def same_lists(run: Run, node: Node, person: int, **options) -> int:
    """Hold the two against each other; how many items they list."""
    here = node_recommend.recommend_on_device(node, f"{person:06d}", **options)
    there = run.recommend(users=[person], **options)
    assert [int(one.item) for one in here] == there["item_id"].to_list()
    np.testing.assert_allclose([one.score for one in here], there["score"].to_numpy(), rtol=2e-4, atol=2e-5)
    return len(here)


DEPLOYABLE = [name for name in plan_names() if deployable(name)]
METHODS = {load_plan(name).stages[-1].method: name for name in reversed(DEPLOYABLE)}  # one plan of each
LATER = {
    "fedseqrec",
    "masks",
    "privrec",
    "handshake",
    "random",
    "seqmf_ce",
    "sr_od",
    "mfu",
}  # in the second step, as most plans
QUICK = {plan for method, plan in METHODS.items() if method not in LATER}


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in DEPLOYABLE]
)
def test_the_simulator_and_a_device_list_the_same(name, tmp_path):
    world, plan = long_world(), untrained(name)
    run = simulate(plan, world, quiet=True)
    run = replace(run, params=drawn(run.params))
    node = home(tmp_path, plan, world)
    node.store.run(RUN).keep_broadcast({name: np.asarray(leaf) for name, leaf in run.params.items()})
    for person in (0, PEOPLE - 1):
        assert same_lists(run, node, person, k=ITEMS, filter_seen=False) == ITEMS
    assert 0 < same_lists(run, node, 0, k=ITEMS) < ITEMS


def test_the_plans_that_can_be_deployed_are_found():
    assert {"fcf", "fpl", "seqmf", "on-device", "popularity", "dplcf", "fedseqrec", "dp-privrec"} <= set(DEPLOYABLE)
    assert not {"itemknn", "fedgnn", "dp-privrec-two-public"} & set(DEPLOYABLE)


def test_there_is_one_constant_for_the_recent_past():
    assert splits.RECENT is ranking.RECENT
    assert node_recommend.RECENT is ranking.RECENT
    assert run_recommend.RECENT is ranking.RECENT
    assert splits.leave_last_out(long_world()).test.recent.shape[1] == ranking.RECENT


@pytest.mark.parametrize("name", ["on-device", "seqmf-eb", "seqmf-no-noise", "mru"])
def test_another_number_of_recent_events_changes_the_lists(name, tmp_path, monkeypatch):
    """These plans read more than the newest 10 events, so the comparison above is able to fail."""
    run = simulate(untrained(name), long_world(), quiet=True)
    lists = [run.recommend(k=20, filter_seen=False)["item_id"].to_list()]
    monkeypatch.setattr(run_recommend, "RECENT", 10)
    lists.append(run.recommend(k=20, filter_seen=False)["item_id"].to_list())
    assert lists[0] != lists[1]


def test_ties_are_broken_alike_and_differently_for_each_user(tmp_path):
    """All scores are 0, so a list is the order of ties."""
    world, plan = long_world(), untrained("popularity")
    run, node = simulate(plan, world, quiet=True), home(tmp_path, plan, world)
    node.store.run(RUN).keep_broadcast({name: np.asarray(leaf) for name, leaf in run.params.items()})
    lists = []
    for person in range(PEOPLE):
        same_lists(run, node, person, k=30)
        lists.append(run.recommend(users=[person], k=30, filter_seen=False)["item_id"].to_list())
    assert len({tuple(some) for some in lists}) == PEOPLE
    assert all(some != sorted(some) for some in lists), "not the order of the catalog"


def test_evaluation_lists_what_is_recommended():
    held = splits.leave_last_out(long_world())
    run = simulate(choose("on-device"), held.train, quiet=True)
    devices, lists = top_lists(run, held, 7)
    recommended = run.recommend(users=devices.tolist(), k=7)
    assert lists.ravel().tolist() == recommended["item_id"].to_list()
    assert not np.array_equal(lists, top_lists(run, held, 7, seed=1)[1]), "another seed settles ties otherwise"


@pytest.mark.parametrize("name", ["seqmf-no-noise", pytest.param("seqmf-eb", marks=pytest.mark.slow)])
def test_lists_are_the_same_after_learning(name, tmp_path):
    """A whole deployment, message by message: nodes of 1 and 3 users learn, then recommend without the server."""
    world, plan = (
        long_world(),
        choose(name, applicable_settings(load_plan(name), {"rounds": min(2, load_plan(name).stages[0].rounds)})),
    )
    deployment = Deployment(tmp_path, plan, world, (1, PEOPLE - 1)).enrol().play()
    run = simulate(plan, world, seed=0, quiet=True)
    for called, node in deployment.nodes.items():
        post(node, deployment.session.final_request(called))
    alone, shard = deployment.nodes.values()
    for person, node, called in ((0, alone, None), (2, shard, "000001")):
        here = node_recommend.recommend_on_device(node, called, k=20)
        there = run.recommend(users=[person], k=20)
        assert [int(one.item) for one in here] == there["item_id"].to_list()
        np.testing.assert_allclose([one.score for one in here], there["score"].to_numpy(), rtol=1e-3, atol=1e-4)
