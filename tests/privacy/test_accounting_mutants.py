"""Faults planted in prices, and in the sum of an organisation's people: each must make the named check fail."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tacit.core.integer_grid as grids
import tacit.device.methods.handshake as handshake
import tacit.privacy.mechanisms.within_organisation as organisation
from tacit.core.catalog import Catalog
from tacit.core.integer_grid import PEOPLE, PERSON_STEPS, person_on_grid
from tacit.device.history import History, plain_history
from tacit.lab.data.organisations import FIELDS
from tacit.lab.plans.loader import complete, load_plan
from tacit.nets.sequence.segments import run_numbers
from tacit.privacy.accounting.accountant import pld_fixed
from tacit.privacy.mechanism import build_mechanism
from tacit.privacy.price import price
from tacit.privacy.sampler import All, Exposure

# ---- the price of cohorts that are drawn ----


def check_price_of_drawn_cohorts() -> None:
    """30 of 4800, z = 1, 1000 rounds, δ = 1e-6: at most what the accountant says, and never below what an attack achieves."""
    plan = load_plan("fcf").with_setting("rounds", 1000).with_setting("cohort", {"sampler": "fixed", "count": 30})
    whole = price(
        complete(plan.with_setting("privacy", {"mechanism": "gaussian", "noise": 2.0, "delta": 1e-6})), 4800
    ).whole
    assert whole.epsilon == pytest.approx(1.5244, abs=1e-3)
    assert whole.epsilon >= pld_fixed(4800, 30, 1.0, 1000, 1e-6).lower


def test_the_price_of_drawn_cohorts():
    check_price_of_drawn_cohorts()


@pytest.mark.parametrize("fault", ["noise", "cohort", "rounds", "devices"])
def test_a_price_that_is_ten_per_cent_of_a_setting_too_low_is_noticed(fault, monkeypatch):
    real = Exposure.gaussian

    def cheaper(self, noise, *rest):
        changed = {
            "noise": (self, noise * 1.1),
            "cohort": (self._replace(cohort=self.cohort * 0.9), noise),
            "rounds": (self._replace(rounds=900, messages=min(self.messages, 900)), noise),
            "devices": (self._replace(devices=round(self.devices * 1.1)), noise),
        }[fault]
        return real(*changed, *rest)

    monkeypatch.setattr(Exposure, "gaussian", cheaper)
    with pytest.raises(AssertionError):
        check_price_of_drawn_cohorts()


# ---- the people of an organisation ----

CATALOG = Catalog(10, event_fields=FIELDS)
EVERYBODY = {0: [1, 2, 3, 4], 1: [5, 6], 2: [2, 4, 6], 3: [9, 8, 7, 6, 5], 4: [3, 3, 3]}


def history_of(people: dict[int, list[int]], in_turns: bool = False) -> History:
    """The log of an organisation: person after person, or one event of each in turn."""
    rows = [(item, who, number) for who, items in people.items() for number, item in enumerate(items)]
    if in_turns:
        rows.sort(key=lambda row: row[2])
    items = np.full(32, -1)
    context = np.zeros((32, 2))
    items[: len(rows)] = [item for item, _, _ in rows]
    context[: len(rows), 0] = [who for _, who, _ in rows]
    return plain_history(jnp.asarray(items, jnp.int32))._replace(context=jnp.asarray(context, jnp.float32))


def sent(history: History) -> dict[str, np.ndarray]:
    method = handshake.Handshake(catalog=CATALOG, people=True, longest=5)
    update = method.local(jax.random.key(0), method.init(jax.random.key(0)), {}, method.prepare(history))[1]
    return {name: np.asarray(leaf, float) for name, leaf in update.items()}


def check_people_are_counted_once() -> None:
    """However a log is sorted, each person counts once, and nobody moves the sum by more than length 1 there and back."""
    together, in_turns = (sent(history_of(EVERYBODY, turns)) for turns in (False, True))
    assert together.keys() == in_turns.keys()
    for name in together:
        np.testing.assert_allclose(in_turns[name], together[name], atol=1e-6)
    assert in_turns[PEOPLE] == len(EVERYBODY)
    for who in EVERYBODY:
        for turns in (False, True):
            other = sent(history_of({**EVERYBODY, who: [1, 2]}, turns))
            assert other[PEOPLE] == len(EVERYBODY)
            assert np.linalg.norm(other["lengths"] - together["lengths"]) <= math.sqrt(2) * (1 + 1e-6)


def test_people_are_counted_once():
    check_people_are_counted_once()


def test_turns_that_count_as_people_are_noticed(monkeypatch):
    real = handshake.sequences

    def by_turn(fields, items, context):
        items, _, place = real(fields, items, context)
        return items, run_numbers(items >= 0, context[:, 0]), place

    monkeypatch.setattr(handshake, "sequences", by_turn)
    with pytest.raises(AssertionError):
        check_people_are_counted_once()


def test_a_person_with_twice_the_share_is_noticed(monkeypatch):
    real = handshake.shares_of
    monkeypatch.setattr(handshake, "shares_of", lambda counted, whose: 2 * real(counted, whose))
    with pytest.raises(AssertionError):
        check_people_are_counted_once()


def check_bound_of_a_person() -> None:
    """No person's integers are longer than the length 1, whatever was computed."""
    for scale in (1e-3, 1.0, 30.0, 1e20, math.inf):
        x = {"a": jnp.full(7, scale), "b": jnp.full((2, 3), -scale)}
        q = person_on_grid(jax.random.key(1), x)
        assert sum(int(np.square(np.asarray(leaf, np.int64)).sum()) for leaf in q.values()) <= PERSON_STEPS**2


def test_the_bound_of_a_person():
    check_bound_of_a_person()


def test_a_doubled_bound_is_noticed(monkeypatch):
    real = grids.l2_grid
    monkeypatch.setattr(grids, "l2_grid", lambda bound, numbers: real(4 * bound, numbers))
    with pytest.raises(AssertionError):
        check_bound_of_a_person()


def check_shares_of_a_person(noise: float = 2.0) -> None:
    """A person adds length 1 to the update and 1 to the count: both together cost no more than the noise that is priced."""
    mechanism = build_mechanism({"mechanism": "within_organisation", "noise": noise}).settle(All().exposure(1, 3))
    nothing = {"w": jnp.zeros(50), PEOPLE: jnp.zeros(())}
    keys = jax.random.split(jax.random.key(3), 4000)
    payloads = jax.vmap(lambda key: mechanism.encode(key, nothing, {}))(keys)
    numbers = jax.vmap(lambda payload: mechanism.to_numbers(payload, {}))(payloads)
    of_update, of_count = (float(np.std(np.asarray(numbers[name], float))) for name in ("w", PEOPLE))
    assert 1 / of_update**2 + 1 / of_count**2 <= 1.06 / noise**2
    assert 1 / of_update**2 + 1 / of_count**2 >= 0.94 / noise**2, "and no noise is wasted"


def test_the_shares_of_a_person():
    check_shares_of_a_person()


@pytest.mark.parametrize("share", [1.0, 0.5])
def test_a_count_without_its_share_is_noticed(share, monkeypatch):
    """The count gets as little noise as if `share` of a person's length were its own, and the update loses nothing."""
    real = organisation.unit_grid

    def less(noise, steps, *rest):
        return real(noise if steps == PERSON_STEPS else noise * organisation._COUNT / share, steps, *rest)

    monkeypatch.setattr(organisation, "unit_grid", less)
    with pytest.raises(AssertionError):
        check_shares_of_a_person()
