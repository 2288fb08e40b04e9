"""What a device's owner asks: the terms, what was sent, what was agreed to, and when the device may take part.

These are commands of `tacit device`.
"""

from pathlib import Path
from typing import Annotated, Any

import typer

from tacit.errors import DeviceError

Home = Annotated[Path, typer.Option(help="The device's own folder.")]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object.")]
UNBOUNDED = "--accept-unbounded"


def agree(store: Any, unbounded: bool) -> None:
    """Show the terms, record the consent, and take part from now on; a plan without a bound needs its own yes."""
    from tacit.device.node.terms import consent_record, is_unbounded

    bundles = store.bundles()
    print("\n".join(terms_lines(store)))
    without = [bundle.plan.name for bundle in bundles if is_unbounded(bundle)]
    if without and not unbounded:
        raise DeviceError(
            f"Plan {without[0]!r} has no privacy bound (ε = ∞); who agrees to that all the same adds {UNBOUNDED}. Nothing was "
            "changed."
        )
    store.agree(True)
    store.record_consent(consent_record(store, True, bundles, _alone(store)))


def terms_lines(store: Any) -> list[str]:
    """The terms of all plan folders of a device."""
    from tacit.deploy.terminal import printable
    from tacit.device.node.terms import in_plain_words

    node_ledger = store.ledger()
    try:
        spent = node_ledger.summary()
    finally:
        node_ledger.close()
    alone = _alone(store)
    return [printable(line) for bundle in store.bundles() for line in in_plain_words(bundle, alone, spent)]


def _alone(store: Any) -> bool:
    """Whether the device has one person, as far as its history is known."""
    from tacit.device.node.node import Node

    try:
        return all(len(Node(store.path).people(bundle)) == 1 for bundle in store.bundles())
    except ValueError:
        return True


def terms(home: Home = Path("device")) -> None:
    """Show what taking part means: the guarantee in plain words, what leaves, how often, what is spent and left."""
    print("\n".join(terms_lines(_store(home))))


def rotate(
    home: Home = Path("device"),
    server: Annotated[str, typer.Option(help="The server's address, host:port.")] = "127.0.0.1:8000",
    root: Annotated[Path | None, typer.Option(help="The certificate of the authority (ca.crt).")] = None,
) -> None:
    """Replace this device's key; the server, which must run, keeps its place and its counter. Stop the device before."""
    from functools import partial

    from tacit.cli.common import needs_flower

    needs_flower()
    from tacit.deploy.preflight import alone_in, file_at, reach, show_change_of_key, split_address

    split_address(server)
    if root is None:
        raise DeviceError(
            "A change of the key needs --root, the certificate of the authority; without TLS, no key is kept."
        )
    file_at(root, "--root")
    reach(server, root)
    store = _store(home)
    with alone_in(store.path / "flower"):
        name = store.rotate_key(partial(show_change_of_key, server, root))
    print(f"This device is node {name[:8]} from now on; its old key is admitted no more.")


def log(
    home: Home = Path("device"),
    as_json: AsJson = False,
    csv: Annotated[Path | None, typer.Option(help="Write a table to this file.")] = None,
) -> None:
    """Show every report that ever left this device: when, for which plan and round, its bytes and its price."""
    from tacit.cli.common import print_json
    from tacit.core.run_folder import write_text

    node_ledger = _store(home).ledger()
    try:
        rows = node_ledger.lines()
    finally:
        node_ledger.close()
    if csv is not None:
        heads = list(rows[0]) if rows else ["time"]
        write_text(csv, "".join(",".join(map(str, line)) + "\n" for line in (heads, *(row.values() for row in rows))))
        print(f"{len(rows)} messages are in {csv}")
    elif as_json:
        print_json(rows)
    else:
        for row in rows:
            epsilon = "∞" if row["epsilon"] == float("inf") else f"{row['epsilon']:.4g}"
            print(
                f"{row['when']}  plan {row['plan'][:8]} run {row['run'][:16]} stage {row['stage'] + 1} round {row['round']}: "
                f"{row['bytes']:,} bytes, {row['people']} people, ε = {epsilon} per message ({row['event']})"
            )
        print(f"{len(rows)} messages, {sum(row['bytes'] for row in rows):,} bytes")


def consents(home: Home = Path("device"), as_json: AsJson = False) -> None:
    """Show what was agreed to, and when, as it was stated then."""
    import time

    from tacit.cli.common import print_json

    found = _store(home).consents()
    if as_json:
        print_json(found)
        return
    for one in found:
        plans = ", ".join(f"{plan['plan']} (ε = {plan['claim']['epsilon']})" for plan in one["plans"])
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(one["time"]))
        print(f"{when}  {'agreed to ' + plans if one['agreed'] else 'paused'}")


def schedule(
    home: Home = Path("device"),
    charging: Annotated[bool, typer.Option(help="Only with external power.")] = False,
    unmetered: Annotated[bool, typer.Option(help="Only where the network is not metered.")] = False,
    hours: Annotated[str, typer.Option(help="Only in these local hours, such as 22-6.")] = "",
    gap: Annotated[float, typer.Option(help="At least so many hours between two messages.")] = 0.0,
    hook: Annotated[str, typer.Option(help="A program; exit status 0 lets the device take part.")] = "",
    always: Annotated[bool, typer.Option(help="Take part at any time again.")] = False,
) -> None:
    """Choose when this device takes part; without options, show the choice."""
    from tacit.device.node.schedule import Schedule

    store = _store(home)
    if always or any((charging, unmetered, hours, gap, hook)):
        store.set(schedule=Schedule(charging, unmetered, _hours(hours), gap, hook).to_dict())
    for name, value in store.schedule.to_dict().items():
        print(f"{name:<10} {value}")


def _hours(text: str) -> tuple[int, int] | None:
    if not text:
        return None
    first, _, last = text.partition("-")
    if not (first.isdecimal() and last.isdecimal()):
        raise DeviceError(f"--hours takes two hours, such as 22-6, got {text!r}.")
    return int(first), int(last)


def _store(home: Path) -> Any:
    from tacit.device.node.store import Store

    store = Store(home)
    _ = store.name  # refuses a folder that is no home
    return store
