"""`tacit certs`: certificates and keys for a deployment over TLS."""

from pathlib import Path
from typing import Annotated

import typer

ORDER = 100  # in `tacit --help`


def command(
    folder: Annotated[
        Path, typer.Argument(help="A new folder for the certificates and keys, or with --renew an old one.")
    ],
    host: Annotated[list[str] | None, typer.Option(help="A name or address of the server; may be repeated.")] = None,
    nodes: Annotated[int, typer.Option(min=0, help="The number of nodes that get a key.")] = 2,
    renew: Annotated[
        bool, typer.Option(help="Renew the certificates of a folder: same names, same authority, same nodes.")
    ] = False,
) -> None:
    """Make a certificate authority, a certificate for the server and a key for each node."""
    from tacit.deploy.certificates import make_certificates, renew_certificates

    if renew:
        for path in renew_certificates(folder):
            print(path)
        return
    for path in make_certificates(folder, host or ["127.0.0.1"], nodes):
        print(path)
