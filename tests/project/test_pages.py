"""No table of the pages is stale: each block is what its command, or the results that its command keeps, make of it now.

`make pages` makes them again.
"""

import importlib
import inspect
import itertools
import re
import sys
from pathlib import Path

import pytest
from test_docs import context

import tacit
from tacit.lab.evaluation.protocols import PROTOCOLS
from tacit.lab.plans.loader import load_plan, plan_names
from tacit.privacy.price import price

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))
pages = importlib.import_module("pages")
BLOCKS = pages.blocks()
SHOWN = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
NAMES = [f"{block.page}, {block.name}" for block in BLOCKS]
DECIMAL = re.compile(r"\d+\.\d+(?:e-\d+)?")
every_block = pytest.mark.parametrize("block", BLOCKS, ids=NAMES)


def those_that_take(*takes):
    chosen = [pytest.param(block, id=name) for block, name in zip(BLOCKS, NAMES) if block.takes in takes]
    return pytest.mark.parametrize("block", chosen)


# ---- nothing is stale ----


@those_that_take("nothing")
def test_a_block_is_what_the_code_and_the_kept_results_make_of_it(block):
    assert not pages.stale(block, block.make()), "stale: run `make pages`"


@pytest.mark.slow
@those_that_take("seconds", "minutes")
def test_a_block_is_what_its_command_makes_of_it(block):
    assert not pages.stale(block, block.make()), f"stale: run `python benchmarks/pages.py --page {block.page}`"


@pytest.mark.slow
def test_the_picture_of_the_demo_shows_what_the_demo_reaches(tmp_path):
    (picture,) = [one for one in pages.pictures() if one.takes == "minutes"]
    picture.save(tmp_path / picture.name)
    there = ROOT / "docs" / "pictures" / picture.name
    made, shown = (re.findall(r'aria-label="([^"]*)"', path.read_text()) for path in (tmp_path / picture.name, there))
    words, numbers = zip(*map(apart, (made, shown)))
    assert words[0] == words[1], "stale: run `make pages`"
    assert numbers[0] == pytest.approx(numbers[1], abs=0.01), "stale: run `make pages`"


def apart(labels):
    """What labels say, and their numbers."""
    text = "\n".join(labels)
    return DECIMAL.sub("#", text), [float(number) for number in DECIMAL.findall(text)]


# ---- a stale number is found ----


