"""`tacit report`: the results of runs as one self-contained HTML file."""

from pathlib import Path
from typing import Annotated, Any

import typer

ORDER = 90  # in `tacit --help`


def command(
    runs: Annotated[list[Path], typer.Argument(help="Folders of completed runs; comparable ones are compared.")],
    out: Annotated[Path, typer.Option(help="The file to write.")] = Path("report.html"),
    picture: Annotated[Path | None, typer.Option(help="Also write a figure of privacy against quality as SVG.")] = None,
    specimen: Annotated[
        bool, typer.Option(help="Include one device's history and what it sent; do not publish such a report.")
    ] = True,
) -> None:
    """Write a report on runs: quality overall and by group, privacy, bytes, and what one device sent."""
    from tacit.report import write_picture, write_report

    dossiers = [read_dossier(run) for run in runs]
    if not specimen:
        dossiers = [{**one, "specimen": None} for one in dossiers]
    print(write_report(dossiers, out))
    if picture is not None:
        print(write_picture(dossiers, picture))


def read_dossier(run: Path) -> dict[str, Any]:
    """The report data in a run folder."""
    import json

    from tacit.errors import RunError

    path = run / "dossier.json"
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise RunError(
            f"{run} has no dossier.json: it is not the folder of a completed run. Run the plan with --out, or "
            "resume it with --resume."
        ) from None
    except json.JSONDecodeError:
        raise RunError(f"{path} is not valid JSON; run the plan again with --out.") from None
