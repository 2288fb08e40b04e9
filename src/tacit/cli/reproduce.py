"""`tacit reproduce`: a paper's tables and figures, ours beside theirs."""

from pathlib import Path
from typing import Annotated

import typer

from tacit.cli.common import print_json


def reproduce(
    name: Annotated[str | None, typer.Argument(help="A paper; none lists them.")] = None,
    part: Annotated[list[str] | None, typer.Option(help="table1, figure3 and so on; may be repeated.")] = None,
    table: Annotated[list[int] | None, typer.Option(help="A table by its number; may be repeated.")] = None,
    figure: Annotated[list[int] | None, typer.Option(help="A figure by its number; may be repeated.")] = None,
    size: Annotated[str, typer.Option(help="small: minutes on two cores; paper: the paper's own sizes.")] = "small",
    seeds: Annotated[int, typer.Option(min=1, help="How many seeds.")] = 3,
    data: Annotated[str | None, typer.Option(help="Another dataset than the paper's.")] = None,
    out: Annotated[Path | None, typer.Option(help="A file for the JSON.")] = None,
    report: Annotated[Path | None, typer.Option(help="A file for a page with the curves drawn.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
) -> None:
    """Print a paper's tables and figures, ours beside theirs, and say which of its findings hold."""
    from tacit.lab import reproduce as papers
    from tacit.record import write_json
    from tacit.report import write_paper

    if name is None:
        for one in papers.paper_names():
            print(f"{one:<12} {papers.paper(one).ABOUT}")
        return
    if size not in ("small", "paper"):
        raise typer.BadParameter(f"--size must be small or paper, got {size!r}.")
    parts = (*(part or ()), *(f"table{n}" for n in table or ()), *(f"figure{n}" for n in figure or ()))
    options = papers.Options(parts, size, tuple(range(seeds)), data)
    made = papers.reproduce(name, options)
    found = {"paper": name, "size": size, "seeds": seeds, "parts": [one.to_dict() for one in made]}
    if out is not None:
        write_json(out, found)
    if report is not None:
        write_paper(found, report)
    if as_json:
        print_json(found)
    else:
        print("\n\n".join(one.to_markdown() for one in made))
