"""`tacit server`: run the rounds of a plan folder with the devices that connect."""

from pathlib import Path
from typing import Annotated, Any

import typer

ORDER = 95  # in `tacit --help`

Share = Annotated[float, typer.Option(help="The share of the cohort at which a round closes.")]


def command(
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
) -> None:
    """Run the rounds of a plan folder with the devices that connect; the run folder can be resumed."""
    from tacit.cli.common import needs_flower

    needs_flower()
    from tacit.deploy.bundle import read_bundle
    from tacit.deploy.preflight import certificates_at, split_address
    from tacit.deploy.signing import signer_of
    from tacit.server.session.round_policy import RoundPolicy

    split_address(address)
    certificates_at(certs)
    bundle, policy = read_bundle(folder), RoundPolicy(goal, minimum, deadline, grace, tries, rest, wait, least)
    _supervise(bundle, policy, out, address, certs, signer_of(bundle.server, key or folder / "server.key"))


def _supervise(bundle: Any, policy: Any, out: Path, address: str, certs: Path | None, sign: Any) -> None:
    """Keep a SuperLink running, and run the rounds over it."""
    from tacit.deploy.flower_transport import FlowerRuntime
    from tacit.deploy.preflight import alone_in, can_listen, split_address
    from tacit.deploy.supervisor import FlowerProcess, end_by_signal, print_line
    from tacit.server.session.session import Session

    end_by_signal()
    host, port = split_address(address)
    near = "127.0.0.1" if host == "0.0.0.0" else host
    with alone_in(out / "flower"):
        link, arguments = FlowerProcess(out / "flower", "flower-superlink", port), _link_arguments(host, out, certs)
        if not link.left_over(arguments):
            link.stop()
            can_listen(address)
        session = Session.at(out, bundle, policy)
        print_line(f"run {session.run}: {session.done} of {bundle.rounds} rounds are done")
        for claim in (bundle.price.whole, *bundle.price.beside):
            print_line(str(claim))
        runtime = FlowerRuntime(
            f"{near}:{port}", link.secret, None if certs is None else certs / "ca.crt", bundle.largest
        )
        with link.kept_up(arguments, print_line):
            _run_rounds(session, link, runtime, certs, sign)
        print_line(f"all {bundle.rounds} rounds are done; the parameters are in {out}")


def _run_rounds(session: Any, link: Any, runtime: Any, certs: Path | None, sign: Any) -> None:
    """Run all rounds; where Flower gives its run up, another one continues."""
    from tacit.deploy.flower_transport import LostError
    from tacit.deploy.supervisor import print_line
    from tacit.server.session.flower import run_session

    while not session.finished:
        link.wait(runtime.address.rpartition(":")[0])
        try:
            _admit_nodes(runtime, certs)
            print_line(f"listening on {runtime.address}{' with TLS' if certs else ', without TLS'}")
            run_session(session, runtime, sign, print_line)
        except LostError as problem:
            session = session.reopened()
            print_line(f"Flower gave the run up ({problem}); another one continues from round {session.done}")


def _link_arguments(host: str, out: Path, certs: Path | None) -> list[str]:
    kept = [
        "--host",
        host,
        "--database",
        str(out / "flower" / "link.sqlite"),
        "--disable-runtime-dependency-installation",
    ]
    if certs is None:
        return [*kept, "--insecure"]
    files = {"--ssl-ca-certfile": "ca.crt", "--ssl-certfile": "server.crt", "--ssl-keyfile": "server.key"}
    return [
        *kept,
        *(word for flag, name in files.items() for word in (flag, str(certs / name))),
        "--enable-supernode-auth",
    ]


def _admit_nodes(runtime: Any, certs: Path | None) -> None:
    """Admit the nodes whose public keys are in the folder, and no others."""
    from tacit.deploy.certificates import public_keys
    from tacit.server.session.flower import register

    for one in [] if certs is None else public_keys(certs):
        register(runtime, one)
