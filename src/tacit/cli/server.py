"""`tacit server`: the rounds of a plan folder, with everything that takes."""

from pathlib import Path
from typing import Annotated, Any

import typer

Share = Annotated[float, typer.Option(help="The share of the people asked at which a round closes.")]


def serve(
    folder: Annotated[Path, typer.Argument(help="A plan folder, made by `tacit plan NAME --folder DIR`.")],
    out: Annotated[Path, typer.Option(help="A folder for the run; one that holds a run goes on with it.")] = Path(
        "run"
    ),
    address: Annotated[str, typer.Option(help="Where to listen: host:port.")] = "127.0.0.1:8000",
    certs: Annotated[
        Path | None, typer.Option(help="A folder of `tacit certs`: TLS, and only its nodes may come.")
    ] = None,
    key: Annotated[Path | None, typer.Option(help="The key that the plan folder's devices trust.")] = None,
    goal: Share = 1.0,
    minimum: Annotated[int, typer.Option(help="With fewer people's reports nothing is released.")] = 1,
    deadline: Annotated[float, typer.Option(help="Seconds before a round closes with what it has.")] = 600.0,
    grace: Annotated[float, typer.Option(help="Seconds a round stays open after its goal.")] = 0.0,
    tries: Annotated[int, typer.Option(help="How often a round is abandoned before the run stops.")] = 3,
    rest: Annotated[int, typer.Option(help="Rounds a node is left out after it failed.")] = 1,
    least: Annotated[float, typer.Option(help="The share of the plan's people that must have enrolled.")] = 1.0,
    wait: Annotated[float, typer.Option(help="Seconds to wait for them.")] = 600.0,
) -> None:
    """Play the rounds of a plan folder with the devices that come, and leave a run folder that resumes."""
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
    """Keep a SuperLink up, and play the rounds over it."""
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
            _play(session, link, runtime, certs, sign)
        print_line(f"all {bundle.rounds} rounds are done; the parameters are in {out}")


def _play(session: Any, link: Any, runtime: Any, certs: Path | None, sign: Any) -> None:
    """All rounds; a run that Flower gave up is followed by another."""
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
            print_line(f"Flower gave the run up ({problem}); another one goes on from round {session.done}")


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
    """Only nodes whose public key lies in the folder may come."""
    from tacit.deploy.certificates import public_keys
    from tacit.server.session.flower import register

    for one in [] if certs is None else public_keys(certs):
        register(runtime, one)
