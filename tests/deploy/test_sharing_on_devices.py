"""What a person discloses, on a real device: chosen at home, from the next message on, and never told to the server."""

import importlib
import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from support.deployment import RUN, Deployment, post, short_world, write_history
from support.toys import ITEMS, close
from tacit.audit.attacks import ObservedRound, PublicFacts, load_attack
from tacit.cli import app
from tacit.core.catalog import Catalog, Field
from tacit.core.messages import unpack
from tacit.core.plan import Plan
from tacit.deploy.messages import to_plain
from tacit.device.batching import seeded_noise_keys
from tacit.device.method import build, method_class, method_names, revealed
from tacit.device.node import batch
from tacit.device.node.sharing import SharingChoice
from tacit.device.node.store import Store
from tacit.device.round import Home
from tacit.errors import DataError, DeviceError
from tacit.lab.data import Population
from tacit.lab.data.cleaning import of_marked_items
from tacit.lab.data.selection import owners, take
from tacit.lab.plans.loader import choose
from tacit.lab.runs.run import simulate
from tacit.privacy.mechanism import build_mechanism
from tacit.server.round import open_round

ROOT = Path(__file__).resolve().parents[2]
ROUNDS = 12
PLAN = choose("fpl", {"rounds": ROUNDS, "hyper.dim": 2, "hyper.pi": 0.5})


def tacit(*words: object) -> str:
    """What a command prints; its mistakes are raised."""
    result = CliRunner().invoke(app, [str(word) for word in words], standalone_mode=False)
    if result.exception is not None:
        raise result.exception
    return result.stdout


def described(devices: int, seed: int = 3) -> Population:
    """Items of two genres, one of which is also marked by a tag."""
    world = short_world(devices, seed)
    genres = Field("genre", "categorical", 2, ("Drama", "Horror"))
    tags = Field("tags", "multi", 2, ("old", "scary"))
    year = Field("year", "numeric")
    attributes = {
        "genre": jnp.arange(ITEMS) % 2,
        "tags": jnp.stack([jnp.arange(ITEMS) < 3, jnp.arange(ITEMS) > 8], axis=1).astype(float),
        "year": jnp.arange(ITEMS) + 1990.0,
    }
    return replace(world, catalog=Catalog(ITEMS, attributes, (genres, tags, year)))


@pytest.fixture
def deployment(tmp_path) -> Deployment:
    return Deployment(tmp_path, PLAN, described(4), (1, 3)).enrol()


def home(deployment: Deployment, number: int = 0):
    return deployment.folder / f"home{number}"


def messages(deployment: Deployment, rounds: int) -> list[bytes]:
    """So many rounds; the reports of the first node, which is one person's."""
    name, sent = next(iter(deployment.nodes)), []
    for _ in range(rounds):
        deployment.session.open()
        for one in deployment.session.missing:
            reply = post(deployment.nodes[one], deployment.session.request(one))
            assert not reply.refused, reply.refused
            sent += [reply.report] if one == name else []
            deployment.session.receive(reply)
        assert deployment.session.close()
    return sent


def rows(deployment: Deployment, report: bytes) -> int:
    """How many rows of the table a report has: one, or two where an item that is had is shown."""
    return int((np.asarray(unpack(deployment.bundle.report(0), report).payload["bias"]) != 0).sum())


# ---- the share ----


def test_the_next_message_after_a_change_follows_it(deployment):
    tacit("device", "share", "--home", home(deployment), 1)
    assert [rows(deployment, one) for one in messages(deployment, 4)] == [2] * 4
    tacit("device", "share", "--home", home(deployment), 0)
    assert [rows(deployment, one) for one in messages(deployment, 4)] == [1] * 4
    tacit("device", "share", "--home", home(deployment), "1.0")
    assert [rows(deployment, one) for one in messages(deployment, 4)] == [2] * 4


@pytest.mark.parametrize("pi", [0.0, 0.3, 1.0])
def test_devices_that_chose_a_share_end_where_the_simulator_does_with_it(tmp_path, pi):
    """The plan says 0.5; everybody chose another."""
    deployment = Deployment(tmp_path, PLAN, short_world(4), (1, 3)).enrol()
    for number in (0, 1):
        tacit("device", "share", "--home", home(deployment, number), pi)
    deployment.play()
    close(deployment.session.params, simulate(PLAN.with_setting("hyper.pi", pi), deployment.world, quiet=True).params)


