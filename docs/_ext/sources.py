"""Sources: a page may link to any file of the repository; on the site, that file has a page of its own.

Links are written as they work in the repository. A link that leaves `docs` leads to a page with the file's text, or with
the names in a folder; a link to a page of the repository's root leads to where the site shows that page. Entries of the
reference lead to the line of the file where their code begins.
"""

import importlib
import inspect
from collections.abc import Iterator
from html import escape
from pathlib import Path
from shutil import copyfile
from typing import Any

from contents import SHOWN
from docutils import nodes
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import TextLexer, get_lexer_for_filename
from pygments.util import ClassNotFound
from sphinx import addnodes
from sphinx.transforms import SphinxTransform

PREFIX = "files"  # where the pages of files are on the site
PICTURES = ("*.svg", "*.png", "*.jpg", "*.webp")


class FileLinks(SphinxTransform):
    """Turns links that leave `docs` into links to pages of files."""

    default_priority = 5  # before anything collects downloads

    def apply(self, **_: Any) -> None:
        """Look at every link of a page that Sphinx has not resolved yet."""
        for node in list(self.document.findall(addnodes.download_reference)):
            self._lead(node, node["reftarget"])
        for node in list(self.document.findall(addnodes.pending_xref)):
            if node.get("reftype") == "myst":
                self._lead(node, node["reftarget"] + (".md" if node.get("refdomain") == "doc" else ""))

    def _lead(self, node: nodes.Element, target: str) -> None:
        docs, page = Path(self.env.srcdir), self.env.docname
        path, _, anchor = target.partition("#")
        found = _resolve(docs, page, path)
        if found is None:
            return  # Sphinx says so
        shown = _shown(docs, found)
        if shown is None:
            node.replace_self(nodes.reference("", "", *node.children, refuri=_address(self.env, found), internal=True))
        elif isinstance(node, addnodes.pending_xref):
            node["refdomain"], node["reftarget"] = "doc", shown
            node["reftargetid"] = node.get("reftargetid") or anchor or None


def _link_code(app: Any, tree: nodes.document) -> None:
    """Entries of the reference lead to their code."""
    for entry in tree.findall(addnodes.desc_signature):
        path, line = _place(entry.get("module"), entry.get("fullname"))
        if path is not None and path.is_relative_to(Path(app.srcdir).parent):
            words = nodes.inline("", "[source]", classes=["viewcode-link"])  # the theme puts it to the right
            entry += nodes.reference("", "", words, refuri=f"{_address(app.env, path)}#line-{line}", internal=True)


def _place(module: str | None, name: str | None) -> tuple[Path | None, int]:
    """The file and the line where something begins."""
    if not module or not name:
        return None, 0
    thing: Any = importlib.import_module(module)
    for part in name.split("."):
        thing = inspect.getattr_static(thing, part, None) if inspect.isclass(thing) else getattr(thing, part, None)
    thing = inspect.unwrap(getattr(thing, "fget", None) or getattr(thing, "__func__", None) or thing)
    try:
        return Path(inspect.getfile(thing)).resolve(), inspect.getsourcelines(thing)[1]
    except (TypeError, OSError):
        return None, 0


def _address(env: Any, found: Path) -> str:
    """Where a file's page is, seen from the page that is being read; it will be made."""
    path = found.relative_to(Path(env.srcdir).parent).as_posix()
    env.metadata[env.docname].setdefault(PREFIX, set()).add(path)
    return f"{'../' * env.docname.count('/')}{PREFIX}/{path}.html"


def _shown(docs: Path, found: Path) -> str | None:
    """The page of the site that shows a page of the repository."""
    if found.is_relative_to(docs):
        return found.relative_to(docs).with_suffix("").as_posix()
    return SHOWN.get(found.name) if found.parent == docs.parent else None


def _resolve(docs: Path, page: str, target: str) -> Path | None:
    """The file or folder a link leads to; a page that shows one of the root's has links that start there."""
    start = docs.parent if page in SHOWN.values() and page != "index" else (docs / page).parent
    found = (start / target).resolve()  # what Sphinx made absolute stays so
    return found if target and found.exists() and found.is_relative_to(docs.parent) else None


def _pages(app: Any) -> Iterator[tuple[str, dict[str, Any], str]]:
    """A page for every file that is linked to, and for the files of a folder that is."""
    root = Path(app.srcdir).parent
    linked = {path for page in app.env.metadata.values() for path in page.get(PREFIX, ())}
    folders = [path for path in linked if (root / path).is_dir()]
    linked |= {one.relative_to(root).as_posix() for path in folders for one in _files(root / path)}
    for path in sorted(linked):
        body = _listing(root / path) if path in folders else _text(root / path)
        heading = f"<h1><code>{escape(path)}</code></h1>"
        yield f"{PREFIX}/{path}", {"title": escape(path), "body": heading + body}, "page.html"


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.is_file() and not path.name.startswith("."))


def _listing(folder: Path) -> str:
    names = (escape(path.name) for path in _files(folder))
    return "".join(["<ul>", *(f'<li><a href="{folder.name}/{name}.html">{name}</a></li>' for name in names), "</ul>"])


def _text(path: Path) -> str:
    try:
        lexer = get_lexer_for_filename(path.name)
    except ClassNotFound:
        lexer = TextLexer()
    lines = HtmlFormatter(linenos="inline", anchorlinenos=True, lineanchors="line", cssclass="highlight file")
    return highlight(path.read_text(encoding="utf-8"), lexer, lines)


def _copy_pictures(app: Any, problem: Exception | None) -> None:
    """Pictures stand where the pages' own HTML looks for them."""
    docs, out = Path(app.srcdir), Path(app.outdir)
    for path in () if problem else (path for ending in PICTURES for path in docs.rglob(ending)):
        place = out / path.relative_to(docs)
        if not place.parts[0].startswith("_"):
            place.parent.mkdir(parents=True, exist_ok=True)
            copyfile(path, place)


def setup(app: Any) -> dict[str, bool]:
    """Called by Sphinx."""
    app.add_transform(FileLinks)
    app.connect("doctree-read", _link_code)
    app.connect("html-collect-pages", _pages)
    app.connect("build-finished", _copy_pictures)
    return {"parallel_read_safe": False, "parallel_write_safe": True}
