"""Contents: the site's navigation is read from the lists of links that readers of the repository see as well.

A heading of the index and the list below it is one group. The page `README.md` of a folder lists the pages of its folder.
A page that no list names is shown under *More*, so that it is not lost; `tests/project/test_docs.py` fails until it is listed.
"""

import re
from pathlib import Path
from typing import Any

MORE = "More"
# Pages of the repository's root, and the page of the site that shows each.
SHOWN = {"CONTRIBUTING.md": "contributing", "CHANGELOG.md": "changes", "README.md": "index"}
_ENTRY = re.compile(r"^- \[.+?\]\(([^)#\s]+\.md)\)", re.MULTILINE)
_HEADING = re.compile(r"^## (.+)$", re.MULTILINE)


def groups(text: str) -> dict[str, list[str]]:
    """For each heading, the pages that its list names.

    >>> groups("# Tacit\\n## Begin\\n- [Start](getting-started.md): install\\n- [Taste](../CONTRIBUTING.md)\\n## Empty\\nWords.")
    {'Begin': ['start', 'contributing'], 'Empty': []}
    """
    _, *parts = _HEADING.split(text)
    return {heading: _entries(body) for heading, body in zip(parts[::2], parts[1::2])}


def _entries(text: str) -> list[str]:
    return [SHOWN.get(target.removeprefix("../"), target.removesuffix(".md")) for target in _ENTRY.findall(text)]


def pages(docs: Path) -> list[str]:
    """Every page there is, by its path without the ending."""
    found = (path.relative_to(docs) for path in docs.rglob("*.md"))
    return sorted(path.with_suffix("").as_posix() for path in found if not path.parts[0].startswith("_"))


def listed(docs: Path, page: str) -> dict[str, list[str]]:
    """The groups that a page lists: those of the index, or the pages of a folder."""
    text = (docs / f"{page}.md").read_text(encoding="utf-8")
    if page == "index":
        return groups(text)
    folder = Path(page).parent
    return {"": [(folder / name).as_posix() for name in _entries(text)]}


def unlisted(docs: Path) -> dict[str, list[str]]:
    """For each page that has a list, the pages that should be in it and are not."""
    every = pages(docs)
    lists = ["index", *(page for page in every if page.endswith("/README"))]
    named = {entry for page in lists for group in listed(docs, page).values() for entry in group} | {"index"}
    missing = [page for page in every if page not in named]
    return {page: [one for one in missing if _list_of(one, lists) == page] for page in lists}


def _list_of(page: str, lists: list[str]) -> str:
    """The list a page belongs to: its folder's, or the index."""
    beside = f"{Path(page).parent.as_posix()}/README"
    return beside if beside in lists and page != beside else "index"


def trees(docs: Path, page: str) -> str:
    """What a page's lists are to Sphinx: hidden trees of contents, one for each group."""
    found = {caption: entries for caption, entries in listed(docs, page).items() if entries}
    rest = unlisted(docs)[page]
    if rest:
        caption = MORE if page == "index" else ""
        found[caption] = [*found.get(caption, []), *rest]
    return "".join(_tree(caption, entries) for caption, entries in found.items())


def _tree(caption: str, entries: list[str]) -> str:
    titled = f":caption: {caption}\n" if caption else ""
    return f"\n\n```{{toctree}}\n:hidden:\n{titled}\n" + "\n".join(f"/{entry}" for entry in entries) + "\n```\n"


def _add_trees(app: Any, page: str, source: list[str]) -> None:
    if page == "index" or page.endswith("/README"):
        source[0] += trees(Path(app.srcdir), page)


def setup(app: Any) -> dict[str, bool]:
    """Called by Sphinx."""
    app.connect("source-read", _add_trees)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
