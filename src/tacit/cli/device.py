"""`tacit device`: take part in rounds from this machine, and manage consent, sharing and budget."""

from pathlib import Path
from typing import Annotated, Any

import typer

from tacit.cli import _device_owner
from tacit.cli._device_owner import UNBOUNDED, agree
from tacit.errors import DataError, DeviceError, unknown

ORDER = 80  # in `tacit --help`
app = typer.Typer(help="Take part in rounds from this machine; manage consent and budget.", invoke_without_command=True)
Home = Annotated[Path, typer.Option(help="The device's own folder.")]
Users = Annotated[
    list[str] | None, typer.Option("--user", help="One of several people; may be repeated. All by default.")
]


@app.callback()
def take_part(
    context: typer.Context,
    home: Home = Path("device"),
    server: Annotated[str, typer.Option(help="The server's address, host:port.")] = "127.0.0.1:8000",
    plan: Annotated[Path | None, typer.Option(help="A plan folder to install.")] = None,
    history: Annotated[
        Path | None, typer.Option(help="The history file: item_id, and datetime, user_id, label.")
    ] = None,
    consent: Annotated[bool, typer.Option(help="Agree to take part; nothing is sent without it.")] = False,
    budget: Annotated[float | None, typer.Option(help="The privacy budget ε of each person over all runs.")] = None,
    days: Annotated[float | None, typer.Option(help="Days after which the budget is renewed.")] = None,
    root: Annotated[
        Path | None, typer.Option(help="The certificate of the authority (ca.crt): connect by TLS.")
    ] = None,
    key: Annotated[Path | None, typer.Option(help="The private key of this node, made by `tacit certs`.")] = None,
    invitation: Annotated[
        str | None,
        typer.Option(help="An invitation of the server's operator (`tacit server invite`), to join with a new key."),
    ] = None,
    accept_unbounded: Annotated[
        bool, typer.Option(UNBOUNDED, help="With --consent: agree to plans without a privacy bound (ε = ∞), too.")
    ] = False,
    volunteer: Annotated[bool, typer.Option(help="Also agree to stages for volunteers only.")] = False,
    share: Annotated[
        float | None, typer.Option(help="The share of items to disclose, as in `tacit device share`.")
    ] = None,
) -> None:
    """Take part in a server's rounds with the histories on this machine, until stopped."""
    if context.invoked_subcommand is not None:
        return
    from tacit.cli.common import needs_flower
    from tacit.deploy.preflight import file_at, reach, split_address

    needs_flower()
    split_address(server)
    file_at(root, "--root")
    file_at(key, "--key")
    if root is not None:
        reach(server, root)
    store = _set_up(home, plan, history)
    if key is not None:
        store.use_key(key)
    if budget is not None or days is not None:
        _set_budget(store, budget, days)
    if consent:
        agree(store, accept_unbounded)
    if volunteer:
        _volunteer(store, [])
    if share is not None:
        _change_sharing(store, share, ([], [], []), [])
    if not store.takes_part or not any(map(store.agreed_to, store.digests())):
        raise DeviceError(
            "This device does not take part: its owner has not agreed. Add --consent, or run `tacit device join`."
        )
    if invitation is not None:
        _join(store, server, root, invitation)
    _take_part(store, server, root)


def _set_up(home: Path, plan: Path | None, history: Path | None) -> Any:
    """A device's folder with a plan folder and a history file that fits it."""
    from tacit.device.node.store import Store

    store = Store(home).create()
    bundles = [store.install(plan)] if plan is not None else store.bundles()
    if history is not None:
        store.set(history=str(history.absolute()))
    if not bundles or "history" not in store.settings:
        raise DeviceError(f"{home} needs a plan folder and a history file; name them with --plan and --history.")
    _users(store, bundles)
    return store


def _users(store: Any, bundles: list) -> list[str]:
    """The names of this device's people; refuse a history that fits no installed plan folder now, not in the first round."""
    from tacit.device.node.node import Node

    problem = DeviceError(f"{store.path} has no plan folder; name one with --plan.")
    for bundle in bundles:
        try:
            return [str(user) for user in Node(store.path).people(bundle).users]
        except DataError as found:
            problem = found
    raise problem


def _set_budget(store: Any, budget: float | None, days: float | None) -> None:
    from tacit.privacy.accounting.accountant import default_delta
    from tacit.privacy.budget import Budget

    if budget is None:
        raise DeviceError(f"--days {days:g} needs --budget, the ε that is renewed.")
    people = max(bundle.people for bundle in store.bundles())
    store.limit(Budget(budget, default_delta(people), days))


