"""HTML: escaped text unless it was made here, and a self-contained page with its charts.

An item called <script> stays a name. The page's content policy forbids the browser to fetch anything and to run any script
but the two written here.
"""

import base64
import hashlib
import json
from functools import cache
from html import escape
from importlib import resources
from typing import Any

from tacit.report.chart_parts import CONFIG

_VOID = {"br", "hr", "meta"}


class Html(str):
    """Text that is already markup."""

    __slots__ = ()


def tag(name: str, *children: Any, **attributes: Any) -> Html:
    """An element; `cls` is `class`, a trailing underscore is dropped, and `_` inside a name becomes `-`.

    >>> tag("p", "1 < 2", tag("b", "!"), cls="note")
    '<p class="note">1 &lt; 2<b>!</b></p>'
    """
    words = "".join(f' {_attribute(key)}="{escape(str(value))}"' for key, value in attributes.items() if value)
    inner = join_html(*children)
    return Html(f"<{name}{words}>" if name in _VOID else f"<{name}{words}>{inner}</{name}>")


def join_html(*children: Any) -> Html:
    """Pieces one after another; what is not markup is escaped, None is dropped, lists are flattened."""
    return Html("".join(_text(child) for child in children))


def bullet_list(words: Any) -> Html:
    """An unordered list."""
    return tag("ul", *(tag("li", word) for word in words))


def _text(child: Any) -> str:
    if child is None:
        return ""
    if isinstance(child, Html):
        return child
    if isinstance(child, (list, tuple)):
        return join_html(*child)
    return escape(str(child))


def _attribute(key: str) -> str:
    return "class" if key == "cls" else key.rstrip("_").replace("_", "-")


# ---- a page as one file ----


def html_document(title: str, body: Html, specs: dict[str, Any]) -> str:
    """A body with its charts as one self-contained file."""
    scripts = [vega_script(), _file("page.js")]
    # "<" never stands in a JSON block as it is, so that no name in it can end the block.
    data = json.dumps({"config": CONFIG, "specs": specs}, ensure_ascii=False, allow_nan=False).replace("<", "\\u003c")
    head = [
        '<meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta name="color-scheme" content="light dark">',
        f'<meta http-equiv="Content-Security-Policy" content="{_policy(scripts)}">',
        tag("title", title),
        f"<style>{_file('style.css')}</style>",
    ]
    parts = [
        "<!doctype html>",
        '<html lang="en-GB">',
        f"<head>{''.join(head)}</head>",
        f"<body><main>{body}</main>",
        f'<script type="application/json" id="charts">{data}</script>',
        *(f"<script>{script}</script>" for script in scripts),
        "</body></html>",
    ]
    return "\n".join(parts) + "\n"


def _policy(scripts: list[str]) -> str:
    hashes = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    allowed = " ".join(f"'sha256-{one}'" for one in hashes)
    rest = "style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
    return f"default-src 'none'; script-src {allowed}; {rest}"


def _file(name: str) -> str:
    return (resources.files("tacit.report") / name).read_text(encoding="utf-8")


@cache
def vega_script() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script, with their licence."""
    import vl_convert

    return (
        f"/*!\n{_file('vega-licence.txt')}*/\n{vl_convert.javascript_bundle('window.vegaEmbed = vegaEmbed;')}".replace(
            "</script", "<\\/script"
        )
    )