def test_people_of_one_home_may_choose_apart(tmp_path):
    """As a simulator whose log has a share for each of them."""
    world = short_world(4)
    deployment = Deployment(tmp_path, PLAN, world, (1, 3)).enrol()
    shares = [0.5, 0.0, 1.0, 0.25]
    tacit("device", "share", "--home", home(deployment, 1), 0.25)
    tacit("device", "share", "--home", home(deployment, 1), 0.0, "--user", "000000")
    tacit("device", "share", "--home", home(deployment, 1), 1.0, "--user", "000001")
    deployment.play()
    own = replace(world.catalog, person_fields=(Field("openness", "numeric"),))
    log = replace(world, catalog=own, person=np.array(shares, np.float32)[:, None])
    close(deployment.session.params, simulate(PLAN.with_setting("hyper.own_pi", "openness"), log, quiet=True).params)


def test_the_server_is_told_nothing_of_it(deployment):
    tacit("device", "share", "--home", home(deployment), 0.123456, "--never", 3)
    messages(deployment, 2)
    written = [path for path in (deployment.folder / "run").rglob("*") if path.is_file()]
    assert written
    assert not any(b"0.123456" in path.read_bytes() or b"never" in path.read_bytes() for path in written)
    node = next(iter(deployment.nodes.values()))
    told = to_plain(post(node, deployment.session.hello()))
    assert not any("0.123456" in str(word) or "never" in str(word) for word in told.values())


@pytest.mark.parametrize("bad", ["-0.1", "1.5", "nan"])
def test_a_share_that_is_none_gets_one_sentence(deployment, bad):
    with pytest.raises(DeviceError, match=r"The share to disclose must be a number between 0 and 1, got"):
        tacit("device", "share", "--home", home(deployment), bad)
    assert not home(deployment).joinpath("choices.json").exists()


def test_methods_without_the_setting_say_so(tmp_path):
    deployment = Deployment(tmp_path, choose("fcf", {"rounds": 1, "hyper.dim": 2}), short_world(2), (1, 1))
    with pytest.raises(DeviceError, match=r"fcf .+ has no share to choose: its method fcf"):
        tacit("device", "share", "--home", home(deployment), 0.3)
    assert method_class("fpl").withholds
    assert sum(method_class(name).withholds for name in method_names()) == 1


def test_a_share_in_the_log_of_a_device_is_checked_at_home(tmp_path):
    world = short_world(2)
    own = replace(world.catalog, person_fields=(Field("openness", "numeric"),))
    log = replace(world, catalog=own, person=np.array([[0.5], [1.5]], np.float32))
    deployment = Deployment(tmp_path, PLAN.with_setting("hyper.own_pi", "openness"), log, (1, 1))
    tacit("device", "status", "--home", home(deployment))
    with pytest.raises(DataError, match=r"between 0 and 1, got 1\.5 for user '0'"):
        list(deployment.nodes.values())[1].people(deployment.bundle)
    write_history(tmp_path / "1.parquet", log, 0, 1)
    pl.read_parquet(tmp_path / "1.parquet").with_columns(openness=pl.lit(None)).write_parquet(tmp_path / "1.parquet")
    with pytest.raises(DataError, match=r"between 0 and 1, got nothing for user '0'"):
        list(deployment.nodes.values())[1].people(deployment.bundle)
    rows = pl.DataFrame({"item_id": [1, 2], "openness": [0.25, 0.5]})
    rows.write_parquet(tmp_path / "1.parquet")
    with pytest.raises(
        DataError, match=r"'openness' must have the same value in every row of a person, got 0\.25 and 0\.5"
    ):
        list(deployment.nodes.values())[1].people(deployment.bundle)


# ---- what is never shared ----


def without(world: Population, person: int, items: list[int]) -> Population:
    """The world as if somebody had never had some items."""
    return take(world, ~((owners(world) == person) & np.isin(world.items, items)))


def sent_by(folder, world: Population, choice: SharingChoice | None, plan=PLAN, rounds: int = 4) -> list[bytes]:
    deployment = Deployment(folder, plan, world, (1, len(world) - 1)).enrol()
    if choice is not None:
        deployment.nodes[next(iter(deployment.nodes))].store.choose(lambda _: choice)
    return messages(deployment, rounds)


def test_messages_are_the_same_whether_or_not_a_person_has_what_they_never_share(tmp_path):
    """To the last byte: so neither the item nor the list can be read from any message."""
    world = described(3)
    mine = np.unique(world.items[: world.offsets[1]])
    item, absent = int(mine[0]), int(np.setdiff1d(np.arange(ITEMS), mine)[0])
    never = sent_by(tmp_path / "never", world, SharingChoice(items=(str(item),)))
    assert never == sent_by(tmp_path / "lacks", without(world, 0, [item]), None)
    assert never == sent_by(
        tmp_path / "listed", without(world, 0, [item]), SharingChoice(items=(str(item), str(absent)))
    )
    assert never != sent_by(tmp_path / "shares", world, None)


def _noise_keys(round: int, ids: np.ndarray, homes: Home) -> jax.Array:
    return seeded_noise_keys(0, round, homes)


