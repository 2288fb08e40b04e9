"""The friendly face in Python: a table in, a table out; strangers, updates, folders."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pandas as pd
import polars as pl
import pytest
from polars.testing import assert_frame_equal

import tacit
from tacit.errors import DataError, PlanError, RunError
from tacit.lab.data.synthetic.small import taste_groups
from tacit.privacy.budget import Budget

pytestmark = pytest.mark.filterwarnings("ignore::tacit.lab.analysis.feasibility.FeasibilityWarning")


def table(people=40, items=20, events=600, seed=0) -> pl.DataFrame:
    rng = np.random.default_rng(seed)
    return pl.DataFrame(
        {
            "user_id": [f"u{n}" for n in rng.integers(people, size=events)],
            "item_id": [f"i{n}" for n in rng.zipf(1.5, events) % items],
            "datetime": rng.integers(1_600_000_000, 1_700_000_000, events),
        }
    )


@pytest.fixture(scope="module")
def run():
    return tacit.simulate("fcf", table(), settings={"rounds": 3, "hyper.dim": 4}, protocol="full", quiet=True)


def test_a_list_without_a_score_is_empty_and_says_so(run):
    lost = replace(run, params={**run.params, "items": run.params["items"] * jnp.nan})
    with pytest.warns(UserWarning, match=r"Nothing is listed for 2 of 2 users: no candidate is left, or scores are no"):
        assert lost.recommend(users=["u3", "u17"]).height == 0


def test_a_table_in_and_a_table_out(run):
    found = run.recommend(users=["u3", "u17"], k=4)
    assert found.columns == ["user_id", "item_id", "score", "rank"]
    assert found["user_id"].to_list() == ["u3"] * 4 + ["u17"] * 4
    assert found["rank"].to_list() == [1, 2, 3, 4] * 2
    for user in ("u3", "u17"):
        mine = found.filter(pl.col("user_id") == user)
        assert mine["score"].is_sorted(descending=True)
        device = run.population.users.index(user)
        has = run.population.items[run.population.offsets[device] : run.population.offsets[device + 1]]
        assert not set(mine["item_id"]) & {run.population.item_names[item] for item in has}


def test_pandas_stays_pandas():
    run = tacit.simulate("popularity", table().to_pandas(), quiet=True)
    assert isinstance(run.recommend(users="u3", k=2), pd.DataFrame)


def test_scores_are_the_methods_own(run):
    found = run.recommend(users=["u3"], k=5, filter_seen=False)
    device = run.population.users.index("u3")
    bucket = next(bucket for bucket in run.buckets if device in bucket.ids)
    place = int(np.searchsorted(bucket.ids, device))
    import jax

    from tacit.device.round import adapt

    home, own = jax.tree.map(lambda leaf: leaf[place], (bucket.home, bucket.own))
    local = adapt(run.method, 0, run.params, home, own).local["0"]
    items = np.array([run.population.item_names.index(name) for name in found["item_id"]])
    scores = run.method.score(run.params, local, own, np.full(10, -1), items)
    np.testing.assert_allclose(found["score"].to_numpy(), scores, rtol=1e-4)


def test_everybody_by_default_and_fewer_than_k_where_there_are_no_more(run):
    everybody = run.recommend(k=1, filter_seen=False)
    assert everybody["user_id"].to_list() == run.population.users
    few = run.recommend(users=["u3"], k=50, candidates=["i1", "i2", "i3"], filter_seen=False)
    assert sorted(few["item_id"]) == ["i1", "i2", "i3"]


def test_a_stranger_adapts_and_is_not_kept(run):
    before = len(run.population)
    one, other = (run.recommend(history=history, k=3)["item_id"].to_list() for history in (["i1"], ["i2", "i3"]))
    assert one != other
    assert "i1" not in one
    assert len(run.population) == before
    popular = tacit.simulate("popularity", table(), quiet=True)
    assert popular.recommend(history=[], k=1)["item_id"][0] == popular.recommend(history=["i19"], k=1)["item_id"][0]


def test_a_stranger_with_somebodys_history_gets_their_list():
    """A closed-form user vector depends on the history alone."""
    run = tacit.simulate("fcf", table(), settings={"rounds": 3, "hyper.dim": 4}, quiet=True)
    device = run.population.users.index("u3")
    items = run.population.items[run.population.offsets[device] : run.population.offsets[device + 1]]
    theirs = run.recommend(users=["u3"], k=5)
    mine = run.recommend(history=[run.population.item_names[item] for item in items], k=5)
    assert theirs["item_id"].to_list() == mine["item_id"].to_list()


@pytest.mark.parametrize(
    "name", ["fcf", "mfu", *(pytest.param(name, marks=pytest.mark.slow) for name in ("popularity", "itemknn", "sr"))]
)
def test_saved_and_loaded_it_says_the_same(tmp_path, name):
    settings = {"rounds": 2} if name == "fcf" else None
    run = tacit.simulate(name, table(), settings=settings, protocol="full", quiet=True)
    run.save(tmp_path / "kept")
    again = tacit.Run.load(tmp_path / "kept")
    assert_frame_equal(run.recommend(k=5), again.recommend(k=5))
    assert_frame_equal(run.recommend(history=["i1"], k=5), again.recommend(history=["i1"], k=5))
    assert again.metrics == run.metrics
    assert again.plan.digest == run.plan.digest
    assert [page.run for page in again.ledgers.pages] == [page.run for page in run.ledgers.pages]


@pytest.mark.slow
def test_a_run_folder_loads_with_its_log(tmp_path):
    settings = {"rounds": 2, "privacy.mechanism": "laplace", "privacy.epsilon": 50.0}
    budget = Budget(100.0)
    run = tacit.simulate("fcf", table(), settings=settings, quiet=True, out=tmp_path / "run", budget=budget)
    with pytest.raises(RunError, match="not saved with its people"):
        tacit.Run.load(tmp_path / "run")
    with pytest.raises(RunError, match="another log"):
        tacit.Run.load(tmp_path / "run", table(seed=5))
    again = tacit.Run.load(tmp_path / "run", table())
    assert_frame_equal(run.recommend(k=3), again.recommend(k=3))
    assert again.budget == budget
    run.save(tmp_path / "run")
    assert_frame_equal(run.recommend(k=3), tacit.Run.load(tmp_path / "run").recommend(k=3))


def test_update_goes_on_with_people_items_and_ledgers(run):
    fresh = pl.DataFrame({"user_id": ["u3", "zed"], "item_id": ["i1", "novelty"], "datetime": [1_710_000_000] * 2})
    later = run.update(fresh, rounds=2, quiet=True)
    assert len(later.population) == len(run.population) + 1
    assert later.population.item_names[:-1] == run.population.item_names
    assert later.population.item_names[-1] == "novelty"
    assert later.recommend(users=["zed"], k=2).height == 2
    assert len(later.rounds) == 2
    assert len(later.ledgers.pages) == 2
    sent = later.ledgers.sent.sum(1)
    assert sent[later.population.users.index("zed")] == 2
    assert sent[later.population.users.index("u3")] == 5
    moved = np.abs(np.asarray(later.params["items"])[:-1] - np.asarray(run.params["items"])).max()
    start = np.abs(np.asarray(run.params["items"])).max()
    assert 0 < moved < start, "it went on from what was learned"


@pytest.mark.slow
def test_update_keeps_the_budget_and_private_state():
    settings = {"rounds": 2, "privacy.mechanism": "laplace", "privacy.epsilon": 2.0}
    run = tacit.simulate("fcf", table(), settings=settings, quiet=True, budget=Budget(3.0))
    later = run.update(table(seed=1, events=50), quiet=True)
    assert later.spent()["epsilon"]["worst"] == 3.0
    assert (
        run.update(table(seed=1, events=50), rounds=1, quiet=True, budget=Budget(9.0)).spent()["budget"]["epsilon"]
        == 9.0
    )


def test_epsilon_in_one_word():
    run = tacit.simulate("fcf", table(), epsilon=8, settings={"privacy.mechanism": "gaussian", "rounds": 2}, quiet=True)
    assert 7.9 < run.price.whole.epsilon <= 8
    assert tacit.simulate("fcf", table(), epsilon=8, settings={"rounds": 2}, quiet=True).plan.digest == run.plan.digest
    with pytest.raises(PlanError, match="epsilon = 8 needs a stage that sends updates, and mfu has none"):
        tacit.simulate("mfu", table(), epsilon=8, quiet=True)


def test_what_cannot_be_asked_is_said_in_a_sentence(run):
    whole = tacit.simulate("mfu", table(), quiet=True)
    with pytest.raises(PlanError, match="learned from the whole log"):
        whole.evaluate()
    with pytest.raises(DataError, match=r"knows no user 'nobody'.*history"):
        run.recommend(users=["nobody"])
    with pytest.raises(DataError, match="users or a history, not both"):
        run.recommend(users=["u3"], history=["i1"])
    with pytest.raises(DataError, match="k must be at least 1"):
        run.recommend(k=0)
    with pytest.raises(DataError, match="no item 'i99'"):
        run.recommend(history=["i99"])
    with pytest.raises(DataError, match="at least one item"):
        run.recommend(candidates=[])
    with pytest.raises(DataError, match="same columns: the run's log has times"):
        run.update(table().drop("datetime"))


def test_evaluate_asks_again_and_by_another_protocol(run):
    first = dict(run.metrics)
    assert run.evaluate("full") == first
    with pytest.raises(DataError, match="99 negatives"):
        run.evaluate("dplcf")
    with pytest.raises(PlanError, match=r"no protocol 'ful'.*'full'"):
        run.evaluate("ful")
    wide = tacit.simulate("popularity", taste_groups(60, 200, seed=1), protocol="full", quiet=True)
    assert set(wide.evaluate("dplcf")) == {"HR@5", "NDCG@5", "HR@10", "NDCG@10"}


def test_a_notebook_shows_it(run):
    page = run._repr_html_()
    for word in ("fcf", "NDCG@10", "∞", "devices"):
        assert word in page
    assert "40 devices" in repr(run)


def test_logs_without_names_go_by_number():
    run = tacit.simulate("popularity", taste_groups(30, 20, events=8, seed=1), quiet=True)
    assert run.recommend(users=[3], k=2)["user_id"].to_list() == [3, 3]
    assert run.recommend(history=[1, 2], k=2).height == 2
    with pytest.raises(DataError, match="from 0 to 19"):
        run.recommend(history=[99])
