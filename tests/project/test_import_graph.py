"""The import graph of the package: no cycle, not even one hidden in functions; a public name stands in one module."""

import ast
import shutil
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "src"

# Public names that stand in several modules on purpose, with the reason.
SHARED_NAMES: dict[str, str] = {"command": "every file of the command line has one"}


def modules(source: Path) -> dict[str, Path]:
    """Every module of the package by its dotted name."""
    paths = sorted((source / "tacit").rglob("*.py"))
    return {".".join(p.relative_to(source).with_suffix("").parts).removesuffix(".__init__"): p for p in paths}


def imported(tree: ast.Module, known: dict[str, Path]) -> Iterator[str]:
    """The modules of the package that a file imports, at the top or inside functions, type checking left out."""
    typing_only = {
        id(node)
        for block in tree.body
        if isinstance(block, ast.If) and "TYPE_CHECKING" in ast.dump(block.test)
        for node in block.body
    }
    for node in ast.walk(tree):
        if id(node) in typing_only:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                yield from [found for found in (name if name in known else node.module,) if found in known]


def graph(source: Path) -> dict[str, set[str]]:
    """For every module, those it imports."""
    known = modules(source)
    return {name: {*imported(ast.parse(path.read_text()), known)} - {name} for name, path in known.items()}


def cycle(edges: dict[str, set[str]]) -> list[str]:
    """Some cycle of the graph, or nothing: modules that import nothing left are taken away until none is left."""
    left = {name: set(others) for name, others in edges.items()}
    while leaves := {name for name, others in left.items() if not others}:
        left = {name: others - leaves for name, others in left.items() if name not in leaves}
    if not left:
        return []
    path = [min(left)]
    while path[-1] not in path[:-1]:
        path.append(min(left[path[-1]]))
    return path[path.index(path[-1]) :]


def test_no_module_imports_itself_by_a_detour():
    assert cycle(graph(SOURCE)) == []


@pytest.mark.parametrize(
    "line", ["import tacit.lab.runs.run", "def later():\n    from tacit.lab.runs import run\n    return run"]
)
def test_a_planted_cycle_is_found(tmp_path, line):
    shutil.copytree(SOURCE / "tacit", tmp_path / "tacit", ignore=shutil.ignore_patterns("__pycache__"))
    planted = tmp_path / "tacit" / "lab" / "data" / "population.py"
    planted.write_text(planted.read_text() + f"\n{line}\n")
    assert "tacit.lab.runs.run" in cycle(graph(tmp_path))


def public_names(source: Path) -> dict[str, list[str]]:
    """For every public function and class, the modules that define it."""
    found = defaultdict(list)
    for module, path in modules(source).items():
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(module)
    return found


def test_a_public_name_is_defined_once():
    twice = {name: where for name, where in public_names(SOURCE).items() if len(where) > 1 and name not in SHARED_NAMES}
    assert not twice


@pytest.mark.parametrize("name", SHARED_NAMES)
def test_a_shared_name_is_still_shared(name):
    assert len(public_names(SOURCE)[name]) > 1
