"""`tacit compare`: several plans, or a sweep over their settings, on the same questions and the same seeds."""

from pathlib import Path
from typing import Annotated, Any

import typer

from tacit.cli.common import Repeats, Ties, parsed, print_json, print_treatment


def compare_plans(
    plans: Annotated[list[str], typer.Argument(help="Built-in plans, or TOML files.")],
    data: Annotated[str, typer.Option(help="A name from `tacit data list`, or a CSV or Parquet file.")] = "tastes",
    devices: Annotated[int, typer.Option(min=1, help="People, where the data is a synthetic world.")] = 1000,
    protocol: Annotated[str, typer.Option(help="How to ask; `tacit protocols` lists the ways.")] = "full",
    repeats: Repeats = None,
    ties: Ties = "file",
    seeds: Annotated[int, typer.Option(min=1, help="How often each plan runs.")] = 3,
    sweep: Annotated[
        list[str] | None, typer.Option(help="privacy.epsilon=0.5,1,2 and so on; may be repeated: all combinations.")
    ] = None,
    setting: Annotated[
        list[str] | None, typer.Option("--set", help="hyper.dim=64 and so on, for every plan that has it.")
    ] = None,
    reference: Annotated[str | None, typer.Option(help="What the others are held against; else the first.")] = None,
    out: Annotated[Path | None, typer.Option(help="A folder for the runs; the same command goes on there.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
) -> None:
    """Run several plans, or one with several values of a setting, and say which differ."""
    from tacit.lab.data.datasets import open_log
    from tacit.lab.experiments.compare import compare
    from tacit.lab.experiments.variants import spread
    from tacit.lab.plans.loader import load_plan

    settings, swept = parsed(setting or []), dict(_swept(text) for text in sweep or [])
    options = {"settings": settings, "repeats": repeats, "ties": ties, "reference": reference, "out": out}
    options["quiet"] = True if as_json else None
    variants, _ = spread([load_plan(plan) for plan in plans], swept, settings)
    log = open_log(data, devices, 0, [variant.plan for variant in variants])
    try:
        found = compare(plans, log, protocol, range(seeds), swept, **options)
    except KeyboardInterrupt:
        kept = "nothing is kept without --out" if out is None else f"the same command goes on from what is in {out}"
        typer.echo(f"Interrupted; {kept}.", err=True)
        raise SystemExit(130) from None
    report = _report(found, data, Path("tacit-compare.html") if out is None else out / "report.html")
    if as_json:
        print_json({**found.to_dict(), "report": str(report)})
        return
    _print(found)
    print(f"A report with figures is in {report}.")


def _swept(text: str) -> tuple[str, list[Any]]:
    from tacit.lab.experiments.variants import values_of

    path, equals, values = text.partition("=")
    if not equals:
        raise typer.BadParameter(f"--sweep takes name=value,value, got {text!r}.")
    return path.strip(), values_of(values)


def _print(found: Any) -> None:
    """One row a plan; or, where there are many metrics, one column a plan."""
    from rich.console import Console
    from rich.table import Column, Table

    facts = {name: _facts(found, name) for name in found.names}
    columns = list(facts[found.reference])
    if len(columns) <= 8:
        width = min(40, max(map(len, facts)))  # a name that is cut short names nothing
        table = Table(Column("plan", min_width=width, overflow="fold"), *columns)
        for name, fact in facts.items():
            table.add_row(name, *fact.values())
    else:
        table = Table("", *facts)
        for column in columns:
            table.add_row(column, *(fact[column] for fact in facts.values()))
    Console().print(table)
    print_treatment({name: found.pooled(name).answers for name in found.names})
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
    """What the table says of a plan."""
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
    """What each ε in the table means, and of which plans."""
    claims: dict[str, list[str]] = {}
    for name in found.names:
        claims.setdefault(str(found.trials[name][0].run.price.whole), []).append(name)
    return claims


def _report(found: Any, data: str, path: Path) -> Path:
    """A page with figures: a dossier for each plan, all its seeds pooled."""
    from tacit.lab.analysis.report_data import report_data
    from tacit.report import write_report

    seeds = ", ".join(map(str, found.seeds))
    dossiers = [
        report_data(found.pooled(one.name), one.name, {"data": data, "seeds": seeds, **one.setting})
        for one in found.variants
    ]
    return write_report(dossiers, path)
