"""`tacit run`: run a plan on a log and evaluate it."""

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
    print_trials,
    takes_a_file,
    with_settings,
)

ORDER = 10  # in `tacit --help`
Seed = Annotated[int, typer.Option(help="The random seed: the same seed gives the same run.")]


@takes_a_file
def command(
    plan: Annotated[str, typer.Argument(help="A built-in plan, or a TOML file.")],
    data: LogName = "groups",
    columns: Any = None,
    devices: Devices = 1000,
    protocol: ProtocolName = "full",
    repeats: Repeats = None,
    ties: Ties = "file",
    every: Annotated[int, typer.Option(min=0, help="Also evaluate every so many rounds; 0: only at the end.")] = 0,
    seed: Seed = 0,
    epsilon: Epsilon = None,
    setting: Annotated[
        list[str] | None, typer.Option("--set", help="A setting, such as hyper.dim=64; may be repeated.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="A folder for the run.")] = None,
    resume: Annotated[Path | None, typer.Option(help="The folder of a run to resume.")] = None,
    budget: Annotated[float | None, typer.Option(help="The privacy budget ε of each device over all its runs.")] = None,
    window: Annotated[float | None, typer.Option(help="Days after which the budget is renewed.")] = None,
    after: Annotated[
        Path | None, typer.Option(help="The folder of an earlier run, whose ledgers are continued.")
    ] = None,
    debug: Annotated[bool, typer.Option(help="Run one device at a time; an error names the device.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
) -> None:
    """Run a plan on a log and evaluate its recommendations."""
    from tacit.lab.data.datasets import open_log
    from tacit.lab.experiments.trial import trial
    from tacit.lab.plans.loader import load_plan

    if resume is not None and out not in (None, resume):
        raise typer.BadParameter(f"--resume {resume} continues in that folder; leave --out {out} away.")
    if window is not None and budget is None:
        raise typer.BadParameter("--window needs --budget, the ε that it renews.")
    chosen = with_settings(load_plan(plan), setting or [], epsilon)
    log = open_log(data, devices, seed, [chosen], columns)
    quiet = True if as_json else None
    limit = None if budget is None else _budget(budget, window, len(log))
    options = {
        "out": resume or out,
        "resume": resume is not None,
        "debug": debug,
        "quiet": quiet,
        "budget": limit,
        "after": after,
        "every": every,
        "repeats": repeats,
        "ties": ties,
    }
    result = trial(chosen, log, protocol, seed=seed, **options)
    if resume or out:
        _save_cost(result)
        _save_dossier(result, data, resume or out)
    if as_json:
        print_json(result.to_dict())
    else:
        print_trials([result])


def _save_cost(result: Any) -> None:
    """Measure what a round costs a device, and add it to the card in the run's folder."""
    from tacit.core.run_folder import Folder
    from tacit.lab.runs.device_cost import cost

    result.run.cost = cost(result.run)
    result.run.write(Folder(result.run.folder))


def _save_dossier(result: Any, data: str, folder: Path | None) -> None:
    """Save the data that a report shows of this run."""
    from tacit.core.run_folder import write_json
    from tacit.lab.analysis.report_data import report_data

    assert folder is not None
    write_json(folder / "dossier.json", report_data(result, setting={"data": data}))


def _budget(epsilon: float, days: float | None, devices: int) -> Any:
    from tacit.privacy.accounting.accountant import default_delta
    from tacit.privacy.budget import Budget

    return Budget(epsilon, default_delta(devices), days)
