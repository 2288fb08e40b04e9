"""`tacit data`: list, download and describe datasets."""

from typing import Annotated, Any

import typer

from tacit.cli.common import papers_part, print_json, takes_a_file

ORDER = 55  # in `tacit --help`

app = typer.Typer(help="Public datasets: list, download and describe them.", no_args_is_help=True)
AsJson = Annotated[bool, typer.Option("--json", help="JSON on standard output.")]


@app.command(name="list")
def list_datasets(as_json: AsJson = False) -> None:
    """List the datasets: description, size, terms, and whether each is present."""
    from rich.console import Console
    from rich.table import Table

    from tacit.lab.data.datasets import about_dataset, data_folder, dataset_names

    entries = [about_dataset(name) for name in dataset_names()]
    if as_json:
        fields = ("name", "about", "size", "terms", "cite", "page", "present")
        print_json([{name: getattr(entry, name) for name in fields} for entry in entries])
        return
    table = Table("name", "what", "download", "terms", "present")
    for entry in entries:
        table.add_row(entry.name, entry.about, _size(entry), entry.terms, "yes" if entry.present else "no")
    Console(highlight=False).print(table)
    print(f"The data folder is {data_folder()}; TACIT_DATA names another.")


@app.command()
def get(name: Annotated[str, typer.Argument(help="A name from `tacit data list`.")]) -> None:
    """Download a dataset from its owner; an interrupted download is resumed."""
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    from tacit.lab.data.datasets import about_dataset
    from tacit.lab.data.download import download as download

    entry = about_dataset(name)
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=_stderr(), disable=not _stderr().is_terminal) as progress:
        task = progress.add_task(name, total=entry.size)
        place = download(name, progress=lambda done, total: progress.update(task, completed=done, total=total))
    if any(file.sha256 is None for file in entry.files):
        print("No checksum is known for this dataset, so the download was not verified.")
    print(f"{name} is in {place}. Terms: {entry.terms}. Cite: {entry.cite}.")


@app.command()
@takes_a_file
def describe(
    name: Annotated[str | None, typer.Argument(help="A name from `tacit data list`, or a CSV or Parquet file.")] = None,
    papers: Annotated[
        bool, typer.Option("--papers", help="Compare the five papers' printed statistics with the local datasets.")
    ] = False,
    columns: Any = None,
    cycles: Annotated[int, typer.Option(help="Also count the active users in so many cycles.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Describe a log: counts, density, history lengths, events over time, long tail."""
    if papers:
        _describe_papers(as_json)
        return
    if name is None:
        raise typer.BadParameter("describe needs a dataset or a file, or --papers.")
    from tacit.lab.data.datasets import open_log
    from tacit.lab.data.describe import describe_log as statistics
    from tacit.lab.data.describe import print_bars, print_statistics

    log = open_log(name, None, 0, columns=columns)
    found, active = statistics(log), _active(log, cycles) if cycles else {}
    if as_json:
        print_json({"name": name, **found.to_dict(), **active})
        return
    print_statistics(name, found)
    for words, counts in active.items():
        print_bars(words.replace("_", " "), "users", [(str(cycle), count) for cycle, count in enumerate(counts)])


def _active(log, cycles: int) -> dict[str, list[int]]:
    """The number of active users in each cycle, by the calendar and by each user's own active days."""
    from tacit.lab.evaluation.sessions import active_users, cycles_of

    ways = {"active_by_calendar": False, "active_by_own_days": True}
    return {
        name: active_users(log, cycles_of(log, cycles, balanced), cycles).tolist() for name, balanced in ways.items()
    }


def _describe_papers(as_json: bool) -> None:
    datasets = papers_part("datasets")
    compared = datasets.compare()
    if as_json:
        print_json([one.to_dict() for one in compared])
    else:
        datasets.print_comparison(compared)


def _size(entry) -> str:
    if entry.built_in:
        return "none needed"
    if not entry.files:
        return "by hand"
    return "unknown" if entry.size is None else f"{entry.size / 1e6:,.1f} MB"


def _stderr():
    from rich.console import Console

    return Console(stderr=True)
