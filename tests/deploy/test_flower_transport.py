"""The one file that knows Flower's inside, held against the installed Flower."""

import ast
import re
from importlib.metadata import version
from pathlib import Path

import pytest

pytest.importorskip("flwr")

from tacit.deploy import flower_transport
from tacit.errors import RunError
from tacit.server.session.fleet_proxy import OPEN, PATHS

SOURCE = Path(__file__).resolve().parents[2] / "src" / "tacit"
PUBLIC = ("flwr.app", "flwr.clientapp", "flwr.serverapp")


def imported(path: Path) -> set[str]:
    """The modules that a file imports anywhere."""
    tree = ast.walk(ast.parse(path.read_text()))
    nodes = [node for node in tree if isinstance(node, (ast.Import, ast.ImportFrom))]
    froms = {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
    return froms | {name.name for node in nodes if isinstance(node, ast.Import) for name in node.names}


def test_only_one_file_uses_what_is_not_public_in_flower():
    inside = {
        path.relative_to(SOURCE).as_posix()
        for path in SOURCE.rglob("*.py")
        for name in imported(path)
        if name.split(".")[0] == "flwr" and name not in PUBLIC
    }
    assert inside == {"deploy/flower_transport.py"}


def test_the_proxy_passes_the_requests_that_this_flowers_nodes_make():
    import flwr.supernode.fleet_http_client as client

    assert client.__file__ is not None
    paths = set(re.findall(r'path="([^"]+)"', Path(client.__file__).read_text()))
    assert paths == PATHS | OPEN


def test_the_superlink_serves_the_control_interface_beside_the_fleet():
    """Why there is a proxy; where a later Flower separates the two, this test says that it is not needed."""
    import flwr.superlink.main as link

    assert link.__file__ is not None
    text = Path(link.__file__).read_text()
    assert "control" in text
    assert "fleet" in text


@pytest.mark.parametrize("found", ["1.40.9", "1.43.0", "2.0.0"])
def test_a_flower_that_is_not_known_is_refused(monkeypatch, found):
    flower_transport.check_flower()  # the installed one is
    monkeypatch.setattr(flower_transport, "version", lambda name: found)
    with pytest.raises(RunError, match=f"needs Flower from 1.41 to before 1.43, got {found}"):
        flower_transport.check_flower()
    assert version("flwr")
