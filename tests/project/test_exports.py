"""The names the package shows are the names it has; every public thing says what it is."""

import ast
import importlib
import importlib.util
import inspect
import pkgutil
import re
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import tacit

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]


def test_exported_names_are_one_list():
    tree = ast.parse(Path(tacit.__file__).read_text())
    typed = next(node for node in tree.body if isinstance(node, ast.If))
    shown = [alias.asname or alias.name for node in typed.body for alias in node.names]  # pyright: ignore
    assert sorted(shown) == sorted(tacit._HOME) == sorted(tacit.__all__)


@pytest.mark.parametrize("name", tacit.__all__)
def test_exported_names_resolve(name):
    assert getattr(tacit, name).__doc__


def test_dir_shows_the_exported_names_alone():
    assert dir(tacit) == sorted([*tacit.__all__, "__version__"])


def test_no_exported_name_is_hidden_by_a_folder():
    folders = {module.name for module in pkgutil.iter_modules(tacit.__path__)}
    assert not folders & {*tacit.__all__}


@pytest.mark.parametrize("name", [name for name in tacit.__all__ if name.islower()])
def test_parameters_of_exported_functions_have_types(name):
    for parameter in inspect.signature(getattr(tacit, name)).parameters.values():
        if parameter.kind is not parameter.VAR_KEYWORD:
            assert parameter.annotation not in (parameter.empty, Any), f"{name}({parameter.name})"


def test_load_reads_what_save_wrote(tmp_path):
    log = pl.DataFrame({"user_id": ["ann", "ann", "bob", "bob"], "item_id": ["tea", "jam", "tea", "jam"]})
    run = tacit.simulate("popularity", log, quiet=True)
    run.save(tmp_path / "run")
    assert tacit.load(tmp_path / "run").plan == run.plan


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'simulat'"):
        _ = tacit.simulat


def test_every_module_imports_and_says_what_it_is():
    for module in pkgutil.walk_packages(tacit.__path__, "tacit."):
        if module.name.endswith(("flower", "flower_transport")) and importlib.util.find_spec("flwr") is None:
            continue  # they need the extra `flower`
        if not module.name.endswith("__main__"):
            assert importlib.import_module(module.name).__doc__, module.name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
        if not target.startswith(("http:", "https:", "mailto:")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_named_in_the_pages_exist(page):
    for path in re.findall(r"`((?:src|tests|docs|benchmarks|examples)/[\w./-]+)`", page.read_text()):
        assert (ROOT / path).exists(), f"{page.name} names {path}"


@pytest.mark.slow
def test_the_example_in_the_readme_runs(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    exec(compile(code, "README.md", "exec"), {})
    printed = capsys.readouterr().out
    assert "ε = 8, δ = 1.0e-05 per run, central, unit user" in printed
    assert "item_id" in printed
    assert "HR@10" in printed
