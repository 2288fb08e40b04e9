"""`tacit compare`: several plans, or a sweep over their settings, on the same test cases and seeds."""

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
    parsed,
    print_json,
    print_treatment,
    takes_a_file,
)

ORDER = 50  # in `tacit --help`


@takes_a_file
def command(
    plans: Annotated[list[str], typer.Argument(help="Built-in plans, or TOML files.")],
    data: LogName = "groups",
    columns: Any = None,
    devices: Devices = 1000,
    protocol: ProtocolName = "full",
    repeats: Repeats = None,
    ties: Ties = "file",
    seeds: Annotated[int, typer.Option(min=1, help="The number of runs of each plan, each with its own seed.")] = 3,
    epsilon: Epsilon = None,
    sweep: Annotated[
        list[str] | None,
        typer.Option(
            help="Values of epsilon or of a setting, such as epsilon=0.5,1,2; may be repeated: all combinations."
        ),
    ] = None,
    setting: Annotated[
        list[str] | None, typer.Option("--set", help="A setting, such as hyper.dim=64, for every plan that has it.")
    ] = None,
    reference: Annotated[
        str | None, typer.Option(help="The plan that the others are compared with; the first by default.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="A folder for the runs; the same command resumes there.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
) -> None:
    """Run several plans, or one with several values of a setting, and test which differ."""
    from tacit.lab.data.datasets import open_log
    from tacit.lab.experiments.compare import compare
    from tacit.lab.experiments.variants import sweep_variants
    from tacit.lab.plans.loader import load_plan

    settings, swept = parsed(setting or []), dict(_swept(text) for text in sweep or [])
    settings |= {} if epsilon is None else {"epsilon": epsilon}
    options = {"settings": settings, "repeats": repeats, "ties": ties, "reference": reference, "out": out}
    options["quiet"] = True if as_json else None
    variants, _ = sweep_variants([load_plan(plan) for plan in plans], swept, settings)
    log = open_log(data, devices, 0, [variant.plan for variant in variants], columns)
    try:
        found = compare(plans, log, protocol, range(seeds), swept, **options)
    except KeyboardInterrupt:
        kept = "nothing is saved without --out" if out is None else f"the same command resumes from {out}"
        typer.echo(f"Interrupted; {kept}.", err=True)
        raise SystemExit(130) from None
    report = _report(found, data, Path("tacit-compare.html") if out is None else out / "report.html")
    if as_json:
        print_json({**found.to_dict(), "report": str(report)})
        return
    _print(found)
    print(f"A report with figures is in {report}.")


def _swept(text: str) -> tuple[str, list[Any]]:
    from tacit.lab.experiments.variants import parse_values

    path, equals, values = text.partition("=")
    if not equals:
        raise typer.BadParameter(f"--sweep takes name=value,value, got {text!r}.")
    return path.strip(), parse_values(values)


def _print(found: Any) -> None:
    """One row a plan; or, where there are many metrics, one column a plan."""
    from rich.console import Console
    from rich.table import Column, Table

    facts = {name: _facts(found, name) for name in found.names}
    columns = list(facts[found.reference])
    if len(columns) <= 8:
        width = min(40, max(map(len, facts)))  # names are wrapped, not cut
        table = Table(Column("plan", min_width=width, overflow="fold"), *columns)
        for name, fact in facts.items():
            table.add_row(name, *fact.values())
    else:
        table = Table("", *facts)
        for column in columns:
            table.add_row(column, *(fact[column] for fact in facts.values()))
    Console().print(table)
    print_treatment({name: found.pooled(name).evaluation for name in found.names})
    print(f"± is half an interval. {found.covers}")
    if len(found.names) > 1:
        print(found.marks)
    for name, floor in found.floors.items():
        print(f"{name}: {floor['says']}")
    for note in found.notes:
        print(f"note: {note}")
    for claim, names in _claims(found).items():
        print(f"{', '.join(names)}: {claim}")


def _facts(found: Any, name: str) -> dict[str, str]:
    """The row of a plan."""
    import math

    pooled = found.pooled(name)
    epsilon = pooled.run.price.whole.epsilon
    return {
        "ε per run": "∞" if math.isinf(epsilon) else f"{epsilon:.3g}",
        **{metric: _cell(score) for metric, score in found.scores[name].items()},
        "sent/device": pooled.sent,
        "seconds": f"{pooled.seconds:.1f}",
    }


def _cell(score: Any) -> str:
    half = "" if score.interval is None else f" ± {(score.interval.high - score.interval.low) / 2:.3f}"
    return f"{score.mean:.3f}{half} {score.mark}".rstrip()


def _claims(found: Any) -> dict[str, list[str]]:
    """The claim behind each ε in the table, and its plans."""
    claims: dict[str, list[str]] = {}
    for name in found.names:
        claims.setdefault(str(found.trials[name][0].run.price.whole), []).append(name)
    return claims


def _report(found: Any, data: str, path: Path) -> Path:
    """Write a page with figures: for each plan, all its seeds pooled."""
    from tacit.lab.analysis.report_data import report_data
    from tacit.report import write_report

    seeds = ", ".join(map(str, found.seeds))
    dossiers = [
        report_data(found.pooled(one.name), one.name, {"data": data, "seeds": seeds, **one.setting})
        for one in found.variants
    ]
    return write_report(dossiers, path)