def _join(store: Any, server: str, root: Path | None, invitation: str) -> None:
    """Show an invitation, and be admitted with this device's own key."""
    from tacit.deploy.preflight import show_invitation

    if root is None:
        raise DeviceError(
            "--invitation needs --root, the certificate of the authority: without TLS, others could read it."
        )
    show_invitation(server, root, invitation, store.key.line)
    print(f"node {store.name[:8]} is admitted by {server}")


def _take_part(store: Any, server: str, root: Path | None) -> None:
    """Keep a SuperNode running, and reply to its messages."""
    from tacit.deploy.flower_transport import FlowerRuntime
    from tacit.deploy.preflight import alone_in
    from tacit.deploy.supervisor import FlowerProcess, end_by_signal, print_line
    from tacit.device.node.flower import serve_messages
    from tacit.device.node.node import Node

    end_by_signal()
    arguments = ["--superlink", server, *(["--insecure"] if root is None else ["--root-certificates", str(root)])]
    # Without TLS, any node may connect, and Flower makes a key of its own; the node's replies are signed either way.
    arguments += [] if root is None else ["--auth-supernode-private-key", str(store.path / "node.key")]
    with alone_in(store.path / "flower"):
        supernode = FlowerProcess(store.path / "flower", "flower-supernode")
        runtime = FlowerRuntime(
            f"127.0.0.1:{supernode.port}", supernode.secret, largest=max(bundle.largest for bundle in store.bundles())
        )
        safety = "with TLS" if root else "without TLS"
        print_line(
            f"node {store.name[:8]} takes part in the rounds of {server} {safety}; `tacit device pause` stops it"
        )
        with supernode.kept_up(arguments, print_line):
            serve_messages(Node(store.path, print_line), runtime, lambda: store.exists, print_line)
    print_line("this device was erased; nothing is sent any more")


@app.command()
def join(
    home: Home = Path("device"),
    accept_unbounded: Annotated[
        bool, typer.Option(UNBOUNDED, help="Agree to plans without a privacy bound (ε = ∞), too.")
    ] = False,
) -> None:
    """Show the terms of the installed plans, and agree to take part."""
    agree(_store(home), accept_unbounded)
    print("This device takes part from now on; `tacit device pause` ends that.")


@app.command()
def pause(home: Home = Path("device")) -> None:
    """Stop taking part; from the next message on, nothing is sent."""
    from tacit.device.node.terms import consent_record

    store = _store(home)
    store.agree(False)
    store.record_consent(consent_record(store, False, [], True))
    print("This device no longer takes part; `tacit device join` resumes.")


@app.command()
def volunteer(home: Home = Path("device"), user: Users = None) -> None:
    """Agree to stages for volunteers only; prints their privacy cost."""
    _volunteer(_store(home), user or [])


@app.command()
def withdraw(home: Home = Path("device"), user: Users = None) -> None:
    """Stop volunteering; from the next message on, nothing is sent in stages for volunteers."""
    store = _store(home)
    store.volunteer(user or store.volunteering, agreed=False)
    print(f"{len(store.volunteering)} people of this device volunteer now; `tacit device volunteer` adds some.")


def _volunteer(store: Any, named: list[str]) -> None:
    """Record that these people volunteer, or all people of the device; print what that costs."""
    wanting = [bundle for bundle in store.bundles() if bundle.most_volunteers]
    if not wanting:
        raise DeviceError("No plan folder of this device needs volunteers; there is nothing to agree to.")
    users = _users(store, wanting)
    for name in named:
        if name not in users:
            raise DeviceError(unknown("This device", name, users[:20], "person"))
    store.volunteer(named or users, agreed=True)
    for bundle in wanting:
        print(f"{bundle.plan.name}: {bundle.price.beside[0] if bundle.price.beside else bundle.price.whole}")
    print(f"{len(store.volunteering)} people of this device volunteer; `tacit device withdraw` ends that.")


