"""What several commands share: settings on the command line, JSON on the way out."""

from typing import Annotated, Any

import typer

Repeats = Annotated[
    str | None,
    typer.Option(help="Evaluate `new` items only, or `all` test cases, repeats included; else what fits the log."),
]
Ties = Annotated[str, typer.Option(help="What orders a person's events of one time stamp: the `file`, or `random`.")]
Epsilon = Annotated[float | None, typer.Option(help="The privacy promise of the run; the noise is found.")]


def with_settings(plan: Any, settings: list[str], epsilon: float | None = None) -> Any:
    """The plan with `--set name=value` applied, and its promise made."""
    from tacit.lab.plans.loader import choose

    return choose(plan, parsed(settings), epsilon) if settings or epsilon is not None else plan


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


def papers_part(name: str) -> Any:
    """A part of the package of the papers' tables, found by entry point; a sentence where it is not installed."""
    from importlib.metadata import entry_points

    from tacit.errors import RunError

    for entry in entry_points(group="tacit.papers", name=name):
        return entry.load()
    raise RunError(
        "The papers' tables are a package of their own, tacit-papers, which is not installed; install it with "
        "`pip install -e papers` in a checkout of Tacit."
    )


def print_json(value: Any) -> None:
    """One JSON object on standard output."""
    import json

    from tacit.core.run_folder import plain

    print(json.dumps(plain(value), indent=2))


def print_trials(results: list) -> None:
    """One row a plan; or, where there is one plan or there are many metrics, one column a plan."""
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
    """What was ranked and how repeats were treated; where there are some, every plan under both treatments."""
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
    """What a table says of a trial; a metric may show its interval where every person has a value of it."""
    found = result.intervals if intervals else {}
    spread = {name: f" ± {(one.high - one.low) / 2:.3f}" for name, one in found.items()}
    metrics = {name: f"{value:.3f}{spread.get(name, '')}" for name, value in result.evaluation.metrics.items()}
    cost = {"sent/device": result.sent, "ε per run": result.epsilon, "seconds": f"{result.seconds:.1f}"}
    return {**metrics, **cost}


def _spent(spent: Any) -> str:
    """What ledgers say, for the median and the worst device."""
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
    """Say which extra is missing, before anything is started."""
    from importlib.util import find_spec

    from tacit.errors import RunError

    if find_spec("flwr") is None:
        raise RunError("A deployment needs the extra 'flower'; install tacit[flower].")
