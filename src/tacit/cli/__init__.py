"""The command line. Each command is a file in this folder; a mistake gets one sentence and exit code 2, not a traceback.

A file is a command if it has a function `command`, or a group of commands `app`; its name is the file's. `ORDER` is its
place in `tacit --help`. A file whose name starts with an underscore is part of another. A file imports what is heavy (jax, numpy, polars) inside its functions, so that help stays fast.
"""

import pkgutil
import sys
from importlib import import_module
from types import ModuleType
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

INTERRUPTED = 130  # the exit code of an interrupted process


def _commands() -> list[tuple[str, ModuleType]]:
    """The files of this folder that are commands, by their order."""
    names = [file.name for file in pkgutil.iter_modules(__path__)]
    files = [(name, import_module(f"{__name__}.{name}")) for name in names]
    found = [(name, file) for name, file in files if hasattr(file, "command") or hasattr(file, "app")]
    return sorted(found, key=lambda one: (getattr(one[1], "ORDER", 1000), one[0]))


class _InOrder(TyperGroup):
    """Lists commands and groups by `ORDER`; by default, groups come last."""

    def list_commands(self, ctx: Any) -> list[str]:
        return [name for name, _ in _commands()]


def _build() -> typer.Typer:
    """The `tacit` command with all its subcommands."""
    built = typer.Typer(
        cls=_InOrder,
        help="Federated, privacy-preserving recommendation: simulate it, price its privacy, deploy it.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
    )
    built.callback()(_options)
    for name, file in _commands():
        if hasattr(file, "app"):
            built.add_typer(file.app, name=name)
        else:
            built.command(name=name)(file.command)
    return built


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"tacit {version('tacit')}")
        raise typer.Exit


def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Options of `tacit` itself."""


app = _build()


def main() -> None:
    """The `tacit` command."""
    import warnings

    from tacit.errors import TacitError

    warnings.showwarning = _warn
    try:
        if app(standalone_mode=False) == INTERRUPTED:  # typer turns KeyboardInterrupt into an exit code
            raise KeyboardInterrupt
    except TacitError as problem:
        _fail(str(problem), 2)
    except KeyboardInterrupt:
        _fail(
            "Interrupted. A run with a folder continues with --resume, a server or a device with the same command.",
            INTERRUPTED,
        )
    except Exception as problem:
        # typer raises its own errors (a wrong option, say) with a sentence and an exit code
        code = getattr(problem, "exit_code", None)
        if code is None:
            raise
        words = getattr(problem, "format_message", lambda: "")()
        _fail(words, code) if words else sys.exit(code)


def _warn(message: Warning | str, *_: Any, **__: Any) -> None:
    """Print a warning as one line."""
    print(f"warning: {message}", file=sys.stderr)


def _fail(sentence: str, code: int) -> None:
    print("\n".join(map(_escaped, sentence.split("\n"))), file=sys.stderr)
    sys.exit(code)


def _escaped(line: str) -> str:
    """A line without control characters, which a terminal might obey."""
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in line)
