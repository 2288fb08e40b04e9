"""Attacks on pairwise learning: from the bytes on the wire alone, whatever π is; and what protects does protect."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from support.toys import Hand, seeded_step, small_world
from tacit.audit.attacks import (
    ATTACKS,
    Inversion,
    ObservedRound,
    PublicFacts,
    by_chance,
    by_popularity,
    expected_precision_of_complement,
    expected_recall,
    load_attack,
    score_reconstruction,
)
from tacit.core.messages import pack, unpack
from tacit.device.method import build
from tacit.errors import PlanError
from tacit.lab.audits.fpl_reconstruction import leakage, public_facts
from tacit.lab.data import from_events
from tacit.lab.plans.loader import choose
from tacit.lab.runs.run import simulate
from tacit.lab.simulation.engine import wire_schema
from tacit.nets.factor.bpr import Penalties, bpr_gradients
from tacit.privacy.card import to_markdown
from tacit.report.claim_cards import _leakage

PEOPLE, ITEMS, HISTORY = 50, 500, 20


@pytest.fixture(scope="module")
def world():
    rng = np.random.default_rng(0)
    items = np.concatenate([rng.permutation(ITEMS)[:HISTORY] for _ in range(PEOPLE)])
    return from_events(np.repeat(np.arange(PEOPLE), HISTORY), items, n_items=ITEMS)


def run_of(world, rounds=10, **settings):
    return simulate(choose("fpl", {"rounds": rounds, **settings}), world, quiet=True)


def found(leaks, attack, rounds):
    return next(one.success for one in leaks if (one.attack, one.rounds) == (attack, rounds))


# ---- from bytes ----


def test_from_the_bytes_of_one_message_to_the_person_and_the_hidden_item():
    """π = 0: the message names one item the person does not have, and tells the one they have."""
    population = small_world(devices=9, items=60)
    hand = Hand("fpl", population, wire="rows")
    hand.method = build(choose("fpl", {"hyper.pi": 0.0}).stages[0], population.catalog)
    schema = wire_schema(hand.job, hand.params)
    attack = Inversion(PublicFacts(60, person=0.0025, rival=0.00025), 9)
    messages, vectors = [], []
    for device in range(9):
        own = hand.own(device)
        home = hand.home(device, own)
        vectors.append(np.asarray(home.local["0"]["person"]))
        _, report = seeded_step(hand.method, hand.job.mechanism, 0, hand.broadcast, home, own)
        messages.append(unpack(schema, pack(schema, report)).payload)
    attack.read(ObservedRound.read(hand.params, messages))
    for device in range(9):
        had = np.unique(population.items[population.offsets[device] : population.offsets[device + 1]])
        guessed = np.flatnonzero(attack.guess()[device])
        assert guessed.size == 1
        assert guessed[0] in had
        np.testing.assert_allclose(attack.person[device], vectors[device], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("person_first", [False, True])
@pytest.mark.parametrize("items", [1682, 25_522])
def test_the_hidden_item_is_found_in_large_catalogues(items, person_first):
    """In float32, whether the move was taken before or after the person's own step."""
    rng = np.random.default_rng(1)
    Q, b, P = (0.1 * rng.normal(size=shape).astype(np.float32) for shape in ((items, 20), (items,), (60, 20)))
    i, j = rng.permutation(items)[:120].reshape(2, 60)
    penalties, rate = Penalties(0.0025, 0.0025, 0.00025), 0.05
    made = jax.vmap(lambda *one: bpr_gradients(*one, penalties))(*map(jnp.asarray, (P, Q[i], Q[j], b[i], b[j])))
    moved = made.rival - (made.g[:, None] * rate * made.person if person_first else 0.0)
    attack = Inversion(PublicFacts(items, rate, penalties.person, penalties.rival, person_first=person_first), 60)
    attack.read(ObservedRound(Q, b, j[:, None], np.asarray(moved)[:, None], np.asarray(made.bias_rival)[:, None]))
    guess = attack.guess()
    assert guess[np.arange(60), i].mean() >= 0.97
    assert guess.sum() <= 60
    # Taken for the other order, the attack finds next to nothing: the test can fail.
    other = Inversion(PublicFacts(items, rate, penalties.person, penalties.rival, person_first=not person_first), 60)
    other.read(ObservedRound(Q, b, j[:, None], np.asarray(moved)[:, None], np.asarray(made.bias_rival)[:, None]))
    assert other.guess()[np.arange(60), i].mean() < 0.5


# ---- over rounds ----


