"""The face on the command line. A mistake gets one sentence and exit code 2, never a traceback."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from tacit.cli.audit import audit_plan
from tacit.cli.common import Epsilon, Repeats, Ties, print_json, print_trials, with_settings
from tacit.cli.compare import compare_plans
from tacit.cli.data import app as data_commands
from tacit.cli.demo import demo
from tacit.cli.device import app as device_commands
from tacit.cli.folder import certs, write_folder
from tacit.cli.mechanisms import print_mechanisms
from tacit.cli.price import price_plan
from tacit.cli.report import report
from tacit.cli.reproduce import reproduce
from tacit.cli.server import serve
from tacit.cli.tune import tune_plan

INTERRUPTED = 130  # the exit code of whatever was asked to stop
app = typer.Typer(
    help="Recommendations learned from what users never have to tell anyone.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(data_commands, name="data")
app.command(name="price")(price_plan)
app.command(name="audit")(audit_plan)
app.command(name="compare")(compare_plans)
app.command(name="tune")(tune_plan)
app.command()(reproduce)
app.command()(demo)
app.command(name="report")(report)
app.add_typer(device_commands, name="device")
app.command(name="server")(serve)
app.command()(certs)


def main() -> None:
    """The `tacit` command."""
    import warnings

    from tacit.errors import TacitError

    warnings.showwarning = _warn
    try:
        if app(standalone_mode=False) == INTERRUPTED:  # typer makes a number of it
            raise KeyboardInterrupt
    except TacitError as problem:
        _fail(str(problem), 2)
    except KeyboardInterrupt:
        _fail(
            "Interrupted. A run with a folder goes on by --resume, a server or a device by the same command.",
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
    """A warning is one line, like everything else here."""
    print(f"warning: {message}", file=sys.stderr)


def _fail(sentence: str, code: int) -> None:
    print(sentence, file=sys.stderr)
    sys.exit(code)


Data = Annotated[str, typer.Option(help="A name from `tacit data list`, or a CSV or Parquet file.")]
Devices = Annotated[int, typer.Option(min=1, help="People, where the data is a synthetic world.")]
Seed = Annotated[int, typer.Option(help="The same seed gives the same run.")]


@app.command()
def run(
    plan: Annotated[str, typer.Argument(help="A built-in plan, or a TOML file.")],
    data: Data = "tastes",
    devices: Devices = 1000,
    protocol: Annotated[str, typer.Option(help="How to ask; `tacit protocols` lists the ways.")] = "full",
    repeats: Repeats = None,
    ties: Ties = "file",
    every: Annotated[int, typer.Option(min=0, help="Ask every so many rounds too; 0 asks at the end.")] = 0,
    seed: Seed = 0,
    epsilon: Epsilon = None,
    setting: Annotated[list[str] | None, typer.Option("--set", help="hyper.dim=64 and so on; may be repeated.")] = None,
    out: Annotated[Path | None, typer.Option(help="A folder for the run.")] = None,
    resume: Annotated[Path | None, typer.Option(help="A run's folder to go on in, where it ended.")] = None,
    budget: Annotated[float | None, typer.Option(help="The ε a device will spend over all its runs.")] = None,
    window: Annotated[float | None, typer.Option(help="Days after which what was spent is renewed.")] = None,
    after: Annotated[Path | None, typer.Option(help="An earlier run's folder: its ledgers go on.")] = None,
    debug: Annotated[bool, typer.Option(help="One device at a time; raises and names the device.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
) -> None:
    """Run a plan on a log and ask for what people did next."""
    from tacit.lab.data.datasets import open_log
    from tacit.lab.experiments.trial import trial
    from tacit.lab.plans.loader import load_plan

    if resume is not None and out not in (None, resume):
        raise typer.BadParameter(f"--resume {resume} goes on in that folder; leave --out {out} away.")
    if window is not None and budget is None:
        raise typer.BadParameter("--window needs --budget, the ε that it renews.")
    chosen = with_settings(load_plan(plan), setting or [], epsilon)
    log = open_log(data, devices, seed, [chosen])
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
        _keep_cost(result)
        _keep_dossier(result, data, resume or out)
    if as_json:
        print_json(result.to_dict())
    else:
        print_trials([result])


def _keep_cost(result: Any) -> None:
    """What a round asks of a device, onto the card in the run's folder."""
    from tacit.core.run_folder import Folder
    from tacit.lab.runs.device_cost import cost

    result.run.cost = cost(result.run)
    result.run.write(Folder(result.run.folder))


