"""The shelf: built-in plans by name, a method's own suggestion, or a TOML file."""

import math
import re
from collections.abc import Mapping
from dataclasses import replace
from functools import reduce
from importlib import resources
from pathlib import Path
from typing import Any

import jax

from tacit.catalog import Catalog
from tacit.device.method import build, method_class, method_names
from tacit.errors import PlanError, unknown
from tacit.plans import Plan, Stage
from tacit.privacy.mechanism import build_mechanism
from tacit.privacy.sampler import sampler_of
from tacit.server.rule import build_rule
from tacit.settings import fill, known_settings


def plan_names() -> list[str]:
    """Every plan on the shelf."""
    return sorted({*_files(), *(name.replace("_", "-") for name in method_names())})


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
    if name in _files():
        return complete(Plan.from_toml(_files()[str(name)].read_text(encoding="utf-8")))
    method = str(name).replace("-", "_")
    if method not in method_names():
        raise PlanError(unknown("The shelf", name, plan_names(), "plan"))
    return suggested(method)


def suggested(method: str) -> Plan:
    """What a method itself suggests, whatever else the shelf has under its name."""
    return complete(Plan(method.replace("_", "-"), (Stage(method, **method_class(method).suggested),)))


def choose(plan: Plan | str | Path, settings: Mapping[str, Any] | None = None, epsilon: float | None = None) -> Plan:
    """A plan, by itself or by name, with some settings changed and its promise made.

    >>> choose("fcf", {"hyper.dim": 8, "privacy.mechanism": "gaussian"}, epsilon=4).stages[0].privacy["epsilon"]
    4.0
    """
    chosen = plan if isinstance(plan, Plan) else load_plan(plan)
    # A part is named before its settings are: which of them are known depends on it.
    for path, value in sorted((settings or {}).items(), key=lambda pair: not _NAMES_A_PART.search(pair[0])):
        chosen = chosen.with_setting(path, value)
    if epsilon is not None:
        chosen = _promised(chosen, epsilon)
    return complete(chosen)


_NAMES_A_PART = re.compile(r"(^|\.)(privacy\.mechanism|server\.rule|cohort\.sampler|method|privacy|server|cohort)$")


def _promised(plan: Plan, epsilon: float) -> Plan:
    """The plan with this ε per run; a plan of several stages says how they share it."""
    sending = [number for number, stage in enumerate(plan.stages, 1) if stage.rounds]
    if len(sending) > 1 and all("share" in plan.stages[number - 1].privacy for number in sending):
        return reduce(lambda made, number: made.with_setting(f"{number}.privacy.epsilon", epsilon), sending, plan)
    if len(sending) != 1:
        raise PlanError(
            f"epsilon = {epsilon:g} needs one stage that sends, and {plan.name} has {len(sending)}; set each."
        )
    if plan.stages[sending[0] - 1].privacy["mechanism"] == "none":
        raise PlanError(
            f"epsilon = {epsilon:g} is an empty promise: {plan.name} adds no noise; name a mechanism, such as 'gaussian' "
            "(noise at the server) or 'laplace' (noise at home), with the setting privacy.mechanism."
        )
    return plan.with_setting(f"{sending[0]}.privacy.epsilon", epsilon)


def complete(plan: Plan) -> Plan:
    """The plan with every default written out, so that its digest says everything that will happen.

    Checks every setting on the way: an unknown name, a wrong type or a broken rule is refused here.
    """
    return replace(plan, stages=tuple(_complete(stage, number) for number, stage in enumerate(plan.stages, 1)))


def numbers_trained(plan: Plan, n_items: int = 1) -> list[int]:
    """How many numbers each stage trains; of a table of items, for so many items.

    >>> numbers_trained(load_plan("fcf"), n_items=10) == [10 * load_plan("fcf").stages[0].hyper["dim"]]
    True
    """
    counts = []
    for stage in plan.stages:
        params = jax.eval_shape(build(stage, Catalog(n_items)).init, jax.random.key(0))
        leaves = jax.tree.leaves({name: params[name] for name in stage.trains if name in params})
        counts.append(sum(math.prod(leaf.shape) for leaf in leaves))
    return counts


def _complete(stage: Stage, number: int) -> Stage:
    where = f"Plan stage {number}:"
    method = fill(method_class(stage.method), stage.hyper, f"{where} hyper of {stage.method}", catalog=Catalog(1))
    parts = {
        "privacy": build_mechanism(stage.privacy, f"{where} privacy"),
        "server": build_rule(stage.server, f"{where} server"),
        "cohort": sampler_of(stage, f"{where} cohort"),
    }
    _same_helper(parts["cohort"], method, f"{where} cohort.helper of {stage.method}")
    written = {name: {**getattr(stage, name), **_settings(part)} for name, part in parts.items()}
    return replace(stage, hyper=_settings(method), **written)


def _same_helper(sampler: Any, method: Any, where: str) -> None:
    """What a helper sees is said by its name: a plan that names another would say something else."""
    named, needed = getattr(sampler, "helper", None), getattr(method, "helper", None)
    if named and needed and named != needed:
        raise PlanError(f"{where} must be {needed!r}, got {named!r}; each helper sees something else.")


def _settings(part: Any) -> dict[str, Any]:
    """A part's settings as a plan would write them; what is not set is left out."""
    values = {name: getattr(part, name) for name in known_settings(type(part))}
    return {name: value for name, value in values.items() if value is not None}


def _files() -> dict:
    folder = resources.files("tacit.lab") / "plans"
    return {entry.name.removesuffix(".toml"): entry for entry in folder.iterdir() if entry.name.endswith(".toml")}
