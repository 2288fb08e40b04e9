"""The picture: privacy against quality as one SVG, in light colours, and in dark ones where the reader prefers them."""

import re

from tacit.errors import RunError
from tacit.report.chart_theme import CONFIG
from tacit.report.formatting import Dossier, distinct, primary, together
from tacit.report.tradeoff import tradeoff

WIDTH = 720
# Colours of the page's style: light, dark. A picture stands on a stranger's page, so it brings its own paper.
COLOURS = {
    "paper": ("#fdfdfb", "#14171a"),
    "ink": ("#1b1f24", "#e9e7e2"),
    "quiet": ("#667079", "#9aa3ab"),
    "line": ("#dcdfe1", "#343a40"),
    "accent": ("#0a7a6b", "#4fc3ae"),
    "soft": ("#cfe8e2", "#1f4a44"),
}


def picture(dossiers: list[Dossier]) -> str:
    """The SVG as text; plans that were not asked the same questions do not fit in one picture."""
    import vl_convert

    groups = together(dossiers)
    metric = primary(dossiers)
    if len(groups) > 1 or metric is None:
        raise RunError(
            f"A picture shows plans that were asked the same questions on the same people, got {len(groups)} settings; "
            "choose the runs of one."
        )
    spec = tradeoff(distinct(dossiers), metric)
    del spec["autosize"]
    title = {"text": metric, "anchor": "start", "fontSize": 13, "fontWeight": "normal", "color": "var(--quiet)"}
    spec |= {"width": WIDTH, "title": title, "config": CONFIG, "padding": 16, "background": "var(--paper)"}
    return _coloured(vl_convert.vegalite_to_svg(spec))


def _coloured(svg: str) -> str:
    """Names of colours become light colours; a style turns them into dark ones where dark is preferred."""
    svg = re.sub(r"var\(--(\w+)\)", lambda found: COLOURS[found[1]][0], svg)
    rules = [f'[{part}="{light}"]{{{part}:{dark}}}' for light, dark in COLOURS.values() for part in ("fill", "stroke")]
    style = f"<style>text{{paint-order:stroke}}@media(prefers-color-scheme:dark){{{''.join(rules)}}}</style>"
    return svg.replace(">", f">{style}", 1)
