"""`tacit choose`: which plan for a log, under a promise."""

from typing import Annotated, Any, get_args

import typer

from tacit.cli.common import Devices, ProtocolName, print_json, takes_a_file

ORDER = 15  # in `tacit --help`


@takes_a_file
def command(
    data: Annotated[str, typer.Argument(help="A name from `tacit data list`, or a CSV or Parquet file.")],
    columns: Any = None,
    epsilon: Annotated[float, typer.Option(help="The ε that a run may cost.")] = 8.0,
    trust: Annotated[
        str, typer.Option(help="Who may be trusted: `nobody`, the `organisation`, or the `server`.")
    ] = "server",
    unit: Annotated[str, typer.Option(help="What ε protects: a `user` or an `interaction`.")] = "user",
    devices: Devices = 1000,
    protocol: ProtocolName = "full",
    tries: Annotated[int, typer.Option(min=1, help="How many plans to run beside private popularity.")] = 3,
    seeds: Annotated[int, typer.Option(min=1, help="The number of runs of each plan, each with its own seed.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
) -> None:
    """Find the built-in plan that fits a log and a promise: weigh all, try the best, and compare with private popularity."""
    from tacit.lab.data.datasets import open_log
    from tacit.lab.experiments.choice import choose_plan
    from tacit.privacy.claim import Trust, Unit

    for name, value, known in (("--trust", trust, get_args(Trust)), ("--unit", unit, get_args(Unit))):
        if value not in known:
            raise typer.BadParameter(f"{name} is one of {', '.join(known)}, got {value!r}.")
    log = open_log(data, devices, 0, columns=columns)
    options: Any = {"trust": trust, "unit": unit, "protocol": protocol, "tries": tries, "seeds": range(seeds)}
    found = choose_plan(log, epsilon=epsilon, **options, quiet=True if as_json else None)
    if as_json:
        print_json(found.to_dict())
        return
    _print(found)
    print(found.sentence)
    print(f"tacit run {found.best} --data {data} --epsilon {epsilon:g} --protocol {protocol}")


def _print(found: Any) -> None:
    """The plans that were tried, best first; then the others and what was expected of them."""
    from rich.console import Console
    from rich.table import Table

    of = {one.name: one for one in found.candidates}
    table = Table("plan", found.metric, "ε per run", "trusted", "expected", box=None)
    for name, score in found.ranked:
        claim = of[name].claim
        half = "" if score.interval is None else f" ± {(score.interval.high - score.interval.low) / 2:.3f}"
        cell = f"{score.mean:.3f}{half} {score.mark}".rstrip()
        table.add_row(name, cell, f"{claim.epsilon:.3g}", claim.trust, of[name].outlook)
    left = [one for one in found.candidates if one.name not in dict(found.ranked)]
    for one in left:
        table.add_row(one.name, "not tried", f"{one.claim.epsilon:.3g}", one.claim.trust, one.outlook)
    Console(highlight=False).print(table)
    print(f"▲ and ▼: better and worse than private popularity, beyond chance. {found.people:,} people.")