@every_block
def test_a_planted_stale_number_is_found(block):
    text = pages.written(block)
    places = list(pages.NUMBER.finditer(text))
    assert places, "a block without a number is not measured or computed"
    for place in (places[0], places[len(places) // 2], places[-1]):
        planted = f"{text[: place.start()]}{other_number(place[0], block.last)}{text[place.end() :]}"
        assert pages.differs(planted, text, block.last), place[0]


def other_number(number, last):
    """The number with more added to its last digit than a machine may differ by."""
    mantissa, e, exponent = number.replace(",", "").partition("e")
    digits = len(mantissa.partition(".")[2])
    return f"{float(mantissa) + (last + 1) / 10**digits:.{digits}f}{e}{exponent}"


@every_block
def test_a_planted_stale_word_is_found(block):
    text = pages.written(block)
    assert pages.differs(text.replace("|", "| new", 1) if "|" in text else f"new {text}", text, block.last)
    assert pages.differs(f"{text}| one | more |\n", text, block.last)


def test_numbers_may_differ_in_the_last_digit_where_a_block_says_so():
    assert not pages.differs("0.302 of 1,234 at 1.0e-05", "0.301 of 1,235 at 1.1e-05", last=1)
    assert pages.differs("0.302", "0.300", last=1) == "made 0.302, printed 0.300"
    assert pages.differs("0.302", "0.301")
    assert pages.differs("a 1\n", "b 1\n") == "made 'a 1', printed 'b 1'"


# ---- every block is known, and every mark is a block's ----


def test_marks_and_blocks_are_the_same():
    found = [
        (page.relative_to(ROOT).as_posix(), name, command)
        for page in SHOWN
        for name, command in re.findall(r"^<!-- ([^:\n]+): (.+) -->$", page.read_text(encoding="utf-8"), re.MULTILINE)
    ]
    assert sorted(found) == sorted((block.page, block.name, block.command) for block in BLOCKS)
    for page in SHOWN:
        opened = [name for where, name, _ in found if where == page.relative_to(ROOT).as_posix()]
        closed = re.findall(r"^<!-- ([^:\n]+) -->$", page.read_text(encoding="utf-8"), re.MULTILINE)
        assert opened == closed, f"{page.name} has a mark too many or too few"


@every_block
def test_the_command_of_a_block_exists(block):
    first, *rest = block.command.split()
    if first == "tacit":
        context(block.command, whole=True)
    elif first == "python":
        assert (ROOT / rest[0]).is_file()
    else:
        assert (first, *rest) == ("make", "pages")


def test_filling_changes_what_is_between_the_marks_and_nothing_else(tmp_path, monkeypatch):
    monkeypatch.setattr(pages, "ROOT", tmp_path)
    (tmp_path / "a.md").write_text(
        "before\n<!-- b: old -->\nstale 1\n<!-- b -->\nafter\n<!-- c: x -->\nc\n<!-- c -->\n"
    )
    block = pages.Block("a.md", "b", "tacit demo", lambda: "\nnew 2\n\n")
    assert pages.stale(block, block.make())
    pages.fill([block])
    made = (tmp_path / "a.md").read_text()
    assert made == "before\n<!-- b: tacit demo -->\nnew 2\n<!-- b -->\nafter\n<!-- c: x -->\nc\n<!-- c -->\n"
    assert not pages.stale(block, block.make())
    with pytest.raises(SystemExit, match=r"a\.md has no block 'd'"):
        pages.fill([block._replace(name="d")])


# ---- tables of words that name what the code has ----


def rows(page, first):
    """The rows of every table of a page whose head starts like this, cell by cell."""
    lines = (ROOT / page).read_text(encoding="utf-8").splitlines()
    starts = [place for place, line in enumerate(lines) if line.startswith(first)]
    assert starts, f"{page} has no table {first!r}"
    bodies = (itertools.takewhile(lambda line: line.startswith("|"), lines[start + 2 :]) for start in starts)
    return [[cell.strip() for cell in line.strip("|").split("|")] for body in bodies for line in body]


@pytest.mark.slow
def test_the_page_of_plans_has_every_plan_once_with_the_epsilon_it_has():
    listed = [
        (name, guarantee)
        for names, _, guarantee, _ in rows("docs/plans.md", "| plan | what leaves the device")
        for name in re.findall(r"`([\w-]+)`", names)
    ]
    assert sorted(name for name, _ in listed) == plan_names()
    for name, guarantee in listed:
        plan = load_plan(name)
        stated = re.match(r"(?:none: )?ε (=|≤) ([\d.]+|∞)", guarantee)
        if stated:
            epsilon = float(stated[2].replace("∞", "inf"))
            exact = price(plan, 1000).whole.epsilon
            assert exact == pytest.approx(epsilon, rel=1e-3) or (stated[1] == "≤" and exact <= epsilon), name
        else:
            noiseless = all(stage.privacy["mechanism"] == "none" for stage in plan.stages)
            assert noiseless == ("default `none`, ε = ∞" in guarantee), name


def test_the_plans_of_the_readme_exist():
    named = {name for _, names, *_ in rows("README.md", "| need | plan") for name in re.findall(r"`([\w-]+)`", names)}
    assert named
    assert named <= set(plan_names())


def test_the_page_of_commands_has_every_command():
    from typer.main import get_command

    from tacit.cli import app

    words = {word for row in rows("docs/command-line.md", "| | |") for word in re.findall(r"[\w-]+", " ".join(row))}
    assert set(get_command(app).commands) <= words


def test_the_options_of_a_round_are_shown_with_their_defaults():
    from typer.main import get_command

    from tacit.cli import app

    given = {option.opts[0]: option.default for option in get_command(app).commands["server"].commands["run"].params}
    shown = {name.strip("`"): default for name, default, _ in rows("docs/deploy.md", "| option of")}
    assert {name: float(default) for name, default in shown.items()} == {name: float(given[name]) for name in shown}


def test_the_arguments_of_loading_are_all_there_are():
    shown = {name for cell, _ in rows("docs/data.md", "| argument |") for name in re.findall(r"`(\w+)`", cell)}
    assert shown | {"frame", "kinds"} == set(inspect.signature(tacit.interactions).parameters)


def test_the_protocols_of_the_page_are_all_there_are():
    shown = {
        name for cell, *_ in rows("docs/evaluation.md", "| name | split") for name in re.findall(r"`([\w-]+)`", cell)
    }
    assert shown == set(PROTOCOLS)


@pytest.mark.parametrize("page", ["docs/plans.md", "docs/privacy.md"])
def test_a_page_that_lists_mechanisms_has_all_there_are(page):
    from tacit.privacy.mechanism import mechanism_names

    text = (ROOT / page).read_text(encoding="utf-8")
    assert all(f"`{name}`" in text for name in mechanism_names())
