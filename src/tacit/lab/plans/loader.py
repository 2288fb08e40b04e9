"""The loader of plans: built-in plans by name, a method's suggested plan, or a TOML file; every default is filled in.

A plan that uses names of an earlier version comes out with today's names, so that both have one digest.
"""

import math
import re
import tomllib
import warnings
from collections.abc import Mapping
from dataclasses import replace
from importlib import resources
from itertools import takewhile
from pathlib import Path
from typing import Any

import jax

from tacit.core.catalog import Catalog
from tacit.core.plan import PROMISES, Plan, Stage
from tacit.core.plugins import RenamedWarning
from tacit.core.settings import current_setting, current_settings, fill, known_settings, takes
from tacit.device.method import Method, breaks_form, build, current_method, keeps_unit, method_class, method_names
from tacit.errors import PlanError, unknown
from tacit.privacy.mechanism import (
    Mechanism,
    build_mechanism,
    current_mechanism,
    mechanism_class,
    mechanism_names,
)
from tacit.privacy.price import Price, price
from tacit.privacy.sampler import SAMPLERS, Sampler, sampler_of
from tacit.server.rule import Rule, build_rule, current_rule, rule_class


def plan_names() -> list[str]:
    """The names of all built-in plans."""
    return sorted({*_files(), *(name.replace("_", "-") for name in method_names())})


def first_words(name: str) -> str:
    """The first sentence of the comment at the top of a built-in plan's file; empty where its method suggests the plan."""
    if name not in _files():
        return ""
    comment = takewhile(lambda line: line.startswith("#"), _files()[name].read_text(encoding="utf-8").splitlines())
    text = " ".join(line.removeprefix("#").strip() for line in comment)
    return re.split(r"(?<! al)\. ", text)[0].rstrip(".")


def load_plan(name: str | Path) -> Plan:
    """A plan by built-in name or from a TOML file.

    >>> import tacit
    >>> tacit.plan("popularity").stages[0].trains
    ('counts',)
    """
    if str(name).endswith(".toml"):
        path = Path(name)
        if not path.is_file():
            raise PlanError(f"Plan file {str(name)!r} does not exist; built-in plans: {', '.join(plan_names())}.")
        return complete(Plan.from_toml(path.read_text(encoding="utf-8")))
    name = _current_name(str(name))
    if name in _files():
        return complete(Plan.from_toml(_files()[name].read_text(encoding="utf-8")))
    return suggested(name.replace("-", "_"))


def _current_name(name: str) -> str:
    """A plan's name, or the current name of a plan that an earlier version called so, with a warning."""
    names = plan_names()
    if (name := name.replace("_", "-")) in names:
        return name
    for current in names:
        if name in _former_names(current):
            warnings.warn(f"The plan {name!r} is now called {current!r}.", RenamedWarning, stacklevel=3)
            return current
    raise PlanError(unknown("Tacit", name, names, "plan"))


def _former_names(name: str) -> list[str]:
    """What earlier versions called a plan: the key `former_names` of its file, or what its method was called."""
    if name in _files():
        return tomllib.loads(_files()[name].read_text(encoding="utf-8")).get("former_names", [])
    return [former.replace("_", "-") for former in method_class(name.replace("-", "_")).former_names]


def suggested(method: str) -> Plan:
    """The plan that a method itself suggests, even if a built-in plan has the same name."""
    return complete(Plan(method.replace("_", "-"), (Stage(method, **method_class(method).suggested),)))


def choose(plan: Plan | str | Path, settings: Mapping[str, Any] | None = None, epsilon: float | None = None) -> Plan:
    """A plan, or the one of this name or file, with some settings changed and its privacy promise set.

    >>> choose("fcf", {"hyper.dim": 8, "privacy.mechanism": "gaussian"}, epsilon=4).stages[0].privacy["epsilon"]
    4.0
    """
    chosen = with_current_names(plan if isinstance(plan, Plan) else load_plan(plan))
    # A part is named before its settings are set: its class decides which of them are known.
    for path, value in sorted((settings or {}).items(), key=lambda pair: not _NAMES_A_PART.search(pair[0])):
        if _MECHANISM.fullmatch(path):
            chosen = _with_mechanism(chosen, path, current_mechanism(value))
        else:
            chosen = chosen.with_setting(_current_path(chosen, path), value)
    if epsilon is not None:
        chosen = _promised(chosen, epsilon)
    return complete(chosen)


_NAMES_A_PART = re.compile(r"(^|\.)(privacy\.mechanism|server\.rule|cohort\.sampler|method|privacy|server|cohort)$")


_MECHANISM = re.compile(r"(?:(\d+)\.)?privacy\.mechanism")


class DroppedWarning(UserWarning):
    """Another mechanism was chosen, and a setting of the previous one is left out."""


