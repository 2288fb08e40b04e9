"""The page: every section in order, the charts, the style and the one library that draws them, in one file.

Its content policy forbids the browser to fetch anything and to run any script but the two written here.
"""

import base64
import hashlib
import json
from datetime import UTC, datetime
from functools import cache
from importlib import resources
from typing import Any

from tacit.report.chart_theme import CONFIG
from tacit.report.claim_cards import cards
from tacit.report.formatting import Dossier, distinct, together
from tacit.report.html import Html, join, tag
from tacit.report.sample_message import devices
from tacit.report.sections import Charts, comparison

_SECTIONS = (("results", "Results"), ("sent", "What one device sent"), ("claims", "What is promised"))


def page(dossiers: list[Dossier]) -> str:
    """The whole page as text."""
    dossiers = distinct(dossiers)
    charts, groups = Charts(), together(dossiers)
    body = join(
        _head(dossiers),
        *(comparison(group, charts, number, len(groups)) for number, group in enumerate(groups, 1)),
        devices(dossiers, charts),
        cards(dossiers),
        _foot(dossiers),
    )
    return document(_title(dossiers), body, charts.specs)


def _title(dossiers: list[Dossier]) -> str:
    names = [one["name"] for one in dossiers]
    return f"Tacit report: {', '.join(names[:3])}{f' and {len(names) - 3} more' if len(names) > 3 else ''}"


def _head(dossiers: list[Dossier]) -> Html:
    shown = [part for part in _SECTIONS if part[0] != "sent" or any(one["specimen"] for one in dossiers)]
    links = [tag("a", words, href=f"#{name}") for name, words in shown]
    plans = f"{len(dossiers)} plans" if len(dossiers) > 1 else dossiers[0]["name"]
    return tag(
        "header",
        tag("p", "Tacit report", cls="eyebrow"),
        tag("h1", plans, _on(dossiers)),
        tag("nav", *links),
    )


def _on(dossiers: list[Dossier]) -> str:
    names = list(dict.fromkeys(one["data"]["name"] for one in dossiers if one["data"]["name"]))
    return f" on {', '.join(names)}" if names else ""


def _foot(dossiers: list[Dossier]) -> Html:
    environment = dossiers[0]["environment"]
    when = environment.get("time")
    day = f", {datetime.fromtimestamp(float(when), UTC):%d %B %Y}" if when else ""
    versions = [f"{name} {environment[name]}" for name in ("jax", "python", "backend") if name in environment]
    return tag(
        "footer",
        tag("p", f"Made by Tacit {dossiers[0]['tacit']}{day}; {', '.join(versions)}."),
        tag("p", "This file is complete: it fetches nothing, and its own policy keeps the browser from trying."),
    )


def document(title: str, body: Html, specs: dict[str, Any]) -> str:
    """A body with its charts as a file that needs nothing else."""
    scripts = [library(), _file("page.js")]
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
def library() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script, with their licence."""
    import vl_convert

    return (
        f"/*!\n{_file('vega-licence.txt')}*/\n{vl_convert.javascript_bundle('window.vegaEmbed = vegaEmbed;')}".replace(
            "</script", "<\\/script"
        )
    )
