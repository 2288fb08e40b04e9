"""Plan and Stage: the settings of a run as immutable data, read from and written to TOML; without a seed.

>>> stage = Stage("popularity", trains=("counts",), rounds=1, server={"rule": "count"})
>>> plan = Plan("demo", (stage,))
>>> Plan.from_toml(plan.to_toml()) == plan
True
"""

import hashlib
import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

import tomli_w

from tacit.core.settings import Settings, thaw
from tacit.errors import PlanError, unknown

# settings of a mechanism that state a guarantee
PROMISES = ("epsilon", "epsilon_per_message", "delta", "noise")
_TABLES = ("hyper", "privacy", "server", "cohort")


@dataclass(frozen=True)
class Stage:
    """A sequence of equal rounds: the cohort, what its devices compute and send, and what the server does."""

    method: str
    hyper: Mapping[str, Any] = field(default_factory=Settings)
    trains: tuple[str, ...] = ()  # names of the parameter leaves this stage moves
    privacy: Mapping[str, Any] = field(default_factory=lambda: Settings({"mechanism": "none"}))
    server: Mapping[str, Any] = field(default_factory=lambda: Settings({"rule": "mean_step"}))
    cohort: Mapping[str, Any] = field(default_factory=lambda: Settings({"sampler": "all"}))
    rounds: int = 0

    def __post_init__(self):
        for name in _TABLES:
            if not isinstance(getattr(self, name), Mapping):
                raise PlanError(f"Stage.{name} must be a table, got {getattr(self, name)!r}.")
            object.__setattr__(self, name, Settings(getattr(self, name)))
        object.__setattr__(self, "trains", tuple(self.trains))
        self._check()

    def with_rounds(self, rounds: int) -> "Stage":
        """A copy that plays so many rounds; with 0, one that trains nothing."""
        return replace(self, rounds=rounds, trains=self.trains if rounds != 0 else ())

    def _check(self) -> None:
        if not isinstance(self.method, str) or not self.method:
            raise PlanError(f"Stage.method must be the name of a method, got {self.method!r}.")
        if isinstance(self.rounds, bool) or not isinstance(self.rounds, int) or self.rounds < 0:
            raise PlanError(f"Stage.rounds must be a whole number, at least 0, got {self.rounds!r}.")
        for name, inner in (("privacy", "mechanism"), ("server", "rule"), ("cohort", "sampler")):
            if inner not in getattr(self, name):
                raise PlanError(f"Stage.{name} must name its {inner}, got {getattr(self, name)!r}.")
        self._refuse_empty_promises()

    def _refuse_empty_promises(self) -> None:
        if self.privacy["mechanism"] == "none":
            for promise in PROMISES:
                if promise in self.privacy:
                    raise PlanError(
                        f"Stage.privacy.{promise} = {self.privacy[promise]!r} is an empty promise: mechanism "
                        f"'none' adds no noise. Name a mechanism, or leave {promise} out."
                    )
        if self.rounds and not self.trains:
            raise PlanError(
                f"Stage.trains is empty but {self.rounds} rounds would ask devices for reports; "
                "name the leaves to train, or set rounds = 0."
            )


@dataclass(frozen=True)
class Plan:
    """A name and a tuple of stages. The output of a stage is the next stage's broadcast."""

    name: str
    stages: tuple[Stage, ...]

    def __post_init__(self):
        object.__setattr__(self, "stages", tuple(self.stages))
        if not self.name or not isinstance(self.name, str):
            raise PlanError(f"Plan.name must be a word, got {self.name!r}.")
        if not self.stages:
            raise PlanError(f"Plan {self.name!r} has no stage; give it at least one [[stage]].")

    @property
    def digest(self) -> str:
        """A short fingerprint: equal exactly when every setting is equal."""
        text = json.dumps(self.to_dict(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def to_dict(self) -> dict[str, Any]:
        """Plain dicts and lists."""
        stages = [{f.name: thaw(getattr(stage, f.name)) for f in fields(Stage)} for stage in self.stages]
        return {"name": self.name, "stage": stages}

    def to_toml(self) -> str:
        """The plan as a TOML file."""
        return tomli_w.dumps(self.to_dict())

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Plan":
        """A plan from plain values; unknown names are refused with the nearest known one.

        `former_names`, under which a built-in plan can still be loaded, is no part of the plan and is ignored.
        """
        _known("Plan", values, {"name", "stage", "former_names"})
        stages = values.get("stage", [])
        if not isinstance(stages, (list, tuple)) or not all(isinstance(s, Mapping) for s in stages):
            raise PlanError(f"Plan.stage must be a list of [[stage]] tables, got {stages!r}.")
        if "name" not in values:
            raise PlanError('Plan.name is missing; start the file with name = "...".')
        names = {f.name for f in fields(Stage)}
        for number, stage in enumerate(stages, 1):
            _known(f"Plan stage {number}", stage, names)
            if "method" not in stage:
                raise PlanError(f"Plan stage {number} must name its method.")
        return cls(values["name"], tuple(Stage(**stage) for stage in stages))

    @classmethod
    def from_toml(cls, text: str) -> "Plan":
        """A plan from a TOML file's text."""
        try:
            values = tomllib.loads(text)
        except tomllib.TOMLDecodeError as problem:
            raise PlanError(f"The plan is not valid TOML: {problem}.") from None
        return cls.from_dict(values)

    def with_setting(self, path: str, value: Any) -> "Plan":
        """A copy with one setting changed: `hyper.dim`, `rounds`, or `2.hyper.dim` for the second stage.

        >>> plan = Plan("p", (Stage("random"),))
        >>> plan.with_setting("hyper.dim", 8).stages[0].hyper
        {'dim': 8}

        0 rounds train nothing: a baseline against which gains are measured.
        """
        head, _, rest = path.partition(".")
        number, path = (int(head), rest) if head.isdigit() else (1, path)
        if not 1 <= number <= len(self.stages):
            raise PlanError(f"Plan {self.name!r} has {len(self.stages)} stage(s), got stage {number} in a setting.")
        table, _, name = path.partition(".")
        stage = self.stages[number - 1]
        _known(f"Plan stage {number}", [table], {f.name for f in fields(Stage)})
        if name:
            value = {**getattr(stage, table), name: value}
        changed = stage.with_rounds(value) if table == "rounds" else replace(stage, **{table: value})
        return replace(self, stages=(*self.stages[: number - 1], changed, *self.stages[number:]))


def _known(where: str, names: Any, known: set[str]) -> None:
    for name in names:
        if name not in known:
            raise PlanError(unknown(where, name, known))
