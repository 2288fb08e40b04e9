"""What several commands share: settings on the command line, JSON on the way out."""

from typing import Any

import typer


def with_settings(plan: Any, settings: list[str]) -> Any:
    """The plan with `--set name=value` applied."""
    from tacit.lab.shelf import choose

    return choose(plan, parsed(settings)) if settings else plan


def parsed(settings: list[str]) -> dict[str, Any]:
    """`name=value` words; a value is read as TOML would, else as text."""
    import tomllib

    found = {}
    for text in settings:
        path, equals, value = text.partition("=")
        if not equals:
            raise typer.BadParameter(f"--set takes name=value, got {text!r}.")
        try:
            found[path] = tomllib.loads(f"value = {value}")["value"]
        except tomllib.TOMLDecodeError:
            found[path] = value
    return found


def print_json(value: Any) -> None:
    """One JSON object on standard output."""
    import json

    from tacit.record import plain

    print(json.dumps(plain(value), indent=2))
