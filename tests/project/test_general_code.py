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
    {
        "none",
        "random",
        "popularity",
        "masks",
        "handshake",
        "count",
        "similarity",
        "gaussian",
        "laplace",
        "sgd",
        "adam",
        "steps",
    }
)
PLUGINS = {"device/methods": method_names, "privacy/mechanisms": mechanism_names, "server/rules": rule_names}
PACKAGES = tuple(f"tacit.{folder.replace('/', '.')}" for folder in PLUGINS)

DEMO = "the plans that the demo compares"
NO_NOISE = (
    "a stage without privacy has the mechanism `none`: whether a plan adds noise is asked before anything is built"
)
CHANCE = "random guessing is the reference line of every chart"
OTHER_WORD = "the word is a value or a text that has nothing to do with the plug-in"
PROTOCOL = "an evaluation protocol is registered under the name of the paper that defines it"
FITTED = "a baseline of the lab names the methods that it fits"
# (file, name): why the name is there
ALLOWED: dict[tuple[str, str], str] = {
    **{
        ("cli/demo.py", name): DEMO
        for name in ("random", "popularity", "itemknn", "fcf", "randomized_response", "gaussian")
    },
    ("core/plan.py", "none"): NO_NOISE,
    ("core/plan.py", "mean_step"): "the default rule of a stage",
    ("deploy/flower_transport.py", "none"): OTHER_WORD,
    ("device/method.py", "gaussian"): "what a plan without noise promises with, unless its method names another",
    ("device/methods/sr.py", "sr_od"): "the error names the variant that takes larger catalogs",
    ("device/node/node.py", "none"): OTHER_WORD,
    ("lab/analysis/sample_message.py", "count"): OTHER_WORD,
    ("lab/analysis/feasibility.py", "none"): NO_NOISE,
    ("lab/analysis/report_data.py", "none"): NO_NOISE,
    ("lab/audits/fpl_reconstruction.py", "popularity"): OTHER_WORD,
    ("lab/baselines/central/bpr.py", "bpr_mf"): FITTED,
    **{("lab/baselines/central/next_item.py", name): FITTED for name in ("bert4rec", "fedseqrec", "gru4rec", "sr_gnn")},
    ("lab/baselines/central/itemknn.py", "similarity"): OTHER_WORD,
    ("lab/baselines/central/popularity_prior.py", "seqmf_eb"): FITTED,
    **{("lab/data/describe.py", name): "the description names the plan that fits" for name in ("steps", "counts_home")},
    ("lab/data/population.py", "none"): OTHER_WORD,
    **{("lab/evaluation/protocols.py", name): PROTOCOL for name in ("seqmf", "dplcf", "fedseqrec", "fpl", "privrec")},
    ("lab/evaluation/protocols.py", "random"): OTHER_WORD,
    ("lab/evaluation/statistics.py", "none"): OTHER_WORD,
    ("lab/experiments/choice.py", "popularity"): "the baseline that every plan has to beat",
    ("lab/experiments/bench/tables.py", "popularity"): "the baseline that every recommended plan has to beat",
    ("lab/plans/loader.py", "none"): NO_NOISE,
    ("lab/plans/overview.py", "none"): NO_NOISE,
    (
        "lab/simulation/report_collection.py",
        "cooccurrence",
    ): "co-occurrence counts are collected in tiles, by their mechanism",
    ("lab/simulation/cooccurrence.py", "similarity"): OTHER_WORD,
    ("metrics/definitions.py", "none"): OTHER_WORD,
    ("metrics/ranks.py", "random"): OTHER_WORD,
    ("nets/sequence/encoder.py", "none"): OTHER_WORD,
    ("privacy/accounting/accountant.py", "none"): OTHER_WORD,
    ("privacy/accounting/events.py", "gaussian"): "the kind of an event, which a price file records",
    ("privacy/card.py", "none"): OTHER_WORD,
    ("privacy/sampler.py", "none"): NO_NOISE,
    ("report/formatting.py", "none"): NO_NOISE,
    ("report/sample_message.py", "none"): NO_NOISE,
    ("report/sample_message.py", "count"): OTHER_WORD,
    ("report/sections.py", "random"): CHANCE,
    ("report/tradeoff.py", "random"): CHANCE,
    ("report/tradeoff.py", "none"): OTHER_WORD,
}


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
