"""`tacit plan`: list and print plans, write plan folders, and show which method takes which mechanism."""

from pathlib import Path
from string import ascii_lowercase
from typing import Annotated, Any

import typer

from tacit.cli.common import print_json, takes_a_file, with_settings

ORDER = 20  # in `tacit --help`


@takes_a_file
def command(
    name: Annotated[
        str | None, typer.Argument(help="A built-in plan, or a TOML file; without it, the built-in plans are listed.")
    ] = None,
    devices: Annotated[
        int, typer.Option("--users", "--devices", min=1, help="The number of users that the price is computed for.")
    ] = 1000,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object, including how many numbers are trained.")
    ] = False,
    folder: Annotated[
        Path | None, typer.Option(help="Write a plan folder here, to be installed on both sides.")
    ] = None,
    data: Annotated[
        str, typer.Option(help="With --folder: the log whose items to use; its histories are not written.")
    ] = "groups",
    columns: Any = None,
    setting: Annotated[
        list[str] | None, typer.Option("--set", help="With --folder: a setting, such as hyper.dim=64.")
    ] = None,
    trust: Annotated[
        str | None,
        typer.Option(
            help="Of the list: plans with a guarantee that trusts `nobody`, the `organisation` or the `server`."
        ),
    ] = None,
    mechanisms: Annotated[
        bool, typer.Option("--mechanisms", help="Show which method takes which mechanism, and why.")
    ] = False,
) -> None:
    """Print a plan as TOML, with its digest and its price; without a name, list the built-in plans."""
    from tacit.lab.plans.loader import load_plan, numbers_trained
    from tacit.privacy.price import price

    if mechanisms:
        _print_mechanisms(as_json)
        return
    if name is None:
        _list(devices, trust, as_json)
        return
    if trust is not None:
        raise typer.BadParameter(f"--trust chooses from the list of plans; leave it or {name} out.")
    chosen = with_settings(load_plan(name), setting or [])
    if folder is not None:
        _write_folder(folder, chosen, data, devices, columns)
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


def _list(users: int, trust: str | None, as_json: bool) -> None:
    """One row for each built-in plan."""
    from typing import get_args

    from rich.console import Console
    from rich.table import Column, Table

    from tacit.lab.plans.overview import plan_overview
    from tacit.privacy.claim import Trust

    if trust is not None and trust not in get_args(Trust):
        raise typer.BadParameter(f"--trust is one of {', '.join(get_args(Trust))}, got {trust!r}.")
    rows = plan_overview(users, trust)  # pyright: ignore[reportArgumentType]: checked above
    if as_json:
        print_json([row.to_dict() for row in rows])
        return
    table = Table(
        Column("plan", no_wrap=True), "what it is", "what leaves the device", "guarantee", "trusted", box=None
    )
    for row in rows:
        table.add_row(row.name, row.what, row.sends, row.guarantee, row.trusted)
    Console(highlight=False).print(table)
    print(
        f"Guarantees are for a run of {users:,} users. `tacit plan NAME` prints a plan, `tacit price NAME` all it guarantees."
    )


def _write_folder(folder: Path, plan: Any, data: str, devices: int, columns: Any) -> None:
    """Write a plan folder with the items of a log, priced for so many people, and the server's private key beside it."""
    from tacit.cli.common import needs_flower
    from tacit.deploy.signing import Signer, new_key
    from tacit.lab.data.datasets import open_log
    from tacit.lab.plans.publish import make_bundle

    needs_flower()
    log = open_log(data, devices, 0, [plan], columns)
    folder.mkdir(parents=True, exist_ok=True)
    key = folder / "server.key"
    public = Signer(key).public if key.exists() else new_key(key)
    bundle = make_bundle(folder, plan, log.catalog, devices, names=log.item_names, server=public)
    print(f"{folder}: plan folder {bundle.digest} for {devices} people")
    for claim in (bundle.price.whole, *bundle.price.beside):
        print(f"  {claim}")
    if bundle.most_volunteers:
        print(f"  {bundle.most_volunteers} people must volunteer before a run begins: `tacit device volunteer`")
    print(f"  {key} is the server's private key and stays on the server; copy the rest to every device")


def _print_mechanisms(as_json: bool) -> None:
    """One row for each method that sends updates, one column for each mechanism; then the reasons and the other methods."""
    from tacit.device.method import method_names
    from tacit.lab.plans.loader import refusals

    found = {method: refusals(method) for method in method_names()}
    print_json(found) if as_json else print(_to_markdown(found))


def _to_markdown(found: dict[str, dict[str, str]]) -> str:
    none = {method: next(iter(cells.values())) for method, cells in found.items() if all(cells.values())}
    sending = {method: cells for method, cells in found.items() if method not in none}
    reasons = dict.fromkeys(reason for cells in sending.values() for reason in cells.values() if reason)
    marks = dict(zip(reasons, ascii_lowercase))
    head = ["method", *(f"`{name}`" for name in next(iter(found.values())))]
    lines = [head, ["---"] * len(head)]
    for method, cells in sending.items():
        lines.append([f"`{method}`", *(f"no ({marks[reason]})" if reason else "yes" for reason in cells.values())])
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    notes = [f"- ({mark}) {reason}." for reason, mark in marks.items()]
    for reason in dict.fromkeys(none.values()):
        methods = ", ".join(f"`{method}`" for method, why in none.items() if why == reason)
        notes.append(f"- No mechanism, because {reason}: {methods}.")
    return "\n".join([table, "", *notes])