@app.command(
    context_settings={"ignore_unknown_options": True}
)  # a negative share is refused with a sentence, not read as an option
def share(
    pi: Annotated[float | None, typer.Argument(help="The share of your items to disclose, from 0 to 1.")] = None,
    home: Home = Path("device"),
    never: Annotated[list[str] | None, typer.Option(help="An item that is never shared; may be repeated.")] = None,
    never_category: Annotated[
        list[str] | None,
        typer.Option(help="FIELD=VALUE of the catalog: these items are never shared; may be repeated."),
    ] = None,
    allow: Annotated[
        list[str] | None, typer.Option(help="An item or FIELD=VALUE to share again; may be repeated.")
    ] = None,
    user: Users = None,
) -> None:
    """Choose what is disclosed from the next message on; without arguments, show the choice and what it reveals."""
    store = _store(home)
    _change_sharing(store, pi, (never or [], never_category or [], allow or []), _named(store, user or []))
    for name, choice in store.choices.items():
        print(f"{name or 'all people'}: {_disclosed(choice)}")
    if never or never_category:
        print("What was sent before stays sent. From the next message on, reports are the same as without these items.")
    for bundle in store.bundles():
        print("\n".join(_reveals(bundle)))


def _change_sharing(
    store: Any, pi: float | None, lists: tuple[list[str], list[str], list[str]], users: list[str]
) -> None:
    """Check all parts of a choice, then save it."""
    from tacit.device.node.sharing import ALL_USERS, SharingChoice

    never, categories, allow = lists
    if not store.bundles():
        raise DeviceError(f"{store.path} has no plan folder, so there is nothing to choose; name one with --plan.")
    if pi is not None:
        _check_share(store.bundles())
    _check_never(store.bundles(), never, categories)
    _check_allowed([store.choices.get(user, SharingChoice()) for user in users or [ALL_USERS]], allow)
    made = SharingChoice(pi, tuple(never), tuple(categories))
    if any((pi is not None, *lists)):
        store.choose(lambda choice: made.combined_with(choice.without(allow)), users)


def _named(store: Any, named: list[str]) -> list[str]:
    """Refuse names that are not of this device's people."""
    users = _users(store, store.bundles()) if named else []
    for name in named:
        if name not in users:
            raise DeviceError(unknown("This device", name, users[:20], "person"))
    return named


def _withholding(bundle: Any) -> list[str]:
    """The methods of a plan folder that support a share."""
    from tacit.device.method import method_class

    return [stage.method for stage in bundle.plan.stages if method_class(stage.method).withholds]


def _check_share(bundles: list) -> None:
    """Refuse a share where no plan folder has a method that supports it."""
    if any(_withholding(bundle) for bundle in bundles):
        return
    plans = "; ".join(
        f"{bundle.plan.name} ({bundle.digest}) has no share to choose: its method "
        f"{', '.join(stage.method for stage in bundle.plan.stages)} has no such setting"
        for bundle in bundles
    )
    raise DeviceError(f"{plans}. --never ITEM works with every method.")


def _check_never(bundles: list, items: list[str], categories: list[str]) -> None:
    """Refuse items and categories that no plan folder's catalog has."""
    from tacit.device.node.sharing import item_names

    known = [name for bundle in bundles for name in item_names(bundle)] if items else []
    for item in items:
        if item not in known:
            raise DeviceError(unknown("The catalog", item, known[:20], "item"))
    for category in categories:
        _check_category(bundles, category)


def _check_category(bundles: list, category: str) -> None:
    """Refuse a category that no plan folder's catalog has."""
    from tacit.device.node.sharing import items_in_category

    name, equals, value = category.partition("=")
    if not equals:
        raise DeviceError(f"--never-category takes FIELD=VALUE, got {category!r}.")
    if any(items_in_category(bundle.catalog, category) is not None for bundle in bundles):
        return
    fields = {field.name: field for bundle in bundles for field in bundle.catalog.item_fields}
    if name not in fields:
        raise DeviceError(unknown("The catalog", name, fields, "field"))
    if fields[name].kind == "numeric":
        raise DeviceError(
            f"--never-category takes a field of categories or words, and {name!r} is numeric; name its items with --never."
        )
    raise DeviceError(unknown(name, value, fields[name].values[:20], "value"))


def _check_allowed(choices: list, names: list[str]) -> None:
    """Refuse to allow what is shared already."""
    for name in names:
        if any(name not in (*choice.items, *choice.categories) for choice in choices):
            raise DeviceError(f"{name!r} is shared already; `tacit device share` shows what is not.")


def _disclosed(choice: Any) -> str:
    """A choice as text."""
    share = "the share of each plan" if choice.share is None else f"π = {choice.share:g}"
    never = ", ".join((*choice.items, *choice.categories))
    return f"{share}; never: {never}" if never else share


