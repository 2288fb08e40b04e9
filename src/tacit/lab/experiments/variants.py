"""Variants: plans with some of their settings changed, each under a name that shows which."""

import itertools
import json
import tomllib
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tacit.core.plan import Plan, Stage
from tacit.core.settings import known_settings
from tacit.device.method import method_class
from tacit.errors import PlanError, unknown
from tacit.lab.data import Population
from tacit.lab.plans.loader import choose
from tacit.lab.simulation.federation import Federation
from tacit.privacy.mechanism import mechanism_class
from tacit.privacy.sampler import SAMPLERS, Sampler
from tacit.server.rule import rule_class

EPSILON = "epsilon"  # beside the settings of a plan: what a run promises, as `choose` takes it
_PARTS = ("method", "privacy", "server", "cohort", "privacy.mechanism", "server.rule", "cohort.sampler")


@dataclass(frozen=True)
class Variant:
    """A complete plan, what was changed in it, and a name for both."""

    name: str
    plan: Plan
    setting: dict[str, Any] = field(default_factory=dict)


# ---- the settings of a plan ----


def plan_settings(plan: Plan) -> list[str]:
    """Every setting of a plan, as `Plan.with_setting` takes it; those of a later stage begin with its number.

    A stage that sends nothing has no rounds, cohort, mechanism or rule to set.

    >>> from tacit.lab.plans.loader import load_plan
    >>> plan_settings(load_plan("mfu"))
    ['method', 'hyper']
    """
    names: list[str] = []
    for number, stage in enumerate(plan.stages, 1):
        names += [name if number == 1 else f"{number}.{name}" for name in _settings_of(stage)]
    return names


def _settings_of(stage: Stage) -> list[str]:
    names = ["method", "hyper", *_inside("hyper", method_class(stage.method))]
    sampler = SAMPLERS.get(stage.cohort["sampler"], Sampler)  # its settings may not be given yet
    if not stage.trains or sampler.fitted != "rounds":
        return names
    mechanism, rule = stage.privacy["mechanism"], stage.server["rule"]
    names += ["trains", "rounds", "privacy", "privacy.mechanism", *_inside("privacy", mechanism_class(mechanism))]
    names += ["server", "server.rule", *_inside("server", rule_class(rule))]
    return [*names, "cohort", "cohort.sampler", *_inside("cohort", sampler)]


def _inside(table: str, part: type | None) -> list[str]:
    return [] if part is None else [f"{table}.{name}" for name in known_settings(part)]


def applicable_settings(plan: Plan, setting: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the settings that a plan has, after its parts are set.

    >>> from tacit.lab.plans.loader import load_plan
    >>> applicable_settings(load_plan("fcf"), {"hyper.dim": 8, "privacy.epsilon": 2.0})
    {'hyper.dim': 8}
    """
    for path, value in setting.items():
        if _bare(path).lstrip("0123456789.") in _PARTS and _bare(path) in plan_settings(plan):
            plan = plan.with_setting(path, value)
    known = set(plan_settings(plan))
    if any(path.endswith("privacy") for path in known):
        known.add(EPSILON)
    return {path: value for path, value in setting.items() if _bare(path) in known}


def setting_error(plans: Iterable[Plan], path: str, value: Any) -> PlanError:
    """The error of a setting that no plan has: the plan's own sentence where it has one, else the nearest name."""
    plans = list(plans)
    if path == EPSILON:
        return PlanError(f"epsilon = {value:g} needs a plan that sends something; {plans[0].name} sends nothing.")
    try:
        plans[0].with_setting(path, value)
    except PlanError as problem:
        return problem
    known = {name for plan in plans for name in plan_settings(plan)}
    return PlanError(unknown(" or ".join(dict.fromkeys(plan.name for plan in plans)), path, known))


def _bare(path: str) -> str:
    """`1.hyper.dim` is `hyper.dim`."""
    return path.removeprefix("1.")


# ---- variants ----


def sweep_variants(
    plans: Sequence[Plan], sweep: Mapping[str, Sequence[Any]], settings: Mapping[str, Any] | None = None
) -> tuple[list[Variant], list[str]]:
    """Every plan with every combination of the swept values, and notes.

    `settings` are the same for all and are no part of a name. A plan without a setting runs without it, once, and a note
    says so; a setting that no plan has is refused.
    """
    for path, values in sweep.items():
        if not values:
            raise PlanError(f"A sweep over {path} needs at least one value, got none; write {path}=1,2,4, say.")
    wanted = {**(settings or {}), **{path: values[0] for path, values in sweep.items()}}
    made: dict[str, Variant] = {}
    lacks: dict[str, list[str]] = {}
    for name, plan in zip(_distinct([plan.name for plan in plans]), plans):
        grid = [{**wanted, **dict(zip(sweep, values))} for values in itertools.product(*sweep.values())]
        made |= {one.name: one for one in (make_variant(name, plan, setting, shown=sweep) for setting in grid)}
        has = {path for setting in grid for path in applicable_settings(plan, setting)}
        lacks[name] = [path for path in wanted if path not in has]
    for path, value in wanted.items():
        if all(path in missing for missing in lacks.values()):
            raise setting_error(plans, path, value)
    return list(made.values()), [_without(name, missing, sweep) for name, missing in lacks.items() if missing]


def _without(name: str, missing: list[str], sweep: Container[str]) -> str:
    once = ", once" if any(path in sweep for path in missing) else ""
    return f"{name} has no setting {', '.join(missing)} and runs without{once}"


def make_variant(name: str, plan: Plan, setting: Mapping[str, Any], shown: Container[str] | None = None) -> Variant:
    """The plan with those of the settings that it has, named by those shown; errors begin with the name."""
    fits = applicable_settings(plan, setting)
    own = {path: value for path, value in fits.items() if shown is None or path in shown}
    called = variant_name(name, own)
    epsilon = fits.pop(EPSILON, None)
    try:
        return Variant(called, choose(plan, fits, epsilon), own)
    except PlanError as problem:
        raise PlanError(f"{called}: {problem}") from None


def check_fit(variant: Variant, population: Population) -> None:
    """Refuse what a run would refuse before its first round: a price, a leaf, a method that does not fit the log."""
    try:
        Federation(variant.plan, population)
    except PlanError as problem:
        raise PlanError(f"{variant.name}: {problem}") from None


def variant_name(name: str, setting: Mapping[str, Any]) -> str:
    """A name with the changed settings.

    >>> variant_name("fcf", {"privacy.epsilon": 2, "privacy.mechanism": "laplace"})
    'fcf privacy.epsilon=2 privacy.mechanism=laplace'
    """
    words = (f"{path}={value if isinstance(value, str) else json.dumps(value)}" for path, value in setting.items())
    return " ".join([name, *words])


def _distinct(names: Sequence[str]) -> list[str]:
    """A plan that is named twice gets a number."""
    return [name if (n := names[:i].count(name)) == 0 else f"{name} ({n + 1})" for i, name in enumerate(names)]


# ---- values as text ----


def parse_values(text: str) -> list[Any]:
    """Values between commas, read as TOML would, else as text.

    >>> parse_values("0.5,1,true"), parse_values("laplace,none"), parse_values("")
    ([0.5, 1, True], ['laplace', 'none'], [])
    """
    try:
        return tomllib.loads(f"values = [{text}]")["values"]
    except tomllib.TOMLDecodeError:
        return [_value(part.strip()) for part in text.split(",")]


def _value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
