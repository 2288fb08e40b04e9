"""Settings: checks a plan's plain values and turns them into the fields of a part.

A part (method, mechanism, rule, sampler) is an equinox Module whose fields are its settings. The field
says its default and its rule; nothing else repeats them. A setting that was renamed is in the part's `former_settings`, and
its former name keeps working.
"""

import math
import typing
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields
from functools import cache
from typing import Any, TypeVar

import equinox as eqx

from tacit.core.plugins import RenamedWarning
from tacit.errors import PlanError, unknown

Part = TypeVar("Part")


class Settings(Mapping[str, Any]):
    """A frozen, hashable, printable mapping of plain values; nested mappings freeze too."""

    __slots__ = ("_items",)

    def __init__(self, values: Mapping[str, Any] | None = None):
        items = sorted((values or {}).items())
        self._items = tuple((str(name), _freeze(value)) for name, value in items)

    def __getitem__(self, name: str) -> Any:
        for known, value in self._items:
            if known == name:
                return value
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return (name for name, _ in self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __hash__(self) -> int:
        return hash(self._items)

    def __repr__(self) -> str:
        return repr(thaw(self))


def _freeze(value: Any) -> Any:
    if isinstance(value, Mapping):
        return Settings(value)
    if isinstance(value, (list, tuple)):
        return tuple(_freeze(entry) for entry in value)
    return value


def thaw(value: Any) -> Any:
    """The same values as plain dicts and lists, for TOML and JSON."""
    if isinstance(value, Mapping):
        return {name: thaw(entry) for name, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [thaw(entry) for entry in value]
    return value


def setting(
    default: Any = MISSING,
    *,
    at_least: float | None = None,
    above: float | None = None,
    at_most: float | None = None,
    of_person: tuple[float, float] | None = None,
) -> Any:
    """A field of a part that a plan may set: its default and its rule, written once.

    `of_person`: the setting names a field of a person, whose value must lie between these two for every user.
    """
    rule = {"at_least": at_least, "above": above, "at_most": at_most, "of_person": of_person}
    given = {} if default is MISSING else {"default": default}
    return eqx.field(static=True, metadata={"setting": rule}, **given)


def known_settings(part: type) -> dict[str, Any]:
    """Name -> dataclass field of everything a plan may set on this part."""
    return {f.name: f for f in fields(part) if "setting" in f.metadata}


def current_setting(part: type, name: str) -> str:
    """Today's name of a setting that had this name in an earlier version, with a warning; any other name as it is."""
    today = getattr(part, "former_settings", {}).get(name, name)
    if today != name:
        warnings.warn(f"The setting {name!r} is now called {today!r}.", RenamedWarning, stacklevel=3)
    return today


def current_settings(part: type, values: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The values under today's names of the settings; refuse a setting that is given under both names."""
    for name, today in getattr(part, "former_settings", {}).items():
        if name in values and today in values:
            raise PlanError(f"{where} has {today!r} and {name!r}, which is its former name; leave {name!r} out.")
    return {current_setting(part, name): value for name, value in values.items()}


def takes(part: type, name: str, value: Any) -> bool:
    """Whether a part has a setting of this name that may have this value.

    >>> from tacit.privacy.mechanisms.none import NoMechanism
    >>> takes(NoMechanism, "wire", "rows"), takes(NoMechanism, "wire", "best"), takes(NoMechanism, "clip", 1.0)
    (True, False, False)
    """
    known = known_settings(part)
    if name not in known:
        return False
    try:
        _check(name, value, _types(part)[name], known[name].metadata["setting"])
    except PlanError:
        return False
    return True


def fill(part: type[Part], values: Mapping[str, Any], where: str, **fixed: Any) -> Part:
    """Build a part from a plan's values; refuse unknown names, wrong types and broken rules."""
    known = known_settings(part)
    values = current_settings(part, values, where)
    for name in values:
        if name not in known:
            raise PlanError(unknown(where, name, known))
    for name, field in known.items():
        if name not in values and field.default is MISSING:
            raise PlanError(f"{where}.{name} is missing; {_rule_text(field.metadata['setting'])}.")
    hints = _types(part)
    checked = {
        name: _check(f"{where}.{name}", value, hints[name], known[name].metadata["setting"])
        for name, value in values.items()
    }
    return part(**fixed, **checked)


@cache
def _types(part: type) -> dict[str, Any]:
    """The type of each field."""
    return typing.get_type_hints(part)


def _check(name: str, value: Any, kind: Any, rule: Mapping[str, Any]) -> Any:
    value = _typed(name, value, kind)
    if value is None:
        return value
    if isinstance(value, float) and not math.isfinite(value):
        raise PlanError(f"{name} must be a finite number, got {value!r}.")
    broken = (
        (rule["at_least"] is not None and not value >= rule["at_least"])
        or (rule["above"] is not None and not value > rule["above"])
        or (rule["at_most"] is not None and not value <= rule["at_most"])
    )
    if broken:
        raise PlanError(f"{name} {_rule_text(rule)}, got {value!r}.")
    return value


def _typed(name: str, value: Any, kind: Any) -> Any:
    if choices := _choices(kind):
        if value in choices:
            return value
        words = ", ".join(repr(choice) for choice in choices if choice is not None)
        raise PlanError(f"{name} must be one of {words}, got {value!r}.")
    allowed = typing.get_args(kind) or (kind,)
    if float in allowed and type(value) is int:
        return float(value)
    plain = tuple(typing.get_origin(k) or k for k in allowed if k is not Any)
    if not plain or (isinstance(value, plain) and not (isinstance(value, bool) and bool not in plain)):
        return value
    words = " or ".join(getattr(k, "__name__", str(k)) for k in plain if k is not type(None))
    raise PlanError(f"{name} must be of type {words}, got {value!r}.")


def _choices(kind: Any) -> tuple[Any, ...]:
    """What a Literal, or an optional one, allows; nothing for other types."""
    parts = (kind, *typing.get_args(kind))
    found = [choice for part in parts if typing.get_origin(part) is typing.Literal for choice in typing.get_args(part)]
    return (*found, None) if found and type(None) in parts else tuple(found)


def _rule_text(rule: Mapping[str, Any]) -> str:
    words = []
    if rule["at_least"] is not None:
        words.append(f"at least {rule['at_least']:g}")
    if rule["above"] is not None:
        words.append(f"above {rule['above']:g}")
    if rule["at_most"] is not None:
        words.append(f"at most {rule['at_most']:g}")
    return "must be " + (" and ".join(words) or "given")