def stepped(people: Population, plan: Plan, rounds: int = 6) -> list[np.ndarray]:
    """Everything that people send in some rounds, by the code of a real device."""
    method, mechanism = build(plan.stages[0], people.catalog), build_mechanism(plan.stages[0].privacy)
    everybody, params = np.arange(len(people)), method.init(jax.random.key(0))
    prepared = batch.PreparedHistories(method, people)
    homes = batch.homes_for(np.arange(2 * len(people), dtype=np.uint32).reshape(-1, 2))
    homes, sent = batch.enter_all(0, prepared, homes, None), []
    for number in range(rounds):
        broadcast = open_round(number, params)
        noise = partial(_noise_keys, number)
        homes, reports, _ = batch.step_some(mechanism, 0, broadcast, prepared, homes, everybody, noise)
        sent += [np.asarray(leaf) for leaf in jax.tree.leaves(reports)]
    return sent


@pytest.mark.bitwise
@settings(max_examples=25, deadline=None)
@given(st.integers(0, 1000), st.sampled_from([(0.0, False, 1), (0.5, True, 1), (1.0, False, 3)]))
def test_reports_are_the_same_whether_or_not_people_have_what_they_never_share(seed, settings):
    """Whoever marks whichever of their items: at several shares, with kept coins or without, one pair or several."""
    world, (pi, memo, triples) = short_world(4, seed), settings
    plan = choose("fpl", {"hyper.dim": 2, "hyper.pi": pi, "hyper.pi_memo": memo, "hyper.triples": triples})
    marked = np.random.default_rng(seed).random(world.items.size) < 0.3
    never = of_marked_items(owners(world), world.items, marked)
    hidden, lacking = stepped(replace(world, never=never), plan), stepped(take(world, ~never), plan)
    for one, other in zip(hidden, lacking, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.slow
def test_the_same_with_noise_and_with_other_methods(tmp_path):
    """A list of items is no business of a method: it never sees them."""
    world = described(3)
    item = int(world.items[0])
    for name, changes in (("fpl-dp", {"rounds": 1, "hyper.dim": 2}), ("dplcf", {})):
        plan = choose(name, changes)
        rounds = plan.stages[0].rounds
        never = sent_by(tmp_path / name / "never", world, SharingChoice(items=(str(item),)), plan, rounds)
        assert never == sent_by(tmp_path / name / "lacks", without(world, 0, [item]), None, plan, rounds)


def test_devices_that_never_share_end_where_the_simulator_does(tmp_path):
    """A list at home is the simulator's column of marks."""
    deployment = Deployment(tmp_path, PLAN, described(4), (1, 3)).enrol()
    for number in (0, 1):
        tacit("device", "share", "--home", home(deployment, number), "--never-category", "genre=Horror")
    deployment.play()
    log = replace(deployment.world, never=deployment.world.items % 2 == 1)
    close(deployment.session.params, simulate(PLAN, log, quiet=True).params)


def test_a_category_is_all_its_items_now_and_later(tmp_path):
    world = described(3)
    for category, items in (("genre=Horror", list(range(1, ITEMS, 2))), ("tags=old", [0, 1, 2])):
        never = sent_by(tmp_path / category / "never", world, SharingChoice(categories=(category,)))
        assert never == sent_by(tmp_path / category / "lacks", without(world, 0, items), None)


def test_what_is_never_shared_is_known_at_home(deployment):
    """It is not recommended, because the person has it; and the sentence says what stays sent."""
    own = deployment.world.items[: deployment.world.offsets[1]]
    printed = tacit("device", "share", "--home", home(deployment), "--never", own[0])
    assert "What was sent before stays sent" in printed
    messages(deployment, ROUNDS)
    best = json.loads(tacit("device", "recommend", "--home", home(deployment), "--k", ITEMS, "--json"))
    assert {int(one["item_id"]) for one in best} == set(range(ITEMS)) - set(own.tolist())


def test_from_the_next_message_on_a_listed_item_is_in_no_pair(deployment):
    """Shown at first; once it is listed, neither a row nor what explains the rows names it, and it may be a rival."""
    item = int(deployment.world.items[0])

    def read(reports: list[bytes], name: str) -> np.ndarray:
        known = PublicFacts(ITEMS, 0.05, 0.0025, 0.00025)
        attack = load_attack(name)(known, 1)
        for params, report in zip(heard, reports):
            attack.read(ObservedRound.read(params, [unpack(deployment.bundle.report(0), report).payload]))
        return attack.guess()[0]

    heard = []
    tacit("device", "share", "--home", home(deployment), 1)
    for listed in (False, True):
        if listed:
            tacit("device", "share", "--home", home(deployment), "--never", item)
        heard, reports = [], []
        for _ in range(ROUNDS // 2):
            heard.append(jax.tree.map(np.asarray, deployment.session.params))
            reports += messages(deployment, 1)
        for name in ("sign", "inversion"):
            assert read(reports, name).any()
            assert read(reports, name)[item] == (not listed), (name, listed)


def test_choices_are_shown_and_undone(deployment):
    tacit(
        "device",
        "share",
        "--home",
        home(deployment),
        0.3,
        "--never",
        3,
        "--never",
        5,
        "--never-category",
        "genre=Horror",
    )
    shown = tacit("device", "status", "--home", home(deployment))
    assert "discloses   π = 0.3; never: 3, 5, genre=Horror" in shown
    facts = json.loads(tacit("device", "status", "--home", home(deployment), "--json"))
    assert facts["discloses"] == {"": {"share": 0.3, "items": ["3", "5"], "categories": ["genre=Horror"]}}
    tacit("device", "share", "--home", home(deployment), "--allow", 3, "--allow", "genre=Horror")
    assert "discloses   π = 0.3; never: 5" in tacit("device", "status", "--home", home(deployment))
    assert Store(home(deployment)).choices[""].share == 0.3  # what is not named stays
    assert (home(deployment) / "choices.json").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--never", "abc"], r"The catalog has no item 'abc'"),
        (["--never-category", "genre=Comedy"], r"genre has no value 'Comedy'.+Known: Drama, Horror"),
        (["--never-category", "gener=Horror"], r"The catalog has no field 'gener'; did you mean 'genre'"),
        (["--never-category", "year=1990"], r"--never-category takes a field of categories or words, and 'year' is numeric; name its items"),
        (["--never-category", "Horror"], r"--never-category takes FIELD=VALUE, got 'Horror'"),
        (["--allow", "4"], r"'4' is shared already"),
        (["0.3", "--user", "eve"], r"This device has no person 'eve'"),
    ],
)  # fmt: skip
def test_a_mistake_gets_one_sentence(deployment, words, sentence):
    with pytest.raises(DeviceError, match=sentence):
        tacit("device", "share", "--home", home(deployment), *words)
    assert not home(deployment).joinpath("choices.json").exists()


