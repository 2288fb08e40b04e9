"""The pages are whole: none is lost, links and anchors lead somewhere, commands and examples are those of the code."""

import ast
import importlib
import importlib.util
import re
import shlex
from dataclasses import replace
from functools import reduce
from pathlib import Path
from urllib.parse import unquote

import click
import numpy as np
import polars as pl
import pytest
import typer
from typer.testing import CliRunner

import tacit
from tacit.cli import app
from tacit.cli.common import parsed
from tacit.lab.data.datasets import dataset_names
from tacit.lab.data.selection import pick
from tacit.lab.data.synthetic import movies
from tacit.lab.evaluation.protocols import PROTOCOLS
from tacit.lab.plans.loader import choose, plan_names
from tacit.nets.neural.text import tokens_of

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]
FENCE = re.compile(r"^```(\S*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())


def extension(name):
    """One of the site's own extensions; these need no Sphinx to be imported."""
    spec = importlib.util.spec_from_file_location(name, DOCS / "_ext" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


contents = extension("contents")


def blocks(page, *languages):
    return [body for language, body in FENCE.findall(page.read_text(encoding="utf-8")) if language in languages]


def prose(page):
    return FENCE.sub("", page.read_text(encoding="utf-8"))


# ---- pages ----


def test_every_page_is_in_the_navigation():
    for page, missing in contents.unlisted(DOCS).items():
        assert not missing, f"docs/{page}.md lists the pages of the site; add a line for {', '.join(missing)} to it."


def test_every_page_can_be_reached_from_the_index():
    reached, new = set(), [DOCS / "index.md"]
    while new:
        page = new.pop()
        reached.add(page)
        found = {(page.parent / target).resolve() for target, _ in links(page) if target.endswith(".md")}
        new += [one for one in found if one.exists() and one not in reached and one not in new]
    shown = {DOCS / f"{name}.md" for name in contents.SHOWN.values()}  # these show a page of the root
    assert {page for page in PAGES if page.is_relative_to(DOCS)} - shown <= reached


def test_the_navigation_reads_lists():
    found = contents.groups(
        "# T\n## Begin\n- [A](a.md): x\n- [B](../CHANGELOG.md)\nno [C](c.md)\n## End\n- [D](e/d.md)\n"
    )
    assert found == {"Begin": ["a", "changes"], "End": ["e/d"]}


def test_a_page_that_nobody_lists_is_shown_all_the_same(tmp_path):
    (tmp_path / "part").mkdir()
    for name in ("index", "new", "part/README", "part/one"):
        (tmp_path / f"{name}.md").write_text(
            "# Page\n\n## Parts\n\n- [Part](part/README.md)\n" if name == "index" else "#"
        )
    assert contents.unlisted(tmp_path) == {"index": ["new"], "part/README": ["part/one"]}
    assert ":caption: More\n\n/new\n" in contents.trees(tmp_path, "index")
    assert "/part/one\n" in contents.trees(tmp_path, "part/README")


# ---- links ----


def links(page):
    """Every target on a page with its anchor, pictures in HTML included."""
    text = prose(page)
    found = re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r'(?:src|srcset|href)="([^"]+)"', text)
    inside = (target for target in found if not re.match(r"[a-z]+:", target))
    return [(unquote(path), unquote(anchor)) for path, _, anchor in (target.partition("#") for target in inside)]


def anchors(page):
    """The anchors of a page's headings, as GitHub and the site write them."""
    slugs = []
    for heading in re.findall(r"^#+ (.+?)\s*$", prose(page), re.MULTILINE):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        slugs.append(re.sub(r"[^\w\- ]", "", words.lower()).replace(" ", "-"))
    return {f"{slug}-{n}" if (n := slugs[:place].count(slug)) else slug for place, slug in enumerate(slugs)}


@each_page
def test_links_and_anchors_lead_somewhere(page):
    for path, anchor in links(page):
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{page.name} links to {path}"
        if anchor and target.suffix == ".md":
            assert anchor in anchors(target), f"{page.name} links to {path}#{anchor}"


# ---- commands ----


def commands(page):
    """Every `tacit …` on a page, and whether it stands in a block, so that it must run as it is."""
    for block in blocks(page, "sh", "console"):
        for line in block.splitlines():
            words = line.removeprefix("$ ").split("#")[0].strip()
            if words.startswith("tacit "):
                yield words, True
    for words in re.findall(r"`(tacit\s[^`]+)`", prose(page)):
        yield re.split(r" [|…]", " ".join(words.split()))[0].replace("…", ""), False


def context(words, whole):
    """The command as the parser understands it; words in capitals stand for something."""
    command = typer.main.get_command(app)
    _, *rest = ["1" if word.isupper() else word for word in shlex.split(words)]
    while isinstance(command, click.Group) and rest and not rest[0].startswith("-"):
        if rest[0] not in command.commands and hasattr(command, "default"):
            rest = [command.default, *rest]
        assert rest[0] in command.commands, f"there is no command {rest[0]!r} in {words!r}"
        command, rest = command.commands[rest[0]], rest[1:]
    if not rest or isinstance(command, click.Group) or "--help" in rest:
        return None
    try:
        return command.make_context(command.name, rest)
    except click.MissingParameter:
        assert not whole, f"{words!r} lacks an argument"
    except click.UsageError as problem:
        pytest.fail(f"{words!r}: {problem.format_message()}")


@each_page
@pytest.mark.filterwarnings("ignore::tacit.lab.plans.loader.DroppedWarning")
def test_commands_exist_with_their_options(page):
    for words, whole in commands(page):
        found = context(words, whole)
        if found is None:
            continue
        given = found.params
        for plan in (*([given["plan"]] if given.get("plan") else []), *(given.get("plans") or ())):
            assert plan in plan_names() or plan == "1" or plan.endswith(".toml"), f"{words!r}: no plan {plan!r}"
        protocol = given.get("protocol")
        for data in (given.get("data"), *(given.get("logs") or ())):
            assert data in (None, "1", *dataset_names()) or data.endswith((".csv", ".parquet")), words
        assert protocol in (None, *PROTOCOLS), words
        if given.get("setting") and given.get("plan") in plan_names():
            choose(given["plan"], parsed(given["setting"]))  # refuses a setting that there is not


@each_page
def test_make_targets_exist(page):
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    text = prose(page) + "".join(blocks(page, "sh"))
    assert set(re.findall(r"(?:^|`)make ([a-z-]+)", text, re.MULTILINE)) <= targets


NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?")


def any_numbers(line):
    """A pattern for the line, whatever its numbers."""
    return NUMBER.pattern.join(map(re.escape, NUMBER.split(line)))


def console_blocks():
    return [block for page in PAGES for block in blocks(page, "console")]


@pytest.mark.parametrize("block", console_blocks(), ids=lambda block: block.splitlines()[0][2:80])
def test_printed_output_is_what_the_command_prints(block):
    """A line `…` stands for any lines; numbers may differ in the fourth digit, as libraries do."""
    first, *lines = block.splitlines()
    result = CliRunner().invoke(app, shlex.split(first.removeprefix("$ tacit ")), catch_exceptions=False)
    wanted = (r"(?:.*\n)*?" if line == "…" else f"({any_numbers(line)})\n" for line in lines)
    found = re.fullmatch("".join(wanted), result.stdout)
    assert found, result.stdout
    for line, printed in zip((line for line in lines if line != "…"), found.groups()):
        numbers = [[float(text.replace(",", "")) for text in NUMBER.findall(words)] for words in (line, printed)]
        assert numbers[1] == pytest.approx(numbers[0], rel=2e-3)


# ---- Python ----


@each_page
def test_python_compiles_and_names_what_exists(page):
    for block in blocks(page, "python"):
        for node in ast.walk(ast.parse(block)):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("tacit"):
                module = importlib.import_module(node.module)
                assert all(hasattr(module, alias.name) for alias in node.names), ast.unparse(node)
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "tacit":
                assert hasattr(tacit, node.attr) or importlib.import_module(f"tacit.{node.attr}")


def test_getting_started_has_the_example_of_the_readme():
    (example,) = blocks(ROOT / "README.md", "python")
    assert example in blocks(DOCS / "getting-started.md", "python"), (
        "README.md and docs/getting-started.md show one example; copy it over."
    )


def prepare(folder):
    """What examples assume to be there: files in the folder they run in, and a frame."""
    events = [(user, item) for user in ("ann", "bob", "cid", "dee", "eve") for item in ("tea", "jam", "egg", "oat")]
    lines = [f"{user},{item},2024-01-{day + 1:02}" for day, (user, item) in enumerate(events)]
    (folder / "your-log.csv").write_text("\n".join(["user_id,item_id,datetime", *lines]))
    users, items = zip(*events)
    frame = pl.DataFrame({"uid": users, "sku": items, "at": range(len(events)), "stars": [4.0] * len(events)})
    frame.rename({"uid": "user_id", "sku": "item_id"}).drop("at", "stars").write_parquet(folder / "log.parquet")
    (folder / "ml-1m").mkdir()
    rated = [f"{user}::{item}::{4}::{9 * user + item}" for user in range(1, 6) for item in range(1, 6)]
    (folder / "ml-1m" / "ratings.dat").write_text("\n".join(rated))
    (folder / "ml-1m" / "movies.dat").write_text(
        "\n".join(f"{item}::Title {item} (1999)::Drama" for item in range(1, 6))
    )
    (folder / "ml-1m" / "users.dat").write_text("\n".join(f"{user}::F::25::1::00000" for user in range(1, 6)))
    words = tokens_of(movies(60, 50).catalog, 30)[1]
    (folder / "vectors.txt").write_text("\n".join(f"{word} 0.1 0.2 0.3" for word in words))
    return frame


FILES = {  # pages whose first example is a file of a plug-in folder, by the name of the plug-in
    "add-a-method": ("tacit.device.methods", "trending"),
    "add-a-mechanism": ("tacit.privacy.mechanisms", "stochastic_sign"),
    "add-a-rule": ("tacit.server.rules", "clipped_sgd"),
}
SMALLER = {"movies(800, 200, silos=16)": "movies(60, 50, silos=2)", "users=1000": "users=200"}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "python") and page.stem not in FILES], ids=str)
def test_the_examples_of_a_page_run(page, tmp_path, monkeypatch):
    """One after the other: a later one goes on with what an earlier one made."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TACIT_DATA", str(tmp_path))
    names = {"tacit": tacit, "frame": prepare(tmp_path), "log": tacit.dataset("groups", users=40)}
    both = movies(60, 50, silos=2)
    names["theirs"] = replace(pick(both, np.flatnonzero(both.silo == 0)), silo_names=None)  # one organisation's people
    for number, example in enumerate(blocks(page, "python"), 1):
        example = reduce(lambda text, pair: text.replace(*pair), SMALLER.items(), example)
        exec(compile(example, f"{page.name}, example {number}", "exec"), names)


@pytest.mark.filterwarnings("ignore")  # so few users are not feasible, and a warning says so
@pytest.mark.parametrize("page", FILES)
def test_the_plug_in_of_a_page_is_found_by_its_file_and_runs(page, tmp_path, monkeypatch):
    (package, name), (code, *uses) = FILES[page], blocks(DOCS / f"{page}.md", "python")
    folder = tmp_path / package.rpartition(".")[2]
    folder.mkdir()
    (folder / f"{name}.py").write_text(code)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(f"{package}.__path__", [*importlib.import_module(package).__path__, str(folder)])
    for use in uses:
        exec(compile(use, f"{page}.md", "exec"), {})


def directives():
    text = "".join("".join(blocks(page, "{eval-rst}")) for page in (DOCS / "api").glob("*.md"))
    return re.findall(r"^\.\. auto\w+:: ([\w.]+)", text, re.MULTILINE)


def test_every_public_name_is_in_the_reference():
    missing = {f"tacit.{name}" for name in tacit.__all__} - set(directives())
    assert not missing, f"docs/api has no entry for {', '.join(sorted(missing))}."


@pytest.mark.parametrize("name", directives())
def test_the_reference_names_what_exists(name):
    module, _, thing = name.rpartition(".")
    assert getattr(importlib.import_module(module), thing).__doc__
