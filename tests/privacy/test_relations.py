"""Neighbours and units: an ε is converted to those of the total before it is composed, so that no total is too small."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.core.plan import Plan, Stage
from tacit.device.ledger.ledger import Ledger
from tacit.device.ledger.node_ledger import GroupLedger
from tacit.device.ledger.population_ledger import Ledgers
from tacit.errors import PlanError
from tacit.privacy.accounting.accountant import compose
from tacit.privacy.accounting.events import (
    Gaussian,
    PoissonGaussian,
    Pure,
    event_from_dict,
    event_to_dict,
)
from tacit.privacy.budget import Budget, spent
from tacit.privacy.price import Price, ledger_entry_of, price

POSITIONS = 3
SYMMETRIC = {"mechanism": "randomized_response", "epsilon": 1.0}
UNARY = {"mechanism": "randomized_response", "epsilon": 1.0, "form": "unary"}


def priced(*privacies, rounds=1, cohort=None) -> Price:
    """The price of a plan with one stage for each of these privacy settings."""
    stages = [
        Stage("popularity", {}, ("counts",), dict(one), {"rule": "count"}, cohort or {"sampler": "all"}, rounds)
        for one in privacies
    ]
    return price(Plan("p", tuple(stages)), 100)


def entries(cost: Price):
    """One ledger entry for each message of each stage."""
    return [
        ledger_entry_of(stage, "plan", "run", number, 0.0, 8)
        for number, stage in enumerate(cost.stages)
        for _ in range(stage.messages)
    ]


# ---- what was priced too low ----


@pytest.mark.parametrize(
    ("first", "second", "true"),
    [(SYMMETRIC, UNARY, 3.0), (UNARY, SYMMETRIC, 3.0), ({**SYMMETRIC, "epsilon": 0.5}, {**UNARY, "epsilon": 2.0}, 3.0)],
)
def test_forms_for_different_neighbours_cost_what_a_swap_costs(first, second, true):
    whole = priced(first, second).whole
    assert whole.relation == "replace_one"
    assert math.isclose(whole.epsilon, true, rel_tol=1e-6)


def test_forms_for_the_same_neighbours_keep_them():
    whole = priced(SYMMETRIC, SYMMETRIC).whole
    assert (whole.relation, round(whole.epsilon, 6)) == ("add_remove", 2.0)


def test_a_ledger_for_interactions_counts_a_swap(tmp_path):
    cost, budget = priced(SYMMETRIC), Budget(5.0, unit="interaction")
    (page,) = entries(cost)
    assert math.isclose(spent([page], budget, 0.0), 2.0, rel_tol=1e-6)
    with Ledger.open(tmp_path / "one", budget, clock=lambda: 0.0) as ledger:
        values = {name: getattr(page, name) for name in page.__slots__ if name != "time"}
        ledger.reserve(**values)
        assert math.isclose(ledger.spent(), 2.0, rel_tol=1e-6)
    with Ledger.open(tmp_path / "one", budget, clock=lambda: 0.0) as again:
        assert math.isclose(again.spent(), 2.0, rel_tol=1e-6)
    group = GroupLedger(tmp_path / "many", ["a", "b"], budget, clock=lambda: 0.0)
    group.reserve(page, np.array([0, 1]), "digest")
    assert math.isclose(group.summary()["epsilon"]["worst"], 2.0, rel_tol=1e-6)
    group.close()
    columns = Ledgers(["a", "b"]).write(page, np.array([1, 1]))
    assert np.allclose(columns.spent(budget, 0.0), 2.0)
    columns.save(tmp_path)
    assert np.allclose(Ledgers.load(tmp_path, ["a", "b"]).spent(budget, 0.0), 2.0)


def test_an_entry_of_an_older_ledger_is_read_for_its_own_neighbours():
    """Older files have the relation beside the event, not in it."""
    assert event_from_dict({"kind": "pure", "epsilon": 1.0, "parts": 1}, "add_remove") == Pure(
        1.0, relation="add_remove"
    )
    assert event_from_dict({"kind": "gaussian", "noise": 2.0}, "add_remove") == Gaussian(2.0)


@pytest.mark.parametrize("event", [Pure(1.0), Pure(1.0, 3, "add_remove"), Gaussian(2.0), PoissonGaussian(1.0, 0.1)])
def test_events_are_written_and_read(event):
    assert event_from_dict(event_to_dict(event)) == event


def test_conversions():
    one = [(Pure(1.0, relation="add_remove"), 3)]
    assert compose(one, 0.0, "add_remove").epsilon == 3.0
    assert compose(one, 0.0, "replace_one").epsilon == 6.0
    assert compose(one, 0.0, "zero_out").epsilon == 6.0
    assert compose([*one, (Pure(1.0), 1)], 0.0).epsilon == 7.0
    with pytest.raises(PlanError, match="cannot be accounted for under add_remove"):
        compose([(Pure(1.0), 1)], 0.0, "add_remove")


def test_an_event_for_unknown_neighbours_is_refused():
    with pytest.raises(PlanError, match="relation"):
        compose([(Pure(1.0, relation="one_sided_1_to_0"), 1)], 0.0)  # pyright: ignore[reportArgumentType]


# ---- units ----


def test_a_promise_for_a_person_covers_an_interaction_where_stages_differ():
    person = {"mechanism": "cooccurrence", "epsilon": 4.0, "unit": "user", "cap": 2}
    cost = priced(SYMMETRIC, {"mechanism": "laplace", "epsilon": 2.0})
    assert math.isinf(cost.whole.epsilon)
    (beside,) = [claim for claim in cost.beside if claim.unit == "interaction"]
    assert (beside.relation, round(beside.epsilon, 6)) == ("replace_one", 4.0)
    assert spent(entries(cost), Budget(9.0, unit="interaction"), 0.0) == pytest.approx(4.0)
    assert spent(entries(cost), Budget(9.0), 0.0) == math.inf
    assert not [claim for claim in priced(person).beside if claim.unit == "interaction"]


# ---- no total is below the truth ----

small = st.sampled_from([0.2, 0.5, 1.0])
forms = st.one_of(
    st.builds(
        lambda e, form: {**SYMMETRIC, "epsilon": e, "form": form}, small, st.sampled_from(["symmetric", "unary"])
    ),
    st.builds(lambda e: {"mechanism": "harmony", "epsilon": e, "k": 1}, small),
)


def law_of(mechanism, bits: tuple[int, ...]) -> dict[bytes, float]:
    return mechanism.law({"counts": np.array(bits, np.float32)})


def neighbours(unit: str, relation: str):
    """Every two histories over a few items that the relation calls neighbours."""
    everything = list(itertools.product((0, 1), repeat=POSITIONS))
    for one, other in itertools.permutations(everything, 2):
        gone = sum(a > b for a, b in zip(one, other)), sum(a < b for a, b in zip(one, other))
        near = sum(gone) == 1 or (relation == "replace_one" and gone == (1, 1))
        if unit == "user" or near:
            yield one, other


def true_delta(laws: list[tuple[dict, dict]], epsilon: float) -> float:
    """How far e^ε leaves the joint law of all messages uncovered, by enumeration."""
    one = other = np.ones(1)
    for first, second in laws:
        one = np.multiply.outer(one, [first[key] for key in first]).ravel()
        other = np.multiply.outer(other, [second[key] for key in first]).ravel()
    return float(np.maximum(one - math.exp(epsilon) * other, 0.0).sum())


@settings(max_examples=30)
@given(st.lists(st.tuples(forms, st.integers(1, 2)), min_size=1, max_size=2), st.sampled_from([0.0, 1e-3]))
def test_no_price_and_no_ledger_is_below_what_enumeration_finds(parts, delta):
    costs = [priced({**privacy, "epsilon": privacy["epsilon"] * rounds}, rounds=rounds) for privacy, rounds in parts]
    stages = tuple(stage for cost in costs for stage in cost.plan.stages)
    cost = price(Plan("all", stages), 100)
    mechanisms = [stage.mechanism for stage in cost.stages for _ in range(stage.messages)]
    claims = [claim for claim in (cost.whole, *cost.beside) if math.isfinite(claim.epsilon)]
    bounds = [(claim.unit, claim.relation, claim.epsilon, claim.delta) for claim in claims]
    for unit in ("interaction", "user"):
        total = spent(entries(cost), Budget(9.0, delta, unit=unit), 0.0)
        if math.isfinite(total):
            bounds.append((unit, "replace_one", total, delta))
    assert bounds
    for unit, relation, epsilon, allowed in bounds:
        for one, other in neighbours(unit, relation):
            laws = [(law_of(m, one), law_of(m, other)) for m in mechanisms]
            if true_delta(laws, epsilon * (1 + 1e-9)) > allowed + 1e-12:
                raise AssertionError(f"{unit}, {relation}: ε = {epsilon} is refuted by {one} and {other}")