def test_recall_grows_as_expected_though_nothing_had_is_ever_sent(world):
    """π = 0, after 20, 60 and 200 messages: .628/.937/1.0 were measured elsewhere, 1 − (1 − 1/n)^R is expected."""
    run = run_of(world, **{"hyper.pi": 0.0})
    leaks = leakage(run, rounds=(20, 60, 200), devices=PEOPLE)
    for rounds in (20, 60, 200):
        one = found(leaks, "inversion", rounds)
        assert one.precision > 0.98
        assert one.recall == pytest.approx(expected_recall(HISTORY, rounds), abs=0.04)
        assert found(leaks, "sign", rounds).recall == 0.0
        expected = expected_precision_of_complement(ITEMS, HISTORY, rounds)
        assert found(leaks, "complement", rounds).precision == pytest.approx(expected, rel=0.05)
        assert found(leaks, "complement", rounds).recall == 1.0
    chance = found(leaks, "chance", 0)
    assert chance.precision == pytest.approx(HISTORY / ITEMS)
    assert found(leaks, "popularity", 0).f1 < 0.3 < found(leaks, "inversion", 20).f1


def test_pi_is_what_the_sign_tells_and_a_kept_coin_caps_it(world):
    plain = leakage(run_of(world, **{"hyper.pi": 0.3}), rounds=(200,), attacks=("sign", "inversion"), devices=PEOPLE)
    kept = leakage(
        run_of(world, **{"hyper.pi": 0.3, "hyper.pi_memo": True}),
        rounds=(200,),
        attacks=("sign", "inversion"),
        devices=PEOPLE,
    )
    assert found(plain, "sign", 200).precision == 1.0
    assert found(plain, "sign", 200).recall == pytest.approx(expected_recall(HISTORY, 200, 0.3), abs=0.03)
    assert found(kept, "sign", 200).recall == pytest.approx(0.3, abs=0.06)
    assert found(kept, "inversion", 200).recall > 0.97  # the coin does nothing against it


def test_a_step_before_the_move_protects_nobody(world):
    run = run_of(world, **{"hyper.pi": 0.0, "hyper.order": "person_first"})
    assert public_facts(run).person_first
    one = found(leakage(run, rounds=(60,), attacks=("inversion",), devices=PEOPLE), "inversion", 60)
    assert one.precision > 0.98
    assert one.recall == pytest.approx(expected_recall(HISTORY, 60), abs=0.04)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::tacit.lab.analysis.feasibility.FeasibilityWarning")
@pytest.mark.parametrize(
    "privacy",
    [
        {"mechanism": "gaussian", "epsilon": 1.0},
        {"mechanism": "qharmony", "form": "clip", "epsilon": 1.0, "bound": 0.5},
    ],
    ids=["server", "home"],
)
def test_noise_leaves_a_guess_that_is_hardly_better_than_chance(world, privacy):
    """The attacker knows how many items everybody has, and names as many."""
    plan = choose("fpl", {"rounds": 5, "hyper.pi": 1.0, "hyper.dim": 4, "privacy": privacy})
    leaks = leakage(simulate(plan, world, quiet=True), rounds=(5,), attacks=("sign",), devices=PEOPLE)
    assert found(leaks, "sign", 5).f1 < 0.15
    exact = leakage(run_of(world, **{"hyper.pi": 1.0}), rounds=(5,), attacks=("sign",), devices=PEOPLE)
    assert found(exact, "sign", 5).f1 > 0.3


# ---- on the card ----


def test_what_was_found_stands_on_the_card_and_in_the_report(world):
    run = run_of(world)
    assert "leakage" not in run.card
    assert "What attacks found" not in to_markdown(run.card)
    assert _leakage(run.card) is None
    leaks = leakage(run, rounds=(3,), devices=10)
    rows = run.card["leakage"]
    assert [row["attack"] for row in rows] == ["sign", "inversion", "complement", "chance", "popularity"]
    assert rows[1]["f1"] == found(leaks, "inversion", 3).f1
    page = to_markdown(run.card)
    assert "## What attacks found" in page
    assert f"| inversion | 3 | {rows[1]['precision']:.3f} |" in page
    assert "not a bound" in page
    assert f"{rows[1]['recall']:.3f}" in str(_leakage(run.card))
    assert run.card["guarantee"]["epsilon"] == float("inf")


# ---- the words ----


def test_success_by_hand():
    guess = np.array([[1, 1, 0, 0], [0, 0, 0, 0]], bool)
    truth = np.array([[1, 0, 0, 0], [1, 1, 0, 0]], bool)
    assert score_reconstruction(guess, truth) == pytest.approx((0.25, 0.5, 1 / 3))
    assert by_chance(truth) == pytest.approx((0.375,) * 3)
    assert by_popularity(truth, np.array([5, 1, 0, 2])).precision == 0.75


def test_attacks_by_name():
    assert set(ATTACKS) == {"sign", "inversion", "complement"}
    with pytest.raises(PlanError, match=r"Tacit has no attack 'sings'; did you mean 'sign'"):
        load_attack("sings")


def test_only_pairwise_learning_can_be_attacked(world):
    run = simulate("popularity", world, quiet=True)
    with pytest.raises(
        PlanError, match=r"Attacks are known for messages of the method 'fpl', got a run of 'popularity'"
    ):
        leakage(run)
