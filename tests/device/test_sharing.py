"""What each person discloses, in the simulator: a share of their own from a column of the log, and items never shared."""

import json
from dataclasses import replace

import jax
import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

from support.toys import close
from tacit.cli import app
from tacit.device.histories import check_people
from tacit.errors import DataError, PlanError
from tacit.lab.analysis.feasibility import assess_feasibility
from tacit.lab.analysis.report_data import report_data
from tacit.lab.audits.claim_audit import audit
from tacit.lab.audits.fpl_reconstruction import leakage
from tacit.lab.data.datasets import as_population
from tacit.lab.data.interactions import interactions
from tacit.lab.data.organisations import organisations
from tacit.lab.data.population import extend_log
from tacit.lab.data.selection import pick, take
from tacit.lab.experiments.compare import compare
from tacit.lab.experiments.trial import trial
from tacit.lab.plans.loader import choose
from tacit.lab.runs.run import Run, simulate
from tacit.lab.simulation.buckets import prepare_devices
from tacit.lab.simulation.federation import Federation, Performance

USERS, EACH, ITEMS = 12, 8, 30
OWN = {"rounds": 5, "hyper.dim": 4, "hyper.own_pi": "openness"}


def table(openness=None, **columns) -> pl.DataFrame:
    """A log with a share of each user's own, the same in all their rows."""
    rng = np.random.default_rng(0)
    user = np.repeat(np.arange(USERS), EACH)
    item = np.concatenate([rng.permutation(ITEMS)[:EACH] for _ in range(USERS)])
    shares = np.linspace(0, 1, USERS).tolist() if openness is None else openness
    own = pl.Series("openness", [shares[one] for one in user])
    return pl.DataFrame({"user_id": [f"u{one:02d}" for one in user], "item_id": item, **columns}).with_columns(own)


def pis(run: Run) -> np.ndarray:
    """Everybody's π, as the method has it."""
    return np.asarray(prepare_devices(run.method, run.population, np.arange(len(run.population)), EACH).pi)


# ---- a share of one's own ----


def test_a_column_of_a_table_is_enough():
    run = simulate("fpl", table(), settings=OWN, quiet=True)
    np.testing.assert_allclose(pis(run), np.linspace(0, 1, USERS), rtol=1e-6)


def test_a_table_of_people_or_an_explicit_column_will_do_too():
    shares = pl.DataFrame({"user_id": [f"u{one:02d}" for one in range(USERS)], "openness": np.linspace(0, 1, USERS)})
    of_table = interactions(table().drop("openness"), people=shares)
    of_log = interactions(table(), person=["openness"])
    assert of_table.digest == of_log.digest
    assert of_table.catalog.person_fields == of_log.catalog.person_fields
    simulate(choose("fpl", OWN), of_table, quiet=True)


def test_each_discloses_the_share_they_chose():
    """Whoever chose 0 shows none of their items, whoever chose 1 one in every message."""
    log = interactions(table([float(one % 2) for one in range(USERS)]), person=["openness"])
    run = simulate("fpl", log, settings=OWN, quiet=True)
    seen = [one for one in leakage(run, (20,), ("sign",), devices=USERS) if one.attack == "sign"]
    nobody = pick(log, np.flatnonzero(np.arange(USERS) % 2 == 0))
    shown = [one for one in leakage(simulate("fpl", nobody, settings=OWN, quiet=True), (20,), ("sign",))]
    assert 0 < seen[0].success.recall < 1
    assert shown[0].success.recall == 0


def test_one_share_for_everybody_is_the_plan_s_own():
    settings = {"rounds": 5, "hyper.dim": 4}
    own = simulate("fpl", table([0.25] * USERS), settings={**settings, "hyper.own_pi": "openness"}, quiet=True)
    fixed = simulate("fpl", table(), settings={**settings, "hyper.pi": 0.25}, quiet=True)
    close(own.params, fixed.params)


