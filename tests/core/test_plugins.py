"""Plug-ins: one file is one class, found as soon as the file is there."""

import importlib
import sys
from types import ModuleType

import pytest

from tacit.core.plugins import Plugins
from tacit.errors import PlanError


class Tool:
    """A kind of plug-in."""


@pytest.fixture
def tools(tmp_path, monkeypatch):
    package = ModuleType("tools_of_a_test")
    package.__path__ = [str(tmp_path)]
    monkeypatch.setitem(sys.modules, package.__name__, package)
    yield Plugins(package, Tool, "tool")
    for name in [name for name in sys.modules if name.startswith(f"{package.__name__}.")]:
        del sys.modules[name]


def write(folder, name):
    (folder / f"{name}.py").write_text(f"from {__name__} import Tool\n\n\nclass {name.title()}(Tool):\n    pass\n")
    importlib.invalidate_caches()  # Python itself searches a folder again only when its clock has moved on


def test_a_file_that_comes_or_goes_is_noticed(tools, tmp_path):
    assert tools.names() == []
    write(tmp_path, "saw")
    assert tools.names() == ["saw"]
    assert tools.load("saw").__name__ == "Saw"
    write(tmp_path, "hammer")
    assert tools.names() == ["hammer", "saw"]
    (tmp_path / "saw.py").unlink()
    assert tools.names() == ["hammer"]
    with pytest.raises(PlanError, match=r"no tool 'saw'\. Known: hammer"):
        tools.load("saw")


def test_a_folder_is_added(tools, tmp_path):
    (tmp_path / "more").mkdir()
    write(tmp_path / "more", "drill")
    assert tools.names() == []
    tools.add_folder(tmp_path / "nowhere")
    tools.add_folder(tmp_path / "more")
    assert tools.names() == ["drill"]


def test_a_folder_without_changes_is_searched_once(tools, tmp_path, monkeypatch):
    write(tmp_path, "saw")
    tools.names()
    monkeypatch.setattr(tools, "_search", lambda: pytest.fail("searched again"))
    assert tools.names() == ["saw"]