def _with_mechanism(plan: Plan, path: str, name: str) -> Plan:
    """The plan with another mechanism, and those settings of the previous one that it takes.

    Privacy parameters are never dropped: one that the other mechanism does not take is refused.
    """
    found = _MECHANISM.fullmatch(path)
    assert found is not None
    changed = plan.with_setting(path, name)
    stage = changed.stages[int(found[1] or 1) - 1]
    before, after = (mechanism_class(one) for one in (plan.stages[int(found[1] or 1) - 1].privacy["mechanism"], name))
    refused = [
        one
        for one in stage.privacy
        if one not in ("mechanism", *PROMISES) and not takes(after, one, stage.privacy[one])
    ]
    lost = [f"{one} = {stage.privacy[one]!r}" for one in refused if stage.privacy[one] != _default(before, one)]
    if lost:
        sentence = f"privacy.mechanism = {name!r} does not take {', '.join(lost)} of {plan.name}, which is left out."
        warnings.warn(sentence, DroppedWarning, stacklevel=3)
    kept = {one: value for one, value in stage.privacy.items() if one not in refused}
    return changed.with_setting(path.removesuffix(".mechanism"), kept)


def _default(part: type, name: str) -> Any:
    known = known_settings(part)
    return known[name].default if name in known else None


def _promised(plan: Plan, epsilon: float) -> Plan:
    """The plan with this ε per run; in a plan of several stages, `share` or their own ε divide it among them.

    A plan that adds no noise takes the mechanism that its methods name for this.
    """
    sending = [number for number, stage in enumerate(plan.stages, 1) if stage.rounds]
    stages = [plan.stages[number - 1] for number in sending]
    if not sending:
        raise PlanError(f"epsilon = {epsilon:g} needs a stage that sends updates, and {plan.name} has none.")
    if all(stage.privacy["mechanism"] == "none" for stage in stages):
        return _with_noise(plan, sending, epsilon)
    parts = [epsilon] * len(sending)
    if len(sending) > 1 and not all("share" in stage.privacy for stage in stages):
        own = [stage.privacy.get("epsilon", math.nan) for stage in stages]
        parts = [epsilon * one / sum(own) for one in own]
        if any(map(math.isnan, own)):
            raise PlanError(
                f"epsilon = {epsilon:g} needs one stage that sends, or a share or an epsilon in each, and {plan.name} has "
                f"{len(sending)} without; set each."
            )
    for number, part in zip(sending, parts):
        plan = plan.with_setting(f"{number}.privacy.epsilon", part)
    return plan


def _with_noise(plan: Plan, sending: list[int], epsilon: float) -> Plan:
    """The plan with the mechanism that each method names for a promise; several stages have equal parts of ε."""
    parts = {"epsilon": epsilon}
    if len(sending) > 1:  # shares are for rounds of everybody; otherwise the parts add up to no more than ε
        everybody = all(plan.stages[number - 1].cohort["sampler"] == "all" for number in sending)
        part = 1 / len(sending)
        parts = {"epsilon": epsilon, "share": part} if everybody else {"epsilon": epsilon * part}
    for number in sending:
        stage = plan.stages[number - 1]
        noisy = method_class(stage.method).private
        if reason := refusals(stage.method)[noisy["mechanism"]]:
            raise PlanError(
                f"epsilon = {epsilon:g} is an empty promise: {plan.name} adds no noise, and {stage.method} takes no "
                f"{noisy['mechanism']!r}: {reason}."
            )
        plan = plan.with_setting(f"{number}.privacy", {**noisy, **parts})
    return plan


def price_plan(plan: Plan | str | Path, devices: int) -> Price:
    """What a plan guarantees and who sees what, for a population of this size; refuses what a run would refuse.

    >>> import tacit
    >>> str(tacit.price("mfu", devices=10).whole)
    'ε = 0 per run, local, unit user, replace-one, trust: nobody (nothing leaves the device)'
    """
    return price(choose(plan), devices)


def complete(plan: Plan) -> Plan:
    """The plan with every default filled in and every name of today, so that its digest covers everything that will happen.

    Checks every setting: an unknown name, a wrong type or a broken rule is refused here.
    """
    stages = enumerate(with_current_names(plan).stages, 1)
    return replace(plan, stages=tuple(_complete(stage, number) for number, stage in stages))


def numbers_trained(plan: Plan, n_items: int = 1) -> list[int]:
    """The number of parameters each stage trains, for a catalog of this size.

    >>> numbers_trained(load_plan("fcf"), n_items=10) == [10 * load_plan("fcf").stages[0].hyper["dim"]]
    True
    """
    counts = []
    for stage in plan.stages:
        params = jax.eval_shape(build(stage, Catalog(n_items)).init, jax.random.key(0))
        leaves = jax.tree.leaves({name: params[name] for name in stage.trains if name in params})
        counts.append(sum(math.prod(leaf.shape) for leaf in leaves))
    return counts


def with_current_names(plan: Plan) -> Plan:
    """The plan with today's names of methods, mechanisms, rules and settings in place of those of earlier versions."""
    stages = tuple(_with_current_names(stage, f"Plan stage {number}:") for number, stage in enumerate(plan.stages, 1))
    return plan if stages == plan.stages else replace(plan, stages=stages)