def _reveals(bundle: Any) -> list[str]:
    """What each share reveals under the methods of a plan folder, where it was measured."""
    from tacit.device.method import revealed

    found = [(method, revealed(method)) for method in _withholding(bundle)]
    lines = [line for method, one in found if one is not None for line in _table(f"{bundle.plan.name} ({method})", one)]
    return lines or [
        f"{bundle.plan.name}: its methods have no share to choose; they do not see items that are never shared."
    ]


def _table(name: str, found: dict[str, Any]) -> list[str]:
    """One row for each share: how much is disclosed, and how much an attack finds, on each log."""
    heads = [f"{log}: shown, best attack" for log in dict.fromkeys(row["log"] for row in found["rows"])]
    cells: dict[float, list[str]] = {}
    for row in found["rows"]:
        cells.setdefault(row["pi"], []).append(f"{row['shown']:.0%}, {row['found']:.0%} ({row['attack']})")
    rows = [("share π", *heads), *((f"{pi:g}", *row) for pi, row in cells.items())]
    return [
        f"{name}: how many of a person's items {found['messages']} messages reveal, mean of {found['people']} people",
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
    """Delete everything this device keeps except the ledger, since what was sent stays sent."""
    store = _store(home)
    store.agree(False)
    print(
        f"{store.erase()} files were deleted; the ledger stays and records that. The history file itself is yours to delete."
    )


@app.command()
def status(
    home: Home = Path("device"), as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False
) -> None:
    """Show whether the device takes part, in which plans, and what was spent."""
    from tacit.cli.common import print_json

    store = _store(home)
    node_ledger = store.ledger()
    try:
        spent = node_ledger.summary()
    finally:
        node_ledger.close()
    facts = {"name": store.name, "takes part": store.takes_part, "volunteers": len(store.volunteering)}
    facts |= {"discloses": {user: choice.to_dict() for user, choice in store.choices.items()}}
    facts |= {"plans": store.digests(), "spent": spent}
    if as_json:
        print_json(facts)
        return
    plans = ", ".join(f"{bundle.plan.name} ({bundle.digest})" for bundle in store.bundles())
    about = "ε between any two histories (replace-one), trusting those whom each plan's claim names"
    choices = [f"{user}: {_disclosed(one)}".removeprefix(": ") for user, one in store.choices.items()]
    disclosed = "; ".join(choices) or "the share of each plan (`tacit device share`)"
    for name, fact in {**facts, "discloses": disclosed, "plans": plans, "spent": about}.items():
        print(f"{name:<11} {fact}")
    for name, fact in spent.items():
        print(f"  {name:<9} {_format(fact)}")
    for bundle in store.bundles():
        if _withholding(bundle):
            print("\n".join(_reveals(bundle)))


@app.command()
def recommend(
    home: Home = Path("device"),
    user: Annotated[str | None, typer.Option(help="The person, where the device has several.")] = None,
    k: Annotated[int, typer.Option(min=1, help="The number of recommendations.")] = 10,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Recommend items from the last broadcast and the person's history; nothing is sent, no network is needed."""
    from tacit.cli.common import print_json
    from tacit.deploy.terminal import printable
    from tacit.device.node.node import Node
    from tacit.device.node.recommend import recommend_on_device
    from tacit.device.ranking import EMPTY

    found = recommend_on_device(Node(_store(home).path), user, k)
    if as_json:
        print_json([{"item_id": item, "score": score} for item, score in found])
        return
    if not found:
        typer.echo(f"Nothing to recommend: {EMPTY}.", err=True)
    for rank, (item, score) in enumerate(found, 1):
        print(f"{rank:>3}  {printable(item):<24} {score:.4f}")


for _command in (
    _device_owner.terms,
    _device_owner.rotate,
    _device_owner.log,
    _device_owner.consents,
    _device_owner.schedule,
):
    app.command()(_command)


def _store(home: Path) -> Any:
    from tacit.device.node.store import Store

    store = Store(home)
    store.name  # noqa: B018 - refuses a folder that is no home
    return store


def _format(fact: Any) -> str:
    if isinstance(fact, dict):
        return ", ".join(f"{name} {_format(one)}" for name, one in fact.items())
    if isinstance(fact, float):
        return "∞" if fact == float("inf") else f"{fact:.6g}"
    return "–" if fact is None else str(fact)
