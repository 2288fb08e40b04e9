"""`tacit reproduce`: a paper's tables and figures, ours beside theirs; with `--all`, every plan on every log."""

from pathlib import Path
from typing import Annotated, Any

import typer

from tacit.cli.common import papers_part, print_json
from tacit.errors import DataError

ORDER = 70  # in `tacit --help`
BENCH_FILE = Path("bench.json")
BENCH_LIMIT = {"small": 300.0}  # seconds for a row, where no limit was given


def command(
    name: Annotated[str | None, typer.Argument(help="A paper; without it, the papers are listed.")] = None,
    part: Annotated[list[str] | None, typer.Option(help="table1, figure3 and so on; may be repeated.")] = None,
    table: Annotated[list[int] | None, typer.Option(help="A table by its number; may be repeated.")] = None,
    figure: Annotated[list[int] | None, typer.Option(help="A figure by its number; may be repeated.")] = None,
    size: Annotated[str, typer.Option(help="small: minutes on two cores; paper: the paper's own sizes.")] = "small",
    seeds: Annotated[int | None, typer.Option(min=1, help="How many seeds; 3, and 1 with --all.")] = None,
    logs: Annotated[
        list[str] | None, typer.Option("--data", help="Another dataset; with --all, may be repeated.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="A JSON file, written after each part; --all resumes from it.")
    ] = None,
    report: Annotated[Path | None, typer.Option(help="An HTML file with the tables and figures.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
    everything: Annotated[bool, typer.Option("--all", help="Every plan on every log, instead of a paper.")] = False,
    plans: Annotated[list[str] | None, typer.Option("--plan", help="With --all: a plan; may be repeated.")] = None,
    limit: Annotated[
        float | None, typer.Option(min=1, help="With --all: the time limit of one plan, in seconds.")
    ] = None,
) -> None:
    """Print a paper's tables and figures beside ours, and which of its findings hold."""
    from tacit.core.run_folder import write_json
    from tacit.report import write_paper

    papers = papers_part("reproduce")

    if size not in ("small", "paper"):
        raise typer.BadParameter(f"--size must be small or paper, got {size!r}.")
    if everything:
        _refuse({"paper": name, "--part": part, "--table": table, "--figure": figure, "--report": report})
        _run_bench(logs or [], plans or [], seeds or 1, size, limit, out, as_json)
        return
    if plans or limit or len(logs or ()) > 1:
        raise typer.BadParameter("--plan, --limit and several --data belong to --all; a paper has its own plans.")
    if name is None:
        for one in papers.paper_names():
            print(f"{one:<12} {papers.paper(one).ABOUT}")
        return
    parts = (*(part or ()), *(f"table{n}" for n in table or ()), *(f"figure{n}" for n in figure or ()))
    seeds = seeds or 3
    options = papers.Options(parts, size, tuple(range(seeds)), logs[0] if logs else None)
    found: dict[str, Any] = {"paper": name, "size": size, "seeds": seeds, "parts": []}
    for one in papers.reproduce(name, options):
        found["parts"].append(one.to_dict())
        if out is not None:  # at once: the next part may take an hour
            write_json(out, found)
        if not as_json:
            print(one.to_markdown(), end="\n\n", flush=True)
    if not found["parts"]:
        raise DataError(
            f"{name}: {', '.join(parts)} cannot be made without a log that is missing; see tacit data list."
        )
    if report is not None:
        write_paper(found, report)
    if as_json:
        print_json(found)


def _refuse(given: dict[str, object]) -> None:
    """Refuse options that belong to a paper together with --all."""
    for option, value in given.items():
        if value:
            raise typer.BadParameter(
                f"--all runs every plan on every log and takes no {option}, got {value!r}; leave it out."
            )


def _run_bench(
    data: list[str], plans: list[str], seeds: int, size: str, limit: float | None, out: Path | None, as_json: bool
) -> None:
    """Compute the rows that the file lacks, then print all rows and advice on what to use."""
    from tacit.lab.experiments.bench import BenchOptions, bench
    from tacit.lab.experiments.bench.tables import advice, bench_tables

    options = BenchOptions(
        tuple(data), tuple(plans), tuple(range(seeds)), size, limit or BENCH_LIMIT.get(size), quiet=False
    )
    results = bench(options, out or BENCH_FILE).to_dict()
    if as_json:
        print_json(results)
    else:
        print(bench_tables(results["rows"]), advice(results["rows"]), f"saved in {out or BENCH_FILE}", sep="\n\n")
