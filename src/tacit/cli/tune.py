"""`tacit tune`: search settings on a validation part, evaluate the best once on the test part, and price the search."""

from pathlib import Path
from typing import Annotated, Any

import typer

from tacit.cli.common import (
    Devices,
    Epsilon,
    LogName,
    ProtocolName,
    Repeats,
    Ties,
    print_json,
    takes_a_file,
    with_settings,
)

ORDER = 52  # in `tacit --help`


@takes_a_file
def command(
    plan: Annotated[str, typer.Argument(help="A built-in plan, or a TOML file.")],
    search: Annotated[
        list[str],
        typer.Option(help="hyper.dim=8,16,32, server.rate=0.01..0.1 or server.rate='0.01..0.1 log'; may be repeated."),
    ],
    trials: Annotated[
        int, typer.Option(min=1, help="The number of trials; a grid of at most so many is tried completely.")
    ] = 20,
    data: LogName = "groups",
    columns: Any = None,
    devices: Devices = 1000,
    protocol: ProtocolName = "full",
    repeats: Repeats = None,
    ties: Ties = "file",
    metric: Annotated[
        str | None, typer.Option(help="The metric that decides; NDCG@10 where the protocol has it.")
    ] = None,
    seed: Annotated[int, typer.Option(help="The random seed: the same seed gives the same search.")] = 0,
    epsilon: Epsilon = None,
    setting: Annotated[
        list[str] | None, typer.Option("--set", help="A setting, such as privacy.epsilon=4; may be repeated.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="A TOML file for the best plan; `tacit run` takes it.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
) -> None:
    """Search for good settings, and show what the search would cost on real devices."""
    from tacit.lab.data.datasets import open_log
    from tacit.lab.experiments.search import parse_search
    from tacit.lab.experiments.tune import tune
    from tacit.lab.plans.loader import load_plan

    if out is not None and out.suffix != ".toml":
        raise typer.BadParameter(f"--out takes a file that ends in .toml, got {str(out)!r}.")
    chosen, space = with_settings(load_plan(plan), setting or [], epsilon), dict(parse_search(text) for text in search)
    options = {"trials": trials, "protocol": protocol, "metric": metric, "repeats": repeats, "ties": ties, "seed": seed}
    found = tune(
        chosen, open_log(data, devices, seed, [chosen], columns), space, **options, quiet=True if as_json else None
    )
    if out is not None:
        _write(found, out)
    if as_json:
        print_json({**found.to_dict(), "out": out and str(out)})
        return
    _print(found)
    if out is not None:
        print(f"The best plan is in {out}; `tacit run {out}` runs it.")


def _write(found: Any, out: Path) -> None:
    """Write the best plan as TOML, with a comment on how it was found."""
    from tacit.core.run_folder import write_text

    out.parent.mkdir(parents=True, exist_ok=True)
    words = (
        f"# The best of {len(found.attempts)} trials by {found.metric} ({found.test.evaluation.protocol}): "
        f"{found.best.value:.4f} on the validation part, {found.tested:.4f} on the test part.\n"
    )
    write_text(out, words + found.best.variant.plan.to_toml())


def _print(found: Any) -> None:
    """Print the trials from best to worst, both values of the best, and the privacy cost."""
    from rich.console import Console
    from rich.table import Table

    table = Table(*found.search, f"{found.metric} (validation)", "seconds")
    for attempt in sorted(found.attempts, key=lambda attempt: -attempt.value):
        values = (attempt.variant.setting.get(path, "") for path in found.search)
        table.add_row(*map(str, values), _number(attempt.value, attempt.interval), f"{attempt.seconds:.1f}")
    Console().print(table)
    best, result = found.best, found.test.evaluation
    interval = result.interval(found.metric) if found.metric in result.values else None
    print(f"best: {best.variant.name}")
    chosen = f"the highest of {len(found.attempts)}, so it is optimistic"
    print(f"validation {found.metric}: {_number(best.value, best.interval)}, {chosen}")
    print(
        f"test {found.metric}: {_number(found.tested, interval)}, evaluated once; {result.protocol}: among {result.candidates}; "
        f"{result.treatment}"
    )
    for note in found.notes:
        print(f"note: {note}")
    print(f"{found.privacy}\n{best.price.whole}")


def _number(value: float, interval: Any) -> str:
    return f"{value:.3f}" + ("" if interval is None else f" ± {(interval.high - interval.low) / 2:.3f}")
