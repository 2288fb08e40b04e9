"""`tacit certs`: certificates and keys for a deployment over TLS."""

from pathlib import Path
from typing import Annotated

import typer

ORDER = 100  # in `tacit --help`


def command(
    folder: Annotated[Path, typer.Argument(help="A new folder for the certificates and keys.")],
    host: Annotated[list[str] | None, typer.Option(help="A name or address of the server; may be repeated.")] = None,
    nodes: Annotated[int, typer.Option(min=0, help="The number of nodes that get a key.")] = 2,
) -> None:
    """Make a certificate authority, a certificate for the server and a key for each node."""
    from tacit.deploy.certificates import make_certificates

    for path in make_certificates(folder, host or ["127.0.0.1"], nodes):
        print(path)
