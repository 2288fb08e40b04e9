"""Fills the generated parts of the pages: every table that a command makes stands in a block, and is made here alone.

    make pages                                        # all blocks and pictures; a few minutes
    python benchmarks/pages.py --kept                 # only those made of results that are kept; seconds
    python benchmarks/pages.py --page docs/getting-started.md   # only those of a page; may be repeated
    python benchmarks/pages.py --check                # write nothing; say what is stale, and exit with 1

A block stands between `<!-- NAME: COMMAND -->` and `<!-- NAME -->`. COMMAND makes its numbers: it is run again where that takes
seconds or a minute or two; what takes longer is kept in `results` by COMMAND, and the block is made of that file.
"""

import argparse
import importlib
import json
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

RESULTS = Path(__file__).parent / "results"
ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
MODULES = (
    *(
        "audit_page",
        "bench_page",
        "deploy_page",
        "dplcf_page",
        "fedseqrec_page",
        "fpl_page",
        "privrec_page",
        "seqmf_page",
    ),
    *("mechanisms", "noise_quality", "run_page", "sequential", "speed_page", "steps_page"),
)
NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?|\.\d+")


class Block(NamedTuple):
    """A generated part of a page."""

    page: str  # its path, from the root of the repository
    name: str
    command: str  # what makes its numbers
    make: Callable[[], str]
    takes: Literal["nothing", "seconds", "minutes"] = "nothing"  # nothing: it is made of results that are kept
    last: int = 0  # units of the last digit by which a number may differ on another machine


class Picture(NamedTuple):
    """A generated picture, in `docs/pictures`."""

    name: str
    command: str
    save: Callable[[Path], Any]
    takes: Literal["nothing", "minutes"] = "nothing"


def kept(page: str, parts: Mapping[str, tuple[str, Callable[[], str]]]) -> list[Block]:
    """Blocks of a page that are made of kept results: name -> the command that keeps them, and what they become."""
    return [Block(page, name, command, make) for name, (command, make) in parts.items()]


def blocks() -> list[Block]:
    """Every block there is."""
    return [block for name in MODULES for block in importlib.import_module(name).BLOCKS]


def pictures() -> list[Picture]:
    """Every generated picture there is."""
    return [one for name in MODULES for one in getattr(importlib.import_module(name), "PICTURES", ())]


# ---- in a page ----


def written(block: Block) -> str:
    """What its page has between the marks of a block."""
    return _found(block, (ROOT / block.page).read_text(encoding="utf-8"))[2]


def fill(chosen: Iterable[Block]) -> None:
    """Make blocks anew, each in its page."""
    for block in chosen:
        path = ROOT / block.page
        text = path.read_text(encoding="utf-8")
        start, end, _ = _found(block, text)
        new = f"<!-- {block.name}: {block.command} -->\n{_trimmed(block.make())}<!-- {block.name} -->\n"
        path.write_text(text[:start] + new + text[end:], encoding="utf-8")


def _found(block: Block, text: str) -> tuple[int, int, str]:
    """Where a block begins and ends, and what is in it."""
    name = re.escape(block.name)
    found = re.search(rf"<!-- {name}(?:: [^\n]*?)? -->\n(.*?)<!-- {name} -->\n", text, re.DOTALL)
    if found is None:
        sys.exit(
            f"{block.page} has no block {block.name!r}; put <!-- {block.name}: --> and <!-- {block.name} --> there."
        )
    return found.start(), found.end(), found[1]


def _trimmed(text: str) -> str:
    return text.strip("\n") + "\n"


def stale(block: Block, made: str) -> str:
    """What is wrong with a block on its page, beside what was just made; empty where nothing is."""
    return differs(_trimmed(made), written(block), block.last)


