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
    share: Annotated[
        float | None, typer.Option(help="As `tacit device share`: the share of items to disclose.")
    ] = None,
) -> None:
    """Answer a server's rounds from this machine's own history, until stopped."""
    if context.invoked_subcommand is not None:
        return
    from tacit.cli.common import needs_flower
    from tacit.deploy.preflight import file_at, split_address

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
    if share is not None:
        _choose(store, share, ([], [], []), [])
    if not store.takes_part:
        raise DeviceError(
            "This device does not take part: nobody has agreed to it. Add --consent, or `tacit device join`."
        )
    _attend(store, server, root, key)


def _settle(home: Path, plan: Path | None, history: Path | None) -> Any:
    """A home with a plan folder and a history that fits it."""
    from tacit.device.node.store import Store

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
    from tacit.device.node.node import Node

    problem = DeviceError(f"{store.path} holds no plan folder; name one with --plan.")
    for kit in kits:
        try:
            return [str(user) for user in Node(store.path).people(kit).users]
        except DataError as found:
            problem = found
    raise problem


def _limit(store: Any, budget: float | None, days: float | None) -> None:
    from tacit.privacy.accounting.accountant import default_delta
    from tacit.privacy.budget import Budget

    if budget is None:
        raise DeviceError(f"--days {days:g} renews a budget; name that with --budget.")
    people = max(kit.people for kit in store.kits())
    store.limit(Budget(budget, default_delta(people), days))


def _attend(store: Any, server: str, root: Path | None, key: Path | None) -> None:
    """Keep a SuperNode up, and answer its messages."""
    from tacit.deploy.flower_transport import Desk
    from tacit.deploy.preflight import alone_in
    from tacit.deploy.supervisor import Flower, end_by_signal, say
    from tacit.device.node.flower import attend
    from tacit.device.node.node import Node

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


@app.command(context_settings={"ignore_unknown_options": True})  # a share below 0 is refused by us, not as an option
def share(
    pi: Annotated[float | None, typer.Argument(help="The share of your items to disclose, from 0 to 1.")] = None,
    home: Home = Path("device"),
    never: Annotated[list[str] | None, typer.Option(help="An item that is never shared; repeat.")] = None,
    never_category: Annotated[
        list[str] | None, typer.Option(help="FIELD=VALUE of the catalog: none of these items is shared; repeat.")
    ] = None,
    allow: Annotated[list[str] | None, typer.Option(help="An item or FIELD=VALUE to share again; repeat.")] = None,
    user: Users = None,
) -> None:
    """Choose what is disclosed, from the next message on; without a choice, show what holds and what it reveals."""
    store = _store(home)
    _choose(store, pi, (never or [], never_category or [], allow or []), _named(store, user or []))
    for name, choice in store.choices.items():
        print(f"{name or 'everybody here'}: {_disclosed(choice)}")
    if never or never_category:
        print("What was sent before stays sent. From the next message on, reports are those of somebody without them.")
    for kit in store.kits():
        print("\n".join(_reveals(kit)))


def _choose(store: Any, pi: float | None, lists: tuple[list[str], list[str], list[str]], users: list[str]) -> None:
    """Check the whole of a choice, then make it."""
    from tacit.device.node.sharing import EVERYBODY, Choice

    never, categories, allow = lists
    if not store.kits():
        raise DeviceError(f"{store.path} holds no plan folder, so there is nothing to choose; name one with --plan.")
    if pi is not None:
        _check_share(store.kits())
    _check_never(store.kits(), never, categories)
    _check_allowed([store.choices.get(user, Choice()) for user in users or [EVERYBODY]], allow)
    made = Choice(pi, tuple(never), tuple(categories))
    if any((pi is not None, *lists)):
        store.choose(lambda choice: made.under(choice.without(allow)), users)


def _named(store: Any, named: list[str]) -> list[str]:
    """These people, if they live here."""
    users = _users(store, store.kits()) if named else []
    for name in named:
        if name not in users:
            raise DeviceError(unknown("This home", name, users[:20], "person"))
    return named


def _withholding(kit: Any) -> list[str]:
    """The methods of a plan folder that heed a share."""
    from tacit.device.method import method_class

    return [stage.method for stage in kit.plan.stages if method_class(stage.method).withholds]


def _check_share(kits: list) -> None:
    """Refuse a share where no plan folder has a method that heeds it."""
    if any(_withholding(kit) for kit in kits):
        return
    plans = "; ".join(
        f"{kit.plan.name} ({kit.digest}) has no share to choose: its method "
        f"{', '.join(stage.method for stage in kit.plan.stages)} has no such setting"
        for kit in kits
    )
    raise DeviceError(f"{plans}. --never ITEM works with every method.")


def _check_never(kits: list, items: list[str], categories: list[str]) -> None:
    """Refuse items and categories that no plan folder's catalog has."""
    from tacit.device.node.sharing import item_names

    known = [name for kit in kits for name in item_names(kit)] if items else []
    for item in items:
        if item not in known:
            raise DeviceError(unknown("The catalog", item, known[:20], "item"))
    for category in categories:
        _check_category(kits, category)


