"""Report: trials and runs as one HTML file that opens anywhere and fetches nothing, made from their report data alone."""

from pathlib import Path
from typing import Any

from tacit.errors import RunError


def write_report(dossiers: list[dict[str, Any]], path: str | Path) -> Path:
    """Write a page about these trials, from their report data: `tacit.lab.analysis.report_data.dossier` of a trial or a run."""
    from tacit.report.page import report_page

    return _write(path, report_page(_known(dossiers)))


def write_picture(dossiers: list[dict[str, Any]], path: str | Path) -> Path:
    """Write the privacy-quality chart as an SVG picture, legible on light and on dark backgrounds."""
    from tacit.report.page import svg_picture

    return _write(path, svg_picture(_known(dossiers)))


def write_paper(found: dict[str, Any], path: str | Path) -> Path:
    """Write a page of a paper's tables and figures, from the results of `tacit reproduce`."""
    from tacit.report.page import paper_page

    return _write(path, paper_page(found))


def _known(dossiers: list[dict[str, Any]]) -> list[dict[str, Any]]:
    if not dossiers:
        raise RunError("A report needs at least one run, got none.")
    for dossier in dossiers:
        if dossier.get("format") != 1:
            raise RunError(
                f"A dossier must have format 1, got {dossier.get('format')!r}; run the plan again with this version."
            )
    return dossiers


def _write(path: str | Path, text: str) -> Path:
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path
