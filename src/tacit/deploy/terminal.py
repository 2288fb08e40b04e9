"""Terminal: text from outside, as it may be printed."""

MOST = 500  # characters


def printable(text: object) -> str:
    r"""One line without control characters, which a terminal might obey, and of a moderate length.

    >>> printable("no\x1b[2J\nway")
    'no\\x1b[2J\\nway'
    """
    shown = "".join(
        one if one.isprintable() else one.encode("unicode_escape").decode() for one in str(text)[: MOST + 1]
    )
    return shown if len(shown) <= MOST else shown[:MOST] + "…"