def _check_category(kits: list, category: str) -> None:
    """Refuse a category that no plan folder's catalog has."""
    from tacit.device.node.sharing import members

    name, equals, value = category.partition("=")
    if not equals:
        raise DeviceError(f"--never-category takes FIELD=VALUE, got {category!r}.")
    if any(members(kit.catalog, category) is not None for kit in kits):
        return
    fields = {field.name: field for kit in kits for field in kit.catalog.item_fields}
    if name not in fields:
        raise DeviceError(unknown("The catalog", name, fields, "field"))
    if fields[name].kind == "numeric":
        raise DeviceError(
            f"--never-category takes a field of categories or words, and {name!r} is numeric; name its items with --never."
        )
    raise DeviceError(unknown(name, value, fields[name].values[:20], "value"))


def _check_allowed(choices: list, names: list[str]) -> None:
    """Refuse to allow what is shared anyway."""
    for name in names:
        if any(name not in (*choice.items, *choice.categories) for choice in choices):
            raise DeviceError(f"{name!r} is shared already; `tacit device share` shows what is not.")


def _disclosed(choice: Any) -> str:
    """A choice in words."""
    share = "the share that each plan says" if choice.share is None else f"π = {choice.share:g}"
    never = ", ".join((*choice.items, *choice.categories))
    return f"{share}; never: {never}" if never else share


def _reveals(kit: Any) -> list[str]:
    """What each share reveals under the methods of a plan folder, where that was measured."""
    from tacit.device.method import revealed

    found = [(method, revealed(method)) for method in _withholding(kit)]
    lines = [line for method, one in found if one is not None for line in _table(f"{kit.plan.name} ({method})", one)]
    return lines or [f"{kit.plan.name}: its methods have no share to choose; items never shared, they do not see."]


def _table(name: str, found: dict[str, Any]) -> list[str]:
    """A row a share: what is shown in the open and what is found all the same, log by log."""
    heads = [f"{log}: shown, best attack" for log in dict.fromkeys(row["log"] for row in found["rows"])]
    cells: dict[float, list[str]] = {}
    for row in found["rows"]:
        cells.setdefault(row["pi"], []).append(f"{row['shown']:.0%}, {row['found']:.0%} ({row['attack']})")
    rows = [("share π", *heads), *((f"{pi:g}", *row) for pi, row in cells.items())]
    return [
        f"{name}: how much of what a person has {found['messages']} messages tell, mean of {found['people']} people",
        f"  (measured by `{found['command']}`)",
        *("  " + "".join(f"{cell:<28}" if place else f"{cell:<9}" for place, cell in enumerate(row)) for row in rows),
        *map(_never_shared, found["never"]),
        "  A share withholds rows and adds no noise: ε = ∞ whatever it is.",
    ]


def _never_shared(row: dict[str, Any]) -> str:
    return (
        f"  never shared ({row['log']}): {row['found']:.0%} found; guessed from the rest, {row['ranked']:.0%} of the time "
        f"ranked above an item not had, {row['popular']:.0%} by popularity alone"
    )


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
    facts |= {"discloses": {user: choice.to_dict() for user, choice in store.choices.items()}}
    facts |= {"plans": store.digests(), "spent": spent}
    if as_json:
        print_json(facts)
        return
    plans = ", ".join(f"{kit.plan.name} ({kit.digest})" for kit in store.kits())
    about = "ε between any two histories (replace-one), trusting whom each plan's claim names"
    choices = [f"{user}: {_disclosed(one)}".removeprefix(": ") for user, one in store.choices.items()]
    disclosed = "; ".join(choices) or "what each plan says (`tacit device share`)"
    for name, fact in {**facts, "discloses": disclosed, "plans": plans, "spent": about}.items():
        print(f"{name:<11} {fact}")
    for name, fact in spent.items():
        print(f"  {name:<9} {_words(fact)}")
    for kit in store.kits():
        if _withholding(kit):
            print("\n".join(_reveals(kit)))


@app.command()
def recommend(
    home: Home = Path("device"),
    user: Annotated[str | None, typer.Option(help="Whom, where the device holds several people.")] = None,
    k: Annotated[int, typer.Option(min=1, help="How many.")] = 10,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """The best items for this device's person, from the last broadcast; nothing is sent, and no network is needed."""
    from tacit.cli.common import print_json
    from tacit.device.node.node import Node
    from tacit.device.node.recommend import recommend as best
    from tacit.device.ranking import EMPTY

    found = best(Node(_store(home).path), user, k)
    if as_json:
        print_json([{"item_id": item, "score": score} for item, score in found])
        return
    if not found:
        typer.echo(f"Nothing to recommend: {EMPTY}.", err=True)
    for rank, (item, score) in enumerate(found, 1):
        print(f"{rank:>3}  {item:<24} {score:.4f}")


def _store(home: Path) -> Any:
    from tacit.device.node.store import Store

    store = Store(home)
    store.name  # noqa: B018 - refuses a folder that is no home
    return store


def _words(fact: Any) -> str:
    if isinstance(fact, dict):
        return ", ".join(f"{name} {_words(one)}" for name, one in fact.items())
    if isinstance(fact, float):
        return "∞" if fact == float("inf") else f"{fact:.6g}"
    return "–" if fact is None else str(fact)
