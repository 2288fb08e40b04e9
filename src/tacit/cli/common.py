"""Shared by several commands: options, settings on the command line, JSON and tables on standard output."""

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any

import typer

Repeats = Annotated[
    str | None,
    typer.Option(help="Evaluate `new` items only, or `all` test cases, repeats included; else what fits the log."),
]
Ties = Annotated[
    str, typer.Option(help="The order of a user's events with the same time stamp: that of the `file`, or `random`.")
]
LogName = Annotated[str, typer.Option(help="A name from `tacit data list`, or a CSV or Parquet file.")]
Devices = Annotated[
    int, typer.Option("--users", "--devices", min=1, help="The number of users, where the data is synthetic.")
]
ProtocolName = Annotated[str, typer.Option(help="The evaluation protocol; see `tacit protocols`.")]
Epsilon = Annotated[float | None, typer.Option(help="The ε that a run guarantees; the noise is calibrated to it.")]


COLUMNS = {
    "user": "For a file: the column of users; user_id by default.",
    "item": "For a file: the column of items; item_id by default.",
    "time": "For a file: the column of times; datetime or timestamp by default.",
    "weight": "For a file: the column of weights; weight or rating by default.",
    "silo": "For a file: the column of the organisation that holds an event.",
    "delimiter": "For a text file: what stands between its columns, if not a comma (.csv) or a tab (.tsv).",
}


def takes_a_file(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command that reads a log the options of `COLUMNS`; it gets those that were given as one dict, `columns`."""
    signature = inspect.signature(command)
    options = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=None,
            annotation=Annotated[str | None, typer.Option(help=words)],
        )
        for name, words in COLUMNS.items()
    ]
    own = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in signature.parameters.values()]
    place = [one.name for one in own].index("columns")

    @wraps(command)
    def call(**given: Any) -> Any:
        columns = {name: given.pop(name) for name in COLUMNS}
        return command(**given, columns={name: value for name, value in columns.items() if value is not None})

    shown = [*own[:place], *options, *own[place + 1 :]]
    call.__signature__ = signature.replace(parameters=shown)  # pyright: ignore[reportAttributeAccessIssue]: typer reads it
    call.__annotations__ = {one.name: one.annotation for one in shown}
    return call


def with_settings(plan: Any, settings: list[str], epsilon: float | None = None) -> Any:
    """The plan with `--set name=value` and `--epsilon` applied."""
    from tacit.lab.plans.loader import choose

    return choose(plan, parsed(settings), epsilon) if settings or epsilon is not None else plan


def parsed(settings: list[str]) -> dict[str, Any]:
    """The values of `name=value` arguments, read as TOML or else as text."""
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


def papers_part(name: str) -> Any:
    """A part of the separate package tacit-papers, found by entry point."""
    from importlib.metadata import entry_points

    from tacit.errors import RunError

    for entry in entry_points(group="tacit.papers", name=name):
        return entry.load()
    raise RunError(
        "The papers' tables are in a separate package, tacit-papers, which is not installed; install it with "
        "`pip install -e papers` in a checkout of Tacit."
    )


def print_json(value: Any) -> None:
    """One JSON object on standard output."""
    import json

    from tacit.core.run_folder import plain

    print(json.dumps(plain(value), indent=2))


def print_trials(results: list) -> None:
    """Print one row for each plan; or one column, where there is one plan or there are many metrics."""
    from rich.console import Console
    from rich.table import Table

    facts = [_facts(result, intervals=len(results) == 1) for result in results]
    if len(results) == 1 or len(facts[0]) > 8:
        table = Table("", *(result.run.plan.name for result in results))
        for name in facts[0]:
            table.add_row(name, *(fact[name] for fact in facts))
    else:
        table = Table("plan", *facts[0])
        for result, fact in zip(results, facts):
            table.add_row(result.run.plan.name, *fact.values())
    Console().print(table)
    print_treatment({result.run.plan.name: result.evaluation for result in results})
    for note in dict.fromkeys(note for result in results for note in result.notes):
        print(f"note: {note}")
    for line in sorted({result.terms for result in results}):
        print(line)
    if len(results) == 1:
        print(_spent(results[0].run.spent()))


def print_treatment(answers: dict[str, Any]) -> None:
    """Print the candidates and the treatment of repeats; where there are repeats, each plan under both treatments."""
    from rich.console import Console
    from rich.table import Table

    common = next(iter(answers.values()))
    print(f"{common.protocol}: among {common.candidates}; {common.treatment}")
    if not common.parts:
        return
    metric = "NDCG@10" if "NDCG@10" in common.metrics else next(iter(common.metrics))
    table = Table(metric, "test cases", *answers)
    for row, part in enumerate(common.parts):
        values = (f"{one.parts[row].metrics[metric]:.3f}" for one in answers.values())
        table.add_row(part.label, f"{part.cases:,}", *values)
    Console().print(table)


def _facts(result: Any, intervals: bool) -> dict[str, str]:
    """The cells of a trial; a metric has an interval where it is defined for each user."""
    found = result.intervals if intervals else {}
    spread = {name: f" ± {(one.high - one.low) / 2:.3f}" for name, one in found.items()}
    metrics = {name: f"{value:.3f}{spread.get(name, '')}" for name, value in result.evaluation.metrics.items()}
    cost = {"sent/device": result.sent, "ε per run": result.epsilon, "seconds": f"{result.seconds:.1f}"}
    return {**metrics, **cost}


def _spent(spent: Any) -> str:
    """The spending of the median and the worst device, as text."""
    import math

    def both(name: str) -> str:
        one, other = (spent[name][which] for which in ("median", "worst"))
        return " and ".join("raw data" if value is None else _amount(value) for value in (one, other))

    limit, days = spent["budget"]["epsilon"], spent["budget"]["days"]
    window = "" if days is None else f" in {days:g} days"
    budget = "no budget" if math.isinf(limit) else f"of a budget of {limit:g}{window}"
    return f"spent so far over all runs, by the median and the worst device: ε {both('epsilon')} ({budget}); " + (
        "raw data" if spent["raw_data"]["median"] else f"{both('messages')} message(s); {both('bytes')} bytes"
    )


def _amount(value: float) -> str:
    return f"{value:,.4g}".replace("inf", "∞")


def needs_flower() -> None:
    """Refuse to start without the `flower` extra."""
    from importlib.util import find_spec

    from tacit.errors import RunError

    if find_spec("flwr") is None:
        raise RunError("A deployment needs the extra 'flower'; install tacit[flower].")
