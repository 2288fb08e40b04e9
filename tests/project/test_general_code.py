"""General code names no method, mechanism, rule or paper: what differs is asked of the object."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from tacit.device.method import method_names
from tacit.privacy.mechanism import mechanism_names
from tacit.server.rule import rule_names

ROOT = Path(__file__).resolve().parents[2]
SOURCE, PAPERS = ROOT / "src" / "tacit", ROOT / "papers" / "tacit_papers"
# Names that are ordinary English, or settings and parameters as well: only a string that is exactly the name counts.
WORDS = frozenset(
    {"none", "random", "popularity", "masks", "handshake", "count", "similarity", "gaussian", "laplace", "sgd"}
)
PLUGINS = {"device/methods": method_names, "privacy/mechanisms": mechanism_names, "server/rules": rule_names}
PACKAGES = tuple(f"tacit.{folder.replace('/', '.')}" for folder in PLUGINS)

NO_MECHANISM = "`none` is the mechanism of a stage that names none"
OTHER_WORD = "the word is the value of a setting, or a text, that has nothing to do with the plug-in"
PROTOCOL = "an evaluation protocol is registered under the name of the paper that defines it"
TABLE = "the table of what the lab can fit for a method that no device trains"
# (file, name): why the name stands there
ALLOWED: dict[tuple[str, str], str] = {}


class Found(NamedTuple):
    """A name in a line of a file."""

    file: str
    name: str
    line: int


@cache
def names() -> frozenset[str]:
    """Every method, mechanism and rule, and every paper: a folder of `tacit_papers`."""
    papers = {path.parent.name for path in PAPERS.glob("*/__init__.py")}
    return frozenset({*papers, *(name for listed in PLUGINS.values() for name in listed())})


def found(path: Path) -> Iterator[Found]:
    """Names in the code of a file outside the file that bears the name; docstrings and comments may name anything."""
    file = path.relative_to(SOURCE).as_posix()
    sought = {name for name in _sought(file) if not re.search(rf"(^|_){name}(_|$)", path.stem)}
    tree = ast.parse(path.read_text(encoding="utf-8"))
    prose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if id(node) not in prose:
            for name in sorted(_names_in(node) & sought):
                yield Found(file, name, getattr(node, "lineno", 0))


def _sought(file: str) -> frozenset[str]:
    """All names; in a plug-in's file those of its own kind, because a method suggests its rule and mechanism."""
    for folder, listed in PLUGINS.items():
        if file.startswith(folder):
            return frozenset(listed()) - WORDS
    return names()


def _names_in(node: ast.AST) -> set[str]:
    """Names in a string, as a word of it or, for ordinary words, as all of it; or names that are identifiers."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        spoken = {word.lower().replace("-", "_") for word in re.findall(r"[A-Za-z][\w-]*\w", node.value)}
        return (spoken - WORDS) | {node.value}
    return _identifiers(node) - WORDS


def _identifiers(node: ast.AST) -> set[str]:
    if isinstance(node, ast.Name):
        return {node.id}
    if isinstance(node, ast.Attribute):
        return {node.attr}
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        return {node.name}
    if isinstance(node, (ast.keyword, ast.arg)):
        return {node.arg or ""}
    if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(PACKAGES):
        return {*(node.module or "").split("."), *(alias.name for alias in node.names)}
    return set()


@cache
def everything() -> tuple[Found, ...]:
    """All names in all files of the package."""
    return tuple(one for path in sorted(SOURCE.rglob("*.py")) for one in found(path))


def test_general_code_names_no_method_mechanism_rule_or_paper():
    refused = [one for one in everything() if (one.file, one.name) not in ALLOWED]
    assert not refused, "\n".join(f"{file}:{line} names {name!r}" for file, name, line in refused)


def test_every_exception_is_still_needed():
    assert sorted(set(ALLOWED) - {(one.file, one.name) for one in everything()}) == []


@pytest.mark.parametrize(
    "code",
    [
        'if last.method == "fedseqrec":\n    pass',
        'raise ValueError("FedGNN matches users.")',
        "from tacit.device.methods.fedgnn import FedGNN",
        "def of_seqmf(run): ...\n\n\nseqmf = 1",
        'x = "none"',
    ],
)
def test_a_special_case_is_found(tmp_path, monkeypatch, code):
    monkeypatch.setitem(globals(), "SOURCE", tmp_path)
    (tmp_path / "general.py").write_text(code)
    assert list(found(tmp_path / "general.py"))


def test_docstrings_and_ordinary_words_are_not_special_cases(tmp_path, monkeypatch):
    monkeypatch.setitem(globals(), "SOURCE", tmp_path)
    (tmp_path / "general.py").write_text('"""As in `fcf`."""\n\n\ndef count(none):\n    return f"a random {none}"\n')
    assert not list(found(tmp_path / "general.py"))