@pytest.mark.slow
def test_everything_that_prepares_a_history_has_the_field(tmp_path):
    """Outlook, trials, dossiers, attacks, single devices, strangers, comparisons, folders and updates."""
    plan, log = choose("fpl", OWN), as_population(table(), [choose("fpl", OWN)])
    assert assess_feasibility(plan, log.catalog, USERS)[0].operations > 0
    made = trial(plan, log, "full", out=tmp_path / "run", quiet=True)
    assert report_data(made)["specimen"]["kind"] == "report"
    alone = simulate(plan, log, performance=Performance("debug"), quiet=True)
    close(alone.params, simulate(plan, log, quiet=True).params)
    assert alone.recommend(history=[int(log.item_names[0])], k=3).height == 3
    found = compare(["fpl", "popularity"], table(), "full", settings=OWN, quiet=True)
    assert set(found.names) == {"fpl", "popularity"}
    again = Run.load(alone.save(tmp_path / "kept"))
    close(again.params, alone.params)
    later = alone.update(table([0.0] * USERS), rounds=1, quiet=True)  # everybody changed their mind
    assert not pis(later).any()


@pytest.mark.parametrize(
    ("shares", "sentence"),
    [
        ([0.5] * 11 + [-0.1], r"hyper\.own_pi = 'openness': every user must have a number between 0 and 1, got -0\.1 for user 'u11'"),
        ([1.5] + [0.5] * 11, r"number between 0 and 1, got 1\.5 for user 'u00'; mend that column"),
        ([0.5] * 3 + [None] + [0.5] * 8, r"Column 'openness' must hold a number for every user, got nothing for user 'u03'"),
        ([0.5] * 3 + [float("nan")] + [0.5] * 8, r"must hold a number for every user, got nothing for user 'u03'"),
        (["0.5"] * 3 + ["much"] + ["0.5"] * 8, r"Field 'openness' must be numeric, got 'much' in row 25"),
    ],
)  # fmt: skip
def test_a_bad_share_gets_one_sentence(shares, sentence):
    with pytest.raises(DataError, match=sentence):
        simulate("fpl", table(shares), settings=OWN, quiet=True)


def test_a_share_that_differs_within_a_user_gets_one_sentence():
    log = table().with_row_index("row").with_columns(openness=pl.col("row") / 1000)
    with pytest.raises(
        DataError, match=r"'openness' must have one value in every row of a user, got 0\.0 and 0\.001 for user 'u00'"
    ):
        simulate("fpl", log, settings=OWN, quiet=True)


def test_a_share_that_somebody_lacks_in_a_table_of_people_gets_one_sentence():
    shares = pl.DataFrame({"user_id": ["u00", "u01"], "openness": [0.5, 0.5]})
    log = interactions(table().drop("openness"), people=shares)
    with pytest.raises(DataError, match=r"a number between 0 and 1, and some users have none"):
        simulate("fpl", log, settings=OWN, quiet=True)


def test_a_column_that_is_not_there_or_no_number_gets_one_sentence():
    with pytest.raises(DataError, match=r"has no column 'opennes'; did you mean 'openness'"):
        simulate("fpl", table(), settings={**OWN, "hyper.own_pi": "opennes"}, quiet=True)
    with pytest.raises(PlanError, match=r"hyper\.own_pi has no field of a person 'opennes'.+person=\['opennes'\]"):
        simulate("fpl", interactions(table()), settings={**OWN, "hyper.own_pi": "opennes"}, quiet=True)
    words = interactions(table(["some", "more"] * 6), person=["openness"])
    with pytest.raises(DataError, match=r"got a field of kind categorical"):
        simulate("fpl", words, settings=OWN, quiet=True)


# ---- by command ----


def tacit(*words: object) -> str:
    """What a command prints; its mistakes are raised."""
    result = CliRunner().invoke(app, [str(word) for word in words], standalone_mode=False)
    if result.exception is not None:
        raise result.exception
    return result.stdout