def differs(made: str, page: str, last: int = 0) -> str:
    """Where two texts differ; numbers may, by so many units of the last digit that the page prints."""
    if NUMBER.sub("#", made) != NUMBER.sub("#", page):
        pairs = zip([*made.splitlines(), ""], [*page.splitlines(), ""])
        return next(
            (
                f"made {one!r}, printed {other!r}"
                for one, other in pairs
                if NUMBER.sub("#", one) != NUMBER.sub("#", other)
            ),
            "one is longer than the other",
        )
    for one, other in zip(NUMBER.findall(made), NUMBER.findall(page)):
        digits = len(other.partition("e")[0].partition(".")[2])
        unit = 10.0 ** (int(other.partition("e")[2] or 0) - digits)
        if abs(_value(one) - _value(other)) > (last + 1e-6) * unit:
            return f"made {one}, printed {other}"
    return ""


def _value(text: str) -> float:
    return float(text.replace(",", ""))


# ---- what blocks are made of ----


def read(name: str) -> dict:
    """A file of results."""
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))


def table(head: list[str], rows: list[list[str]]) -> str:
    """As Markdown."""
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows))


def span(values: list[float]) -> str:
    """A mean, and half of its interval."""
    return f"{values[0]:.3f} ± {(values[2] - values[1]) / 2:.3f}"


def reproduced(name: str, digits: int = 3, only: tuple[str, ...] = ()) -> str:
    """The tables and figures that a run of `tacit reproduce` wrote, all or some, where there is its file."""
    return "\n".join(part(one, digits) for one in parts_of(name) if not only or one["name"] in only)


def parts_of(name: str) -> list[dict[str, Any]]:
    """What a run of `tacit reproduce` wrote, where there is its file."""
    return read(name)["parts"] if (RESULTS / f"{name}.json").is_file() else []


def part(one: dict[str, Any], digits: int = 3) -> str:
    """A table or a figure under its title, with its notes."""
    notes = "\n".join(f"- {note}" for note in one["notes"])
    body = _rows(one) if "rows" in one else _points(one, digits)
    beside = "; the paper's numbers in brackets" if _printed(one) else ""
    return f"**{one['title']}** ({one['data']}{beside})\n\n{body}\n\n{notes}\n"


def _printed(one: dict[str, Any]) -> bool:
    """Whether the paper prints any number of this part."""
    return any(cell.get("paper") is not None for cells in one.get("rows", {}).values() for cell in cells.values())


def _rows(one: dict[str, Any]) -> str:
    heads = (column.replace("|", r"\|") for column in one["columns"])  # |I| is a size, not two columns
    return table(["", *heads], [[row, *texts.values()] for row, texts in one["texts"].items()])


def _points(one: dict[str, Any], digits: int) -> str:
    curves = {name: dict(map(tuple, points)) for name, points in one["series"].items()}
    places = sorted({x for curve in curves.values() for x in curve})
    lines = [
        [f"{x:g}", *(f"{curve[x]:.{digits}f}" if x in curve else "–" for curve in curves.values())] for x in places
    ]
    return table([one["x"], *curves], lines)


# ---- the command ----


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kept", action="store_true", help="only blocks made of results that are kept")
    parser.add_argument("--page", action="append", help="only the blocks of this page; may be repeated")
    parser.add_argument("--check", action="store_true", help="write nothing; say what is stale")
    given = parser.parse_args()
    wanted = lambda one: (not given.kept or one.takes == "nothing") and (not given.page or one.page in given.page)  # noqa: E731
    chosen = [block for block in blocks() if wanted(block)]
    if given.check:
        found = {f"{block.page}, {block.name}": stale(block, block.make()) for block in chosen}
        sys.exit("\n".join(f"{where}: {why}" for where, why in found.items() if why) or None)
    for block in chosen:
        print(f"{block.page}: {block.name} ({block.command})", flush=True)
        fill([block])
    for one in pictures() if not given.page else ():
        if not given.kept or one.takes == "nothing":
            _draw(one)


def _draw(picture: Picture) -> None:
    try:
        picture.save(DOCS / "pictures" / picture.name)
    except ModuleNotFoundError as problem:
        print(f"docs/pictures/{picture.name} is left as it is: it needs {problem.name}, of the extra 'bench'.")
    else:
        print(f"docs/pictures/{picture.name} ({picture.command})", flush=True)


if __name__ == "__main__":
    importlib.import_module("pages").main()  # so that the blocks' modules and this one share it
