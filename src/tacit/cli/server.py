"""`tacit server`: run the rounds of a plan folder with the devices that connect, and manage who may connect."""

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

ORDER = 95  # in `tacit --help`

Share = Annotated[float, typer.Option(help="The share of the cohort at which a round closes.")]
Certs = Annotated[Path, typer.Option(help="The folder made by `tacit certs`, with the keys of the nodes.")]
NodeName = Annotated[str, typer.Argument(help="A node: its name or the first digits of it, or its file without .pub.")]


class _RunByDefault(TyperGroup):
    """`tacit server PLAN` is `tacit server run PLAN`."""

    default = "run"

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] != "--help":
            args = [self.default, *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=_RunByDefault,
    help="Run the rounds of a plan folder with the devices that connect: `tacit server PLAN`. Manage its nodes.",
    no_args_is_help=True,
)


@app.command()
def run(
    folder: Annotated[Path, typer.Argument(help="A plan folder, made by `tacit plan NAME --folder DIR`.")],
    out: Annotated[Path, typer.Option(help="A folder for the run; a run that it holds already is resumed.")] = Path(
        "run"
    ),
    address: Annotated[str, typer.Option(help="The address to listen on: host:port.")] = "127.0.0.1:8000",
    certs: Annotated[
        Path | None, typer.Option(help="A folder made by `tacit certs`: use TLS, and admit only its nodes.")
    ] = None,
    key: Annotated[Path | None, typer.Option(help="The private key of the plan folder's server.")] = None,
    goal: Share = 1.0,
    minimum: Annotated[int, typer.Option(help="With fewer reports, a round releases nothing.")] = 1,
    deadline: Annotated[
        float, typer.Option(help="Seconds after which a round closes with the reports it has.")
    ] = 600.0,
    grace: Annotated[float, typer.Option(help="Seconds that a round stays open after its goal.")] = 0.0,
    tries: Annotated[int, typer.Option(help="How often a round may be abandoned before the run stops.")] = 3,
    rest: Annotated[int, typer.Option(help="The number of rounds that a node is left out after it failed.")] = 1,
    least: Annotated[float, typer.Option(help="The share of the plan's population that must have enrolled.")] = 1.0,
    wait: Annotated[float, typer.Option(help="Seconds to wait for them to enrol.")] = 600.0,
    metrics: Annotated[
        int | None, typer.Option(help="A port of the loopback interface for Prometheus, at /metrics.")
    ] = None,
    json_lines: Annotated[bool, typer.Option("--json-lines", help="Print each line as a JSON object.")] = False,
    per_address: Annotated[
        int,
        typer.Option(min=1, help="The number of connections that one address may hold; more where nodes share one."),
    ] = 256,
) -> None:
    """Run the rounds of a plan folder; the default. The run folder can be resumed."""
    from tacit.cli.common import needs_flower

    needs_flower()
    from tacit.deploy.bundle import read_bundle
    from tacit.deploy.preflight import certificates_at, split_address
    from tacit.deploy.signing import signer_of
    from tacit.server.session.round_policy import RoundPolicy

    split_address(address)
    certificates_at(certs)
    bundle, policy = read_bundle(folder), RoundPolicy(goal, minimum, deadline, grace, tries, rest, wait, least)
    sign = signer_of(bundle.server, key or folder / "server.key")
    _supervise(bundle, policy, out, address, certs, sign, metrics, json_lines, per_address)


def _supervise(
    bundle: Any,
    policy: Any,
    out: Path,
    address: str,
    certs: Path | None,
    sign: Any,
    metrics: int | None,
    json_lines: bool,
    per_address: int,
) -> None:
    """Keep a SuperLink running behind the proxy, and run the rounds over it."""
    from functools import partial

    from tacit.deploy.certificates import watched
    from tacit.deploy.flower_transport import FlowerRuntime, check_flower, register, superlink_arguments
    from tacit.deploy.preflight import alone_in, can_listen, split_address
    from tacit.deploy.supervisor import FlowerProcess, end_by_signal, print_json_line, print_line
    from tacit.server.session.admission import Admission
    from tacit.server.session.fleet_proxy import FleetProxy, listening
    from tacit.server.session.session import Session
    from tacit.server.session.status import Status, served

    log = print_json_line if json_lines else print_line
    check_flower()
    end_by_signal()
    admission = None if certs is None else Admission(certs)
    watch = watched([] if certs is None else [certs / "ca.crt", certs / "server.crt"], log)
    with alone_in(out / "flower"), watch:
        can_listen(address)
        link = FlowerProcess(out / "flower", "flower-superlink")
        session = Session.at(out, bundle, policy, admission)
        log(f"run {session.run}: {session.done} of {bundle.rounds} rounds are done")
        for claim in (bundle.price.whole, *bundle.price.beside):
            log(str(claim))
        runtime = FlowerRuntime(f"127.0.0.1:{link.port}", link.secret, None, bundle.largest)
        proxy = FleetProxy(link.port, bundle.largest, admission, partial(register, runtime))
        status = Status(out)
        doors = listening(proxy, split_address(address), certs, per_address)
        with link.kept_up(superlink_arguments(), log), doors, served(status, metrics):
            link.wait()
            log(f"listening on {address}{' with TLS' if certs else ', without TLS: any node may connect'}")
            _run_rounds(session, link, runtime, sign, log, status)
        log(f"all {bundle.rounds} rounds are done; the parameters are in {out}")


