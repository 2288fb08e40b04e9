"""`tacit device`: take part, and everything a person may ask of their own device."""

from pathlib import Path
from typing import Annotated, Any

import typer

from tacit.errors import DataError, DeviceError, unknown

app = typer.Typer(help="A device that takes part, and what its owner may ask of it.", invoke_without_command=True)
Home = Annotated[Path, typer.Option(help="The device's own folder.")]
Users = Annotated[list[str] | None, typer.Option("--user", help="Who of several people; repeat. Without: everybody.")]


@app.callback()
def take_part(
    context: typer.Context,
    home: Home = Path("device"),
    server: Annotated[str, typer.Option(help="The server's address, host:port.")] = "127.0.0.1:8000",
    plan: Annotated[Path | None, typer.Option(help="A plan folder to install and obey.")] = None,
    history: Annotated[Path | None, typer.Option(help="The log: item_id, and datetime, user_id, label.")] = None,
    consent: Annotated[bool, typer.Option(help="Agree to take part; nothing is sent before.")] = False,
    budget: Annotated[float | None, typer.Option(help="The ε that each person will spend over all runs.")] = None,
    days: Annotated[float | None, typer.Option(help="Days after which what was spent is renewed.")] = None,
    root: Annotated[Path | None, typer.Option(help="The certificate that vouches for the server: TLS.")] = None,
    key: Annotated[Path | None, typer.Option(help="The private key that the server knows this node by.")] = None,
    volunteer: Annotated[bool, typer.Option(help="Agree to stages that ask volunteers alone, too.")] = False,
) -> None:
    """Answer a server's rounds from this machine's own history, until stopped."""
    if context.invoked_subcommand is not None:
        return
    from tacit.cli.checks import file_at, split_address
    from tacit.cli.common import needs_flower

    needs_flower()
    split_address(server)
    file_at(root, "--root")
    file_at(key, "--key")
    store = _settle(home, plan, history)
    if budget is not None or days is not None:
        _limit(store, budget, days)
    if consent:
        store.agree(True)
    if volunteer:
        _volunteer(store, [])
    if not store.takes_part:
        raise DeviceError(
            "This device does not take part: nobody has agreed to it. Add --consent, or `tacit device join`."
        )
    _attend(store, server, root, key)


def _settle(home: Path, plan: Path | None, history: Path | None) -> Any:
    """A home with a plan folder and a history that fits it."""
    from tacit.device.store import Store

    store = Store(home).create()
    kits = [store.install(plan)] if plan is not None else store.kits()
    if history is not None:
        store.set(history=str(history.absolute()))
    if not kits or "history" not in store.settings:
        raise DeviceError(f"{home} needs a plan folder and a history; name them with --plan and --history.")
    _users(store, kits)
    return store


def _users(store: Any, kits: list) -> list[str]:
    """Who lives here; a history that fits none of the plan folders is said now, not in the first round."""
    from tacit.device.node import Node

    problem = DeviceError(f"{store.path} holds no plan folder; name one with --plan.")
    for kit in kits:
        try:
            return [str(user) for user in Node(store.path).people(kit).users]
        except DataError as found:
            problem = found
    raise problem


def _limit(store: Any, budget: float | None, days: float | None) -> None:
    from tacit.privacy.accountant import default_delta
    from tacit.privacy.budget import Budget

    if budget is None:
        raise DeviceError(f"--days {days:g} renews a budget; name that with --budget.")
    people = max(kit.people for kit in store.kits())
    store.limit(Budget(budget, default_delta(people), days))


def _attend(store: Any, server: str, root: Path | None, key: Path | None) -> None:
    """Keep a SuperNode up, and answer its messages."""
    from tacit.cli.checks import alone_in
    from tacit.cli.processes import Flower, end_by_signal, say
    from tacit.courier import Desk
    from tacit.device.flower import attend
    from tacit.device.node import Node

    end_by_signal()
    arguments = ["--superlink", server, *(["--insecure"] if root is None else ["--root-certificates", str(root)])]
    arguments += [] if key is None else ["--auth-supernode-private-key", str(key)]
    with alone_in(store.path / "flower"):
        supernode = Flower(store.path / "flower", "flower-supernode")
        desk = Desk(f"127.0.0.1:{supernode.port}", supernode.secret, largest=max(kit.largest for kit in store.kits()))
        safety = "with TLS" if root else "without TLS"
        say(f"node {store.name[:8]} answers {server} {safety}; `tacit device pause` stops it")
        with supernode.kept_up(arguments, say):
            attend(Node(store.path, say), desk, lambda: store.exists, say)
    say("this home was erased; nothing leaves it any more")


