"""Docstrings: what the reference takes from the code, as it was written there.

Docstrings are plain sentences with code in backticks. What reStructuredText would read into them is escaped. Methods and
mechanisms are listed by their files, as everywhere: a comment on a page says where.
"""

import re
from typing import Any

_MARK = re.compile(r"<!-- every (method|mechanism) -->")
_READ_INTO = re.compile(r"[|*]|(?<=\w)_(?=\W|$)")  # substitutions, emphasis, references
_BULLET = re.compile(r"^\s*[*-] ")


def _escape(app: Any, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    """Sentences stay as they are; examples are left alone."""
    del app, name, thing, options
    example = False
    for number, line in enumerate(lines):
        example = line.lstrip().startswith(">>>") or (example and bool(line.strip()))
        if not example and not _BULLET.match(line):
            lines[number] = _outside_code(line)
    if what in ("property", "attribute"):
        lines.insert(0, "\\")  # nothing, but else "A fingerprint: equal when …" is read as a type and a description


def _outside_code(line: str) -> str:
    parts = line.split("`")
    parts[::2] = (_READ_INTO.sub(r"\\\g<0>", part) for part in parts[::2])
    return "`".join(parts)


def _readable(
    app: Any, what: str, name: str, thing: Any, options: Any, signature: str | None, returns: str | None
) -> tuple[str | None, str | None]:
    """A default that is made anew each time reads as …"""
    del app, what, name, thing, options
    return signature and signature.replace("<factory>", "..."), returns


def _list_parts(app: Any, page: str, source: list[str]) -> None:
    del app, page
    source[0] = _MARK.sub(lambda found: "\n\n".join(_parts(found[1])), source[0])


def _parts(kind: str) -> list[str]:
    """A section for every method or mechanism: its name in a plan, and its docstring."""
    from tacit.device.method import method_class, method_names
    from tacit.privacy.mechanism import mechanism_class, mechanism_names

    names, load = (method_names(), method_class) if kind == "method" else (mechanism_names(), mechanism_class)
    return [_section(name, load(name)) for name in names]


def _section(name: str, part: type) -> str:
    return f"### `{name}`\n\n```{{eval-rst}}\n.. autoclass:: {part.__module__}.{part.__qualname__}\n```"


def setup(app: Any) -> dict[str, bool]:
    """Called by Sphinx."""
    app.connect("autodoc-process-docstring", _escape, priority=400)  # before Args and Returns are read
    app.connect("autodoc-process-signature", _readable)
    app.connect("source-read", _list_parts)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
