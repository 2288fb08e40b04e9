"""Settings beyond what numbers can carry: each is refused in a sentence, or keeps what it says."""

import itertools
import math

import pytest

from tacit.core.plan import Plan, Stage
from tacit.core.settings import known_settings
from tacit.errors import PlanError
from tacit.privacy.budget import Budget
from tacit.privacy.mechanism import mechanism_class, mechanism_names
from tacit.privacy.price import price

EXTREMES = (math.nan, math.inf, -math.inf, -1.0, 0.0, 1e-300, 1e-40, 1e-25, 1e25, 1e300)
COHORTS = ({"sampler": "all"}, {"sampler": "fixed", "count": 2})


def settings_of(name: str):
    """Suggested settings with one of the numbers, or one more, replaced by an extreme one."""
    kind = mechanism_class(name)
    numeric = [key for key, field in known_settings(kind).items() if "float" in str(field.type)]
    for some, key in itertools.product(kind.suggested, numeric):
        for value in EXTREMES:
            yield {"mechanism": name, **some, key: value}


def priced(privacy: dict, cohort: dict, rounds: int = 3):
    stage = Stage("fcf", {}, ("items",), privacy, {"rule": "mean_step"}, cohort, rounds)
    return price(Plan("p", (stage,)), 50)


def tried(privacy: dict, cohort: dict):
    """The price, or the sentence that refuses it."""
    try:
        return priced(privacy, cohort), ""
    except PlanError as problem:
        return None, str(problem)


@pytest.mark.parametrize("cohort", COHORTS, ids=lambda cohort: cohort["sampler"])
@pytest.mark.parametrize("name", mechanism_names())
def test_extreme_settings_are_refused_in_a_sentence_or_priced(name, cohort):
    for privacy in settings_of(name):
        cost, refusal = tried(privacy, cohort)
        assert "\n" not in refusal, privacy
        if cost is None:
            continue
        for claim in itertools.chain(*cost.claims, [cost.whole], cost.beside):
            assert claim.epsilon >= 0, privacy  # and not nan
        if math.isfinite(cost.whole.epsilon) and cost.stages[0].mechanism is not None:
            noise = cost.stages[0].mechanism.describe().values()
            assert all(math.isfinite(number) for number in noise if isinstance(number, int | float)), privacy


@pytest.mark.parametrize("bound", [1e-25, 1e-37, 1e25])
def test_a_bound_that_numbers_cannot_carry_is_refused(bound):
    for privacy in (
        {"mechanism": "gaussian", "epsilon": 1.0, "clip": bound},
        {"mechanism": "laplace", "epsilon": 1.0, "bound": bound},
    ):
        with pytest.raises(PlanError, match=r"must be from 1e-12 to 1e\+12"):
            priced(privacy, COHORTS[0])


@pytest.mark.parametrize("delta", [1e-300, 1e-16])
def test_a_delta_below_the_rounding_of_bounds_is_refused(delta):
    with pytest.raises(PlanError, match=r"privacy\.delta must be 0, for pure ε, or at least 1e-15"):
        priced({"mechanism": "gaussian", "epsilon": 1.0, "delta": delta}, COHORTS[0])
    with pytest.raises(PlanError, match=r"Budget\.delta must be 0, for pure ε, or at least 1e-15"):
        Budget(1.0, delta)


@pytest.mark.parametrize("delta", [1.0, 1.5, -1e-9, math.nan, math.inf])
def test_a_delta_that_is_no_small_chance_is_refused(delta):
    with pytest.raises(PlanError, match=r"delta"):
        priced({"mechanism": "gaussian", "epsilon": 1.0, "delta": delta}, COHORTS[0])
    with pytest.raises(PlanError, match=r"Budget\.delta must be at least 0 and below 1"):
        Budget(1.0, delta)


def test_a_delta_of_one_person_in_all_is_refused():
    with pytest.raises(PlanError, match=r"privacy\.delta must be below 1/devices"):
        priced({"mechanism": "gaussian", "epsilon": 1.0, "delta": 1 / 50}, COHORTS[0])
