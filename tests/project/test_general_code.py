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
# Names that are ordinary words or settings as well: only a string that is exactly the name counts.
WORDS = {"none", "random", "popularity", "pairs", "count", "sign", "gaussian", "laplace", "similarity", "masks", "sgd", "adam"}


class Found(NamedTuple):
    """A name in a file, and whether it stands there as a string of its own."""

    file: str
    name: str
    line: int


# (file, name): why the name stands there
ALLOWED: dict[tuple[str, str], str] = {}


@cache
def names() -> frozenset[str]:
    """Everything registered, and every paper: a package beside `tacit_papers`' own files."""
    papers = {path.parent.name for path in PAPERS.glob("*/__init__.py")}
    return frozenset({*method_names(), *mechanism_names(), *rule_names(), *papers})


def found(path: Path) -> Iterator[Found]:
    """Names in a file's code; docstrings and comments may name what they like."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    prose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose:
            yield from _hits(path, node.lineno, _named_by(node.value))
        elif (words := _identifiers(node)) & (names() - WORDS):
            yield from _hits(path, node.lineno, words & (names() - WORDS))


def _named_by(text: str) -> set[str]:
    spoken = {word.lower().replace("-", "_") for word in re.findall(r"[A-Za-z][\w-]*\w", text)}
    return (spoken & (names() - WORDS)) | ({text} & names())


def _identifiers(node: ast.AST) -> set[str]:
    if isinstance(node, ast.Name):
        return {node.id}
    if isinstance(node, ast.Attribute):
        return {node.attr}
    if isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.keyword, ast.arg)):
        return {getattr(node, "name", getattr(node, "arg", None))}
    if isinstance(node, ast.ImportFrom):
        return {*(node.module or "").split("."), *(alias.name for alias in node.names)}
    return set()


def _hits(path: Path, line: int, hits: set[str]) -> Iterator[Found]:
    for name in sorted(hits - {path.stem}):
        yield Found(path.relative_to(SOURCE).as_posix(), name, line)


@cache
def everything() -> tuple[Found, ...]:
    """All names in all files of the package."""
    return tuple(one for path in sorted(SOURCE.rglob("*.py")) for one in found(path))


def test_general_code_names_no_method_mechanism_rule_or_paper():
    refused = [one for one in everything() if (one.file, one.name) not in ALLOWED]
    assert not refused, "\n".join(f"{file}:{line} names {name!r}" for file, name, line in refused)


def test_every_exception_is_still_needed():
    needed = {(one.file, one.name) for one in everything()}
    assert sorted(set(ALLOWED) - needed) == []


@pytest.mark.parametrize(
    "code",
    ['if last.method == "fedseqrec":\n    pass', 'raise ValueError("FedGNN matches users.")', "from x import fedgnn", 'x = "none"'],
)
def test_a_special_case_is_found(tmp_path, monkeypatch, code):
    monkeypatch.setattr(f"{__name__}.SOURCE", tmp_path)
    (tmp_path / "general.py").write_text(code)
    assert list(found(tmp_path / "general.py"))


def test_docstrings_and_ordinary_words_are_not_special_cases(tmp_path, monkeypatch):
    monkeypatch.setattr(f"{__name__}.SOURCE", tmp_path)
    (tmp_path / "general.py").write_text('"""As in `fcf`."""\n\n\ndef count(none):\n    return f"a random {none}"\n')
    assert not list(found(tmp_path / "general.py"))
