"""Plans with names of an earlier version: they come out with today's names, and one warning."""

import warnings
from typing import ClassVar

import pytest

from tacit.core.plan import Plan
from tacit.core.plugins import RenamedWarning
from tacit.core.settings import current_settings, fill, setting
from tacit.device.method import method_class, method_names, methods_from
from tacit.errors import PlanError
from tacit.lab.plans.loader import choose, complete, load_plan, plan_names
from tacit.privacy.mechanism import Mechanism, mechanism_class, mechanism_names
from tacit.server.rule import rule_class, rule_names

PARTS = {"mechanism": (mechanism_names, mechanism_class, "privacy"), "rule": (rule_names, rule_class, "server")}
FORMER = [
    (kind, name, former)
    for kind, (names, load, _) in PARTS.items()
    for name in names()
    for former in load(name).former_names
]


def plan_with(kind: str, name: str) -> Plan:
    """A built-in plan that uses a mechanism or rule, or one that takes it."""
    table = PARTS[kind][2]
    plans = [load_plan(plan) for plan in plan_names()]
    found = [plan for plan in plans if any(getattr(stage, table)[kind] == name for stage in plan.stages)]
    return found[0] if found else choose("popularity", {table: {kind: name, **PARTS[kind][1](name).suggested[0]}})


def with_former(plan: Plan, kind: str, name: str, former: str) -> dict:
    """The plan as plain values, with the former name of a mechanism or rule in place of today's."""
    values = plan.to_dict()
    for stage in values["stage"]:
        if stage[PARTS[kind][2]][kind] == name:
            stage[PARTS[kind][2]][kind] = former
    return values


def renamed(caught: list) -> list[str]:
    return [str(one.message) for one in caught if issubclass(one.category, RenamedWarning)]


def test_there_are_former_names():
    assert {former for *_, former in FORMER} >= {"pairs", "members", "response", "directions"}


@pytest.mark.parametrize(("kind", "name", "former"), FORMER)
def test_a_former_name_loads_to_the_digest_of_todays_name(tmp_path, kind, name, former):
    plan = plan_with(kind, name)
    old = Plan.from_dict(with_former(plan, kind, name, former))
    (tmp_path / "old.toml").write_text(old.to_toml(), encoding="utf-8")
    assert old.digest != plan.digest
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        loaded = load_plan(tmp_path / "old.toml")
    assert loaded == plan
    assert loaded.digest == plan.digest
    uses = sum(getattr(stage, PARTS[kind][2])[kind] == name for stage in plan.stages)
    assert renamed(caught) == [f"The {kind} {former!r} is now called {name!r}."] * uses
    with pytest.warns(RenamedWarning):
        assert choose(old) == plan


def test_a_former_name_in_a_setting_is_todays_name():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        plan = choose("dplcf", {"privacy.mechanism": "pairs"})
    assert plan.digest == choose("dplcf", {"privacy.mechanism": "cooccurrence"}).digest
    assert len(renamed(caught)) == 1


METHOD = '''
from typing import Any, ClassVar

import jax

from tacit.core.catalog import Catalog
from tacit.core.settings import setting
from tacit.device.history import History
from tacit.device.method import AtHome


class Renamed(AtHome):
    """A method that had another name, with a setting that had another name."""

    catalog: Catalog
    size: int = setting(4)

    learns: ClassVar[bool] = False
    suggested: ClassVar[dict[str, Any]] = {}
    former_names: ClassVar[tuple[str, ...]] = ("toy_before",)
    former_settings: ClassVar[dict[str, str]] = {"dim": "size"}

    def prepare(self, history: History) -> Any:
        """Nothing."""
        return history.items

    def score(self, params: dict, local: Any, own: Any, recent: jax.Array, candidates: jax.Array) -> jax.Array:
        """All items alike."""
        return candidates * 0.0
'''


@pytest.fixture
def toy(tmp_path, monkeypatch):
    """A method with a former name and a former setting, in a folder of its own."""
    import tacit.device.methods

    monkeypatch.setattr(tacit.device.methods, "__path__", [*tacit.device.methods.__path__])
    (tmp_path / "toy_today.py").write_text(METHOD, encoding="utf-8")
    methods_from(tmp_path)
    return "toy_today"


def test_a_former_name_of_a_method_is_todays_name(toy):
    with pytest.warns(RenamedWarning, match="The plan 'toy-before' is now called 'toy-today'"):
        assert load_plan("toy-before") == load_plan("toy-today")
    with pytest.warns(RenamedWarning):
        old = complete(Plan.from_dict({"name": "toy-today", "stage": [{"method": "toy_before"}]}))
    assert old.digest == load_plan("toy-today").digest
    assert not any(former in method_names() for name in method_names() for former in method_class(name).former_names)


def test_a_former_setting_of_a_method_is_todays_setting(toy):
    today = choose(toy, {"hyper.size": 7})
    with pytest.warns(RenamedWarning, match="The setting 'dim' is now called 'size'"):
        assert choose(toy, {"hyper.dim": 7}) == today
    with pytest.warns(RenamedWarning):
        assert choose(toy, {"1.hyper.dim": 7}) == today
    with pytest.warns(RenamedWarning):
        written = complete(Plan.from_dict({"name": "toy-today", "stage": [{"method": toy, "hyper": {"dim": 7}}]}))
    assert written.digest == today.digest
    assert dict(written.stages[0].hyper) == {"size": 7}


class Part:
    """The names alone."""

    former_settings: ClassVar[dict[str, str]] = {"old": "new"}


def test_a_setting_under_both_of_its_names_is_refused():
    with pytest.raises(PlanError, match="here has 'new' and 'old', which is its former name; leave 'old' out"):
        current_settings(Part, {"old": 1, "new": 1}, "here")


def test_a_part_is_built_from_former_settings():
    import equinox as eqx

    class Toy(eqx.Module):
        new: int = setting(1, at_least=0)
        former_settings: ClassVar[dict[str, str]] = {"old": "new"}

    with pytest.warns(RenamedWarning):
        assert fill(Toy, {"old": 3}, "toy").new == 3
    assert Mechanism.former_settings == {}


# Plans that send updates and promise nothing in one word, and why.
NO_PROMISE = {
    "dp-privrec-two-optin": "has 2 without",  # volunteers have none, the others one
    "dp-privrec-two-paper": "has 2 without",
    "dp-privrec-two-public": "has 2 without",
    "fedseqrec-paper": "has 2 without",
    "lcf-ub": "not both",
    "seqmf-paper": "cannot keep",
}


@pytest.mark.parametrize("name", plan_names())
def test_epsilon_in_one_word_is_taken_by_every_plan_that_sends_updates(name):
    """Without noise of its own, with the mechanism that the method names."""
    sending = [stage for stage in load_plan(name).stages if stage.rounds]
    if not sending or name in NO_PROMISE:
        with pytest.raises(PlanError, match=NO_PROMISE.get(name, "needs a stage that sends updates")):
            choose(name, epsilon=3.0)
        return
    found = [stage.privacy for stage in choose(name, epsilon=3.0).stages if stage.rounds]
    shares = [one.get("share") for one in found]
    if None in shares:
        assert sum(one["epsilon"] for one in found) == pytest.approx(3.0)
    else:
        assert {one["epsilon"] for one in found} == {3.0}
        assert sum(shares) == pytest.approx(1.0)