@pytest.mark.slow
def test_the_commands_take_the_column_from_the_plan(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    table().write_csv("log.csv")
    words = [word for path, value in OWN.items() for word in ("--set", f"{path}={value}")]
    made = json.loads(tacit("run", "fpl", "--data", "log.csv", *words, "--json"))
    assert made["plan"]["stage"][0]["hyper"]["own_pi"] == "openness"
    swept = ["--sweep", "hyper.triples=1,2", "--seeds", 1, "--json"]
    found = json.loads(tacit("compare", "fpl", "popularity", "--data", "log.csv", *words, *swept))
    assert len(found["plans"]) == 3
    assert "fpl for 12 devices" in tacit("price", "fpl", "--users", USERS, *words)
    with pytest.raises(DataError, match="has no column 'opennes'; did you mean 'openness'"):
        tacit("run", "fpl", "--data", "log.csv", "--set", "hyper.own_pi=opennes")
    with pytest.raises(PlanError, match=r"hyper\.own_pi has no field of a person 'openness'"):
        tacit("run", "fpl", "--data", "groups", "--devices", 20, *words)


@pytest.mark.slow
def test_canaries_stand_among_people_who_have_the_field():
    plan = choose("fpl-dp", {"rounds": 1, "hyper.dim": 2, "hyper.own_pi": "openness"})
    assert audit(plan, users=20, canaries=20).passed


# ---- items never shared ----


def marked(world_table: pl.DataFrame, every: int = 3) -> pl.DataFrame:
    """Every third row's item is never shared."""
    return world_table.with_columns(private=pl.Series([row % every == 0 for row in range(world_table.height)]))


@pytest.mark.bitwise
@pytest.mark.parametrize("plan", ["fpl", "fcf", "itemknn"])
def test_what_is_never_shared_might_as_well_not_have_happened(plan):
    """Everything learned is the same to the last bit as from a log without those rows; the catalog is public."""
    log = interactions(marked(table()), never="private")
    without = take(interactions(marked(table())), ~log.never)
    settings = {"hyper.dim": 4, "rounds": 3} if plan != "itemknn" else {}
    with_them, as_if = (simulate(plan, one, settings=settings, quiet=True) for one in (log, without))
    for one, other in zip(*(jax.tree.leaves(run.params) for run in (with_them, as_if))):
        np.testing.assert_array_equal(one, other)


def test_an_item_marked_once_is_never_shared_and_still_known_at_home():
    log = pl.DataFrame(
        {"user_id": ["a", "a", "b", "b"], "item_id": [1, 1, 1, 2], "private": [True, False, False, False]}
    )
    world = interactions(log, never="private")
    assert world.never.tolist() == [True, True, False, False]
    assert world.histories(np.arange(2), 3).items.tolist() == [[-1, -1, -1], [0, 1, -1]]
    run = simulate("popularity", world, quiet=True)
    assert run.recommend(users=["a"], k=2)["item_id"].to_list() == [2]  # what they have is not recommended to them


def test_marks_stay_with_their_events(tmp_path):
    world = interactions(marked(table()), never="private", silo=None)
    assert pick(world, np.array([3])).never.tolist() == world.never[3 * EACH : 4 * EACH].tolist()
    held = organisations(in_silos(world))
    assert held.never.sum() == world.never.sum()
    run = simulate("popularity", world, quiet=True)
    assert Run.load(run.save(tmp_path / "kept")).population.never.tolist() == world.never.tolist()
    again = extend_log(world, interactions(table()))  # the same events, unmarked: what was never to be shared stays so
    assert again.never.sum() == 2 * world.never.sum()
    assert world.digest != interactions(marked(table())).digest


def in_silos(world):
    return replace(world, silo=np.arange(len(world)) % 2)


def test_a_mark_must_be_true_or_false():
    with pytest.raises(DataError, match=r"Column 'private' must hold true or false in every row"):
        interactions(table(private=np.full(USERS * EACH, 2)), never="private")


def test_the_fields_of_no_setting_are_not_looked_at():
    check_people(choose("fcf").stages[0], interactions(table([7.0] * USERS), person=["openness"]))
    Federation(choose("fcf"), interactions(table([7.0] * USERS), person=["openness"]))