def _keep_dossier(result: Any, data: str, folder: Path | None) -> None:
    """What a report will show of this run."""
    from tacit.core.run_folder import write_json
    from tacit.lab.analysis.report_data import report_data

    assert folder is not None
    write_json(folder / "dossier.json", report_data(result, setting={"data": data}))


def _budget(epsilon: float, days: float | None, devices: int) -> Any:
    from tacit.privacy.accounting.accountant import default_delta
    from tacit.privacy.budget import Budget

    return Budget(epsilon, default_delta(devices), days)


@app.command()
def protocols() -> None:
    """The evaluation protocols: what is held out, what is ranked, what is measured, how repeats are treated."""
    from tacit.lab.evaluation.protocols import PROTOCOLS

    for protocol in PROTOCOLS.values():
        lines = (protocol.about, ", ".join(protocol.metrics), protocol.repeats)
        print(f"{protocol.name:<14} {lines[0]}", *(f"{'':<14} {line}" for line in lines[1:]), sep="\n")


@app.command(name="plan")
def show_plan(
    name: Annotated[str | None, typer.Argument(help="A built-in plan, or a TOML file; none lists the shelf.")] = None,
    devices: Annotated[int, typer.Option(min=1, help="How many devices to price it for.")] = 1000,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object, with how many numbers are trained.")
    ] = False,
    folder: Annotated[Path | None, typer.Option(help="Write a plan folder here, to install on both sides.")] = None,
    data: Annotated[str, typer.Option(help="With --folder: whose items; nobody's history is written.")] = "tastes",
    setting: Annotated[list[str] | None, typer.Option("--set", help="With --folder: hyper.dim=64 and so on.")] = None,
    mechanisms: Annotated[
        bool, typer.Option("--mechanisms", help="Which method takes which mechanism, and why.")
    ] = False,
) -> None:
    """Print a plan as TOML, with its digest and its price; without a name, the plans there are."""
    from tacit.lab.plans.loader import load_plan, numbers_trained, plan_names
    from tacit.privacy.price import price

    if mechanisms:
        print_mechanisms(as_json)
        return
    if name is None:
        print_json(plan_names()) if as_json else print("\n".join(plan_names()))
        return
    chosen = with_settings(load_plan(name), setting or [])
    if folder is not None:
        write_folder(folder, chosen, data, devices)
        return
    if as_json:
        guarantee = price(chosen, devices).whole.to_dict()
        facts = {"digest": chosen.digest, "numbers_trained": numbers_trained(chosen), "guarantee": guarantee}
        print_json({**chosen.to_dict(), **facts})
        return
    print(f"# digest {chosen.digest}")
    for number, claims in enumerate(price(chosen, devices).claims, 1):
        for claim in claims:
            print(f"# stage {number}, {devices} devices: {claim}")
    print(chosen.to_toml(), end="")


@app.command()
def doctor(as_json: Annotated[bool, typer.Option("--json", help="As one JSON object.")] = False) -> None:
    """Versions, devices, memory, and whether the extras work."""
    from tacit.cli.doctor import examine

    found = examine()
    if as_json:
        print_json(found)
        return
    for part, facts in found.items():
        print(part)
        for name, fact in facts.items():
            print(f"  {name:<16} {fact}")
