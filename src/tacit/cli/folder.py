"""What a deployment is made of: a plan folder (`tacit plan NAME --folder DIR`), and certificates (`tacit certs DIR`)."""

from pathlib import Path
from typing import Annotated, Any

import typer


def write_folder(folder: Path, plan: Any, data: str, devices: int) -> None:
    """Write a plan folder, with the items of this data, for so many people; and the server's key beside it."""
    from tacit.cli.common import needs_flower
    from tacit.deploy.signing import Signer, new_key
    from tacit.lab.data.datasets import open_log
    from tacit.lab.plans.publish import make_bundle

    needs_flower()
    log = open_log(data, devices, 0, [plan])
    folder.mkdir(parents=True, exist_ok=True)
    key = folder / "server.key"
    public = Signer(key).public if key.exists() else new_key(key)
    bundle = make_bundle(folder, plan, log.catalog, devices, names=log.item_names, server=public)
    print(f"{folder}: plan folder {bundle.digest} for {devices} people")
    for claim in (bundle.price.whole, *bundle.price.beside):
        print(f"  {claim}")
    if bundle.most_volunteers:
        print(f"  {bundle.most_volunteers} people must volunteer before it begins: `tacit device volunteer`")
    print(f"  {key} signs for the server and stays there; copy the rest to every device")


def certs(
    folder: Annotated[Path, typer.Argument(help="A folder for them.")],
    host: Annotated[list[str] | None, typer.Option(help="A name or address the server is reached by; repeat.")] = None,
    nodes: Annotated[int, typer.Option(min=0, help="How many nodes get a key.")] = 2,
) -> None:
    """Make an authority, a certificate for the server and a key for each node."""
    from tacit.deploy.certificates import make_certificates

    for path in make_certificates(folder, host or ["127.0.0.1"], nodes):
        print(path)
