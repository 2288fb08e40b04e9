"""HTML as text that is escaped unless it was made here: an item called <script> stays a name."""

from html import escape
from typing import Any

_VOID = {"br", "hr", "meta"}


class Html(str):
    """Text that is markup already."""

    __slots__ = ()


def tag(name: str, *children: Any, **attributes: Any) -> Html:
    """An element; `cls` and names that end in an underscore stand for Python's own words, `_` inside for `-`.

    >>> tag("p", "1 < 2", tag("b", "!"), cls="note")
    '<p class="note">1 &lt; 2<b>!</b></p>'
    """
    words = "".join(f' {_attribute(key)}="{escape(str(value))}"' for key, value in attributes.items() if value)
    inner = join(*children)
    return Html(f"<{name}{words}>" if name in _VOID else f"<{name}{words}>{inner}</{name}>")


def join(*children: Any) -> Html:
    """Pieces one after another; what is not markup is escaped, None is nothing, lists are opened."""
    return Html("".join(_text(child) for child in children))


def listed(words: Any) -> Html:
    """A list of points."""
    return tag("ul", *(tag("li", word) for word in words))


def _text(child: Any) -> str:
    if child is None:
        return ""
    if isinstance(child, Html):
        return child
    if isinstance(child, (list, tuple)):
        return join(*child)
    return escape(str(child))


def _attribute(key: str) -> str:
    return "class" if key == "cls" else key.rstrip("_").replace("_", "-")