@app.command()
def join(home: Home = Path("device")) -> None:
    """Agree to take part."""
    _store(home).agree(True)
    print("This device takes part from now on; `tacit device pause` ends that.")


@app.command()
def pause(home: Home = Path("device")) -> None:
    """Take part no longer; from the next message on, nothing leaves."""
    _store(home).agree(False)
    print("This device takes part no longer; `tacit device join` begins again.")


@app.command()
def volunteer(home: Home = Path("device"), user: Users = None) -> None:
    """Agree to stages that ask volunteers alone; what those cost is said."""
    _volunteer(_store(home), user or [])


@app.command()
def withdraw(home: Home = Path("device"), user: Users = None) -> None:
    """Volunteer no longer; from the next message on, no stage for volunteers is answered."""
    store = _store(home)
    store.volunteer(user or store.volunteering, agreed=False)
    print(f"{len(store.volunteering)} people of this device volunteer now; `tacit device volunteer` begins again.")


def _volunteer(store: Any, named: list[str]) -> None:
    """These people volunteer, or everybody who lives here, once it was said what that costs."""
    asking = [kit for kit in store.kits() if kit.most_volunteers]
    if not asking:
        raise DeviceError("No plan folder of this device asks volunteers; there is nothing to agree to.")
    users = _users(store, asking)
    for name in named:
        if name not in users:
            raise DeviceError(unknown("This home", name, users[:20], "person"))
    store.volunteer(named or users, agreed=True)
    for kit in asking:
        print(f"{kit.plan.name}: {kit.price.beside[0] if kit.price.beside else kit.price.whole}")
    print(f"{len(store.volunteering)} people of this device volunteer; `tacit device withdraw` ends that.")


@app.command()
def erase(home: Home = Path("device")) -> None:
    """Delete everything this device keeps, but the ledger: what was sent stays sent."""
    store = _store(home)
    store.agree(False)
    print(f"{store.erase()} files are gone; the ledger stays, and says so. The history's own file is yours to delete.")


@app.command()
def status(
    home: Home = Path("device"), as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False
) -> None:
    """Whether it takes part, which plans it obeys and what was spent."""
    from tacit.cli.common import print_json

    store = _store(home)
    purse = store.purse()
    try:
        spent = purse.summary()
    finally:
        purse.close()
    facts = {"name": store.name, "takes part": store.takes_part, "volunteers": len(store.volunteering)}
    facts |= {"plans": store.digests(), "spent": spent}
    if as_json:
        print_json(facts)
        return
    plans = ", ".join(f"{kit.plan.name} ({kit.digest})" for kit in store.kits())
    about = "ε between any two histories (replace-one), trusting whom each plan's claim names"
    for name, fact in {**facts, "plans": plans, "spent": about}.items():
        print(f"{name:<11} {fact}")
    for name, fact in spent.items():
        print(f"  {name:<9} {_words(fact)}")


@app.command()
def recommend(
    home: Home = Path("device"),
    user: Annotated[str | None, typer.Option(help="Whom, where the device holds several people.")] = None,
    k: Annotated[int, typer.Option(min=1, help="How many.")] = 10,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """The best items for this device's person, from the last broadcast; nothing is sent, and no network is needed."""
    from tacit.cli.common import print_json
    from tacit.device.answers import recommend as best
    from tacit.device.node import Node
    from tacit.device.rank import EMPTY

    found = best(Node(_store(home).path), user, k)
    if as_json:
        print_json([{"item_id": item, "score": score} for item, score in found])
        return
    if not found:
        typer.echo(f"Nothing to recommend: {EMPTY}.", err=True)
    for rank, (item, score) in enumerate(found, 1):
        print(f"{rank:>3}  {item:<24} {score:.4f}")


def _store(home: Path) -> Any:
    from tacit.device.store import Store

    store = Store(home)
    store.name  # noqa: B018 - refuses a folder that is no home
    return store


def _words(fact: Any) -> str:
    if isinstance(fact, dict):
        return ", ".join(f"{name} {_words(one)}" for name, one in fact.items())
    if isinstance(fact, float):
        return "∞" if fact == float("inf") else f"{fact:.6g}"
    return "–" if fact is None else str(fact)