def _run_rounds(session: Any, link: Any, runtime: Any, sign: Any, log: Any, status: Any) -> None:
    """Run all rounds; where Flower gives its run up, another one continues."""
    from tacit.deploy.flower_transport import LostError
    from tacit.server.session.flower import run_session

    while not session.finished:
        link.wait()
        try:
            run_session(session, runtime, sign, log, status)
        except LostError as problem:
            session = session.reopened()
            log(f"Flower gave the run up ({problem}); another one continues from round {session.done}")


@app.command("status")
def run_status(
    out: Annotated[Path, typer.Argument(help="The run folder.")] = Path("run"),
    watch: Annotated[bool, typer.Option(help="Show it again every two seconds, until the run ends.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Show a run: its round, nodes, reports, refusals and why, the privacy cost so far, bytes, time to the deadline."""
    import time

    from tacit.cli.common import print_json
    from tacit.server.session.status import read_status

    while True:
        found = read_status(out)
        print_json(found) if as_json else print("\n".join(_status_lines(found)), flush=True)
        if not watch or found["phase"] == "finished":
            return
        time.sleep(2.0)


def _status_lines(found: dict[str, Any]) -> list[str]:
    """A status as text."""
    import time

    from tacit.deploy.terminal import printable

    age = time.time() - found["time"]
    epsilon = "∞" if found["epsilon"] in ("inf", float("inf")) else f"{found['epsilon']:.4g}"
    lines = [
        f"run {found['run']} of plan {printable(found['plan'])}: {found['phase']}, as of {age:.0f} s ago",
        f"rounds    {found['rounds_done']} of {found['rounds']} are done",
        f"people    {found['people_enrolled']} of {found['people']} have enrolled, in {len(found['nodes'])} nodes",
        f"privacy   ε = {epsilon} at δ = {found['delta']:.1e} so far; whole run: {printable(found['claim'])}",
        f"bytes     {found['bytes_up']:,} up, {found['bytes_down']:,} down",
        f"refused   {found['refusals']} replies; {found['reports_late']} came late",
    ]
    if found["phase"] == "round":
        where = f"round {found['round']} of stage {found['stage']}"
        reports = f"{found['people_reported']} of {found['people_asked']} people have reported"
        lines.insert(2, f"open      {where}: {reports}; {found['seconds_left']:.0f} s to the deadline")
    lines += [f"  {one['node'][:8]}  {one['people']:>7,} people  {one['state']}" for one in found["nodes"]]
    return lines + [f"  {one['node'][:8]}  {printable(one['reason'])}" for one in found["newest_refusals"][-5:]]


@app.command()
def nodes(
    certs: Certs = Path("certs"),
    out: Annotated[Path | None, typer.Option(help="A run folder: show who has enrolled in it.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """List the nodes that are admitted, and those that were struck off."""
    from tacit.cli.common import print_json
    from tacit.core.run_folder import read_checked
    from tacit.deploy.terminal import printable

    admission = _admission(certs)
    enrolled = {}
    if out is not None and (out / "roll.json").exists():
        enrolled = {name: people for name, _, people, _ in read_checked(out / "roll.json")}
    rows = [
        {
            "node": name,
            "file": path.name,
            "admitted": name in admission.nodes,
            "places": admission.places.get(name),
            "enrolled": enrolled.get(name),
        }
        for name, path in {**admission.removed, **admission.nodes}.items()
    ]
    if as_json:
        print_json(rows)
        return
    for row in rows:
        state = "admitted" if row["admitted"] else "removed"
        places = "places left to it" if row["places"] is None else f"{row['places']} places"
        people = "" if row["enrolled"] is None else f", {row['enrolled']} people enrolled"
        print(f"{row['node']}  {printable(row['file']):<24} {state}, {places}{people}")


@app.command()
def admit(
    node: Annotated[
        str, typer.Argument(help="A node of the folder, also one that was struck off, or a file NAME.pub.")
    ],
    certs: Certs = Path("certs"),
    places: Annotated[int | None, typer.Option(help="The number of people that it may enrol.")] = None,
) -> None:
    """Admit a node; a running server takes it at once."""
    print(f"node {_admission(certs).admit(node, places)} is admitted")


@app.command()
def remove(node: NodeName, certs: Certs = Path("certs")) -> None:
    """Strike a node off; a running server reads nothing from it any more."""
    print(f"node {_admission(certs).remove(node)} was struck off; `tacit server admit` takes it back")


@app.command()
def invite(certs: Certs = Path("certs")) -> None:
    """Make an invitation: the first device that shows it is admitted with its own key."""
    print(_admission(certs).invite())


@app.command()
def rollback(
    folder: Annotated[Path, typer.Argument(help="The plan folder of the run.")],
    out: Annotated[Path, typer.Option(help="The run folder; its server is stopped.")] = Path("run"),
    to: Annotated[int | None, typer.Option(help="After this round; by default the newest sound checkpoint.")] = None,
) -> None:
    """Go on with the parameters of an earlier round; the rounds that were played stay played and charged."""
    from tacit.deploy.bundle import read_bundle
    from tacit.deploy.preflight import alone_in
    from tacit.server.session.session import roll_back

    with alone_in(out / "flower"):
        at = roll_back(out, read_bundle(folder), to)
    print(f"{out} goes on with the parameters after round {at}")


def _admission(certs: Path) -> Any:
    from tacit.cli.common import needs_flower

    needs_flower()
    from tacit.deploy.preflight import certificates_at
    from tacit.server.session.admission import Admission

    certificates_at(certs)
    return Admission(certs)
