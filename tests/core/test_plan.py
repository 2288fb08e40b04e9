"""Plans: data in and out, and one clear sentence for what cannot be meant."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.core.plan import Plan, Stage
from tacit.core.settings import Settings, setting
from tacit.errors import PlanError
from tacit.lab.plans.loader import complete, load_plan, plan_names
from tacit.privacy.price import price

values = st.one_of(
    st.integers(-9, 9),
    st.booleans(),
    st.text("aB 1é∞\"'\\\n", max_size=5),
    st.floats(allow_nan=False, allow_infinity=False),
)
tables = st.dictionaries(st.text("abc", min_size=1, max_size=3), st.one_of(values, st.lists(st.integers(), max_size=3)))


@settings(max_examples=80)
@given(tables, st.lists(st.text("xyz", min_size=1, max_size=3), min_size=1, max_size=3), st.integers(1, 99))
def test_toml_there_and_back(hyper, trains, rounds):
    plan = Plan("p", (Stage("m", hyper, trains, rounds=rounds), Stage("n")))
    assert Plan.from_toml(plan.to_toml()) == plan
    assert Plan.from_toml(plan.to_toml()).digest == plan.digest
    assert hash(plan) == hash(Plan.from_toml(plan.to_toml()))


@pytest.mark.parametrize("name", plan_names())
def test_every_plan_on_the_shelf_is_complete_and_priced(name):
    plan = load_plan(name)
    assert complete(plan) == plan
    assert Plan.from_toml(plan.to_toml()) == plan
    for claims in price(plan, 100).claims:
        assert claims
        assert any(claim.per == "run" for claim in claims)


def test_digest_changes_with_any_setting():
    plan = load_plan("fcf")
    changed = [
        plan.with_setting("hyper.dim", 33),
        plan.with_setting("rounds", 31),
        plan.with_setting("server.rate", 0.06),
        plan.with_setting("privacy.wire", "rows"),
        plan.with_setting("cohort", {"sampler": "one"}),
    ]
    assert len({plan.digest, *(p.digest for p in changed)}) == 6


def test_a_plan_is_frozen():
    plan = load_plan("fcf")
    with pytest.raises(AttributeError):
        plan.name = "other"
    with pytest.raises(AttributeError):
        plan.stages[0].rounds = 3
    with pytest.raises(TypeError):
        plan.stages[0].hyper["dim"] = 3


def fcf(**changes):
    stage = {"method": "fcf", "trains": ["items"], "rounds": 1, "server": {"rule": "sgd", "rate": 0.1}, **changes}
    return complete(Plan.from_dict({"name": "p", "stage": [stage]}))


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"hyper": {"dmi": 3}}, "hyper of fcf has no setting 'dmi'; did you mean 'dim'?"),
        ({"hyper": {"dim": 0}}, "hyper of fcf.dim must be at least 1, got 0."),
        ({"hyper": {"dim": 2.5}}, "hyper of fcf.dim must be of type int, got 2.5."),
        ({"hyper": {"dim": True}}, "hyper of fcf.dim must be of type int, got True."),
        ({"hyper": {"penalty": 0}}, "hyper of fcf.penalty must be above 0, got 0.0."),
        ({"hyper": {"weights": "none"}}, "hyper of fcf.weights must be one of 'all', 'own', 'split', got 'none'."),
        ({"hyper": 3}, "Stage.hyper must be a table, got 3."),
        ({"method": "fcff"}, "Tacit has no method 'fcff'; did you mean 'fcf'?"),
        ({"rouns": 3}, "Plan stage 1 has no setting 'rouns'; did you mean 'rounds'?"),
        ({"rounds": -1}, "Stage.rounds must be a whole number, at least 0, got -1."),
        ({"rounds": 0}, "Stage.trains promises to train items in 0 rounds"),
        ({"trains": []}, "Stage.trains is empty but 1 rounds would request reports"),
        ({"privacy": {"mechanism": "none", "epsilon": 1.0}}, "Stage.privacy.epsilon = 1.0 is an empty promise"),
        ({"privacy": {"epsilon": 1.0}}, "Stage.privacy must name its mechanism"),
        ({"privacy": {"mechanism": "nnoe"}}, "privacy has no mechanism 'nnoe'; did you mean 'none'?"),
        ({"privacy": {"mechanism": "none", "messages": 0}}, "privacy.messages must be at least 1, got 0."),
        ({"server": {"rule": "admm", "rate": 0.1}}, "server has no rule 'admm'; did you mean 'adam'?"),
        ({"server": {"rule": "sgd"}}, "server.rate is missing; must be above 0."),
        ({"server": {"rule": "sgd", "rate": 0.1, "deacy": 1}}, "server has no setting 'deacy'; did you mean 'decay'?"),
        ({"cohort": {"sampler": "fix"}}, "cohort has no sampler 'fix'; did you mean 'fixed'?"),
        ({"cohort": {"sampler": "fixed"}}, "cohort.count is missing; must be at least 1."),
        ({"cohort": {"sampler": "one", "count": 3}}, "cohort has no setting 'count'. It takes none."),
        ({"cohort": {"sampler": "poisson", "rate": 1.5}}, "cohort.rate must be above 0 and at most 1, got 1.5."),
    ],
)
def test_a_mistake_gets_one_sentence(changes, sentence):
    with pytest.raises(PlanError) as caught:
        fcf(**changes)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "Plan.name is missing"),
        ("name = 'p'", "Plan 'p' has no stage"),
        ("name = 'p'\nstages = 3", "Plan has no setting 'stages'; did you mean 'stage'?"),
        ("name = 'p'\nstage = 3", "Plan.stage must be a list"),
        ("name = 'p'\n[[stage]]\nrounds = 1", "Plan stage 1 must name its method."),
        ("name = ", "not valid TOML"),
    ],
)
def test_a_broken_file_gets_one_sentence(text, sentence):
    with pytest.raises(PlanError) as caught:
        Plan.from_toml(text)
    assert sentence in str(caught.value)


def test_settings_say_their_rule_once():
    table = Settings({"b": [1, {"c": 2}], "a": 1})
    assert dict(table)["a"] == 1
    assert table == Settings({"a": 1, "b": [1, {"c": 2}]})
    assert hash(table) == hash(Settings({"a": 1, "b": (1, {"c": 2})}))
    assert setting(3).metadata["setting"]["above"] is None


def test_the_price_is_known_before_the_run():
    nothing, told, pooled = (price(load_plan(name), 50).claims[0][-1] for name in ("mfu", "popularity", "itemknn"))
    assert (nothing.epsilon, nothing.trust) == (0.0, "nobody")
    assert told.epsilon == float("inf")
    assert "∞" in str(told)
    assert "raw data" in str(pooled)