def test_a_choice_may_be_made_before_the_first_message(tmp_path, deployment):
    """With the command that takes part; nothing is started here, since nobody agreed."""
    words = ["--plan", tmp_path / "bundle", "--history", tmp_path / "0.parquet", "--share", 0.2]
    with pytest.raises(DeviceError, match="its owner has not agreed"):
        tacit("device", "--home", tmp_path / "new", *words)
    assert Store(tmp_path / "new").choices[""].share == 0.2


def test_asking_again_for_a_round_gets_the_same_bytes_whatever_was_chosen_since(deployment):
    name, node = next(iter(deployment.nodes.items()))
    deployment.session.open()
    request = deployment.session.request(name)
    first = post(node, request).report
    tacit("device", "share", "--home", home(deployment), 0)
    assert post(node, request).report == first
    assert (home(deployment) / "runs" / RUN).exists()


# ---- what each share reveals ----


@pytest.fixture
def bench(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")


def test_a_cell_of_what_ships_is_what_its_command_makes(bench):
    """The cheapest one, on the synthetic log: the same seed, the same numbers."""
    fpl_privacy = importlib.import_module("fpl_privacy")
    shipped = next(row for row in revealed("fpl")["rows"] if (row["log"], row["pi"]) == ("groups", 0.3))
    made = fpl_privacy.share_row(fpl_privacy.log_of("groups", fpl_privacy.dataset("groups")), 0.3)
    assert (made.pop("log"), made.pop("attack")) == (shipped["log"], shipped["attack"])
    for name, value in made.items():
        assert value == pytest.approx(shipped[name], abs=0.01), name


def test_the_page_and_the_commands_show_what_ships(bench, deployment):
    block = next(one for one in importlib.import_module("fpl_page").BLOCKS if one.name == "shares")
    assert importlib.import_module("pages").written(block).strip() == block.make(), "run `make pages`"
    found = revealed("fpl")
    for words in (["share"], ["status"]):
        printed = tacit("device", *words, "--home", home(deployment))
        assert found["command"] in printed
        for row in found["rows"]:
            assert f"{row['shown']:.0%}, {row['found']:.0%} ({row['attack']})" in printed


def test_what_ships_says_that_a_share_hides_no_item_and_never_sharing_does():
    """If that were ever not so, the page and the commands would have to say something else."""
    found = revealed("fpl")
    for log in {row["log"] for row in found["rows"]}:
        rows = [row for row in found["rows"] if row["log"] == log]
        shown = [row["shown"] for row in rows]
        assert shown == sorted(shown)
        assert shown[0] == 0
        assert min(row["found"] for row in rows) > 0.9 * max(row["found"] for row in rows)
    assert all(row["found"] == 0 < row["found_of_the_rest"] for row in found["never"])