def _with_current_names(stage: Stage, where: str) -> Stage:
    privacy = {**stage.privacy, "mechanism": current_mechanism(stage.privacy["mechanism"])}
    server = {**stage.server, "rule": current_rule(stage.server["rule"])}
    named = replace(stage, method=current_method(stage.method), privacy=privacy, server=server)
    settings = {
        table: current_settings(part, getattr(named, table), f"{where} {table}")
        for table, part in _part_classes(named, where).items()
    }
    return replace(named, **settings)


def _part_classes(stage: Stage, where: str) -> dict[str, type]:
    """The class of each part of a stage that a table of settings belongs to."""
    return {
        "hyper": method_class(stage.method),
        "privacy": mechanism_class(stage.privacy["mechanism"], f"{where} privacy"),
        "server": rule_class(stage.server["rule"], f"{where} server"),
        "cohort": SAMPLERS.get(stage.cohort["sampler"], Sampler),
    }


def _current_path(plan: Plan, path: str) -> str:
    """The path of a setting, such as `2.hyper.dim`, with the setting's name of today."""
    *before, table, name = ("", *path.split("."))
    number = int(before[-1]) if before and before[-1].isdigit() else 1
    if table not in ("hyper", "privacy", "server", "cohort") or not 1 <= number <= len(plan.stages):
        return path
    part = _part_classes(plan.stages[number - 1], f"Plan stage {number}:")[table]
    return path.removesuffix(name) + current_setting(part, name)


def _complete(stage: Stage, number: int) -> Stage:
    where = f"Plan stage {number}:"
    method = fill(method_class(stage.method), stage.hyper, f"{where} hyper of {stage.method}", catalog=Catalog(1))
    parts = {
        "privacy": build_mechanism(stage.privacy, f"{where} privacy"),
        "server": build_rule(stage.server, f"{where} server"),
        "cohort": sampler_of(stage, f"{where} cohort"),
    }
    _same_helper(parts["cohort"], method, f"{where} cohort.helper of {stage.method}")
    reason = misfit(method, parts["privacy"], parts["server"]) if stage.rounds else ""
    if reason:
        raise PlanError(
            f"{where} privacy.mechanism = {stage.privacy['mechanism']!r} does not fit {stage.method}: {reason}."
        )
    written = {name: {**getattr(stage, name), **_settings(part)} for name, part in parts.items()}
    return replace(stage, hyper=_settings(method), **written)


# ---- compatibility of methods, mechanisms and rules ----


def misfit(method: Method, mechanism: Mechanism, rule: Rule) -> str:
    """Why a method, a mechanism and a rule do not fit together; empty where they do."""
    if rule.reads_pairs and not mechanism.counts_pairs:
        counting = [name for name in mechanism_names() if mechanism_class(name).counts_pairs]
        return f"the server's rule needs counts of pairs; set privacy.mechanism to one that makes them: {', '.join(counting)}"
    if mechanism.counts_pairs and not rule.reads_pairs:
        return "it counts pairs, and the server's rule does not read them; set another privacy.mechanism"
    if not keeps_unit(method, mechanism.unit):
        return (
            "it promises for one interaction, and one may change more than one position of what this method sends; "
            "set a privacy.mechanism that promises for a user"
        )
    if reason := breaks_form(method, mechanism.update_form):
        return f"{reason}; leave privacy.update_form out"
    return ""


def refusals(method: str) -> dict[str, str]:
    """For each mechanism, why it does not fit a method's suggested stage with any suggested settings; empty where it fits.

    >>> refusals("fcf")["gaussian"], refusals("mfu")["gaussian"]
    ('', 'nothing leaves the device')
    """
    stage = suggested(method).stages[0]
    if sampler_of(stage).fitted != "rounds":
        return dict.fromkeys(mechanism_names(), "the model is fitted in the lab, to raw data")
    if not stage.rounds:
        return dict.fromkeys(mechanism_names(), "nothing leaves the device")
    made, rule = build(stage, Catalog(1)), build_rule(stage.server)
    return {name: _refusal(made, name, rule) for name in mechanism_names()}


def _refusal(method: Method, mechanism: str, rule: Rule) -> str:
    tried = (build_mechanism({"mechanism": mechanism, **some}) for some in mechanism_class(mechanism).suggested)
    reasons = [misfit(method, one, rule) for one in tried]
    return "" if "" in reasons else reasons[0]


def _same_helper(sampler: Any, method: Any, where: str) -> None:
    """Refuse another helper than the method's: what a helper sees depends on which one it is."""
    named, needed = getattr(sampler, "helper", None), getattr(method, "helper", None)
    if named and needed and named != needed:
        raise PlanError(f"{where} must be {needed!r}, got {named!r}; each helper sees something else.")


def _settings(part: Any) -> dict[str, Any]:
    """A part's settings as a plan has them; settings that are None are left out."""
    values = {name: getattr(part, name) for name in known_settings(type(part))}
    return {name: value for name, value in values.items() if value is not None}


def _files() -> dict:
    folder = resources.files("tacit.lab.plans")
    return {entry.name.removesuffix(".toml"): entry for entry in folder.iterdir() if entry.name.endswith(".toml")}
