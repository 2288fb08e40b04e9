"""What several commands share: settings on the command line, JSON on the way out."""

import re
from typing import Any

import typer

_NAMES = re.compile(r"(^|\.)(privacy\.mechanism|server\.rule|cohort\.sampler|method|privacy|server|cohort)=")


def with_settings(plan: Any, settings: list[str]) -> Any:
    """The plan with `--set name=value` applied."""
    import tomllib

    # A part is named before its settings are: which of them are known depends on it.
    for text in sorted(settings, key=lambda text: not _NAMES.search(text)):
        path, equals, value = text.partition("=")
        if not equals:
            raise typer.BadParameter(f"--set takes name=value, got {text!r}.")
        try:
            parsed = tomllib.loads(f"value = {value}")["value"]
        except tomllib.TOMLDecodeError:
            parsed = value
        plan = plan.with_setting(path, parsed)
    return plan


def print_json(value: Any) -> None:
    """One JSON object on standard output."""
    import json

    from tacit.record import plain

    print(json.dumps(plain(value), indent=2))
