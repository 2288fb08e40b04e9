"""`tacit report`: what runs came to, as one HTML file that opens anywhere and fetches nothing."""

from pathlib import Path
from typing import Annotated, Any

import typer


def report(
    runs: Annotated[list[Path], typer.Argument(help="Folders of runs that have ended; what is alike is compared.")],
    out: Annotated[Path, typer.Option(help="The file to write.")] = Path("report.html"),
    picture: Annotated[Path | None, typer.Option(help="Also privacy against quality, as an SVG picture.")] = None,
    specimen: Annotated[
        bool, typer.Option(help="Show one device's history and what it sent; not to be passed on.")
    ] = True,
) -> None:
    """Write a page about runs: quality, privacy, bytes, who is served how well, and what one device sent."""
    from tacit.report import write_picture, write_report

    dossiers = [read_dossier(run) for run in runs]
    if not specimen:
        dossiers = [{**one, "specimen": None} for one in dossiers]
    print(write_report(dossiers, out))
    if picture is not None:
        print(write_picture(dossiers, picture))


def read_dossier(run: Path) -> dict[str, Any]:
    """What a run folder says of itself."""
    import json

    from tacit.errors import RunError

    path = run / "dossier.json"
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise RunError(
            f"{run} has no dossier.json: it is not the folder of a run that has ended. Run the plan with --out, or go on "
            "with --resume."
        ) from None
    except json.JSONDecodeError:
        raise RunError(f"{path} is not whole JSON; run the plan again with --out.") from None
